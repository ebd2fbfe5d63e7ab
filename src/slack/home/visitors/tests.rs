use super::*;
use crate::slack::place::principal;

const NOW: Timestamp = Timestamp::from_ms(1_000_000);

fn at(ms: u64) -> Timestamp {
    NOW.plus_ms(ms)
}

fn visitor(n: usize) -> Visitor {
    let (installation, user) = ("T1".to_owned(), format!("U{n}"));
    Visitor { by: principal("T1", &user).unwrap(), installation, user }
}

fn session(name: &str) -> SessionId {
    SessionId::new(format!("slack/T1/C1/{name}")).unwrap()
}

fn due(visitors: &mut Visitors, ms: u64) -> (Vec<Job>, Option<Timestamp>) {
    visitors.due(at(ms), 4, |_, _| Pass::Go)
}

fn one(visitors: &mut Visitors, ms: u64) -> Job {
    let (mut jobs, _) = due(visitors, ms);
    assert_eq!(jobs.len(), 1);
    jobs.remove(0)
}

fn seen(text: &str, sessions: &[&str]) -> Drawn {
    Drawn::Seen(text.to_owned(), sessions.iter().map(|name| session(name)).collect())
}

fn owners(all: &[usize]) -> BTreeSet<Principal> {
    all.iter().map(|n| visitor(*n).by).collect()
}

#[test]
fn who_opens_it_is_shown_it_at_once_and_by_itself_only_every_few_seconds() {
    let mut visitors = Visitors::default();
    visitors.stirred(at(0), &session("1.1"), &owners(&[1]));
    assert_eq!(due(&mut visitors, 0), (vec![], None), "nobody has opened it");
    visitors.came(at(0), visitor(1), None);
    let job = one(&mut visitors, 0);
    assert_eq!(job.seen, None);
    // It is drawn by one at a time, however much happens meanwhile.
    visitors.came(at(1), visitor(1), Some("done".into()));
    visitors.stirred(at(1), &session("1.1"), &owners(&[1, 2]));
    assert_eq!(due(&mut visitors, 1).0, []);
    visitors.drawn(at(2), &job, seen("a", &["1.1"]));
    let job = one(&mut visitors, 2);
    assert_eq!((job.said.as_deref(), job.seen.as_deref()), (Some("done"), None));
    visitors.drawn(at(3), &job, seen("b", &["1.1"]));
    // From now on it rests; what happens meanwhile is one drawing.
    for ms in [3, 4, 5] {
        visitors.stirred(at(ms), &session("1.1"), &owners(&[1]));
    }
    let rests = at(3).plus_ms(SLACK_HOME_MS);
    assert_eq!(due(&mut visitors, 6), (vec![], Some(rests)));
    let job = one(&mut visitors, 3 + SLACK_HOME_MS);
    assert_eq!((job.said.as_deref(), job.seen.as_deref()), (None, Some("b")), "said once");
    // Who presses something need not wait.
    visitors.stirred(at(3 + SLACK_HOME_MS), &session("1.1"), &owners(&[1]));
    visitors.drawn(at(4 + SLACK_HOME_MS), &job, seen("c", &[]));
    assert_eq!(due(&mut visitors, 5 + SLACK_HOME_MS).0, [], "and no more by itself at once");
    visitors.came(at(5 + SLACK_HOME_MS), visitor(1), None);
    one(&mut visitors, 5 + SLACK_HOME_MS);
}

#[test]
fn whoever_saw_something_there_is_shown_that_it_is_over() {
    let mut visitors = Visitors::default();
    for n in [1, 2, 3] {
        visitors.came(at(0), visitor(n), None);
    }
    let (jobs, _) = due(&mut visitors, 0);
    for (job, session) in jobs.iter().zip(["1.1", "1.1", "2.2"]) {
        visitors.drawn(at(0), job, seen("x", &[session]));
    }
    visitors.stirred(at(9_000), &session("1.1"), &owners(&[]));
    let users = |jobs: Vec<Job>| jobs.into_iter().map(|job| job.visitor.user).collect::<Vec<_>>();
    assert_eq!(users(due(&mut visitors, 9_000).0), ["U1", "U2"]);
    visitors.stirred(at(9_000), &session("5.5"), &owners(&[3]));
    assert_eq!(users(due(&mut visitors, 9_000).0), ["U3"]);
}

#[test]
fn what_fails_is_tried_a_few_times_and_given_up() {
    let mut visitors = Visitors::default();
    visitors.came(at(0), visitor(1), Some("done".into()));
    let mut ms = 0;
    for _ in 1..SLACK_HOME_TRIES_MAX {
        let job = one(&mut visitors, ms);
        assert_eq!(job.said.as_deref(), Some("done"), "it is not lost by that");
        visitors.drawn(at(ms), &job, Drawn::Again);
        assert_eq!(due(&mut visitors, ms).0, []);
        ms += SLACK_HOME_MS;
    }
    // A limit is no failure.
    for _ in 0..SLACK_HOME_TRIES_MAX {
        let job = one(&mut visitors, ms);
        visitors.drawn(at(ms), &job, Drawn::Limited);
    }
    let limited = visitors.due(at(ms), 4, |_, _| Pass::Wait(at(ms + 30_000)));
    assert_eq!(limited, (vec![], Some(at(ms + 30_000))));
    let job = one(&mut visitors, ms + 30_000);
    visitors.drawn(at(ms + 30_000), &job, Drawn::Again);
    assert!(!visitors.any_of("T1"), "until it is opened again");
    visitors.came(at(ms), visitor(1), None);
    let job = one(&mut visitors, ms);
    visitors.drawn(at(ms), &job, Drawn::Never);
    assert!(!visitors.any_of("T1"));
}

#[test]
fn so_many_are_kept_and_so_many_are_drawn_at_once() {
    let mut visitors = Visitors::default();
    for n in 0..=SLACK_HOMES_MAX {
        visitors.came(at(n as u64), visitor(n), None);
    }
    assert_eq!(visitors.tabs.len(), SLACK_HOMES_MAX);
    assert!(!visitors.tabs.contains_key(&visitor(0).by), "the oldest is forgotten");
    let (jobs, _) = due(&mut visitors, 5_000);
    assert_eq!(jobs.len(), 4);
    assert_eq!(due(&mut visitors, 5_000).0, []);
    let first = jobs.first().unwrap();
    visitors.drawn(at(5_000), first, seen("x", &[]));
    let waited = one(&mut visitors, 5_000);
    assert_eq!(waited.visitor.user, "U5");
}
