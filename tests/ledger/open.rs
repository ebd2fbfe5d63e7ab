//! Conversations that a person asks for where there is none: one root each, and what was said once.

use dogwatch::core::execution::Address;
use dogwatch::core::id::{BootId, ItemId, LeaseId, Principal};
use dogwatch::core::ledger::row::{Errand, Item, ItemState, Opening};
use dogwatch::core::ledger::session::{
    DoneItem, FailItem, Forget, LeaseItem, Leased, Open, Retire, Retry, begun,
};
use dogwatch::core::ledger::{Aggregate, Key, Operation, Refusal, Row};
use dogwatch::core::limits::{MESSAGE_BYTES_MAX, POST_MS_MAX, RETENTION_MS, ROOTS_WAITING_MAX};
use pretty_assertions::assert_eq;

use super::bench::{Bench, boot, session};

fn place() -> Address {
    Address { surface: "slack".into(), thread: "T1/C1".into() }
}

fn id(name: &str) -> ItemId {
    ItemId::new(name).unwrap()
}

fn open(bench: &Bench, name: &str, text: &str) -> Open {
    let principal = Principal::new("slack/T1/U1").unwrap();
    let opening = Opening { principal, text: text.into(), said_at: bench.now, shared: false };
    Open { session: session(), item: id(name), address: place(), opening }
}

fn done(bench: &mut Bench, name: &str, receipt: &str) {
    let done = DoneItem { session: session(), item: id(name), receipt: receipt.into() };
    bench.run(&done).unwrap();
}

fn state(bench: &Bench, name: &str) -> (ItemState, bool) {
    let Item { state, at, .. } = bench.item(name).unwrap();
    (state, at.is_some())
}

#[test]
fn b38_what_a_root_begins_is_known_by_where_slack_put_it() {
    let mut bench = Bench::new();
    let asked = open(&bench, "root/1", "what broke?");
    bench.run(&asked).unwrap();
    assert_eq!(state(&bench, "root/1"), (ItemState::Pending, true));
    assert_eq!(bench.item("begin/root/1"), None);
    done(&mut bench, "root/1", "T1/C1/1700000000.000100");
    let begin = bench.item("begin/root/1").unwrap();
    assert_eq!(begin.errand, Errand::Begin { of: id("root/1") });
    assert_eq!(state(&bench, "begin/root/1"), (ItemState::Pending, true));
    let (session, address) = begun(&place(), "T1/C1/1700000000.000100").unwrap();
    assert_eq!(session.as_str(), "slack/T1/C1/1700000000.000100");
    assert_eq!(address, Address { thread: "T1/C1/1700000000.000100".into(), ..place() });
    // The end of that is no root.
    done(&mut bench, "begin/root/1", "slack/T1/C1/1700000000.000100");
    assert_eq!(bench.item("begin/begin/root/1"), None);
}

#[test]
fn a_repeat_asks_for_nothing_more_whatever_it_says() {
    let mut bench = Bench::new();
    bench.run(&open(&bench, "root/1", "what broke?")).unwrap();
    bench.run(&open(&bench, "root/1", "something else")).unwrap();
    let Errand::Root { opening, .. } = bench.item("root/1").unwrap().errand else {
        panic!("it is no root")
    };
    assert_eq!(opening.text, "what broke?");
    done(&mut bench, "root/1", "T1/C1/1.0");
    bench.run(&open(&bench, "root/1", "what broke?")).unwrap();
    assert_eq!(state(&bench, "root/1").0, ItemState::Done("T1/C1/1.0".into()));
}

#[test]
fn roots_of_a_place_are_posted_in_the_order_in_which_they_were_asked_for() {
    let mut bench = Bench::new();
    for name in ["root/1", "root/2"] {
        bench.run(&open(&bench, name, "what broke?")).unwrap();
    }
    assert_eq!((state(&bench, "root/1").1, state(&bench, "root/2").1), (true, false));
    done(&mut bench, "root/1", "T1/C1/1.0");
    assert!(state(&bench, "root/2").1);
}

