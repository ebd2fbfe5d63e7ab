use super::*;

#[test]
fn each_word_has_its_class_and_a_cure_that_a_person_understands() {
    let never = [
        ("not_in_channel", "/invite"),
        ("channel_not_found", "gone"),
        ("is_archived", "archived"),
        ("restricted_action", "workspace"),
        ("restricted_action_read_only_channel", "workspace"),
        ("restricted_action_thread_locked", "locked"),
        ("cannot_reply_to_message", "thread"),
    ];
    for (word, says) in never {
        let verdict = of("chat.postMessage", word, None);
        let Verdict::Never(what) = verdict else { panic!("{word}: {verdict:?}") };
        assert!(what.contains(says) && what.contains(word), "{what}");
    }
    let mend = [
        ("invalid_auth", "bot_token"),
        ("token_revoked", "bot_token"),
        ("account_inactive", "bot_token"),
        ("something_new", "does not know"),
    ];
    for (word, says) in mend {
        let verdict = of("chat.postMessage", word, None);
        let Verdict::Mend(what) = verdict else { panic!("{word}: {verdict:?}") };
        assert!(what.contains(says) && what.contains(word), "{what}");
    }
    let scope = of("chat.postMessage", "missing_scope", Some("chat:write"));
    assert!(matches!(scope, Verdict::Mend(what) if what.contains("no scope chat:write")));
    for word in ["msg_too_long", "msg_blocks_too_long", "invalid_blocks"] {
        assert!(matches!(of("chat.postMessage", word, None), Verdict::Smaller(_)), "{word}");
    }
}
