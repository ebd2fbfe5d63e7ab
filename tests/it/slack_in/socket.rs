//! Socket Mode, over real sockets, against a Slack that does whatever goes wrong with it.

use std::sync::Arc;

use dogwatch::core::id::DedupeKey;
use dogwatch::core::limits::{
    SLACK_ACK_MS, SLACK_FRAME_BYTES_MAX, SLACK_SOCKET_AGAIN_FIRST_MS, SLACK_SOCKET_AGAIN_MS_MAX,
    SLACK_SOCKET_DEAF_MS, SLACK_SOCKET_HELLO_MS, SLACK_SOCKET_PING_MS, SLACK_SOCKET_STEADY_MS,
};
use dogwatch::ports::Clock;
use dogwatch::slack::access::Keyring;
use dogwatch::slack::reception;
use dogwatch::slack::reception::{Health, Reception};
use dogwatch::slack::socket::{Reach, Socket};
use dogwatch::slack::web::Web;
use dogwatch::slack::{Ingress, Settings};
use dogwatch::store::UlidIds;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use tokio_util::task::{AbortOnDropHandle, TaskTracker};

use super::desk::{Answers, TestDesk};
use super::{TS, callback, message, patiently, settings, twin, who};
use crate::support::jump_clock::JumpClock;
use crate::support::manual_clock::ManualClock;
use crate::support::slack_socket::{Line, Saw, SlackSocket};

/// A bot that is connected, or tries to be.
struct Bot {
    slack: SlackSocket,
    desk: TestDesk,
    answers: Answers,
    /// Of the connections.
    clock: JumpClock,
    /// Of the reception: nothing is late there but by a test's will.
    front: ManualClock,
    socket: Arc<Socket>,
    ending: CancellationToken,
    runs: AbortOnDropHandle<()>,
}

impl Bot {
    async fn start(connections: u8) -> Self {
        Self::at(SlackSocket::start().await, connections)
    }

    fn at(slack: SlackSocket, connections: u8) -> Self {
        let (desk, answers, clock) = (TestDesk::default(), Answers::default(), JumpClock::start());
        let front = ManualClock::new();
        let clock_port: Arc<dyn Clock> = Arc::new(clock.clone());
        let app_token: secrecy::SecretString = "xapp-1".to_owned().into();
        let ingress = Ingress::Socket { app_token: app_token.clone(), connections };
        let settings = Settings { api: slack.api(), ingress, ..settings() };
        let web = Arc::new(Web::new(&settings.api, Arc::clone(&clock_port)).unwrap());
        let reach = reception::Reach {
            keyring: Keyring::of(&settings).unwrap(),
            desk: Arc::new(desk.clone()),
            answers: Arc::new(answers.clone()),
            clock: Arc::new(front.clone()),
        };
        let reception: Arc<Reception> = Reception::new(settings, reach);
        reception.introduce(who());
        let reach = Reach { reception, web, clock: clock_port, ids: Arc::new(UlidIds) };
        let socket = Arc::new(Socket::new(app_token, connections, reach));
        let ending = CancellationToken::new();
        let (run, end) = (Arc::clone(&socket), ending.clone());
        let runs =
            AbortOnDropHandle::new(TaskTracker::new().spawn(async move { run.run(end).await }));
        Self { slack, desk, answers, clock, front, socket, ending, runs }
    }

    /// With one connection, greeted.
    async fn connected() -> (Self, Line) {
        let bot = Self::start(1).await;
        let line = bot.slack.greeted(1).await;
        bot.is(|health| health.ok).await;
        (bot, line)
    }

    async fn is(&self, what: impl Fn(&Health) -> bool) -> Health {
        let mut healths = self.socket.healths();
        patiently(healths.wait_for(|health| what(health))).await.unwrap().clone()
    }

    async fn left(&self, no: usize) {
        self.slack.saw(|saw| saw.contains(&Saw::Left(no))).await;
    }
}

fn event(n: usize, text: &str) -> Value {
    callback(&format!("Ev{n}"), &message(&format!("17000000{n:02}.000100"), text))
}

#[tokio::test]
async fn an_event_is_acknowledged_after_it_is_safe_and_with_the_right_token() {
    let (bot, line) = Bot::connected().await;
    bot.desk.shut();
    line.envelope("e1", "events_api", &event(1, "hi"));
    bot.desk.came(1).await;
    assert_eq!(bot.slack.acks(), 0);
    bot.desk.open();
    assert_eq!(bot.slack.acked("e1").await, (1, Value::Null));
    assert_eq!(bot.desk.texts(), ["hi"]);
    assert_eq!(bot.slack.saw_now()[0], Saw::Ticket("Bearer xapp-1".to_owned()));
}

