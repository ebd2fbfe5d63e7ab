use super::board::{Board, Told};
use super::*;
use crate::core::limits::{
    SLACK_STATUS_AGAIN_MS, SLACK_STATUS_MS, SLACK_STATUS_QUIET_MS_MAX, SLACK_STATUSES_MAX,
};
use crate::slack::pace::{Pass, Rank};

fn at(ms: u64) -> Timestamp {
    Timestamp::from_ms(1_000_000 + ms)
}

fn thread(number: usize) -> Thread {
    Thread::new("T1", "C1", &format!("1700000000.{number:06}")).unwrap()
}

#[expect(clippy::unnecessary_wraps, reason = "a status is an option")]
fn some(text: &str) -> Option<String> {
    Some(text.to_owned())
}

type Due = (Vec<(Thread, Option<String>)>, Option<Timestamp>);

fn due(board: &mut Board, now: u64) -> Due {
    board.due(at(now), 4, |_, _| Pass::Go)
}

/// Sets what is due, and says what that was.
fn show(board: &mut Board, now: u64) -> Vec<Option<String>> {
    let (due, _) = due(board, now);
    for (thread, status) in &due {
        board.told(thread, at(now), (status.clone(), Told::Shown));
    }
    due.into_iter().map(|(_, status)| status).collect()
}

#[test]
fn slack_22_changes_of_a_status_are_folded_to_one_a_second() {
    let mut board = Board::default();
    board.want(thread(1), at(0), some("a"));
    assert_eq!(show(&mut board, 0), [some("a")]);
    for ms in 1..900 {
        board.want(thread(1), at(ms), some(&format!("tool {ms}")));
        assert_eq!(due(&mut board, ms), (vec![], Some(at(SLACK_STATUS_MS))));
    }
    assert_eq!(show(&mut board, SLACK_STATUS_MS), [some("tool 899")]);
    assert_eq!(due(&mut board, 2 * SLACK_STATUS_MS).0, []);
}

#[test]
fn slack_11_a_status_is_set_again_before_slack_takes_it_away() {
    let mut board = Board::default();
    board.want(thread(1), at(0), some("a"));
    show(&mut board, 0);
    assert_eq!(due(&mut board, 10), (vec![], Some(at(SLACK_STATUS_AGAIN_MS))));
    assert_eq!(show(&mut board, SLACK_STATUS_AGAIN_MS), [some("a")]);
    assert_eq!(show(&mut board, 2 * SLACK_STATUS_AGAIN_MS), [some("a")]);
    // A post of the bot's hides it, so it is set again at once.
    board.hidden(&thread(1));
    assert_eq!(show(&mut board, 2 * SLACK_STATUS_AGAIN_MS + 2_000), [some("a")]);
}

#[test]
fn slack_10_a_status_belongs_to_its_thread_and_goes_with_its_turn() {
    let mut board = Board::default();
    board.want(thread(1), at(0), some("a"));
    board.want(thread(2), at(0), some("b"));
    assert_eq!(show(&mut board, 0), [some("a"), some("b")]);
    board.want(thread(1), at(2_000), None);
    assert_eq!(show(&mut board, 2_000), [None]);
    // Nothing is set for what is gone, and the end takes away only what is there.
    assert_eq!(due(&mut board, 3_000).0, []);
    assert_eq!(board.end(), [thread(2)]);
    board.want(thread(3), at(4_000), some("late"));
    assert_eq!(due(&mut board, 4_000), (vec![], None));
}

#[test]
fn a_turn_that_nobody_hears_of_any_more_is_not_shown_for_ever() {
    let mut board = Board::default();
    board.want(thread(1), at(0), some("a"));
    show(&mut board, 0);
    assert_eq!(show(&mut board, SLACK_STATUS_QUIET_MS_MAX), [None]);
    assert_eq!(due(&mut board, 2 * SLACK_STATUS_QUIET_MS_MAX), (vec![], None));
}

#[test]
fn a_short_turn_is_never_shown_and_a_lost_answer_is_made_good() {
    let mut board = Board::default();
    board.want(thread(1), at(0), some("a"));
    board.want(thread(1), at(1), None);
    assert_eq!(due(&mut board, 1), (vec![], None));
    board.want(thread(1), at(2), some("a"));
    let (all, _) = due(&mut board, 2);
    // It may be there or not; the turn is over before anybody knows.
    board.want(thread(1), at(3), None);
    board.told(&all[0].0, at(10_000), (some("a"), Told::NotYet));
    assert_eq!(show(&mut board, 20_000), [None]);
}

#[test]
fn statuses_wait_for_answers_but_their_end_does_not() {
    let mut board = Board::default();
    board.want(thread(1), at(0), some("a"));
    show(&mut board, 0);
    board.want(thread(1), at(2_000), some("b"));
    let mut busy = |_: &Thread, rank| match rank {
        Rank::Quiet => Pass::Go,
        Rank::Answer | Rank::Status => Pass::Wait(at(7_000)),
    };
    assert_eq!(board.due(at(2_000), 4, &mut busy), (vec![], Some(at(7_000))));
    board.want(thread(1), at(7_000), None);
    assert_eq!(board.due(at(7_000), 4, &mut busy).0, [(thread(1), None)]);
}

#[test]
fn it_shows_no_more_threads_than_it_may_and_none_once_refused() {
    let mut board = Board::default();
    for number in 0..2 * SLACK_STATUSES_MAX {
        board.want(thread(number), at(0), some("a"));
    }
    let mut shown = 0;
    while !show(&mut board, 0).is_empty() {
        shown += 4;
    }
    assert_eq!(shown, SLACK_STATUSES_MAX);
    assert!(board.give_up());
    assert!(!board.give_up());
}

#[test]
fn a_refusal_elsewhere_takes_away_what_is_shown() {
    let mut board = Board::default();
    board.want(thread(1), at(0), some("is thinking"));
    assert_eq!(show(&mut board, 0), [some("is thinking")]);
    board.want(thread(2), at(10), some("is thinking"));
    assert_eq!(due(&mut board, 10).0, [(thread(2), some("is thinking"))]);
    assert!(board.give_up());
    board.told(&thread(2), at(20), (some("is thinking"), Told::NotHere));
    // Its turn goes on and ends; nothing is set any more, and what was is taken away once.
    board.want(thread(1), at(30), some("runs a tool"));
    assert_eq!(show(&mut board, SLACK_STATUS_MS), [None]);
    board.want(thread(1), at(2_000), None);
    board.want(thread(3), at(2_000), some("is thinking"));
    for ms in [3_000, 3_000 + SLACK_STATUS_AGAIN_MS, SLACK_STATUS_QUIET_MS_MAX] {
        assert_eq!(show(&mut board, ms), []);
    }
}
