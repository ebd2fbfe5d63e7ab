use super::*;
use crate::slack::envelope::{Envelope, Kind};

const BEGIN: u64 = 1_000_000;

fn at(ms: u64) -> Timestamp {
    Timestamp::from_ms(BEGIN + ms)
}

const TAKEN: Reply = Reply { status: 200, body: None };
const AGAIN: Reply = Reply { status: 503, body: None };

fn parcel(id: &str) -> Box<Parcel> {
    let envelope = Envelope { kind: Kind::RateLimited, raw: json!({}) };
    let envelope_id = id.to_owned();
    Box::new(Parcel { envelope_id, envelope, answers: true, attempt: 0 })
}

fn envelope(no: LineNo, id: &str) -> Input {
    Input::Heard(no, Frame::Envelope(parcel(id)))
}

fn settled(line: LineNo, id: &str, reply: Reply) -> Input {
    Input::Settled { line, envelope_id: id.to_owned(), reply }
}

fn hello(no: LineNo) -> Input {
    Input::Heard(no, Frame::Hello)
}

fn ends(no: LineNo, reason: Reason) -> Input {
    Input::Heard(no, Frame::Disconnect(reason))
}

fn failed(line: LineNo, after_ms: u64) -> Input {
    Input::Failed { line, what: "no".to_owned(), after_ms }
}

/// With so many connections, all greeted at 0.
fn live(connections: u8) -> Machine {
    let mut machine = Machine::new(connections, 7);
    let opened = machine.step(at(0), Input::Tick);
    assert_eq!(opened, (1..=u64::from(connections)).map(Effect::Open).collect::<Vec<_>>());
    for no in 1..=u64::from(connections) {
        assert_eq!(machine.step(at(0), Input::Joined(no)), []);
        assert_eq!(machine.step(at(0), hello(no)), []);
    }
    assert!(machine.health().ok, "{:?}", machine.health());
    machine
}

fn ack(no: LineNo, id: &str) -> Effect {
    Effect::Send(no, format!("{{\"envelope_id\":\"{id}\"}}"))
}

#[test]
fn an_envelope_is_acknowledged_on_its_connection_and_only_if_it_is_safe() {
    let mut machine = live(2);
    assert_eq!(machine.step(at(1), envelope(1, "a")), [Effect::Hand(1, parcel("a"))]);
    assert_eq!(machine.step(at(1), envelope(2, "b")), [Effect::Hand(2, parcel("b"))]);
    assert_eq!(machine.step(at(2), envelope(1, "c")), [Effect::Hand(1, parcel("c"))]);
    // In whatever order they are done.
    assert_eq!(machine.step(at(3), settled(1, "c", TAKEN)), [ack(1, "c")]);
    assert_eq!(machine.step(at(3), settled(2, "b", AGAIN)), []);
    let body = Reply { body: Some(json!({ "text": "x" })), ..TAKEN };
    let sent = machine.step(at(4), settled(1, "a", body));
    let text = "{\"envelope_id\":\"a\",\"payload\":{\"text\":\"x\"}}".to_owned();
    assert_eq!(sent, [Effect::Send(1, text)]);
    // Its connection is gone: Slack sends it again on another.
    machine.step(at(5), envelope(2, "d"));
    machine.step(at(40_000), Input::Gone(2));
    assert_eq!(machine.step(at(40_001), settled(2, "d", TAKEN)), []);
}

