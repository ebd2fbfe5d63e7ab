//! How people let an app in, and what its tokens are then: codes that work once, tokens that end,
//! and tokens that get new ones as long as the newest are not used.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::api::{BOT, USER, text};
use super::{FakeSlack, World};

/// `client.1` with `client-secret`, as a client says it.
const CLIENT: &str = "Y2xpZW50LjE6Y2xpZW50LXNlY3JldA==";

/// All that was let in.
#[derive(Default)]
pub(super) struct Installs {
    /// Codes that work, and for where.
    codes: BTreeMap<String, Value>,
    /// By access token.
    tokens: BTreeMap<String, Granted>,
    /// By refresh token: where, and how often it was taken.
    refreshes: BTreeMap<String, (Value, usize)>,
    /// How often each was taken that gets nothing any more.
    ended: Vec<usize>,
    /// How long tokens live, in seconds.
    life_s: Option<u64>,
    made: usize,
}

struct Granted {
    place: Value,
    /// Those with which nothing is got any more once this is used.
    ends: Vec<String>,
}

fn key(place: &Value) -> String {
    let id = place.pointer("/team/id").or_else(|| place.pointer("/enterprise/id"));
    id.and_then(Value::as_str).unwrap_or_default().to_owned()
}

/// A team, as Slack names it.
pub(crate) fn team(id: &str) -> Value {
    json!({ "team": { "id": id, "name": format!("Team <{id}>") }, "enterprise": null,
            "is_enterprise_install": false })
}

/// A whole enterprise.
pub(crate) fn enterprise(id: &str) -> Value {
    json!({ "team": null, "enterprise": { "id": id, "name": format!("Org {id}") },
            "is_enterprise_install": true })
}

impl FakeSlack {
    /// Somebody was sent to Slack's page and chooses "Allow": with what they are sent back.
    pub(crate) fn allows(&self, page: &str, place: &Value) -> String {
        let state = self.state_of(page);
        let mut world = self.world();
        world.installs.made += 1;
        let code = format!("code-{}", world.installs.made);
        world.installs.codes.insert(code.clone(), place.clone());
        format!("code={code}&state={state}")
    }

    /// The state that a page was asked for with.
    pub(crate) fn state_of(&self, page: &str) -> String {
        let before = format!("http://{}/oauth/v2/authorize?", self.shared.address);
        let query = page.strip_prefix(&before).unwrap();
        let of = |name: &str| {
            let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
            pairs.find(|(key, _)| *key == name).unwrap().1.to_owned()
        };
        assert_eq!(of("client_id"), "client.1");
        assert!(of("scope").contains("chat%3Awrite"), "{query}");
        of("state")
    }

    /// Tokens end after so many seconds, and are granted with such as get new ones.
    pub(crate) fn tokens_live(&self, seconds: u64) {
        self.world().installs.life_s = Some(seconds);
    }

    /// The app is taken out: its tokens there are void.
    pub(crate) fn removes(&self, id: &str) {
        let mut world = self.world();
        world.installs.tokens.retain(|_, one| key(&one.place) != id);
        world.installs.refreshes.retain(|_, (place, _)| key(place) != id);
    }

    /// How often each token that gets new ones was taken.
    pub(crate) fn refreshes(&self) -> Vec<usize> {
        let world = self.world();
        let kept = world.installs.refreshes.values().map(|(_, taken)| *taken);
        kept.chain(world.installs.ended.iter().copied()).collect()
    }

    /// Where an access token is of.
    pub(crate) fn place_of(&self, token: &str) -> String {
        self.world().installs.tokens.get(token).map(|one| key(&one.place)).unwrap_or_default()
    }
}

impl World {
    /// Is this a token that was granted? From now on it is used.
    pub(super) fn uses(&mut self, token: &str) -> bool {
        let Some(granted) = self.installs.tokens.get_mut(token) else { return false };
        for ended in std::mem::take(&mut granted.ends) {
            let times = self.installs.refreshes.remove(&ended).map(|(_, times)| times);
            self.installs.ended.extend(times);
        }
        true
    }

    pub(super) fn who_is(&self, token: &str) -> Value {
        let place = self.installs.tokens.get(token).map(|one| one.place.clone());
        let place = place.unwrap_or_else(|| team("T1"));
        json!({ "user_id": USER, "bot_id": BOT, "team_id": place.pointer("/team/id"),
                "enterprise_id": place.pointer("/enterprise/id"),
                "is_enterprise_install": place.get("is_enterprise_install") })
    }

    pub(super) fn exchange(
        &mut self,
        client: Option<&str>,
        asked: &Map<String, Value>,
    ) -> Result<Value, &'static str> {
        if client != Some(CLIENT) {
            return Err("bad_client_secret");
        }
        let (place, old) = if text(asked, "grant_type") == "refresh_token" {
            let old = text(asked, "refresh_token");
            let found = self.installs.refreshes.get_mut(&old).ok_or("invalid_refresh_token")?;
            found.1 += 1;
            (found.0.clone(), vec![old])
        } else {
            let code = text(asked, "code");
            (self.installs.codes.remove(&code).ok_or("invalid_code")?, vec![])
        };
        self.installs.made += 1;
        let name = format!("{}-{}", key(&place), self.installs.made);
        let access = format!("xoxe.xoxb-1-{name}-secret");
        let mut answer = json!({
            "access_token": access, "token_type": "bot", "bot_user_id": USER, "app_id": "A1",
            "scope": "chat:write,commands", "authed_user": { "id": "U7" },
        });
        let fields = answer.as_object_mut().unwrap();
        fields.extend(place.as_object().unwrap().clone());
        if let Some(life_s) = self.installs.life_s {
            let refresh = format!("xoxe-1-{name}-secret");
            fields.insert("refresh_token".to_owned(), refresh.clone().into());
            fields.insert("expires_in".to_owned(), life_s.into());
            self.installs.refreshes.insert(refresh, (place.clone(), 0));
        }
        self.installs.tokens.insert(access, Granted { place, ends: old });
        Ok(answer)
    }
}
