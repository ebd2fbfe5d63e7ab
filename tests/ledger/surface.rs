//! The message that shows a turn: one a turn, written before it is asked for, and none once the
//! answer is on its way.

use dogwatch::core::execution::Scope;
use dogwatch::core::id::ItemId;
use dogwatch::core::ledger::row::{Surface, SurfaceForm};
use dogwatch::core::ledger::session::{
    DoneItem, LeaseItem, Placed, PutSurface, Release, Why, first_post_of,
};
use dogwatch::core::ledger::{Class, Operation};

use super::bench::{Bench, boot, session};

/// Of turn 1, shown by this boot.
fn put(by: &str, at: Option<&str>) -> PutSurface {
    PutSurface {
        session: session(),
        turn: 1,
        boot: boot(by),
        form: SurfaceForm::Stream,
        mark: "begins so".into(),
        at: at.map(str::to_owned),
    }
}

fn surface(bench: &Bench) -> Surface {
    bench.turn(1).surface.unwrap()
}

fn is_here(placed: &Placed) -> bool {
    matches!(placed, Placed::Here(whose) if whose.as_str() == "ann")
}

#[test]
fn a_turn_has_one_surface_and_whoever_resumes_it_leaves_that_alone() {
    let mut bench = Bench::new();
    bench.say("hello");
    let token = bench.claim("a");
    assert!(is_here(&bench.run(&put("a", None)).unwrap()));
    assert!(is_here(&bench.run(&put("a", Some("there"))).unwrap()));
    // Who says again that it will be asked for does not forget where it is.
    assert!(is_here(&bench.run(&put("a", None)).unwrap()));
    assert_eq!(surface(&bench).at.as_deref(), Some("there"));
    bench.run(&Release { token, why: Why::Handover }).unwrap();
    bench.claim("b");
    for other in [put("b", None), PutSurface { mark: "or so".into(), ..put("a", Some("else")) }] {
        assert_eq!(bench.run(&other), Ok(Placed::Taken));
    }
    assert_eq!((surface(&bench).boot, surface(&bench).at.as_deref()), (boot("a"), Some("there")));
    // What streamed is edited from now on.
    let draft = PutSurface { form: SurfaceForm::Draft, ..put("a", None) };
    assert!(is_here(&bench.run(&draft).unwrap()));
    assert_eq!(surface(&bench).form, SurfaceForm::Draft);
}

#[test]
fn none_begins_once_the_answer_is_on_its_way() {
    let mut bench = Bench::new();
    assert_eq!(bench.run(&put("a", None)), Ok(Placed::Over), "there is no turn");
    bench.say("hello");
    bench.turn_of_now("a");
    assert_eq!(bench.run(&put("a", None)), Ok(Placed::Late(None)));
    assert!(bench.turn(1).surface.is_none());
}

#[test]
fn where_it_is_may_be_heard_late_until_somebody_posts() {
    let item = ItemId::new("post/1/0").unwrap();
    assert_eq!(first_post_of(&item), Some(1));
    for other in ["post/1/1", "post/1", "dead/1", "show/post/1/0", "post/x/0"] {
        assert_eq!(first_post_of(&ItemId::new(other).unwrap()), None);
    }
    let mut bench = Bench::new();
    bench.say("hello");
    let token = bench.claim("a");
    bench.run(&put("a", None)).unwrap();
    bench.answer(&token, "the answer");
    bench.commit(&token).unwrap();
    assert!(is_here(&bench.run(&put("a", Some("there"))).unwrap()));
    let lease = bench.lease();
    let leases = LeaseItem { session: session(), item: item.clone(), lease, boot: boot("a") };
    bench.run(&leases).unwrap();
    assert_eq!(bench.run(&put("a", Some("elsewhere"))), Ok(Placed::Late(None)));
    bench.run(&DoneItem { session: session(), item, receipt: "x".into() }).unwrap();
    assert_eq!(bench.run(&put("a", Some("elsewhere"))), Ok(Placed::Late(Some("x".into()))));
    assert_eq!(surface(&bench).at.as_deref(), Some("there"));
}

#[test]
fn a_stopped_turn_learns_nothing_more() {
    let mut bench = Bench::new();
    bench.say("hello");
    bench.claim("a");
    bench.run(&put("a", None)).unwrap();
    bench.stop(Scope::Turn);
    assert_eq!(bench.run(&put("a", Some("there"))), Ok(Placed::Over));
    assert_eq!(surface(&bench).at, None);
}

#[test]
fn it_costs_no_flush_and_admits_nothing() {
    assert_eq!(put("a", None).class(), Class::HINT);
}