#[test]
fn b36_a_root_that_cannot_be_posted_begins_nothing() {
    let mut bench = Bench::new();
    bench.run(&open(&bench, "root/1", "what broke?")).unwrap();
    let (lease, boot) = (bench.lease(), boot("a"));
    let leases = |lease: &LeaseId, boot: &BootId| LeaseItem {
        session: session(),
        item: id("root/1"),
        lease: lease.clone(),
        boot: boot.clone(),
    };
    bench.run(&leases(&lease, &boot)).unwrap();
    let retry = Retry::Never("not_in_channel".into());
    bench.once(&FailItem { session: session(), item: id("root/1"), lease, retry }).unwrap();
    assert_eq!(state(&bench, "root/1"), (ItemState::Dead("not_in_channel".into()), false));
    assert_eq!(bench.item("begin/root/1"), None);
    // Nor does one that nobody took.
    bench.run(&open(&bench, "root/2", "what broke?")).unwrap();
    bench.pass(POST_MS_MAX + 1);
    let late = LeaseItem { item: id("root/2"), ..leases(&bench.lease(), &boot) };
    assert_eq!(bench.once(&late), Ok(Leased::Dead));
    assert_eq!(bench.item("begin/root/2"), None);
}

#[test]
fn so_many_roots_wait_at_a_place_and_no_more() {
    let mut bench = Bench::new();
    for n in 0..ROOTS_WAITING_MAX {
        bench.run(&open(&bench, &format!("root/{n}"), "what broke?")).unwrap();
    }
    let more = open(&bench, "root/more", "what broke?");
    assert_eq!(bench.run(&more), Err(Refusal::Full(ROOTS_WAITING_MAX as usize)));
    // A repeat of one of them is none more.
    bench.run(&open(&bench, "root/0", "what broke?")).unwrap();
    for n in 0..ROOTS_WAITING_MAX {
        done(&mut bench, &format!("root/{n}"), "T1/C1/1.0");
    }
    bench.run(&more).unwrap();
    let long = open(&bench, "root/long", &"x".repeat(MESSAGE_BYTES_MAX + 1));
    assert!(matches!(bench.run(&long), Err(Refusal::Invalid(_))));
    assert!(long.class().admits);
}

fn rows(bench: &Bench) -> Vec<(Key, Row)> {
    let rows = bench.rows.get(&Aggregate::Session(session()));
    rows.into_iter().flatten().map(|(key, row)| (key.clone(), row.clone())).collect()
}

/// As the sweep does. Answers whether the session is gone with it.
fn forget(bench: &mut Bench, name: &str) -> bool {
    let key = Key::item(&id(name));
    let retire = Retire::of(&session(), &rows(bench), &key);
    if retire.is_some_and(|retire| bench.run(&retire).unwrap()) {
        return true;
    }
    bench.run(&Forget { session: session(), keys: vec![key] }).unwrap();
    false
}

#[test]
fn what_belongs_to_a_place_goes_with_the_last_that_was_asked_for_there() {
    let mut bench = Bench::new();
    bench.run(&open(&bench, "root/1", "what broke?")).unwrap();
    done(&mut bench, "root/1", "T1/C1/1.0");
    done(&mut bench, "begin/root/1", "slack/T1/C1/1.0");
    bench.pass(RETENTION_MS + 1);
    assert!(!forget(&mut bench, "root/1"), "something else is left");
    // Somebody asks while the last row is looked at: the line of that stays.
    let last = Key::item(&id("begin/root/1"));
    let retire = Retire::of(&session(), &rows(&bench), &last).unwrap();
    bench.run(&open(&bench, "root/2", "what broke?")).unwrap();
    assert_eq!(bench.run(&retire), Ok(false));
    bench.run(&open(&bench, "root/3", "what broke?")).unwrap();
    assert!(!state(&bench, "root/3").1, "it stands behind the other");
    assert!(!forget(&mut bench, "begin/root/1"));
    for name in ["root/2", "root/3"] {
        done(&mut bench, name, "T1/C1/2.0");
        done(&mut bench, &format!("begin/{name}"), "slack/T1/C1/2.0");
    }
    bench.pass(RETENTION_MS + 1);
    let names = ["root/2", "begin/root/2", "root/3", "begin/root/3"];
    let gone = names.map(|name| forget(&mut bench, name));
    assert_eq!(gone, [false, false, false, true]);
    assert_eq!(rows(&bench), []);
}
