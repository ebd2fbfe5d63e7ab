//! Answers that only one person sees. Owns how they get there: one try, bounded, and what fails is
//! logged and given up, never told through what failed. Must not know what was asked.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use reqwest::{Client, Url};
use serde_json::{Value, json};
use tokio::sync::{Semaphore, SemaphorePermit};

use super::access::Keyring;
use super::hear::Visitor;
use super::home::Homes;
use super::panel::Told;
use super::reception::{Answerer, Whom};
use super::web::{CallError, Web, WebError, is_here};
use crate::core::limits::{SLACK_CALL_MS, SLACK_CONNECT_MS, SLACK_TOLD_MAX};
use crate::ports::Clock;

/// Where Slack takes answers, of its own and of the government's.
const HOOKS: [&str; 2] = ["hooks.slack.com", "hooks.slack-gov.com"];

const TELL: &str = "chat.postEphemeral";

/// Tells people by Slack's Web API, or at the address that came with what they pressed.
pub struct Teller {
    web: Arc<Web>,
    keyring: Arc<Keyring>,
    http: Client,
    clock: Arc<dyn Clock>,
    /// In tests Slack is on this machine.
    here: bool,
    seats: Semaphore,
    homes: Arc<Homes>,
}

impl Teller {
    /// Does not connect.
    pub fn new(
        keyring: Arc<Keyring>,
        web: Arc<Web>,
        clock: Arc<dyn Clock>,
        homes: Arc<Homes>,
    ) -> Result<Self, WebError> {
        let here = web.is_here();
        let http = Client::builder()
            .connect_timeout(Duration::from_millis(SLACK_CONNECT_MS))
            .redirect(reqwest::redirect::Policy::none());
        let http = if here { http.no_proxy() } else { http };
        let http = http.build().map_err(|error| WebError::Client(error.to_string()))?;
        Ok(Self { web, keyring, http, clock, here, seats: Semaphore::new(SLACK_TOLD_MAX), homes })
    }

    fn seat(&self) -> Option<SemaphorePermit<'_>> {
        let seat = self.seats.try_acquire().ok();
        if seat.is_none() {
            tracing::warn!("an answer is dropped: too many are on their way");
        }
        seat
    }

    async fn send(&self, url: &str, body: &Value) -> Result<(), String> {
        let url = Url::parse(url).map_err(|_| "it is no address".to_owned())?;
        // It came with a request of Slack's, and still nothing goes anywhere else.
        let slacks = url.scheme() == "https" && url.host_str().is_some_and(|h| HOOKS.contains(&h));
        let ours = self.here && is_here(&url);
        if !(slacks || ours) {
            return Err("it is no address of Slack's".to_owned());
        }
        let until = self.clock.now().plus_ms(SLACK_CALL_MS);
        let sent = tokio::select! {
            sent = self.http.post(url).json(body).send() => sent,
            () = self.clock.sleep_until(until) => {
                return Err(format!("no answer for {SLACK_CALL_MS} ms"));
            }
        };
        // The address is a secret of its own: an error must not hold it.
        let status = sent.map_err(|_| "the connection broke".to_owned())?.status();
        if status.is_success() { Ok(()) } else { Err(format!("HTTP {}", status.as_u16())) }
    }
}

impl Teller {
    async fn say(&self, whom: &Whom, told: &Told) {
        let mut body = json!({
            "channel": whom.thread.channel(),
            "user": whom.user,
            "text": told.text,
            "blocks": told.blocks,
        });
        if whom.inside
            && let Some(fields) = body.as_object_mut()
        {
            fields.insert("thread_ts".to_owned(), json!(whom.thread.root()));
        }
        let token = match self.keyring.token(whom.thread.installation()).await {
            Ok(token) => token,
            Err(error) => {
                tracing::warn!(%error, "a person was not answered");
                return;
            }
        };
        let mut said = self.web.call(&token, TELL, &body).await;
        if matches!(said, Err(CallError::Refused { .. })) && told.blocks.is_some() {
            tracing::warn!("an answer is given without its buttons: Slack does not take them");
            if let Some(fields) = body.as_object_mut() {
                fields.remove("blocks");
            }
            said = self.web.call(&token, TELL, &body).await;
        }
        if let Err(error) = said {
            tracing::warn!(%error, "a person was not answered");
        }
    }
}

fn response(told: &Told, replace: bool) -> Value {
    let mut body = json!({
        "response_type": "ephemeral",
        "replace_original": replace,
        "text": told.text,
    });
    if let (Some(fields), Some(blocks)) = (body.as_object_mut(), &told.blocks) {
        fields.insert("blocks".to_owned(), blocks.clone());
    }
    body
}

impl Answerer for Teller {
    fn tell<'a>(&'a self, whom: &'a Whom, told: &'a Told) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let Some(_seat) = self.seat() else { return };
            self.say(whom, told).await;
        })
    }

    fn respond<'a>(&'a self, url: &'a str, told: &'a Told) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let Some(_seat) = self.seat() else { return };
            if let Err(error) = self.send(url, &response(told, false)).await {
                tracing::warn!(%error, "a person was not answered");
            }
        })
    }

    fn replace<'a>(&'a self, url: &'a str, whom: &'a Whom, told: &'a Told) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let Some(_seat) = self.seat() else { return };
            if let Err(error) = self.send(url, &response(told, true)).await {
                tracing::warn!(%error, "an answer is given beside what was pressed");
                self.say(whom, told).await;
            }
        })
    }

    fn show(&self, visitor: Visitor, said: Option<String>) {
        self.homes.show(visitor, said);
    }
}
