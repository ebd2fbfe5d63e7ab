//! The work of an installation that is gone is stopped, page by page, also over a crash, and that
//! of others goes on.

use std::sync::Arc;

use dogwatch::core::execution::Address;
use dogwatch::core::id::{InstallationId, ItemId, Principal, SessionId};
use dogwatch::core::installation::{Departure, Installation};
use dogwatch::core::ledger::installation::Departed;
use dogwatch::core::ledger::row::{Item, ItemState, Opening};
use dogwatch::core::limits::LEAVING_PAGE;
use dogwatch::engine::installations::Register;
use dogwatch::ports::{Clock, Desk, Installations};
use tokio_util::sync::CancellationToken;

use crate::support::bot::{Bot, Setup};
use crate::support::fake_llm::Reply;
use crate::support::fake_slack::{FakeSlack, Fault};
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

/// Waits until all that it leaves is stopped.
async fn left(bot: &Bot, id: &InstallationId) -> Installation {
    let (mut applies, kept) = (bot.hand.applies(), register(bot));
    let left = async {
        loop {
            applies.mark_unchanged();
            let one = kept.find(id).await.unwrap().unwrap();
            if one.leaving.is_none() {
                return one;
            }
            applies.changed().await.unwrap();
        }
    };
    bot.wait("the end of the stops", left).await
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
    bot.attend_installations();
    let one = left(&bot, &id).await;
    assert_eq!((one.departure(), one.departures), (Some(Departure::Uninstalled), 1));
    for name in &own {
        assert!(is_stopped(&bot, name).await, "{name}");
    }
    for name in others {
        assert!(!is_stopped(&bot, name).await, "{name}");
    }
    bot.shut_down().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_installation_still_asked_for_is_not_begun_once_it_is_gone() {
    let slack = Arc::new(FakeSlack::start().await);
    let mut bot = Bot::with(Setup { slack: Some(Arc::clone(&slack)), ..Setup::default() }).await;
    bot.attend_installations();
    let gate = CancellationToken::new();
    slack.will("chat.postMessage", Fault::Held(gate.clone()));
    let (place, item) = (session("T1/C1"), ItemId::new("root/1").unwrap());
    let address = Address { surface: "slack".to_owned(), thread: "T1/C1".to_owned() };
    let opening = Opening {
        principal: Principal::new("slack/T1/U7").unwrap(),
        text: "watch it".to_owned(),
        said_at: bot.clock.now(),
        shared: false,
    };
    bot.desk().open(&place, item, address, opening).await.unwrap();
    bot.wait("its root", slack.called("chat.postMessage", 1)).await;
    let id = InstallationId::new("slack/T1").unwrap();
    let departed = register(&bot).depart(&id, Departure::Uninstalled, None).await;
    assert_eq!(departed, Ok(Departed::Now));
    left(&bot, &id).await;
    // Slack has posted it before, and says so now.
    gate.cancel();
    let over =
        |items: &[Item]| items.len() == 2 && items.iter().all(|item| item.ended_at.is_some());
    let items = bot.items_when(&place, over).await;
    let begin = items.iter().find(|item| item.id.as_str().starts_with("begin/")).unwrap();
    assert!(matches!(&begin.state, ItemState::Dead(_)), "{begin:?}");
    assert_eq!(bot.llm.seen_now().len(), 0);
    bot.shut_down().await;
}
