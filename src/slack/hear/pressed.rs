//! What is pressed, and what comes as a slash command. Owns which buttons there are. Must not know
//! how they look.

use super::super::Settings;
use super::super::envelope::{Action, Actions, Callback, Slash};
use super::super::order::{self, Order};
use super::super::place::{Thread, instant, principal};
use super::{Ask, Asker, Heard, installation, nothing};
use crate::core::execution::Scope;

/// The button that ends one execution; its value is the execution's id.
pub const CANCEL: &str = "cancel_watcher";
/// The button that ends the turn.
pub const STOP: &str = "stop_turn";
/// The button that ends the turn and everything in the background.
pub const STOP_ALL: &str = "stop_all";

/// A button.
pub(super) fn pressed(actions: &Actions, settings: &Settings) -> Heard {
    let Some(action) = actions.actions.first() else {
        return nothing("nothing was pressed");
    };
    let Some(order) = order_of(action) else {
        return nothing("a button that does nothing here");
    };
    let Some(user) = actions.user.id.as_deref() else {
        return nothing("nobody pressed it");
    };
    let order = if is_guest(actions) && !settings.guests.iter().any(|guest| guest == user) {
        Order::Wrong("this is only for people of the company that runs me".to_owned())
    } else {
        order
    };
    let when = action.action_ts.as_deref().unwrap_or_default();
    let from = place(actions, (user, when));
    if when.is_empty() || (from.is_none() && actions.response_url.is_none()) {
        return nothing("a press that cannot be told from others, or not be answered");
    }
    let id = format!("press/{user}/{when}");
    let response_url = actions.response_url.clone();
    Heard::Press(Box::new(Ask { order, id, from, response_url }))
}

fn order_of(action: &Action) -> Option<Order> {
    match action.action_id.as_deref()? {
        CANCEL => Some(order::cancel(action.value.as_deref().unwrap_or_default())),
        STOP => Some(Order::Stop(Scope::Turn)),
        STOP_ALL => Some(Order::Stop(Scope::All)),
        // A button that only opens a link has no value, and is answered by the link.
        _ => action.value.is_some().then(|| {
            Order::Wrong("this button belongs to an older me and does nothing any more".to_owned())
        }),
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
    let installation = if actions.is_enterprise_install {
        actions.enterprise.id.as_ref().or(actions.team.enterprise_id.as_ref())
    } else {
        actions.team.id.as_ref()
    };
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
        Some(Ask { order: Order::Stop(Scope::Turn), id, from: Some(from), response_url: None })
    };
    found().map_or(nothing("a stop that does not say of what"), |ask| Heard::Press(Box::new(ask)))
}

/// A slash command: Slack gives it no thread.
pub(super) fn slash(slash: &Slash) -> Heard {
    let text = slash.text.as_deref().unwrap_or_default();
    let order = match order::read(text) {
        _ if text.trim().is_empty() => Order::Help,
        Some(Order::Help) => Order::Help,
        Some(
            Order::Watchers | Order::Status | Order::Cancel(_) | Order::Stop(_) | Order::Wrong(_),
        )
        | None => Order::Wrong(order::NO_THREAD.to_owned()),
    };
    let name = slash.command.clone().unwrap_or_default();
    Heard::Command(Box::new(Ask { order, id: name, from: None, response_url: None }))
}
