use super::*;

const POST: &str = "chat.postMessage";

fn at(ms: u64) -> Timestamp {
    Timestamp::from_ms(1_000_000 + ms)
}

#[test]
fn slack_21_a_few_answers_follow_each_other_at_once_and_statuses_leave_them_room() {
    let mut pace = Pace::default();
    assert_eq!(pace.ask(at(0), (POST, "C1"), Rank::Status), Pass::Go);
    assert_eq!(pace.ask(at(0), (POST, "C1"), Rank::Status), Pass::Wait(at(1_000)));
    for _ in 1..SLACK_BURST_MAX {
        assert_eq!(pace.ask(at(100), (POST, "C1"), Rank::Answer), Pass::Go);
    }
    // In the long run one a second; another channel has its own pace.
    assert_eq!(pace.ask(at(100), (POST, "C1"), Rank::Answer), Pass::Wait(at(1_000)));
    assert_eq!(pace.ask(at(1_000), (POST, "C1"), Rank::Answer), Pass::Go);
    assert_eq!(pace.ask(at(1_000), (POST, "C1"), Rank::Answer), Pass::Wait(at(2_000)));
    assert_eq!(pace.ask(at(1_000), (POST, "C1"), Rank::Status), Pass::Wait(at(5_000)));
    assert_eq!(pace.ask(at(1_000), (POST, "C2"), Rank::Answer), Pass::Go);
}

#[test]
fn slack_22_what_slack_limits_waits_and_the_rest_goes_on() {
    let mut pace = Pace::default();
    pace.limited(at(0), (POST, "C1"), 30_000);
    // A shorter word does not shorten it.
    pace.limited(at(0), (POST, "C1"), 1_000);
    for rank in [Rank::Answer, Rank::Status, Rank::Quiet] {
        assert_eq!(pace.ask(at(29_999), (POST, "C1"), rank), Pass::Wait(at(30_000)));
    }
    assert_eq!(pace.ask(at(0), (POST, "C2"), Rank::Answer), Pass::Go);
    assert_eq!(pace.ask(at(0), ("conversations.replies", "C1"), Rank::Quiet), Pass::Go);
    assert_eq!(pace.ask(at(30_000), (POST, "C1"), Rank::Answer), Pass::Go);
}

#[test]
fn no_limit_of_nothing_makes_a_loop() {
    let mut pace = Pace::default();
    pace.limited(at(0), (POST, "C1"), 0);
    assert_eq!(pace.ask(at(0), (POST, "C1"), Rank::Quiet), Pass::Wait(at(SLACK_PACE_MS)));
}

#[test]
fn it_remembers_no_more_than_it_may() {
    let mut pace = Pace::default();
    for number in 0..3 * SLACK_PACED_MAX {
        let channel = format!("C{number}");
        assert_eq!(pace.ask(at(0), (POST, &channel), Rank::Answer), Pass::Go);
        pace.limited(at(0), (POST, &channel), 60_000);
    }
    assert!(pace.rest_at.len() <= SLACK_PACED_MAX && pace.limited.len() <= SLACK_PACED_MAX);
}
