use super::*;

fn press(fields: &Value) -> Value {
    let mut raw = json!({
        "type": "block_actions",
        "user": { "id": "U7", "team_id": "T1" },
        "team": { "id": "T1" }, "enterprise": null, "is_enterprise_install": false,
        "channel": { "id": "C1" },
        "container": { "message_ts": "1700000000.000300", "thread_ts": "1700000000.000100" },
        "response_url": "https://hooks.slack.com/actions/T1/1/x",
        "actions": [{ "action_id": CANCEL, "value": "w-1", "action_ts": "1700000005.000001" }],
    });
    for (key, value) in fields.as_object().unwrap() {
        raw[key] = value.clone();
    }
    raw
}

fn pressed(fields: &Value, settings: &Settings) -> Ask {
    let Heard::Press(ask) = hear_raw(press(fields), settings) else { panic!("no press: {fields}") };
    *ask
}

#[test]
fn a_button_is_a_command_with_a_name() {
    let pressed = |fields: &Value| pressed(fields, &settings());
    let ask = pressed(&json!({}));
    assert_eq!(ask.order, Order::Cancel(ExecutionId::new("w-1").unwrap()));
    assert_eq!(ask.id, "press/U7/1700000005.000001");
    let from = ask.from.unwrap();
    assert_eq!(from.thread.session().unwrap().as_str(), "slack/T1/C1/1700000000.000100");
    for (id, scope) in [(STOP, Scope::Turn), (STOP_ALL, Scope::All)] {
        let action = json!([{ "action_id": id, "action_ts": "1.1" }]);
        assert_eq!(pressed(&json!({ "actions": action })).order, Order::Stop(scope));
    }
    // Nobody's press goes unanswered, but one that opened a link.
    let old = json!([{ "action_id": "old", "value": "x", "action_ts": "1.1" }]);
    assert!(matches!(pressed(&json!({ "actions": old })).order, Order::Wrong(_)));
    let link = json!([{ "action_id": "old", "action_ts": "1.1" }]);
    let heard = hear_raw(press(&json!({ "actions": link })), &settings());
    assert_eq!(why(heard), "a button that does nothing here");
    // In the app's own tab there is no thread, but there may be a place for an answer.
    let home = json!({ "channel": null, "container": { "type": "view" } });
    assert_eq!(pressed(&home).from, None);
    let home = json!({ "channel": null, "container": { "type": "view" }, "response_url": null });
    why(hear_raw(press(&home), &settings()));
}

#[test]
fn slack_32_a_press_in_an_enterprise_or_by_a_guest() {
    let enterprise = json!({ "team": null, "enterprise": { "id": "E1" },
                             "is_enterprise_install": true });
    let from = pressed(&enterprise, &settings()).from.unwrap();
    assert_eq!((from.thread.installation(), from.by.as_str()), ("E1", "slack/E1/U7"));
    let guest = json!({ "user": { "id": "U8", "team_id": "T9" } });
    assert!(matches!(pressed(&guest, &settings()).order, Order::Wrong(_)));
    let listed = Settings { guests: vec!["U8".into()], ..settings() };
    assert!(matches!(pressed(&guest, &listed).order, Order::Cancel(_)));
}

#[test]
fn slacks_own_stop_button_and_slash_commands() {
    let stop = json!({ "type": "agent_session_stopped", "channel": "C1", "user": "U7",
                       "thread_ts": "1700000000.000100", "event_ts": "1700000005.000001" });
    let Heard::Press(ask) = heard(&stop) else { panic!("no press") };
    assert_eq!(
        (&ask.order, ask.id.as_str()),
        (&Order::Stop(Scope::Turn), "press/U7/1700000005.000001")
    );
    why(heard(&json!({ "type": "agent_session_stopped" })));
    let mut stranger = stop.clone();
    stranger["user_team"] = "T9".into();
    why(heard(&stranger));
    for (text, wanted) in [
        ("", Order::Help),
        (" help", Order::Help),
        ("status", Order::Wrong(order::NO_THREAD.to_owned())),
        ("stop all", Order::Wrong(order::NO_THREAD.to_owned())),
    ] {
        let raw = json!({ "command": "/dogwatch", "text": text, "user_id": "U7" });
        let Heard::Command(ask) = hear_raw(raw, &settings()) else { panic!("no command") };
        assert_eq!((ask.order, ask.from), (wanted, None));
    }
    // What is none is a wish, where Slack says of where and of whom.
    let mut raw = json!({ "command": "/dogwatch", "text": "watch the build", "user_id": "U7" });
    let Heard::Command(ask) = hear_raw(raw.clone(), &settings()) else { panic!("no command") };
    let Order::Wrong(what) = ask.order else { panic!("{:?}", ask.order) };
    assert!(what.contains("does not say where you are"), "{what}");
    for (key, value) in [("team_id", "T1"), ("channel_id", "C1"), ("trigger_id", "1.2.a")] {
        raw[key] = value.into();
    }
    let Heard::Wish(wish) = hear_raw(raw, &settings()) else { panic!("no wish") };
    assert_eq!(wish.by.as_str(), "slack/T1/U7");
}
