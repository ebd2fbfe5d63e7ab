//! What comes as a slash command. Slack gives it no thread: what is no command begins one. Must not
//! know how a thread is begun.

use super::super::Settings;
use super::super::envelope::Slash;
use super::super::order::{self, Order};
use super::super::place::{Spot, is_trigger, principal};
use super::super::plain::readable;
use super::{Ask, Heard};
use crate::core::id::{ItemId, Principal};

/// Something that a person wants where there is no thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wish {
    /// Where.
    pub spot: Spot,
    /// Whose.
    pub by: Principal,
    /// What.
    pub text: String,
    /// A turn may take it together with what others say in its thread.
    pub shared: bool,
    /// The item that begins its thread: a repeat of the command has the same.
    pub item: ItemId,
}

const NOWHERE: &str =
    "Slack does not say where you are; write it in a channel, with a mention of me";

/// A slash command. Only people of the place that the app is installed in have it.
pub(super) fn slash(slash: &Slash, settings: &Settings) -> Heard {
    let text = slash.text.as_deref().unwrap_or_default();
    let order = match order::read(text) {
        _ if text.trim().is_empty() => Order::Help,
        Some(Order::Help) => Order::Help,
        Some(
            Order::Watchers
            | Order::Status
            | Order::Cancel(_)
            | Order::Stop(_)
            | Order::StopTurn(_)
            | Order::Wrong(_),
        ) => Order::Wrong(order::NO_THREAD.to_owned()),
        None => match wish(slash, settings, text) {
            Some(wish) => return Heard::Wish(Box::new(wish)),
            None => Order::Wrong(NOWHERE.to_owned()),
        },
    };
    let name = slash.command.clone().unwrap_or_default();
    let (from, response_url) = (None, None);
    Heard::Command(Box::new(Ask { order, id: name, from, response_url, replaces: false }))
}

fn wish(slash: &Slash, settings: &Settings, text: &str) -> Option<Wish> {
    let whole = slash.is_enterprise_install == true || slash.is_enterprise_install == "true";
    let installation = if whole { &slash.enterprise_id } else { &slash.team_id };
    let spot = Spot::new(installation.as_deref()?, slash.channel_id.as_deref()?).ok()?;
    let by = principal(spot.installation(), slash.user_id.as_deref()?).ok()?;
    let trigger = slash.trigger_id.as_deref().filter(|trigger| is_trigger(trigger))?;
    let item = ItemId::new(format!("root/{trigger}")).ok()?;
    let shared = settings.hearing_in(spot.channel()).shared;
    Some(Wish { spot, by, text: readable(text, None), shared, item })
}
