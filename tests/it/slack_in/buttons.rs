//! Buttons of an answer that only one person sees: they carry their thread, are believed only
//! there, act once, and every press is answered.

use dogwatch::core::execution::Scope;
use dogwatch::core::id::{ExecutionId, PressId, StopId};
use dogwatch::ports::{Command, DeskError};
use dogwatch::slack::hear::{CANCEL_HOME, CANCEL_LISTED, RUNNING, STOP, STOP_ALL};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};

use super::desk::TURN;
use super::{Front, TS, callback, message, patiently};

const URL: &str = "https://hooks.slack.com/actions/T1/1/x";

/// A press in an answer that only this person sees, in the thread.
fn press(user: &str, (action, what): (&str, &str), n: u32) -> Value {
    json!({
        "type": "block_actions", "user": { "id": user, "team_id": "T1" }, "team": { "id": "T1" },
        "channel": { "id": "C1" },
        "container": { "type": "message", "message_ts": "1700000009.000300", "channel_id": "C1",
                       "is_ephemeral": true, "thread_ts": TS },
        "response_url": URL,
        "actions": [{ "action_id": action, "value": format!("C1/{TS}/{what}"),
                      "action_ts": format!("170000001{n}.000001") }],
    })
}

async fn asked(front: &Front, text: &str) -> Value {
    front.desk.runs(&format!("slack/T1/C1/{TS}"), "w-1", "slack/T1/U7");
    let mut event = message("1700000001.000100", text);
    event["thread_ts"] = json!(TS);
    assert!(front.receive(&callback("Ev1", &event)).await.is_ack());
    front.answers.given(1).await;
    front.answers.panel().1
}

#[tokio::test]
async fn what_is_asked_for_by_mention_carries_buttons_that_work_where_it_stands() {
    for text in ["status", "watchers"] {
        let front = Front::new();
        let blocks = asked(&front, text).await.to_string();
        for (action, what) in
            [(CANCEL_LISTED, "w-1"), (RUNNING, ""), (STOP, &TURN.to_string()), (STOP_ALL, "")]
        {
            assert!(blocks.contains(action), "{action}: {blocks}");
            assert!(blocks.contains(&format!("\"C1/{TS}/{what}\"")), "{what}: {blocks}");
        }
        assert!(!blocks.contains("T1"), "which installation it is Slack says with the press");
    }
}

#[tokio::test]
async fn each_press_acts_once_and_its_answer_stands_in_place_of_it() {
    let front = Front::new();
    asked(&front, "status").await;
    let turn = TURN.to_string();
    let presses = [
        (RUNNING, "", "*This thread: turn 3 is running*"),
        (STOP, turn.as_str(), "The turn is stopped; watchers run on"),
        (STOP_ALL, "", "The turn is stopped; 1 watcher ended"),
        (CANCEL_LISTED, "w-1", "`w-1` is being ended"),
    ];
    for (n, (action, what, wanted)) in presses.into_iter().enumerate() {
        let raw = press("U7", (action, what), u32::try_from(n).unwrap());
        // What Slack sends twice is one press.
        assert!(front.receive(&raw).await.is_ack());
        assert!(front.receive(&raw).await.is_ack());
        let given = front.answers.given(n + 2).await;
        assert_eq!(given.len(), n + 2);
        assert!(given[n + 1].1.starts_with(&format!("{URL} {wanted}")), "{given:?}");
        let (url, blocks) = front.answers.panel();
        assert_eq!(url, URL);
        assert!(blocks.to_string().contains(RUNNING), "one can look again: {blocks}");
    }
    let id = |n: u32| format!("slack/press/U7/170000001{n}.000001");
    let commands: Vec<_> = front.desk.commands().into_iter().map(|(_, _, what)| what).collect();
    assert!(
        matches!(&commands[0], Command::StopTurn { turn: TURN, stop, .. }
            if *stop == StopId::new(id(1)).unwrap()),
        "{commands:?}"
    );
    assert!(matches!(&commands[1], Command::Stop { scope: Scope::All, .. }), "{commands:?}");
    let execution = ExecutionId::new("w-1").unwrap();
    let press = PressId::new(id(3)).unwrap();
    assert_eq!(commands[2], Command::Cancel { execution, press });
}

#[tokio::test]
async fn slack_15_a_stale_press_stops_no_other_turn_and_is_told() {
    let front = Front::new();
    assert!(front.receive(&press("U7", (STOP, "2"), 1)).await.is_ack());
    let (_, text) = front.answers.given(1).await.remove(0);
    assert!(text.contains("Turn 2 is not running any more; nothing was stopped"), "{text}");
    assert!(matches!(front.desk.commands()[0].2, Command::StopTurn { turn: 2, .. }));
}

