//! Deliveries overtake each other: a change of a message comes before the message itself.

use dogwatch::core::arrival::{Incoming, Standing, What};
use dogwatch::core::execution::Scope;
use dogwatch::core::id::DedupeKey;
use dogwatch::core::ledger::Refusal;
use dogwatch::core::ledger::session::Accepted;
use dogwatch::core::time::Timestamp;
use dogwatch::core::transcript::Body;

use super::bench::Bench;

/// A message of this key that was said before.
fn late(bench: &Bench, key: &str) -> Incoming {
    let mut incoming = bench.incoming(key, What::Message { text: format!("{key} as it was") });
    incoming.source_at = Timestamp::from_ms(bench.now.as_ms() - 1_000);
    incoming
}

/// A change of it, so many milliseconds after now by its source.
fn change(bench: &Bench, no: &str, of: &str, at: u64, text: Option<&str>) -> Incoming {
    let of = DedupeKey::new(of).unwrap();
    let what = match text {
        Some(text) => What::Edit { of, text: text.to_owned() },
        None => What::Deletion { of },
    };
    let mut incoming = bench.incoming(no, what);
    incoming.source_at = bench.now.plus_ms(at);
    incoming
}

#[test]
fn f11_a_change_that_comes_before_its_message_is_kept_for_it() {
    // The changes as they come, with their times at the source; how the message reads then.
    type Case = (&'static [(u64, Option<&'static str>)], Option<&'static str>);
    let cases: [Case; 7] = [
        (&[(1, Some("uno"))], Some("uno")),
        (&[(1, None)], None),
        (&[(1, Some("uno")), (2, Some("due"))], Some("due")),
        (&[(2, Some("due")), (1, Some("uno"))], Some("due")),
        (&[(1, Some("uno")), (2, None)], None),
        (&[(2, None), (1, Some("uno"))], None),
        // Nothing follows a deletion, whatever the clocks say.
        (&[(2, Some("uno")), (1, None)], None),
    ];
    let mut bench = Bench::new();
    bench.say("hello");
    for (no, (changes, reads)) in cases.into_iter().enumerate() {
        let key = format!("m{no}");
        for (at, text) in changes {
            let change = change(&bench, &format!("e{no}-{at}"), &key, *at, *text);
            assert_eq!(bench.accept(change.clone()), Ok(Accepted::Early), "{changes:?}");
            assert_eq!(bench.accept(change), Ok(Accepted::Early), "a repeat: {changes:?}");
        }
        let seq = bench.head().arrivals + 1;
        let message = late(&bench, &key);
        let (wanted, standing) = match reads {
            Some(_) => (Accepted::New(seq), Standing::Pending),
            None => (Accepted::Changed(seq), Standing::Withdrawn),
        };
        assert_eq!(bench.accept(message.clone()), Ok(wanted), "{changes:?}");
        assert_eq!(bench.standing(seq), standing, "{changes:?}");
        assert_eq!(bench.accept(message), Ok(Accepted::Duplicate(seq)), "{changes:?}");
        // A repeat of a change, after its message, changes nothing and is no remark.
        let (at, text) = changes[0];
        let again = change(&bench, &format!("e{no}-{at}"), &key, at, text);
        assert_eq!(bench.accept(again), Ok(Accepted::Early), "{changes:?}");
        assert_eq!(bench.head().arrivals, seq, "{changes:?}");
    }
    bench.pass(1_000);
    bench.turn_of_now("a");
    let log = bench.log();
    let heard = log.iter().filter_map(|entry| {
        let Body::Heard { text, .. } = &entry.body else { return None };
        Some(text.as_str())
    });
    assert_eq!(heard.collect::<Vec<_>>(), ["hello", "uno", "due", "due"]);
}

#[test]
fn f11_a_message_that_was_deleted_before_it_came_lifts_no_stop() {
    let mut bench = Bench::new();
    bench.say("hello");
    bench.stop(Scope::All);
    bench.pass(2_000);
    let gone = change(&bench, "e1", "m1", 1, None);
    assert_eq!(bench.accept(gone), Ok(Accepted::Early));
    let message = late(&bench, "m1");
    assert_eq!(bench.accept(message), Ok(Accepted::Changed(2)));
    assert!(bench.head().stopped);
    assert_eq!(bench.try_claim("a"), Err(Refusal::Idle));
    // One that is older than the stop joins the log as it reads now.
    let edit = change(&bench, "e2", "m2", 1, Some("zwei"));
    assert_eq!(bench.accept(edit), Ok(Accepted::Early));
    let mut message = late(&bench, "m2");
    message.source_at = Timestamp::from_ms(bench.now.as_ms() - 3_000);
    assert_eq!(bench.accept(message), Ok(Accepted::Late(3)));
    let log = bench.log();
    assert!(log.iter().any(|e| matches!(&e.body, Body::Heard { text, .. } if text == "zwei")));
}
