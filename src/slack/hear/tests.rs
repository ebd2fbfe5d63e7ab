mod pressed;

use std::collections::BTreeMap;

use secrecy::SecretString;
use serde_json::json;

use super::*;
use crate::core::execution::Scope;
use crate::core::id::ExecutionId;
use crate::slack::{Credentials, Ingress, Streaming};

fn settings() -> Settings {
    Settings {
        api: "http://127.0.0.1:9/api/".to_owned(),
        credentials: Credentials::Token(SecretString::from("xoxb")),
        ingress: Ingress::Http { signing_secret: SecretString::from("s") },
        hearing: Mode::Thread.into(),
        channels: BTreeMap::new(),
        bots: Vec::new(),
        guests: Vec::new(),
        streaming: Streaming::Auto,
    }
}

fn who() -> Who {
    Who { user: "UBOT".into(), bot: Some("BBOT".into()), app: Some("ABOT".into()) }
}

fn callback(event: &Value) -> Value {
    json!({
        "type": "event_callback",
        "team_id": "T1",
        "api_app_id": "ABOT",
        "event_id": "Ev1",
        "authorizations": [{ "enterprise_id": null, "team_id": "T1", "user_id": "UBOT",
                             "is_bot": true, "is_enterprise_install": false }],
        "is_ext_shared_channel": false,
        "event": event,
    })
}

/// A message of U7 in C1, with these fields set instead.
fn message(fields: &Value) -> Value {
    let mut event = json!({
        "type": "message", "user": "U7", "text": "watch the build", "channel": "C1",
        "channel_type": "channel", "ts": "1700000000.000200", "team": "T1",
        "client_msg_id": "5f1a", "event_ts": "1700000000.000200",
    });
    for (key, value) in fields.as_object().unwrap() {
        event[key] = value.clone();
    }
    event
}

fn mention(fields: &Value) -> Value {
    let mut event = message(fields);
    event["type"] = json!("app_mention");
    event.as_object_mut().unwrap().remove("channel_type");
    event
}

fn hear_raw(raw: Value, settings: &Settings) -> Heard {
    hear(&Envelope::of(raw), Some(&who()), settings)
}

fn heard(event: &Value) -> Heard {
    hear_raw(callback(event), &settings())
}

fn said(heard: Heard) -> Said {
    let seen = format!("{heard:?}");
    let Heard::Say(said) = heard else { panic!("nothing is said: {seen}") };
    *said
}

#[expect(clippy::needless_pass_by_value, reason = "it is looked at and done with")]
fn why(heard: Heard) -> &'static str {
    let Heard::Nothing { why } = heard else { panic!("something is heard: {heard:?}") };
    why
}

fn text(said: &Said) -> &str {
    match &said.incoming.what {
        What::Message { text } | What::Edit { text, .. } => text,
        What::Deletion { .. } => "",
    }
}

fn keys(said: &Said) -> Vec<&str> {
    said.incoming.keys.iter().map(DedupeKey::as_str).collect()
}

#[test]
fn a_mention_begins_a_conversation_in_its_thread() {
    let said = said(heard(&mention(&json!({ "text": "<@UBOT> watch &lt;it&gt;" }))));
    assert_eq!(said.incoming.address, said.thread.address());
    assert_eq!(said.thread.session().unwrap().as_str(), "slack/T1/C1/1700000000.000200");
    assert_eq!(said.incoming.principal.as_str(), "slack/T1/U7");
    assert_eq!(said.incoming.source_at, Timestamp::from_ms(1_700_000_000_000));
    assert_eq!((text(&said), said.incoming.continues, said.first), ("watch <it>", false, true));
    let wanted = ["client_msg_id/5f1a", "message/T1/C1/1700000000.000200", "event/Ev1"];
    assert_eq!(keys(&said), wanted);
}

