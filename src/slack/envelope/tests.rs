use serde_json::json;

use super::*;

#[test]
fn an_odd_field_costs_that_field_alone() {
    let envelope = Envelope::of(json!({
        "type": "event_callback",
        "team_id": 7,
        "event_id": "Ev1",
        "authorizations": [{ "team_id": null, "enterprise_id": "E1",
                             "is_enterprise_install": true }],
        "event": {
            "type": "message",
            "text": "hi",
            "channel": { "id": "C1" },
            "metadata": { "event_payload": { "n": 1, "b": true, "o": {} } },
            "edited": {},
            "files": "none",
        },
    }));
    let Kind::Event(callback) = &envelope.kind else { panic!("{envelope:?}") };
    assert_eq!((callback.team_id.as_deref(), callback.event_id.as_deref()), (None, Some("Ev1")));
    assert!(callback.authorizations[0].is_enterprise_install);
    let event = &callback.event;
    assert_eq!((event.text.as_deref(), event.channel.as_deref()), (Some("hi"), None));
    assert_eq!((&event.edited, event.files.len()), (&Some(json!({})), 0));
    assert_eq!(envelope.raw["event"]["metadata"]["event_payload"]["n"], 1);
}

#[test]
fn what_is_no_object_is_kept_and_harms_nobody() {
    for raw in [json!(null), json!(1), json!("x"), json!([]), json!({ "type": [] })] {
        let envelope = Envelope::of(raw.clone());
        assert_eq!((&envelope.kind, &envelope.raw), (&Kind::Unknown(String::new()), &raw));
        assert_eq!(envelope.word(), "nothing");
    }
    for event in [json!(null), json!([1, 2]), json!("x")] {
        let raw = json!({ "type": "event_callback", "event": event });
        assert!(matches!(Envelope::of(raw).kind, Kind::Event(_)));
    }
    assert_eq!(Envelope::of_json(b"{"), None);
    assert_eq!(Envelope::of_json(b"\xff"), None);
    let deep = "[".repeat(100_000);
    assert_eq!(Envelope::of_json(deep.as_bytes()), None);
    assert_eq!(Frame::of(&deep), Frame::Unknown("no JSON".to_owned()));
}

#[test]
fn a_form_is_a_command_or_holds_json() {
    let slash = Envelope::of_form(b"command=%2Fdog&text=stop+all&user_id=U1").unwrap();
    let Kind::Slash(slash) = slash.kind else { panic!("{slash:?}") };
    assert_eq!((slash.command.as_deref(), slash.text.as_deref()), (Some("/dog"), Some("stop all")));
    let pressed = Envelope::of_form(b"payload=%7B%22type%22%3A%22block_actions%22%7D").unwrap();
    assert!(matches!(pressed.kind, Kind::Actions(_)));
    assert_eq!(Envelope::of_form(b"payload=%7B"), None);
    assert_eq!(Envelope::of_form(b"ssl_check=1&token=x").unwrap().kind, Kind::SslCheck);
    assert_eq!(Envelope::of_form(b"").unwrap().kind, Kind::Unknown(String::new()));
}

#[test]
fn a_log_line_gets_a_word_and_never_a_body() {
    let odd = Envelope::of(json!({ "type": format!("x\n\u{1b}[31m secret {}", "y".repeat(200)) }));
    assert!(odd.word().starts_with("x31msecrety") && odd.word().len() == 80, "{}", odd.word());
    let changed = json!({ "type": "event_callback",
                          "event": { "type": "message", "subtype": "message_changed" } });
    assert_eq!(Envelope::of(changed).word(), "message.message_changed");
}

#[test]
fn frames_of_all_sorts_are_told_apart() {
    let frame = |raw: Value| Frame::of(&raw.to_string());
    assert_eq!(frame(json!({ "type": "hello", "num_connections": 1 })), Frame::Hello);
    for (reason, wanted) in [
        ("warning", Reason::Warning),
        ("refresh_requested", Reason::Refresh),
        ("link_disabled", Reason::Disabled),
        ("too_many_websockets", Reason::TooMany),
        ("a new one", Reason::Other("anewone".to_owned())),
    ] {
        let raw = json!({ "type": "disconnect", "reason": reason });
        assert_eq!(frame(raw), Frame::Disconnect(wanted));
    }
    let raw = json!({ "type": "disconnect" });
    assert_eq!(frame(raw), Frame::Disconnect(Reason::Other("nothing".to_owned())));
    let raw = json!({ "type": "events_api", "envelope_id": "e1", "retry_attempt": 2,
                      "payload": { "type": "app_rate_limited" } });
    let Frame::Envelope(parcel) = frame(raw) else { panic!("no envelope") };
    assert_eq!(
        (parcel.envelope.kind, parcel.attempt, parcel.answers),
        (Kind::RateLimited, 2, false)
    );
    // A sort of later days is acknowledged all the same, and never taken for one of today's.
    let raw =
        json!({ "type": "later", "envelope_id": "e1", "payload": { "type": "block_actions" } });
    let Frame::Envelope(parcel) = frame(raw) else { panic!("no envelope") };
    assert_eq!(parcel.envelope.kind, Kind::Unknown("later".to_owned()));
    assert_eq!(frame(json!({ "type": "events_api" })), Frame::Unknown("events_api".to_owned()));
}