#[tokio::test]
async fn b85_slack_06_a_slow_event_holds_up_no_other() {
    let (bot, line) = Bot::connected().await;
    bot.desk.shut();
    for n in 1..=3 {
        line.envelope(&format!("slow{n}"), "events_api", &event(n, "slow"));
    }
    bot.desk.came(3).await;
    let slash = json!({ "command": "/dogwatch", "text": "help" });
    line.envelope("quick", "slash_commands", &slash);
    let (_, payload) = bot.slack.acked("quick").await;
    assert_eq!(payload["response_type"], "ephemeral");
    assert_eq!(bot.slack.acks(), 1);
    // What is not safe in time is not acknowledged; Slack sends it again, and it is one message.
    bot.front.advance(SLACK_ACK_MS);
    bot.desk.open();
    bot.desk.safe(3).await;
    for n in 1..=3 {
        line.again(&format!("again{n}"), &event(n, "slow"), 1);
        bot.slack.acked(&format!("again{n}")).await;
    }
    assert_eq!(bot.desk.texts(), ["slow", "slow", "slow"]);
}

#[tokio::test]
async fn no_ack_before_its_commit_and_every_commit_its_ack() {
    let (bot, line) = Bot::connected().await;
    for round in 0..5 {
        bot.desk.shut();
        for n in round * 10..round * 10 + 10 {
            line.envelope(&format!("e{n}"), "events_api", &event(n, "go"));
        }
        bot.desk.came(round * 10 + 10).await;
        let (acks, safe) = (bot.slack.acks(), bot.desk.safe_now().len());
        assert_eq!((acks, safe), (round * 10, round * 10), "nothing in hand is acknowledged");
        bot.desk.open();
        for n in round * 10..round * 10 + 10 {
            bot.slack.acked(&format!("e{n}")).await;
        }
    }
    assert_eq!((bot.slack.acks(), bot.desk.safe_now().len()), (50, 50));
}

#[tokio::test]
async fn b86_slack_05_lost_acknowledgements_and_duplicates_are_one_message() {
    let (bot, line) = Bot::connected().await;
    let raw = event(1, "hi");
    // The first delivery never came here.
    line.again("e1", &raw, 1);
    bot.slack.acked("e1").await;
    // Its acknowledgement got lost on the way: the connection broke.
    line.cut();
    bot.clock.jump(SLACK_SOCKET_AGAIN_MS_MAX);
    let line = bot.slack.greeted(2).await;
    line.again("e2", &raw, 2);
    line.again("e3", &raw, 3);
    bot.slack.acked("e2").await;
    bot.slack.acked("e3").await;
    assert_eq!(bot.desk.texts(), ["hi"]);
}

#[tokio::test]
async fn b88_slack_01_twins_on_two_connections_are_one_message() {
    for (first, second) in [(1, 2), (2, 1)] {
        let bot = Bot::start(2).await;
        bot.slack.greeted(1).await;
        bot.slack.greeted(2).await;
        bot.is(|health| health.what.starts_with("2 of 2")).await;
        let event = message(TS, "watch the build");
        let (plain, mention) = (callback("Ev1", &event), callback("Ev2", &twin(&event)));
        bot.slack.line(first).await.envelope("e1", "events_api", &mention);
        bot.slack.line(second).await.envelope("e2", "events_api", &plain);
        // Each is acknowledged where it came.
        assert_eq!(bot.slack.acked("e1").await.0, first);
        assert_eq!(bot.slack.acked("e2").await.0, second);
        assert_eq!(bot.desk.texts(), ["watch the build"]);
        let key = DedupeKey::new(format!("message/T1/C1/{TS}")).unwrap();
        assert!(bot.desk.safe_now()[0].1.keys.contains(&key));
    }
}

#[tokio::test]
async fn what_is_unknown_is_acknowledged_and_what_is_no_envelope_is_not() {
    let (bot, line) = Bot::connected().await;
    line.raw("no json");
    line.raw("[]");
    line.send(&json!({ "type": "of_later" }));
    line.envelope("e1", "of_later", &json!({ "x": 1 }));
    line.envelope("e2", "interactive", &json!({ "type": "view_submission" }));
    line.envelope("e3", "events_api", &json!(null));
    for id in ["e1", "e2", "e3"] {
        bot.slack.acked(id).await;
    }
    assert_eq!(bot.slack.acks(), 3);
    assert!(bot.socket.health().ok);
}