#[test]
fn what_begins_and_what_goes_on_is_the_channels_mode() {
    let reply = json!({ "thread_ts": "1700000000.000100" });
    let below = |user: &str| json!({ "thread_ts": "1700000000.000100", "parent_user_id": user });
    let (own, others) = (below("UBOT"), below("U9"));
    let top = json!({});
    let named = json!({ "text": "so, <@UBOT>?" });
    let both = json!({ "text": "so, <@UBOT>?", "thread_ts": "1700000000.000100" });
    let direct = json!({ "channel": "D1", "channel_type": "im" });
    let group = json!({ "channel": "G1", "channel_type": "mpim" });
    // Nothing, or: does it only go on with what is there?
    let table = [
        (Mode::Mention, &top, None),
        (Mode::Mention, &reply, None),
        (Mode::Mention, &own, None),
        (Mode::Mention, &named, Some(false)),
        (Mode::Mention, &both, Some(false)),
        (Mode::Mention, &direct, Some(false)),
        (Mode::Mention, &group, None),
        (Mode::Thread, &top, None),
        (Mode::Thread, &reply, Some(true)),
        (Mode::Thread, &others, Some(true)),
        // What was asked for there may come after it.
        (Mode::Thread, &own, Some(false)),
        (Mode::Thread, &named, Some(false)),
        (Mode::Thread, &both, Some(false)),
        (Mode::Thread, &direct, Some(false)),
        (Mode::Thread, &group, None),
        (Mode::All, &top, Some(false)),
        (Mode::All, &reply, Some(false)),
        (Mode::All, &named, Some(false)),
        (Mode::All, &group, Some(false)),
    ];
    for (mode, fields, wanted) in table {
        let of_all = Settings { hearing: mode.into(), ..settings() };
        // The channel's own word counts for more.
        let other = if mode == Mode::All { Mode::Mention } else { Mode::All };
        let channels = ["C1", "G1", "D1"].map(|channel| (channel.to_owned(), mode.into()));
        let of_it = Settings { hearing: other.into(), channels: channels.into(), ..settings() };
        for settings in [of_all, of_it] {
            let heard = hear_raw(callback(&message(fields)), &settings);
            match wanted {
                None => assert_eq!(why(heard), NOT_MEANT, "{mode:?} {fields}"),
                Some(continues) => {
                    assert_eq!(said(heard).incoming.continues, continues, "{mode:?} {fields}");
                }
            }
        }
    }
}

#[test]
fn each_direct_message_at_the_top_is_a_conversation_of_its_own() {
    let direct = |fields: &Value| {
        let mut event = message(fields);
        event["channel"] = json!("D1");
        event["channel_type"] = json!("im");
        said(heard(&event)).thread.session().unwrap().to_string()
    };
    assert_eq!(direct(&json!({})), "slack/T1/D1/1700000000.000200");
    assert_eq!(direct(&json!({ "ts": "1700000001.000100" })), "slack/T1/D1/1700000001.000100");
    let reply = json!({ "ts": "1700000002.000100", "thread_ts": "1700000001.000100" });
    assert_eq!(direct(&reply), "slack/T1/D1/1700000001.000100");
}

#[test]
fn b88_slack_01_a_mention_and_its_twin_mean_the_same() {
    for place in [json!({}), json!({ "thread_ts": "1700000000.000100" })] {
        let mut fields = place;
        fields["text"] = json!("<@UBOT> watch the build");
        let mut twin = callback(&message(&fields));
        twin["event_id"] = json!("Ev2");
        let first = said(heard(&mention(&fields)));
        let mut second = said(hear_raw(twin, &settings()));
        assert_eq!(first.incoming.keys[..2], second.incoming.keys[..2]);
        assert_ne!(first.incoming.keys[2], second.incoming.keys[2]);
        second.incoming.keys = first.incoming.keys.clone();
        assert_eq!(first, second);
    }
}

#[test]
fn b88_without_a_name_of_its_own_a_message_is_known_by_its_place() {
    let said = said(heard(&mention(&json!({ "client_msg_id": null }))));
    assert_eq!(keys(&said), ["message/T1/C1/1700000000.000200", "event/Ev1"]);
    let long = "x".repeat(500);
    let said = self::said(heard(&mention(&json!({ "client_msg_id": long }))));
    assert_eq!(keys(&said).len(), 2);
}

