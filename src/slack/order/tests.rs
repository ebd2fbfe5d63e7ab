use super::*;

#[test]
fn a_command_is_the_whole_text_and_everything_else_is_a_message() {
    let id = ExecutionId::new("auto-notify-depl-0001").unwrap();
    for (text, wanted) in [
        ("watchers", Some(Order::Watchers)),
        (" Status ", Some(Order::Status)),
        ("HELP", Some(Order::Help)),
        ("stop", Some(Order::Stop(Scope::Turn))),
        ("Stop  ALL", Some(Order::Stop(Scope::All))),
        ("cancel auto-notify-depl-0001", Some(Order::Cancel(id.clone()))),
        ("cancel `auto-notify-depl-0001`", Some(Order::Cancel(id))),
        ("cancel it", None),
        ("stop all of that", None),
        ("status of the deploy?", None),
        ("", None),
    ] {
        assert_eq!(read(text), wanted, "{text:?}");
    }
    let long = format!("cancel 1{}", "x".repeat(500));
    assert!(matches!(read(&long), Some(Order::Wrong(what)) if what.contains("watchers")));
    assert!(matches!(cancel(""), Order::Wrong(_)));
}

#[test]
fn an_answer_is_bounded_at_a_line_and_wakes_nobody() {
    let text = format!("{}\n{}", "a".repeat(SLACK_TOLD_CHARS_MAX - 10), "b".repeat(50));
    let short = bounded(&text);
    assert!(short.chars().count() <= SLACK_TOLD_CHARS_MAX && short.ends_with("a\n…"), "{short}");
    assert_eq!(bounded("short"), "short");
    let id = ExecutionId::new("<!channel>`1").unwrap();
    let unknown = done(&Order::Cancel(id.clone()), &Done::Unknown);
    assert!(unknown.contains("`&lt;!channel&gt;'1`"), "{unknown}");
    let owner = Principal::new("slack/T1/U7").unwrap();
    assert!(foreign(&id, &owner).ends_with(" is <@U7>'s; ask them."));
    let owner = Principal::new("console/me").unwrap();
    assert!(foreign(&id, &owner).ends_with(" was started by console/me; ask them."));
}

#[test]
fn refusals_say_what_now() {
    for (error, hint) in [
        (DeskError::Full("9 unread".into()), "stop all"),
        (DeskError::Invalid("<too> long".into()), "&lt;too&gt;"),
        (DeskError::Away("the store is away".into()), "status"),
    ] {
        let text = refused(&error);
        assert!(text.starts_with("Not taken: ") && text.contains(hint), "{text}");
    }
}