#[tokio::test]
async fn an_announced_end_leaves_no_gap() {
    for reason in ["warning", "refresh_requested", "of_later"] {
        let (bot, line) = Bot::connected().await;
        bot.clock.jump(SLACK_SOCKET_STEADY_MS);
        bot.desk.shut();
        line.envelope("e1", "events_api", &event(1, "before"));
        bot.desk.came(1).await;
        line.disconnect(reason);
        let next = bot.slack.line(2).await;
        // The old one serves until the new one is greeted.
        assert!(!bot.slack.saw_now().contains(&Saw::Left(1)));
        line.envelope("e2", "events_api", &event(2, "between"));
        bot.desk.came(2).await;
        next.hello();
        next.envelope("e3", "events_api", &event(3, "after"));
        bot.desk.came(3).await;
        assert!(bot.socket.health().ok);
        assert!(!bot.slack.saw_now().contains(&Saw::Left(1)), "something is in hand");
        bot.desk.open();
        assert_eq!(bot.slack.acked("e1").await.0, 1);
        assert_eq!(bot.slack.acked("e2").await.0, 1);
        assert_eq!(bot.slack.acked("e3").await.0, 2);
        bot.left(1).await;
        assert_eq!(bot.slack.tickets(), 2);
    }
}

#[tokio::test]
async fn slack_23_a_deaf_connection_is_found_and_made_anew() {
    let (bot, line) = Bot::connected().await;
    line.deaf();
    bot.slack.saw(|saw| saw.contains(&Saw::Deaf(1))).await;
    line.envelope("e1", "events_api", &event(1, "nobody hears it"));
    bot.clock.jump(SLACK_SOCKET_DEAF_MS);
    let next = bot.slack.greeted(2).await;
    next.again("e2", &event(1, "nobody hears it"), 1);
    assert_eq!(bot.slack.acked("e2").await.0, 2);
    bot.is(|health| health.ok).await;
}

#[tokio::test]
async fn slack_23_a_quiet_workspace_is_no_deaf_connection() {
    let (bot, _line) = Bot::connected().await;
    for n in 1..=10 {
        bot.clock.jump(SLACK_SOCKET_PING_MS);
        let pings = |saw: &[Saw]| saw.iter().filter(|saw| **saw == Saw::Ping(1)).count();
        bot.slack.saw(|saw| pings(saw) >= n).await;
    }
    assert_eq!(bot.slack.tickets(), 1);
}

#[tokio::test]
async fn slack_24_too_many_connections_back_off() {
    let bot = Bot::start(1).await;
    let mut line = bot.slack.greeted(1).await;
    for n in 2..=5 {
        bot.is(|health| health.ok).await;
        line.disconnect("too_many_websockets");
        bot.is(|health| !health.ok && health.what.contains("too_many_websockets")).await;
        assert_eq!(bot.slack.tickets(), n - 1, "it does not come back at once");
        bot.clock.jump(SLACK_SOCKET_AGAIN_FIRST_MS << (n - 2));
        line = bot.slack.greeted(n).await;
    }
}

#[tokio::test]
async fn slack_24_switched_off_is_for_good() {
    let (bot, line) = Bot::connected().await;
    line.disconnect("link_disabled");
    let health = bot.is(|health| health.what.contains("link_disabled")).await;
    assert!(!health.ok);
    bot.left(1).await;
    bot.clock.jump(100 * SLACK_SOCKET_AGAIN_MS_MAX);
    assert_eq!((bot.slack.tickets(), bot.socket.health().ok), (1, false));
    bot.ending.cancel();
    patiently(bot.runs).await.unwrap();
    assert_eq!(bot.slack.tickets(), 1);
}

#[tokio::test]
async fn a_ticket_that_is_refused_is_asked_for_again_and_never_shown() {
    let slack = SlackSocket::start().await;
    let refusal = |word: &str| json!({ "ok": false, "error": word });
    let named = |url: &str| json!({ "ok": true, "url": url });
    let table = [
        (refusal("invalid_auth"), "invalid_auth"),
        (json!({ "ok": true }), "no wss"),
        (refusal("not_allowed_token_type"), "not_allowed_token_type"),
        (named("ws://example.com/link?ticket=secret"), "no wss"),
        (refusal("account_inactive"), "account_inactive"),
        (named("http://127.0.0.1:1/link?ticket=secret"), "no wss"),
        (named("ws://127.0.0.1:1/link?ticket=secret"), "no web socket"),
    ];
    for (answer, _) in &table {
        slack.refuses(answer.clone());
    }
    let bot = Bot::at(slack, 1);
    for (n, (_, wanted)) in table.iter().enumerate() {
        let health = bot.is(|health| health.what.contains(wanted)).await;
        assert!(!health.ok && !health.what.contains("secret"), "{health:?}");
        bot.clock.jump(SLACK_SOCKET_AGAIN_MS_MAX);
        bot.slack.saw(|saw| tickets(saw) > n + 1).await;
    }
    bot.slack.greeted(1).await;
    bot.is(|health| health.ok).await;
}

