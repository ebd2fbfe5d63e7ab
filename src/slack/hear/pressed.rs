//! What is pressed. Owns which buttons there are. Must not know
//! how they look.

use super::super::Settings;
use super::super::envelope::{Action, Actions, Callback};
use super::super::order::{self, Order};
use super::super::place::{Thread, instant, principal};
use super::home::{self, CANCEL_HOME};
use super::{Ask, Asker, Heard, installation, nothing};
use crate::core::execution::Scope;

/// The button that ends one execution; its value is the execution's id.
pub const CANCEL: &str = "cancel_watcher";
/// The same in a list that only one person sees: its value holds the thread as well.
pub const CANCEL_LISTED: &str = "cancel_listed";
/// The button that shows what runs in the thread that its value holds.
pub const RUNNING: &str = "what_runs";
/// The button that ends the turn: the one in its value, where there is one.
pub const STOP: &str = "stop_turn";
/// The button that ends the turn and everything in the background.
pub const STOP_ALL: &str = "stop_all";

const OLD: &str = "this button belongs to an older me and does nothing any more";
const ELSEWHERE: &str = "this button belongs to another place and does nothing here; mention me \
                         with `status` in the thread that you mean";
pub(super) const STRANGER: &str = "this is only for people of the company that runs me";

/// A button.
pub(super) fn pressed(actions: &Actions, settings: &Settings) -> Heard {
    let Some(action) = actions.actions.first() else {
        return nothing("nothing was pressed");
    };
    let Some(user) = actions.user.id.as_deref() else {
        return nothing("nobody pressed it");
    };
    let is_guest = is_guest(actions) && !settings.guests.iter().any(|guest| guest == user);
    if action.action_id.as_deref() == Some(CANCEL_HOME) && actions.channel.id.is_none() {
        return home::pressed(actions, action.value.as_deref().unwrap_or_default(), is_guest);
    }
    let when = action.action_ts.as_deref().unwrap_or_default();
    let Some(meant) = meant(action, actions, (user, when)) else {
        return nothing("a button that does nothing here");
    };
    let Meant { mut order, from, mut replaces } = meant;
    if is_guest {
        (order, replaces) = (Order::Wrong(STRANGER.to_owned()), false);
    }
    if when.is_empty() || (from.is_none() && actions.response_url.is_none()) {
        return nothing("a press that cannot be told from others, or not be answered");
    }
    let id = format!("press/{user}/{when}");
    let response_url = actions.response_url.clone();
    Heard::Press(Box::new(Ask { order, id, from, response_url, replaces }))
}

/// What a press means, and where.
struct Meant {
    order: Order,
    from: Option<Asker>,
    replaces: bool,
}

/// Nothing where the button only opened a link.
fn meant(action: &Action, actions: &Actions, by: (&str, &str)) -> Option<Meant> {
    let id = action.action_id.as_deref()?;
    let value = action.value.as_deref().filter(|value| !value.is_empty());
    let here = || place(actions, by);
    let order = match (id, value) {
        (CANCEL, value) => order::cancel(value.unwrap_or_default()),
        (STOP, None) => Order::Stop(Scope::Turn),
        (STOP_ALL, None) => Order::Stop(Scope::All),
        (RUNNING | STOP | STOP_ALL | CANCEL_LISTED, Some(value)) => {
            return Some(carried(actions, by, (id, value)).unwrap_or_else(|| {
                let order = Order::Wrong(ELSEWHERE.to_owned());
                Meant { order, from: here(), replaces: false }
            }));
        }
        // A button that only opens a link has no value, and is answered by the link.
        (_, None) => return None,
        (_, Some(_)) => Order::Wrong(OLD.to_owned()),
    };
    Some(Meant { order, from: here(), replaces: false })
}

/// A button that carries its thread. It means something only where it was shown: in that channel,
/// and in that thread as far as Slack says in which one it was pressed.
fn carried(
    actions: &Actions,
    (user, when): (&str, &str),
    (id, value): (&str, &str),
) -> Option<Meant> {
    let (thread, what) = Thread::carrying(installation_of(actions)?, value)?;
    let container = &actions.container;
    let channel = actions.channel.id.as_ref().or(container.channel_id.as_ref())?;
    let message = actions.message.as_deref();
    let root = container.thread_ts.as_ref();
    let root = root.or_else(|| message.and_then(|message| message.thread_ts.as_ref()));
    if channel != thread.channel() || root.is_some_and(|root| root != thread.root()) {
        return None;
    }
    let order = match id {
        RUNNING => Order::Status,
        STOP => Order::StopTurn(what.parse().ok()?),
        STOP_ALL => Order::Stop(Scope::All),
        _ => order::cancel(what),
    };
    let by = principal(thread.installation(), user).ok()?;
    // Beside the thread it was shown only where the thread had no replies.
    let first = root.is_none();
    let from = Asker { thread, user: user.to_owned(), by, first, said_at: instant(when) };
    Some(Meant { order, from: Some(from), replaces: true })
}

pub(super) fn installation_of(actions: &Actions) -> Option<&String> {
    if actions.is_enterprise_install {
        actions.enterprise.id.as_ref().or(actions.team.enterprise_id.as_ref())
    } else {
        actions.team.id.as_ref()
    }
}

/// People of other companies are in shared channels too.
fn is_guest(actions: &Actions) -> bool {
    let Some(team) = &actions.user.team_id else { return false };
    let home = [&actions.team.id, &actions.team.enterprise_id, &actions.enterprise.id];
    // Where the whole enterprise is the installation, any of its teams is at home.
    !actions.is_enterprise_install && !home.into_iter().flatten().any(|id| id == team)
}

/// Nothing in the app's own tab, which has no thread.
fn place(actions: &Actions, (user, when): (&str, &str)) -> Option<Asker> {
    let installation = installation_of(actions);
    let container = &actions.container;
    let channel = actions.channel.id.as_ref().or(container.channel_id.as_ref())?;
    let message = actions.message.as_deref();
    let root = container
        .thread_ts
        .as_ref()
        .or_else(|| message.and_then(|message| message.thread_ts.as_ref()))
        .or(container.message_ts.as_ref())
        .or_else(|| message.and_then(|message| message.ts.as_ref()))?;
    let thread = Thread::new(installation?, channel, root).ok()?;
    let by = principal(thread.installation(), user).ok()?;
    // A thread with a message of the bot's is there for everybody to see.
    let first = container.message_ts.as_ref() == Some(root);
    Some(Asker { thread, user: user.to_owned(), by, first, said_at: instant(when) })
}

/// Slack's own button for stopping an answer.
pub(super) fn native_stop(callback: &Callback, settings: &Settings) -> Heard {
    let event = &callback.event;
    let listed = event.user.as_ref().is_some_and(|user| settings.guests.contains(user));
    if super::is_guest(callback, event) && !listed {
        return nothing("somebody of another company, whom [slack] guests does not list");
    }
    let found = || {
        let channel = event.channel.as_deref()?;
        let root = event.thread_ts.as_deref()?;
        let user = event.user.as_deref()?;
        let when = event.event_ts.as_deref()?;
        let thread = Thread::new(installation(callback)?, channel, root).ok()?;
        let by = principal(thread.installation(), user).ok()?;
        let from =
            Asker { thread, user: user.to_owned(), by, first: false, said_at: instant(when) };
        let id = format!("press/{user}/{when}");
        let order = Order::Stop(Scope::Turn);
        Some(Ask { order, id, from: Some(from), response_url: None, replaces: false })
    };
    found().map_or(nothing("a stop that does not say of what"), |ask| Heard::Press(Box::new(ask)))
}