#[test]
fn another_connection_is_there_before_the_old_one_is_left() {
    for reason in [Reason::Warning, Reason::Refresh, Reason::Other("later".into())] {
        let mut machine = live(1);
        assert_eq!(
            machine.step(at(40_000), ends(1, reason.clone())),
            [Effect::Ping(1), Effect::Open(2)]
        );
        assert_eq!(machine.step(at(40_001), ends(1, reason)), [], "said twice");
        assert_eq!(machine.step(at(40_100), envelope(1, "a")), [Effect::Hand(1, parcel("a"))]);
        assert_eq!(machine.step(at(40_200), Input::Joined(2)), []);
        assert_eq!(machine.step(at(40_300), hello(2)), [], "something is in hand on the old one");
        assert_eq!(machine.step(at(40_400), envelope(1, "b")), [Effect::Hand(1, parcel("b"))]);
        assert_eq!(machine.step(at(40_500), settled(1, "a", TAKEN)), [ack(1, "a")]);
        let last = machine.step(at(40_600), settled(1, "b", TAKEN));
        assert_eq!(last, [ack(1, "b"), Effect::Close(1)]);
        assert_eq!(machine.step(at(40_700), envelope(1, "c")), [], "too late for it");
        assert_eq!(machine.step(at(40_800), Input::Gone(1)), []);
        assert!(machine.health().ok);
    }
}

#[test]
fn what_is_left_does_not_stay_for_ever() {
    let mut machine = live(1);
    machine.step(at(40_000), envelope(1, "a"));
    machine.step(at(40_000), ends(1, Reason::Warning));
    machine.step(at(40_001), Input::Joined(2));
    machine.step(at(40_002), hello(2));
    let until = at(40_002 + SLACK_SOCKET_LEAVE_MS);
    assert_eq!(machine.next_at(), until);
    assert_eq!(machine.step(until, Input::Tick), [Effect::Close(1)]);
    let until = until.plus_ms(SLACK_SOCKET_LEAVE_MS);
    let dropped = Effect::Drop(1, "Slack did not say goodbye in time");
    assert_eq!(machine.step(until, Input::Tick), [dropped]);
}

#[test]
fn slack_24_too_many_connections_are_not_answered_by_more() {
    let mut machine = live(2);
    let mut now = 40_000;
    let mut waits = Vec::new();
    assert_eq!(machine.step(at(now), Input::Tick), [Effect::Ping(1), Effect::Ping(2)]);
    let mut line = 2;
    for _ in 0..12 {
        assert_eq!(machine.step(at(now), ends(line, Reason::TooMany)), [Effect::Close(line)]);
        assert_eq!(machine.step(at(now), Input::Gone(line)), []);
        let until = machine.open_at;
        // Slack goes on with the first one.
        assert!(machine.step(until.earlier(), Input::Alive(1)).iter().all(is_ping), "too early");
        waits.push(until.since_ms(at(now)));
        now = until.as_ms() - BEGIN;
        let opened = machine.step(at(now), Input::Tick);
        line = machine.opened;
        assert!(opened.contains(&Effect::Open(line)));
        assert_eq!(opened.iter().filter(|effect| !is_ping(effect)).count(), 1);
        machine.step(at(now), Input::Joined(line));
        machine.step(at(now), hello(line));
    }
    // Each wait is of the second half of twice the last one, up to the longest.
    for (n, wait) in waits.iter().enumerate() {
        let full = (SLACK_SOCKET_AGAIN_FIRST_MS << n).min(SLACK_SOCKET_AGAIN_MS_MAX);
        assert!((full / 2..=full).contains(wait), "{n}: {waits:?}");
    }
    assert!(machine.health().ok, "the first one serves all the while");
    // It is over once all are steady.
    now += SLACK_SOCKET_STEADY_MS;
    machine.step(at(now), Input::Alive(1));
    assert_eq!(machine.failures, 0);
}

fn is_ping(effect: &Effect) -> bool {
    matches!(effect, Effect::Ping(_))
}

trait Earlier {
    fn earlier(self) -> Self;
}

impl Earlier for Timestamp {
    fn earlier(self) -> Self {
        Self::from_ms(self.as_ms() - 1)
    }
}

#[test]
fn slack_24_where_it_is_switched_off_nothing_is_opened_again() {
    let mut machine = live(2);
    machine.step(at(1), envelope(2, "a"));
    assert_eq!(machine.step(at(2), ends(1, Reason::Disabled)), [Effect::Close(1)]);
    // What is in hand is still acknowledged.
    let last = machine.step(at(3), settled(2, "a", TAKEN));
    assert_eq!(last, [ack(2, "a"), Effect::Close(2)]);
    machine.step(at(4), Input::Gone(1));
    machine.step(at(4), Input::Gone(2));
    assert!(machine.is_over());
    assert_eq!(machine.next_at(), Timestamp::MAX);
    assert_eq!(machine.step(at(10_000_000), Input::Tick), []);
    assert_eq!(machine.step(at(10_000_000), Input::End), []);
    let health = machine.health();
    assert!(!health.ok && health.what.contains("link_disabled"), "{health:?}");
}