/// Nobody there speaks TLS: it must be found out, not be a panic over a provider that is missing.
#[tokio::test]
async fn slack_25_tls_is_there_when_slack_asks_for_it() {
    let slack = SlackSocket::start().await;
    let url = slack.api().replace("http:", "wss:").replace("/api/", "/link?ticket=secret");
    slack.refuses(json!({ "ok": true, "url": url }));
    let bot = Bot::at(slack, 1);
    let health = bot.is(|health| health.what.contains("no web socket")).await;
    assert!(!health.what.contains("secret"), "{health:?}");
    bot.clock.jump(SLACK_SOCKET_AGAIN_MS_MAX);
    bot.slack.greeted(1).await;
    bot.is(|health| health.ok).await;
}

fn tickets(saw: &[Saw]) -> usize {
    saw.iter().filter(|saw| matches!(saw, Saw::Ticket(_))).count()
}

#[tokio::test]
async fn a_connection_without_a_greeting_is_given_up() {
    let bot = Bot::start(1).await;
    bot.is(|health| health.what.contains("not greeted yet")).await;
    bot.clock.jump(SLACK_SOCKET_HELLO_MS);
    bot.left(1).await;
    bot.clock.jump(SLACK_SOCKET_AGAIN_MS_MAX);
    bot.slack.greeted(2).await;
    bot.is(|health| health.ok).await;
}

#[tokio::test]
async fn a_connection_that_breaks_or_is_closed_is_made_anew() {
    let (bot, line) = Bot::connected().await;
    bot.clock.jump(SLACK_SOCKET_STEADY_MS);
    line.cut();
    let line = bot.slack.greeted(2).await;
    bot.is(|health| health.ok).await;
    bot.clock.jump(SLACK_SOCKET_STEADY_MS);
    line.close();
    bot.slack.greeted(3).await;
    bot.is(|health| health.ok).await;
}

#[tokio::test]
async fn what_is_too_large_ends_its_connection_and_the_others_get_through() {
    let (bot, mut line) = Bot::connected().await;
    let large = callback("Ev9", &message(TS, &"x".repeat(SLACK_FRAME_BYTES_MAX)));
    // Slack sends it three times more; each time something else comes along.
    for n in 1..=4 {
        line.envelope(&format!("e{n}"), "events_api", &event(n, "and this"));
        bot.slack.acked(&format!("e{n}")).await;
        line.again("e9", &large, u32::try_from(n).unwrap());
        bot.left(n).await;
        let what = format!("{n} times more than {SLACK_FRAME_BYTES_MAX} bytes");
        bot.is(|health| health.what.contains(&what)).await;
        bot.clock.jump(SLACK_SOCKET_AGAIN_MS_MAX);
        line = bot.slack.greeted(n + 1).await;
        bot.is(|health| health.ok).await;
    }
    assert_eq!(bot.desk.texts().len(), 4);
}

#[tokio::test]
async fn what_is_large_is_read() {
    let (bot, line) = Bot::connected().await;
    let text = "x".repeat(SLACK_FRAME_BYTES_MAX / 2);
    line.envelope("e1", "events_api", &callback("Ev1", &json!({ "type": "unheard", "x": text })));
    bot.slack.acked("e1").await;
    assert!(bot.socket.health().ok);
}

#[tokio::test]
async fn at_the_end_what_is_in_hand_is_acknowledged_and_nothing_more_is_taken() {
    let (bot, line) = Bot::connected().await;
    bot.desk.shut();
    line.envelope("e1", "events_api", &event(1, "in hand"));
    bot.desk.came(1).await;
    bot.ending.cancel();
    bot.is(|health| health.what == "the bot ends").await;
    line.envelope("e2", "events_api", &event(2, "too late"));
    bot.desk.open();
    bot.slack.acked("e1").await;
    patiently(bot.runs).await.unwrap();
    bot.slack.saw(|saw| saw.contains(&Saw::Left(1))).await;
    assert_eq!((bot.slack.acks(), bot.desk.texts()), (1, vec!["in hand".to_owned()]));
    assert_eq!(bot.answers.count(), 0);
}