#[tokio::test]
async fn slack_14_what_is_forged_or_pressed_elsewhere_does_nothing_and_is_told() {
    let other = "1700000000.000900";
    let all = || press("U7", (STOP_ALL, ""), 1);
    let with = |pointer: &str, value: &str| {
        let mut raw = all();
        *raw.pointer_mut(pointer).unwrap() = value.into();
        raw
    };
    let value = "/actions/0/value";
    let forged = [
        with(value, &format!("C2/{TS}/")),
        with(value, &format!("C1/{other}/")),
        with(value, &format!("T9/C1/{TS}/")),
        with(value, &format!("c1/{TS}/")),
        with(value, "C1"),
        with(value, "//"),
        with("/channel/id", "C2"),
        with("/container/thread_ts", other),
    ];
    for raw in forged {
        let front = Front::new();
        assert!(front.receive(&raw).await.is_ack());
        let (_, text) = front.answers.given(1).await.remove(0);
        assert!(text.contains("belongs to another place and does nothing here"), "{text} {raw}");
        assert_eq!(front.desk.commands(), [], "{raw}");
    }
    // A turn that is none.
    let front = Front::new();
    assert!(front.receive(&press("U7", (STOP, "all"), 1)).await.is_ack());
    assert!(front.answers.given(1).await[0].1.contains("another place"));
    assert_eq!(front.desk.commands(), []);
}

#[tokio::test]
async fn slack_14_strangers_and_guests_are_told_and_nothing_happens() {
    let front = Front::new();
    asked(&front, "status").await;
    let mut guest = press("U9", (STOP_ALL, ""), 1);
    guest["user"]["team_id"] = "T9".into();
    assert!(front.receive(&guest).await.is_ack());
    let (whom, text) = front.answers.given(2).await.remove(1);
    assert!(text.starts_with("this is only for people of the company"), "{text}");
    assert!(whom.unwrap().inside, "beside the buttons, which stay");
    assert_eq!(front.desk.commands(), []);
    // A colleague who forges the owner's button is nobody's owner.
    assert!(front.receive(&press("U8", (CANCEL_LISTED, "w-1"), 2)).await.is_ack());
    assert!(front.answers.given(3).await[2].1.contains("`w-1` is <@U7>'s; ask them."));
    let (_, by, _) = front.desk.commands().remove(0);
    assert_eq!(by.as_str(), "slack/T1/U8");
}

#[tokio::test]
async fn what_cannot_be_done_leaves_its_buttons_and_can_be_pressed_again() {
    let front = Front::new();
    front.desk.refuses(DeskError::Away("the store is away".into()));
    let raw = press("U7", (STOP_ALL, ""), 1);
    assert!(front.receive(&raw).await.is_ack());
    let (_, text) = front.answers.given(1).await.remove(0);
    assert!(text.starts_with("Not taken: the store is away"), "not in place of it: {text}");
    assert!(front.receive(&raw).await.is_ack());
    assert!(front.answers.given(2).await[1].1.starts_with(URL));
    assert_eq!(front.desk.commands().len(), 1);
    // Without a place for the answer it stands where the person is.
    let mut raw = press("U7", (RUNNING, ""), 2);
    raw["response_url"] = Value::Null;
    assert!(front.receive(&raw).await.is_ack());
    assert!(front.answers.given(3).await[2].1.starts_with("*This thread"));
}

#[tokio::test]
async fn beside_a_thread_without_replies_the_button_alone_says_which_it_is() {
    let front = Front::new();
    let mut raw = press("U7", (STOP_ALL, ""), 1);
    raw["container"].as_object_mut().unwrap().remove("thread_ts");
    raw["response_url"] = Value::Null;
    assert!(front.receive(&raw).await.is_ack());
    let (whom, _) = front.answers.given(1).await.remove(0);
    assert!(!whom.unwrap().inside);
    let (session, _, _) = front.desk.commands().remove(0);
    assert_eq!(session.as_str(), format!("slack/T1/C1/{TS}"));
}

/// A press in the app's own tab.
fn at_home(user: &str, value: &str, n: u32) -> Value {
    json!({
        "type": "block_actions", "user": { "id": user, "team_id": "T1" }, "team": { "id": "T1" },
        "container": { "type": "view", "view_id": "V1" },
        "view": { "id": "V1", "type": "home" },
        "actions": [{ "action_id": CANCEL_HOME, "value": value,
                      "action_ts": format!("170000001{n}.000001") }],
    })
}

fn opened(user: &str, tab: &str) -> Value {
    json!({ "type": "app_home_opened", "user": user, "channel": "D1", "tab": tab,
            "event_ts": "1700000009.000100" })
}