#[test]
fn what_cannot_be_opened_is_tried_again_one_at_a_time() {
    let mut machine = Machine::new(3, 1);
    assert_eq!(machine.step(at(0), Input::Tick).len(), 3);
    for no in 1..=3 {
        assert_eq!(machine.step(at(0), failed(no, 0)), []);
    }
    assert!(!machine.health().ok && machine.health().what.ends_with(": no"));
    let until = machine.next_at();
    let wait = until.since_ms(at(0));
    assert!((2_000..=4_000).contains(&wait), "{wait}");
    assert_eq!(machine.step(until, Input::Tick), [Effect::Open(4)]);
    // Slack's own pause counts where it is longer.
    machine.step(until, failed(4, 900_000));
    assert_eq!(machine.next_at(), until.plus_ms(900_000));
    let now = until.plus_ms(900_000);
    assert_eq!(machine.step(now, Input::Tick), [Effect::Open(5)]);
    // It works again: for all.
    assert_eq!(machine.step(now, Input::Joined(5)), [Effect::Open(6)]);
    machine.step(now, hello(5));
    assert_eq!(machine.step(now, Input::Joined(6)), [Effect::Open(7)]);
    assert_eq!(machine.health().what, "1 of 3 connections to Slack, 1 not greeted yet");
}

#[test]
fn chance_differs_from_bot_to_bot() {
    let wait = |seed| {
        let mut machine = Machine::new(1, seed);
        machine.step(at(0), Input::Tick);
        machine.failures = 5;
        machine.step(at(0), failed(1, 0));
        machine.next_at()
    };
    let waits: std::collections::BTreeSet<_> = (0..20).map(wait).collect();
    assert!(waits.len() > 15, "{waits:?}");
}

#[test]
fn a_connection_that_is_not_made_or_not_greeted_is_given_up() {
    let mut machine = Machine::new(1, 1);
    machine.step(at(0), Input::Tick);
    assert_eq!(machine.next_at(), at(SLACK_SOCKET_OPEN_MS));
    let dropped = Effect::Drop(1, "no connection was made in time");
    assert_eq!(machine.step(at(SLACK_SOCKET_OPEN_MS), Input::Tick), [dropped]);
    let now = machine.next_at();
    machine.step(now, Input::Tick);
    machine.step(now, Input::Joined(2));
    // Frames that are no greeting change nothing.
    machine.step(now.plus_ms(5), Input::Heard(2, Frame::Unknown("x".into())));
    let late = now.plus_ms(SLACK_SOCKET_HELLO_MS);
    assert_eq!(machine.next_at(), late);
    let dropped = Effect::Drop(2, "Slack did not greet in time");
    assert_eq!(machine.step(late, Input::Tick), [dropped]);
    assert_eq!(machine.failures, 2);
    assert_eq!(machine.step(late, Input::Joined(2)), [], "nobody knows it any more");
}

#[test]
fn slack_23_a_connection_on_which_nothing_comes_is_made_anew() {
    let mut machine = live(1);
    let mut pings = 0;
    loop {
        let now = machine.next_at();
        let effects = machine.step(now, Input::Tick);
        pings += effects.iter().filter(|effect| is_ping(effect)).count();
        if now == at(SLACK_SOCKET_DEAF_MS) {
            let dropped = Effect::Drop(1, "nothing came for too long");
            assert_eq!(effects, [dropped, Effect::Open(2)]);
            break;
        }
        assert!(now < at(SLACK_SOCKET_DEAF_MS) && effects == [Effect::Ping(1)]);
    }
    assert_eq!(pings, 4);
    assert_eq!(machine.failures, 0, "it was a good one");
    // Whatever comes is a sign of life, in a quiet workspace the answers to pings.
    let mut machine = live(1);
    for n in 1..100 {
        let now = at(n * SLACK_SOCKET_PING_MS);
        assert_eq!(machine.step(now, Input::Tick), [Effect::Ping(1)]);
        assert_eq!(machine.step(now, Input::Alive(1)), []);
    }
}

