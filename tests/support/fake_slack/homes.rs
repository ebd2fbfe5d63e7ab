//! The app's own tab as each person sees it, within Slack's limits.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::api::{Answer, inner, text};
use super::{FakeSlack, World};

/// By installation and user.
pub(super) type Homes = BTreeMap<(String, String), Value>;

const BLOCKS_MAX: usize = 100;
const VIEW_BYTES_MAX: usize = 250_000;

impl FakeSlack {
    /// What somebody sees in the tab, as text.
    pub(crate) fn home(&self, installation: &str, user: &str) -> Option<Value> {
        self.world().homes.get(&(installation.to_owned(), user.to_owned())).cloned()
    }

    /// Waits until it is like that.
    pub(crate) async fn home_is(
        &self,
        (installation, user): (&str, &str),
        like: impl Fn(&str) -> bool,
    ) -> Value {
        let is = || self.home(installation, user).is_some_and(|view| like(&view.to_string()));
        self.until_any(is).await;
        self.home(installation, user).unwrap()
    }
}

impl World {
    pub(super) fn publish(&mut self, token: &str, asked: &Map<String, Value>) -> Answer {
        let (view, user) = (inner(asked, "view"), text(asked, "user_id"));
        if user.is_empty() || view.get("type") != Some(&json!("home")) {
            return Err("invalid_arguments");
        }
        if view.to_string().len() > VIEW_BYTES_MAX {
            return Err("view_too_large");
        }
        let blocks = view.get("blocks").and_then(Value::as_array).ok_or("invalid_arguments")?;
        if blocks.is_empty() || blocks.len() > BLOCKS_MAX || !blocks.iter().all(fits) {
            return Err("invalid_arguments");
        }
        let who = self.who_is(token);
        let id = |key: &str| who.get(key).and_then(Value::as_str);
        let place = id("team_id").or_else(|| id("enterprise_id")).unwrap_or_default().to_owned();
        self.homes.insert((place, user), view);
        Ok(json!({ "view": { "id": "V1", "type": "home", "hash": self.tick() } }))
    }
}

fn fits(block: &Value) -> bool {
    let within = |pointer: &str, max: usize| {
        let text = block.pointer(pointer).and_then(Value::as_str);
        text.is_none_or(|text| !text.is_empty() && text.chars().count() <= max)
    };
    within("/text/text", 3_000)
        && within("/accessory/text/text", 75)
        && within("/accessory/value", 2_000)
        && within("/accessory/action_id", 255)
        && within("/accessory/confirm/title/text", 100)
        && within("/accessory/confirm/text/text", 300)
        && within("/accessory/confirm/confirm/text", 30)
        && block.get("elements").and_then(Value::as_array).is_none_or(|all| all.len() <= 10)
}
