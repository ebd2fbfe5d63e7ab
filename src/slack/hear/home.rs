//! The app's own tab: somebody opens it, or presses a button there. Owns what its buttons carry.
//! Must not know how it looks.

use super::super::Settings;
use super::super::envelope::{Actions, Callback};
use super::super::order::{self, Order};
use super::super::place::{Thread, instant, principal};
use super::pressed::{STRANGER, installation_of};
use super::{Asker, Heard, installation, nothing};
use crate::core::id::Principal;

/// The button that ends one execution; its value holds the thread as well, since there is none
/// here.
pub const CANCEL_HOME: &str = "cancel_at_home";

/// Somebody who looks at the app's own tab.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Visitor {
    /// Where.
    pub installation: String,
    /// Their user.
    pub user: String,
    /// As whom.
    pub by: Principal,
}

/// What somebody does there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Visit {
    /// Who.
    pub visitor: Visitor,
    /// They pressed something; else they have opened it.
    pub press: Option<HomePress>,
}

/// A button that was pressed there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HomePress {
    /// What it asks for.
    pub order: Order,
    /// Names the press, the same in every repeat.
    pub id: String,
    /// In which thread; nothing where the button does not say.
    pub at: Option<Asker>,
}

fn visitor(installation: &str, user: &str) -> Option<Visitor> {
    let by = principal(installation, user).ok()?;
    Some(Visitor { installation: installation.to_owned(), user: user.to_owned(), by })
}

/// The tab is opened.
pub(super) fn opened(callback: &Callback, settings: &Settings) -> Heard {
    let event = &callback.event;
    if event.tab.as_deref() != Some("home") {
        return nothing("another tab than the one that shows something");
    }
    let listed = event.user.as_ref().is_some_and(|user| settings.guests.contains(user));
    if super::is_guest(callback, event) && !listed {
        return nothing("somebody of another company, whom [slack] guests does not list");
    }
    let found = installation(callback).zip(event.user.as_deref());
    match found.and_then(|(installation, user)| visitor(installation, user)) {
        Some(visitor) => Heard::Home(Box::new(Visit { visitor, press: None })),
        None => nothing("it does not say who opened it"),
    }
}

/// A button in it was pressed. It means something in this installation alone: which one that is,
/// Slack says with the press.
pub(super) fn pressed(actions: &Actions, value: &str, is_guest: bool) -> Heard {
    let (Some(installation), Some(user)) = (installation_of(actions), actions.user.id.as_deref())
    else {
        return nothing("it does not say who pressed it");
    };
    let when = actions.actions.first().and_then(|action| action.action_ts.as_deref());
    let (Some(visitor), Some(when)) = (visitor(installation, user), when) else {
        return nothing("a press that cannot be told from others");
    };
    let carried = Thread::carrying(installation, value);
    let (order, at) = match carried {
        _ if is_guest => (Order::Wrong(STRANGER.to_owned()), None),
        Some((thread, id)) => {
            let (user, by) = (user.to_owned(), visitor.by.clone());
            let at = Asker { thread, user, by, first: true, said_at: instant(when) };
            (order::cancel(id), Some(at))
        }
        None => (Order::Wrong("this button says nothing that I know".to_owned()), None),
    };
    let press = HomePress { order, id: format!("press/{user}/{when}"), at };
    Heard::Home(Box::new(Visit { visitor, press: Some(press) }))
}