#[test]
fn what_ends_young_is_not_followed_at_once() {
    for quarrel in [Input::Gone(1), ends(1, Reason::Refresh), ends(1, Reason::Warning)] {
        let mut machine = live(1);
        let effects = machine.step(at(1), quarrel);
        assert_eq!(effects, []);
        assert!(machine.open_at >= at(1 + SLACK_SOCKET_AGAIN_FIRST_MS / 2));
    }
    let mut machine = live(1);
    machine.step(at(10_000), Input::Alive(1));
    let old = machine.step(at(SLACK_SOCKET_STEADY_MS), Input::Gone(1));
    assert_eq!(old, [Effect::Open(2)]);
}

#[test]
fn at_the_end_nothing_is_taken_and_what_is_in_hand_is_finished() {
    let mut machine = live(2);
    machine.step(at(1), envelope(1, "a"));
    assert_eq!(machine.step(at(2), Input::End), [Effect::Close(2)]);
    assert_eq!(machine.step(at(3), envelope(1, "b")), []);
    let last = machine.step(at(4), settled(1, "a", TAKEN));
    assert_eq!(last, [ack(1, "a"), Effect::Close(1)]);
    machine.step(at(5), Input::Gone(2));
    assert!(!machine.is_over());
    machine.step(at(5), Input::Gone(1));
    assert!(machine.is_over());
    // What is only being made is not waited for.
    let mut machine = Machine::new(1, 1);
    machine.step(at(0), Input::Tick);
    let dropped = Effect::Drop(1, "it is not needed any more");
    assert_eq!(machine.step(at(1), Input::End), [dropped]);
    assert!(machine.is_over());
}

/// Whatever happens in whatever order, the bounds hold and time goes on.
#[test]
fn no_order_of_events_breaks_it() {
    for seed in 0..300 {
        let mut machine = Machine::new(3, seed);
        let mut dice = Machine::new(1, seed.wrapping_mul(31));
        let mut now = at(0);
        let mut opened = Vec::new();
        for n in 0..400 {
            let line = 1 + dice.roll() % (machine.opened + 1);
            let input = match dice.roll() % 14 {
                0..=2 => Input::Joined(line),
                3..=5 => hello(line),
                6 => envelope(line, "e"),
                7 => settled(line, "e", if dice.roll().is_multiple_of(2) { TAKEN } else { AGAIN }),
                8 => Input::Gone(line),
                9 => failed(line, 0),
                10 => ends(line, Reason::Warning),
                11 => ends(line, Reason::TooMany),
                12 => Input::Alive(line),
                _ => Input::Tick,
            };
            now = now.plus_ms(dice.roll() % 3_000);
            let ticked =
                if dice.roll().is_multiple_of(3) { machine.next_at().max(now) } else { now };
            now = ticked;
            for effect in machine.step(now, input) {
                if let Effect::Open(line) = effect {
                    opened.push((now, line));
                }
            }
            let wanted = machine.lines.values().filter(|line| line.is_wanted()).count();
            assert!(wanted <= 3, "{seed} {n}");
            assert!(machine.next_at() > now, "{seed} {n}: it would spin");
        }
        // Slack is never asked for more than a few in any ten seconds.
        for (at, _) in &opened {
            let near =
                opened.iter().filter(|(other, _)| other.since_ms(*at) < 10_000 && other >= at);
            assert!(near.count() <= 30, "{seed}");
        }
        machine.step(now, Input::End);
        let bound = now.plus_ms(2 * SLACK_SOCKET_LEAVE_MS);
        while !machine.is_over() {
            now = machine.next_at();
            assert!(now <= bound, "{seed}: it does not end");
            machine.step(now, Input::Tick);
        }
    }
}