#[test]
fn slack_02_a_mention_that_was_edited_is_no_new_turn() {
    for edited in [json!({ "user": "U7", "ts": "1700000009.000000" }), json!({})] {
        let event = mention(&json!({ "edited": edited, "text": "<@UBOT> watch" }));
        assert_eq!(why(heard(&event)), "a mention that was edited");
    }
}

fn changed(now: &Value, before: &Value) -> Value {
    json!({
        "type": "message", "subtype": "message_changed", "hidden": true, "channel": "C1",
        "channel_type": "channel", "ts": "1700000009.000300", "event_ts": "1700000009.000300",
        "message": now, "previous_message": before,
    })
}

#[test]
fn b90_slack_03_a_change_is_an_edit_only_if_a_person_changed_the_text() {
    let before = message(&json!({ "text": "<@UBOT> watch a" }));
    let now = message(&json!({ "text": "<@UBOT> watch b", "edited": {} }));
    let said = said(heard(&changed(&now, &before)));
    let of = DedupeKey::new("message/T1/C1/1700000000.000200").unwrap();
    assert_eq!(said.incoming.what, What::Edit { of, text: "watch b".into() });
    assert_eq!(said.thread.root(), "1700000000.000200");
    assert_eq!(keys(&said), ["change/T1/C1/1700000009.000300", "event/Ev1"]);
    assert_eq!(said.incoming.principal.as_str(), "slack/T1/U7");

    let unfurled = message(&json!({ "text": "<@UBOT> watch a", "attachments": [{ "text": "x" }] }));
    let mine = message(&json!({ "user": "UBOT", "text": "new" }));
    let bots = message(&json!({ "bot_id": "B9", "text": "new" }));
    for (now, before, wanted) in [
        (&unfurled, &before, "no person changed its text"),
        (&before, &before, "no person changed its text"),
        (&mine, &before, "the bot's own"),
        (&bots, &before, "another program, which [slack] bots does not list"),
        (&now, &json!(null), "it does not say what it was"),
        (&json!(null), &before, NO_PLACE),
    ] {
        assert_eq!(why(heard(&changed(now, before))), wanted);
    }
    let listed = Settings { bots: vec!["B9".into()], ..settings() };
    let wanted = "a program changed its own message";
    assert_eq!(why(hear_raw(callback(&changed(&bots, &before)), &listed)), wanted);
}

#[test]
fn b90_what_is_deleted_or_emptied_is_withdrawn() {
    let of = DedupeKey::new("message/T1/C1/1700000000.000200").unwrap();
    let gone = What::Deletion { of };
    let before = message(&json!({ "thread_ts": "1700000000.000100" }));
    let deleted = |before: &Value| {
        json!({ "type": "message", "subtype": "message_deleted", "hidden": true, "channel": "C1",
                "ts": "1700000009.000300", "event_ts": "1700000009.000300",
                "deleted_ts": "1700000000.000200", "previous_message": before })
    };
    let empty = message(&json!({ "text": "<@UBOT>", "thread_ts": "1700000000.000100" }));
    // What is left of a message that had replies.
    let tombstone = message(&json!({ "subtype": "tombstone", "user": "USLACKBOT", "text": "gone",
                                     "thread_ts": "1700000000.000100" }));
    for event in [deleted(&before), changed(&empty, &before), changed(&tombstone, &before)] {
        let said = said(heard(&event));
        assert_eq!(said.incoming.what, gone, "{event}");
        assert_eq!(said.thread.root(), "1700000000.000100");
        assert_eq!(said.incoming.principal.as_str(), "slack/T1/U7");
    }
    let mine = message(&json!({ "user": "UBOT" }));
    assert_eq!(why(heard(&deleted(&mine))), "the bot's own");
    assert_eq!(why(heard(&deleted(&json!(null)))), "it does not say what it was");
}

