//! The work of an installation that is gone is stopped, page by page, also over a crash, and that
//! of others goes on.

use dogwatch::core::execution::Address;
use dogwatch::core::id::{InstallationId, SessionId};
use dogwatch::core::installation::{Departure, Installation};
use dogwatch::core::ledger::installation::Departed;
use dogwatch::core::limits::LEAVING_PAGE;
use dogwatch::engine::installations::Register;
use dogwatch::ports::{Desk, Installations};

use crate::support::bot::Bot;
use crate::support::fake_llm::Reply;
use crate::support::tap::At;

fn session(name: &str) -> SessionId {
    SessionId::new(format!("slack/{name}")).unwrap()
}

async fn says(bot: &Bot, name: &str) {
    let address = Address { surface: "slack".to_owned(), thread: name.to_owned() };
    bot.deliver_at((&session(name), address), "m", "watch it").await.unwrap();
}

async fn is_stopped(bot: &Bot, name: &str) -> bool {
    let desk = bot.desk();
    bot.wait("a view", desk.view(&session(name))).await.unwrap().stopped
}

fn register(bot: &Bot) -> Register {
    Register::of(bot.engine_now())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_installation_leaves_is_stopped_over_a_crash_and_nothing_of_others() {
    let mut bot = Bot::start().await;
    bot.llm.otherwise(|_| Reply::stream().stall());
    let own: Vec<String> = (0..LEAVING_PAGE + 6).map(|no| format!("T1/C1/{no:03}.1")).collect();
    // Names that begin alike are others' all the same.
    let others = ["T0/C1/1.1", "T10/C1/1.1", "T2/C1/1.1"];
    for name in own.iter().map(String::as_str).chain(others) {
        says(&bot, name).await;
    }
    bot.attend_installations();
    let half = |one: &Installation| one.leaving.as_ref().is_some_and(|it| it.upto.is_some());
    let trap = bot.hand.trap_row::<Installation>(At::Before, half);
    let id = InstallationId::new("slack/T1").unwrap();
    let departed = register(&bot).depart(&id, Departure::Uninstalled, None).await;
    assert_eq!(departed, Ok(Departed::Now));
    bot.wait("the first page", trap.caught()).await;
    bot.crash().await;
    bot.boot().await;
    assert!(!is_stopped(&bot, own.last().unwrap()).await, "the rest is yet to be stopped");
    let mut applies = bot.hand.applies();
    bot.attend_installations();
    let kept = register(&bot);
    let left = async {
        loop {
            applies.mark_unchanged();
            let one = kept.find(&id).await.unwrap().unwrap();
            if one.leaving.is_none() {
                return one;
            }
            applies.changed().await.unwrap();
        }
    };
    let one = bot.wait("the end of the stops", left).await;
    drop(kept);
    assert_eq!((one.departure(), one.departures), (Some(Departure::Uninstalled), 1));
    for name in &own {
        assert!(is_stopped(&bot, name).await, "{name}");
    }
    for name in others {
        assert!(!is_stopped(&bot, name).await, "{name}");
    }
    bot.shut_down().await;
}
