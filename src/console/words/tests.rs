//! What people read, as snapshots: wide, narrow, in colour.

use unicode_width::UnicodeWidthStr as _;

use super::*;
use crate::console::chat::ChatName;
use crate::console::typed::HELP;
use crate::core::id::{ExecutionId, Principal};

const WIDE: Look = Look { columns: 100, colour: false };
const NARROW: Look = Look { columns: 40, colour: false };
const COLOUR: Look = Look { columns: 100, colour: true };
const NOW: Timestamp = Timestamp::from_ms(1_000_000);

fn work(id: &str, name: &str, state: Stand, ending: Option<&str>) -> Work {
    Work {
        id: ExecutionId::new(id).unwrap(),
        name: name.to_owned(),
        state,
        elapsed_ms: 12_345,
        timeout_ms: 300_000,
        ending: ending.map(str::to_owned),
        last_line: None,
        stalled: false,
    }
}

fn table() -> Reply {
    let mut first = work("auto-notify-watc-0001", "Watch deployment abc123", Stand::Running, None);
    first.last_line = Some("step 2 of 3, all \u{1b}[31mgood".to_owned());
    let mut second = work("auto-notify-nigh-0002", "Nightly", Stand::Cancelling, None);
    second.stalled = true;
    let long = "A watcher whose name is much longer than any line of a terminal has room for";
    Reply::Watchers {
        live: vec![first, second],
        ended: vec![
            work("auto-notify-aaaa-0012", "漢字 ☂\nline", Stand::Completed, None),
            work("auto-notify-back-0003", "Backup", Stand::Failed, Some("exit 3")),
            work("auto-notify-awat-0004", long, Stand::TimedOut, Some("signal 15")),
            work("auto-notify-gone-0005", "Gone", Stand::Lost, Some("host-rebooted")),
        ],
    }
}

fn summary(name: &str) -> Summary {
    Summary {
        name: ChatName::new(name).unwrap(),
        turn: None,
        attempt: None,
        messages: 0,
        results: 0,
        running: 0,
        unposted: 0,
        stopped: false,
        again_at: None,
    }
}

fn said(given: &Reply, look: Look) -> String {
    reply(given, "main", NOW, look)
}

#[test]
fn the_help() {
    insta::assert_snapshot!(HELP);
    assert!(HELP.lines().all(|line| line.chars().count() <= 80));
}

#[test]
fn the_watchers() {
    insta::assert_snapshot!("watchers_wide", said(&table(), WIDE));
    insta::assert_snapshot!("watchers_narrow", said(&table(), NARROW));
    insta::assert_snapshot!("watchers_colour", said(&table(), COLOUR).replace('\u{1b}', "ESC"));
    let none = Reply::Watchers { live: Vec::new(), ended: Vec::new() };
    insta::assert_snapshot!("watchers_none", said(&none, WIDE));
}

#[test]
fn no_line_of_a_table_is_wider_than_the_terminal() {
    for columns in [1, 10, 25, 40, 71, 72, 80, 200] {
        let text = said(&table(), Look { columns, colour: false });
        for line in text.lines().skip(1) {
            assert!(line.width() <= columns, "{columns}: {line}");
        }
    }
}

#[test]
fn the_status() {
    let again_at = Some(NOW.plus_ms(4_200));
    let states = [
        summary("idle"),
        Summary { turn: Some(3), attempt: Some(1), messages: 1, running: 2, ..summary("busy") },
        Summary { turn: Some(3), attempt: Some(2), again_at, results: 1, ..summary("failed") },
        Summary { stopped: true, unposted: 2, running: 1, ..summary("stopped") },
    ];
    let texts: Vec<String> =
        states.iter().map(|state| said(&Reply::Status(state.clone()), WIDE)).collect();
    insta::assert_snapshot!("status", texts.join("\n\n"));
    let chats = Reply::Chats { chats: states.to_vec() };
    insta::assert_snapshot!("chats", said(&chats, WIDE));
}

#[test]
fn the_short_answers() {
    let id = ExecutionId::new("auto-notify-watc-0001").unwrap();
    let cancel = |result| said(&Reply::Cancel { id: id.clone(), result }, WIDE);
    let stop = |all, turn, ended| said(&Reply::Stop { all, turn, ended }, WIDE);
    let texts = [
        cancel(CancelResult::Cancelling),
        cancel(CancelResult::Over(Stand::TimedOut)),
        cancel(CancelResult::Foreign(Principal::new("slack/T1/U2").unwrap())),
        cancel(CancelResult::Unknown),
        stop(false, true, 0),
        stop(false, false, 0),
        stop(true, true, 1),
        stop(true, false, 2),
        stop(true, false, 0),
    ];
    insta::assert_snapshot!(texts.join("\n"));
}

#[test]
fn the_lines_beside_the_talk() {
    let watching = |state, ending| {
        watcher(&work("auto-notify-watc-0001", "Watch\ndeployment", state, ending), WIDE)
    };
    let failed =
        |again_at| step(&Step::Failed { what: "429\nslow".to_owned(), again_at }, NOW, WIDE);
    let texts = [
        watching(Stand::Running, None),
        watching(Stand::Cancelling, None),
        watching(Stand::Completed, None),
        watching(Stand::Failed, Some("exit 3")),
        failed(Some(NOW.plus_ms(5_000))).unwrap(),
        post(PostSort::Answer, "two\nlines", false, WIDE),
        post(PostSort::Woken, "again", true, WIDE),
        post(PostSort::Human, "the deployment is done", false, WIDE),
        post(PostSort::Failure, "the turn was given up", false, WIDE),
    ];
    insta::assert_snapshot!(texts.join("\n"));
}