#[test]
fn subtypes_that_people_write_are_heard_and_no_others() {
    for subtype in ["file_share", "thread_broadcast", "me_message"] {
        let event = message(&json!({ "subtype": subtype, "text": "<@UBOT> hi" }));
        assert_eq!(text(&said(heard(&event))), "hi", "{subtype}");
    }
    for subtype in ["channel_join", "assistant_app_thread", "channel_name", "tombstone", "later"] {
        let event = message(&json!({ "subtype": subtype, "text": "<@UBOT> hi" }));
        assert_eq!(why(heard(&event)), "nobody wrote it", "{subtype}");
    }
    let event = message(&json!({ "hidden": true, "text": "<@UBOT> hi" }));
    assert_eq!(why(heard(&event)), "it is not shown to people");
    let event = json!({ "type": "reaction_added", "user": "U7" });
    assert_eq!(why(heard(&event)), "nothing is done with this sort of event");
}

#[test]
fn files_stand_in_the_text_also_alone() {
    let files = json!([{ "name": "a.png", "mimetype": "image/png" }]);
    let event = mention(&json!({ "text": "<@UBOT> look", "files": files }));
    assert_eq!(text(&said(heard(&event))), "look\n[file: a.png (image/png)]");
    let event = mention(&json!({ "text": "<@UBOT>", "files": files, "subtype": "file_share" }));
    assert_eq!(text(&said(heard(&event))), "[file: a.png (image/png)]");
}

#[test]
fn b54_the_bots_own_posts_are_never_heard() {
    let all = Settings {
        hearing: Mode::All.into(),
        bots: vec!["UBOT".into(), "BBOT".into()],
        ..settings()
    };
    for own in [
        json!({ "user": "UBOT" }),
        json!({ "bot_id": "BBOT", "user": "U9" }),
        json!({ "app_id": "ABOT", "bot_id": "B9" }),
        json!({ "bot_profile": { "id": "BBOT" } }),
        json!({ "bot_profile": { "app_id": "ABOT" } }),
        json!({ "user": "UBOT", "subtype": "thread_broadcast" }),
        json!({ "user": "UBOT", "channel": "D1", "channel_type": "im" }),
    ] {
        for event in [message(&own), mention(&own)] {
            assert_eq!(why(hear_raw(callback(&event), &all)), "the bot's own", "{own}");
        }
    }
    // Neither its bot nor its app is known: the envelope says for which app and user it is.
    let who = Who { user: "UX".into(), bot: None, app: None };
    for own in [json!({ "app_id": "ABOT" }), json!({ "user": "UBOT" })] {
        let envelope = Envelope::of(callback(&message(&own)));
        assert_eq!(why(hear(&envelope, Some(&who), &all)), "the bot's own");
    }
}

#[test]
fn b54_a_bot_that_does_not_know_itself_hears_nothing() {
    let all = Settings { hearing: Mode::All.into(), ..settings() };
    for event in [message(&json!({})), mention(&json!({})), message(&json!({ "user": "UBOT" }))] {
        assert_eq!(hear(&Envelope::of(callback(&event)), None, &all), Heard::Unready);
    }
    // What is none of its posts in any case is judged all the same.
    let uninstalled = callback(&json!({ "type": "app_uninstalled" }));
    let wanted = Heard::Lifecycle(departed(Departure::Uninstalled));
    assert_eq!(hear(&Envelope::of(uninstalled), None, &all), wanted);
}