#[tokio::test]
async fn b41_who_opens_the_home_tab_or_presses_there_is_shown_it_with_what_became_of_it() {
    let front = Front::new();
    front.desk.runs(&format!("slack/T1/C1/{TS}"), "w-1", "slack/T1/U7");
    assert!(front.receive(&callback("Ev1", &opened("U7", "messages"))).await.is_ack());
    assert!(front.receive(&callback("Ev2", &opened("U7", "home"))).await.is_ack());
    let (visitor, said) = front.answers.shown(1).await.remove(0);
    assert_eq!((visitor.by.as_str(), said), ("slack/T1/U7", None));
    let mine = format!("C1/{TS}/w-1");
    // A repeat is one press, and what became of it is not said away.
    for _ in 0..2 {
        assert!(front.receive(&at_home("U7", &mine, 1)).await.is_ack());
    }
    assert!(front.receive(&at_home("U8", &mine, 2)).await.is_ack());
    assert!(front.receive(&at_home("U7", &format!("C1/{TS}/w-9"), 3)).await.is_ack());
    front.desk.refuses(DeskError::Away("the store is away".into()));
    for _ in 0..2 {
        assert!(front.receive(&at_home("U7", &mine, 4)).await.is_ack());
    }
    let shown = front.answers.shown(6).await;
    let said: Vec<_> = shown[1..].iter().map(|(who, said)| (who.user.as_str(), said)).collect();
    let wanted = [
        ("U7", "`w-1` is being ended"),
        ("U8", "`w-1` is <@U7>'s; ask them."),
        ("U7", "`w-9` is long over"),
        ("U7", "Not taken: the store is away"),
        ("U7", "`w-1` is being ended"),
    ];
    assert_eq!(said.len(), wanted.len());
    for ((who, said), (user, words)) in said.into_iter().zip(wanted) {
        let said = said.as_deref().unwrap();
        assert!(who == user && said.starts_with(words), "{words}: {said}");
    }
    assert_eq!(front.desk.commands().len(), 4);
    assert_eq!(front.answers.count(), 0, "nothing is said anywhere else");
}

#[tokio::test]
async fn slack_14_a_press_in_the_home_tab_reaches_no_other_installation() {
    for value in ["", "C1", "T9/C1/1.1/w-1", "slack/T9/w-1", "c1/1.1/w-1"] {
        let front = Front::new();
        assert!(front.receive(&at_home("U7", value, 1)).await.is_ack());
        let (_, said) = front.answers.shown(1).await.remove(0);
        assert!(said.unwrap().contains("says nothing that I know"), "{value}");
        assert_eq!(front.desk.commands(), [], "{value}");
    }
    let front = Front::new();
    let mut guest = at_home("U9", &format!("C1/{TS}/w-1"), 1);
    guest["user"]["team_id"] = "T9".into();
    assert!(front.receive(&guest).await.is_ack());
    let (_, said) = front.answers.shown(1).await.remove(0);
    assert!(said.unwrap().starts_with("this is only for people of the company"));
    let mut event = opened("U9", "home");
    event["user_team"] = "T9".into();
    assert!(front.receive(&callback("Ev1", &event)).await.is_ack());
    // In another team the same button means that team's thread.
    let mut other = at_home("U7", &format!("C1/{TS}/w-1"), 2);
    other["team"]["id"] = "T2".into();
    other["user"]["team_id"] = "T2".into();
    assert!(front.receive(&other).await.is_ack());
    assert_eq!(front.answers.shown(2).await.len(), 2, "a guest is shown nothing");
    let (session, by, _) = front.desk.commands().remove(0);
    assert_eq!((session.as_str(), by.as_str()), (&*format!("slack/T2/C1/{TS}"), "slack/T2/U7"));
    // In a message it is not this button.
    let mut forged = at_home("U7", &format!("C1/{TS}/w-1"), 3);
    forged["channel"] = json!({ "id": "C1" });
    forged["response_url"] = URL.into();
    assert!(front.receive(&forged).await.is_ack());
    assert!(front.answers.given(1).await[0].1.contains("older me"));
}

#[tokio::test]
async fn where_the_app_is_not_installed_nothing_is_shown_and_nothing_is_done() {
    let front = Front::closed();
    assert!(front.receive(&at_home("U7", &format!("C1/{TS}/w-1"), 1)).await.is_ack());
    assert!(front.receive(&callback("Ev1", &opened("U7", "home"))).await.is_ack());
    assert!(front.receive(&press("U7", (STOP_ALL, ""), 2)).await.is_ack());
    // Whatever is told goes with the end of its task.
    patiently(front.reception.finish()).await;
    assert_eq!(front.desk.commands(), []);
    assert_eq!((front.answers.count(), front.answers.shown(0).await.len()), (0, 0));
}