#[test]
fn slack_34_other_programs_are_heard_only_if_they_are_listed_and_command_nothing() {
    let bot = json!({ "bot_id": "B9", "user": "U9", "text": "<@UBOT> stop" });
    let nameless = json!({ "bot_id": "B9", "user": null, "subtype": "bot_message",
                           "text": "<@UBOT> the disk is full" });
    let wanted = "another program, which [slack] bots does not list";
    let reminder = json!({ "user": "USLACKBOT", "channel": "D1", "channel_type": "im" });
    for event in [message(&bot), mention(&bot), message(&nameless), message(&reminder)] {
        assert_eq!(why(heard(&event)), wanted);
    }
    for listed in ["B9", "U9"] {
        let settings = Settings { bots: vec![listed.into()], ..settings() };
        let said = said(hear_raw(callback(&message(&bot)), &settings));
        assert_eq!((text(&said), said.by_bot), ("stop", true));
    }
    let settings = Settings { bots: vec!["B9".into()], ..settings() };
    let said = self::said(hear_raw(callback(&message(&nameless)), &settings));
    assert_eq!(said.incoming.principal.as_str(), "slack/T1/B9");
    let alert = json!({ "bot_id": "B9", "text": "", "channel": "D1", "channel_type": "im",
                        "attachments": [{ "fallback": "disk &gt; 90%" }] });
    assert_eq!(text(&self::said(hear_raw(callback(&message(&alert)), &settings))), "disk > 90%");
}

#[test]
fn slack_32_the_installation_is_the_one_that_is_addressed() {
    let mut raw = callback(&mention(&json!({ "text": "<@UBOT> hi" })));
    raw["team_id"] = json!("TOTHER");
    let of = |raw: &Value| said(hear_raw(raw.clone(), &settings())).thread;
    assert_eq!(of(&raw).installation(), "T1");
    raw["authorizations"][0] = json!({ "enterprise_id": "E1", "team_id": null, "user_id": "UBOT",
                                       "is_bot": true, "is_enterprise_install": true });
    assert_eq!(of(&raw).installation(), "E1");
    raw["authorizations"][0]["is_enterprise_install"] = json!(false);
    let wanted = "it does not say for whom it is";
    assert_eq!(why(hear_raw(raw.clone(), &settings())), wanted);
    raw["authorizations"] = json!([]);
    raw["event"]["team"] = json!("TOTHER");
    assert_eq!(of(&raw).installation(), "TOTHER");
}

#[test]
fn slack_32_people_of_other_companies_are_heard_only_if_they_are_listed() {
    let foreign =
        json!({ "text": "<@UBOT> hi", "user_team": "T9", "source_team": "T9", "team": "T9" });
    let home = json!({ "text": "<@UBOT> hi", "user_team": "T1", "source_team": "T1" });
    let silent = json!({ "text": "<@UBOT> hi", "team": null });
    let enterprise =
        json!([{ "enterprise_id": "E1", "team_id": null, "is_enterprise_install": true }]);
    let member =
        json!([{ "enterprise_id": "E1", "team_id": "T1", "is_enterprise_install": false }]);
    let alone = json!([{ "enterprise_id": null, "team_id": "T1", "is_enterprise_install": false }]);
    let table = [
        (&foreign, json!(true), &alone, false),
        (&foreign, json!(false), &alone, false),
        (&foreign, json!(null), &alone, false),
        (&foreign, json!(true), &enterprise, false),
        (&foreign, json!(true), &member, false),
        // Another team of the same enterprise, in a channel that is shared within it.
        (&foreign, json!(false), &enterprise, true),
        (&foreign, json!(false), &member, true),
        (&home, json!(true), &alone, true),
        (&home, json!(true), &member, true),
        (&silent, json!(true), &alone, false),
        (&silent, json!(false), &alone, true),
    ];
    for (fields, shared, authorizations, fine) in table {
        for event in [message(fields), mention(fields)] {
            let mut raw = callback(&event);
            raw["is_ext_shared_channel"] = shared.clone();
            raw["authorizations"] = authorizations.clone();
            let heard = hear_raw(raw.clone(), &settings());
            assert_eq!(matches!(heard, Heard::Say(_)), fine, "{fields} {shared} {authorizations}");
            let listed = Settings { guests: vec!["U7".into()], ..settings() };
            assert!(matches!(hear_raw(raw, &listed), Heard::Say(_)));
        }
    }
}

#[test]
fn a_command_is_for_the_bot_itself() {
    let ask = |fields: &Value| {
        let Heard::Command(ask) = heard(&message(fields)) else { panic!("no command: {fields}") };
        *ask
    };
    let asked = ask(&json!({ "text": "<@UBOT> Stop all" }));
    assert_eq!(asked.order, Order::Stop(Scope::All));
    assert_eq!(asked.id, "T1/C1/1700000000.000200");
    let from = asked.from.unwrap();
    assert_eq!((from.by.as_str(), from.user.as_str(), from.first), ("slack/T1/U7", "U7", true));
    assert_eq!(ask(&json!({ "text": "<@UBOT>" })).order, Order::Help);
    let direct = json!({ "text": "status", "channel": "D1", "channel_type": "im" });
    assert_eq!(ask(&direct).order, Order::Status);
    let reply = json!({ "text": "cancel w-1 <@UBOT>", "thread_ts": "1700000000.000100" });
    let asked = ask(&reply);
    assert_eq!(asked.order, Order::Cancel(ExecutionId::new("w-1").unwrap()));
    assert!(!asked.from.unwrap().first);
    // Without a mention it is talk among people.
    let talk = json!({ "text": "stop", "thread_ts": "1700000000.000100" });
    assert_eq!(text(&said(heard(&message(&talk)))), "stop");
    // Both twins are one command.
    let fields = json!({ "text": "<@UBOT> stop" });
    assert_eq!(heard(&message(&fields)), heard(&mention(&fields)));
}

fn departed(why: Departure) -> Lifecycle {
    Lifecycle::Departed { installation: Some("T1".into()), why, at: None }
}

#[test]
fn what_happens_to_the_installation_is_told() {
    for (event, wanted) in [
        (json!({ "type": "app_uninstalled" }), Departure::Uninstalled),
        (json!({ "type": "tokens_revoked", "tokens": { "bot": ["UBOT"] } }), Departure::Revoked),
    ] {
        assert_eq!(heard(&event), Heard::Lifecycle(departed(wanted)));
    }
    let others = json!({ "type": "tokens_revoked", "tokens": { "oauth": ["U7"], "bot": ["U9"] } });
    why(heard(&others));
    let raw = json!({ "type": "app_rate_limited", "team_id": "T1" });
    assert_eq!(hear_raw(raw, &settings()), Heard::Lifecycle(Lifecycle::RateLimited));
    let raw = json!({ "type": "url_verification", "challenge": "c" });
    assert_eq!(hear_raw(raw, &settings()), Heard::Challenge("c".into()));
    let answer = json!({ "ok": true, "user_id": "UBOT", "bot_id": "BBOT" });
    assert_eq!(Who::of(&answer), Some(Who { app: None, ..who() }));
    assert_eq!(Who::of(&json!({ "ok": true, "user_id": "" })), None);
}

#[test]
fn what_has_no_place_is_not_heard() {
    for fields in [
        json!({ "channel": null }),
        json!({ "ts": null }),
        json!({ "user": null }),
        json!({ "user": "../U7" }),
        json!({ "channel": "C1/x" }),
        json!({ "ts": "now" }),
        json!({ "ts": "now", "thread_ts": "1700000000.000100" }),
        json!({ "text": null }),
    ] {
        let mut event = message(&json!({ "channel_type": "im" }));
        for (key, value) in fields.as_object().unwrap() {
            event[key] = value.clone();
        }
        if fields.get("text").is_some() {
            let Heard::Command(ask) = heard(&event) else { panic!("{fields}") };
            assert_eq!(ask.order, Order::Help);
        } else {
            why(heard(&event));
        }
    }
    assert_eq!(instant("1700000000.123456"), Timestamp::from_ms(1_700_000_000_123));
    assert_eq!(instant("1700000000"), Timestamp::from_ms(1_700_000_000_000));
    assert_eq!(instant("99999999999999999999.1"), Timestamp::from_ms(100));
}
