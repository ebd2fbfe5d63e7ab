//! Whether the bot can speak in Slack: who it is there, and what becomes of installations. Owns
//! what readiness says of it. Must not know what people say.

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::{Health, Reception, Reply};
use crate::core::installation::Departure;
use crate::core::ledger::installation::Departed;
use crate::core::limits::{SLACK_WHO_FIRST_MS, SLACK_WHO_MS_MAX};
use crate::core::time::Timestamp;
use crate::slack::access::{NoAccess, id_of};
use crate::slack::envelope::Envelope;
use crate::slack::hear::{Lifecycle, Who, addressed, home_of};
use crate::slack::web::Web;

/// What is known of the bot's place in Slack.
#[derive(Debug, Clone, Default)]
pub(super) struct Standing {
    pub(super) who: Option<Who>,
    trouble: Option<String>,
    /// Of the configured token.
    home: Option<String>,
    /// The installation is gone.
    gone: bool,
}

impl Reception {
    /// This is the bot.
    pub fn introduce(&self, who: Who) {
        self.standing.send_modify(|standing| {
            standing.who = Some(who);
            if !standing.gone {
                standing.trouble = None;
            }
        });
    }

    /// Asks Slack who the bot is, until it says so.
    pub async fn learn(&self, web: &Web, ending: CancellationToken) {
        // Nothing is lost by not knowing.
        let _ = ending.run_until_cancelled(self.ask_until_known(web)).await;
    }

    /// Whenever the installation is gone: asks Slack until it is whole again.
    pub async fn mend(&self, web: &Web, ending: CancellationToken) {
        let mut standing = self.standing.subscribe();
        let mend = async {
            while standing.wait_for(|standing| standing.gone).await.is_ok() {
                let clock = &self.reach.clock;
                clock.sleep_until(clock.now().plus_ms(SLACK_WHO_FIRST_MS)).await;
                self.ask_until_known(web).await;
            }
        };
        let _ = ending.run_until_cancelled(mend).await;
    }

    async fn ask_until_known(&self, web: &Web) {
        let Some(token) = self.reach.keyring.configured() else { return };
        let clock = &self.reach.clock;
        let mut wait_ms = SLACK_WHO_FIRST_MS;
        loop {
            let asked_at = self.now();
            let answer = web.call(token, "auth.test", &json!({})).await;
            let what = match answer {
                Ok(answer) => match self.known(&answer, asked_at).await {
                    Ok(()) => return,
                    Err(what) => what,
                },
                Err(error) => error.to_string(),
            };
            tracing::warn!(slack.error = %what, "Slack does not let the bot in");
            self.standing.send_modify(|standing| {
                // Why it is gone is the better word.
                if !standing.gone {
                    standing.trouble = Some(what);
                }
            });
            clock.sleep_until(clock.now().plus_ms(wait_ms)).await;
            wait_ms = (wait_ms * 2).min(SLACK_WHO_MS_MAX);
        }
    }

    /// The configured token is good, and this is who it is.
    async fn known(&self, answer: &Value, asked_at: Timestamp) -> Result<(), String> {
        let Some(who) = Who::of(answer) else {
            return Err("Slack does not say who the bot is".to_owned());
        };
        let home = home_of(answer);
        let id = home.as_deref().and_then(id_of);
        if let (Some(installations), Some(id)) = (self.reach.keyring.installations(), id) {
            match installations.confirm(&id, asked_at).await {
                Ok(true) => {}
                Ok(false) => return Err("the app was removed while Slack was asked".to_owned()),
                Err(error) => return Err(error.to_string()),
            }
        }
        self.standing.send_modify(|standing| {
            if standing.gone {
                tracing::info!("the bot can speak in Slack again");
            }
            *standing = Standing { who: Some(who), home, ..Standing::default() };
        });
        Ok(())
    }

    /// Does the bot know who it is, and may it speak?
    pub fn health(&self) -> Health {
        if let Some(health) = self.reach.keyring.health() {
            return health;
        }
        let standing = self.standing.borrow();
        let ok = standing.who.is_some() && !standing.gone;
        let what = match (&standing.trouble, ok) {
            (Some(trouble), _) => trouble.clone(),
            (None, true) => "Slack knows the bot".to_owned(),
            (None, false) => "the bot does not know yet who it is in Slack".to_owned(),
        };
        Health { ok, what }
    }

    /// What Slack is answered where nobody is spoken to any more.
    pub(super) async fn closed(&self, installation: &str) -> Option<Reply> {
        let error = self.reach.keyring.token(installation).await.err()?;
        if self.doubts() {
            tracing::warn!(slack.installation = installation, %error, "not taken");
        }
        Some(self.reply_to(&error))
    }

    fn reply_to(&self, error: &NoAccess) -> Reply {
        match error {
            // Where people install it, only that makes it whole.
            NoAccess::Gone(_) | NoAccess::Unknown if self.reach.keyring.configured().is_none() => {
                Reply::TAKEN
            }
            // It may be whole again when Slack sends it again.
            NoAccess::Gone(_) | NoAccess::Unknown | NoAccess::Sealed(_) | NoAccess::Away(_) => {
                Reply::AGAIN
            }
        }
    }

    /// Who the bot is where an envelope comes from; nobody where that does not matter.
    pub(super) async fn who(&self, envelope: &Envelope) -> Result<Option<Who>, Reply> {
        if self.reach.keyring.configured().is_some() {
            return Ok(self.standing.borrow().who.clone());
        }
        let Some(installation) = addressed(envelope) else { return Ok(None) };
        match self.reach.keyring.access(installation).await {
            Ok(access) => Ok(access.who),
            Err(error) => {
                // Whoever is not there any more may still be told so.
                if envelope.word() == "tokens_revoked" {
                    return Ok(None);
                }
                if self.doubts() {
                    let kind = envelope.word();
                    tracing::warn!(slack.installation = installation, slack.kind = %kind, %error,
                        "not taken: it cannot be answered");
                }
                Err(self.reply_to(&error))
            }
        }
    }

    /// It is acknowledged once it is written down.
    pub(super) async fn live(&self, lifecycle: Lifecycle) -> Reply {
        let (installation, why, at) = match lifecycle {
            Lifecycle::RateLimited => {
                tracing::warn!("Slack holds events back: too many within the hour");
                return Reply::TAKEN;
            }
            Lifecycle::Departed { installation, why, at } => (installation, why, at),
        };
        let id = installation.as_deref().and_then(id_of);
        let departed = match (self.reach.keyring.installations(), id) {
            (Some(installations), Some(id)) => installations.depart(&id, why, at).await,
            (None, _) | (_, None) => Ok(Departed::Now),
        };
        let id = installation.as_deref().unwrap_or("?");
        match departed {
            Ok(Departed::Now | Departed::Known) => {
                tracing::error!(
                    slack.installation = id,
                    slack.why = why.words(),
                    "the bot can no longer speak there: its work there is stopped"
                );
                self.gone(installation.as_deref(), why);
                Reply::TAKEN
            }
            Ok(Departed::Stale) => {
                tracing::info!(
                    slack.installation = id,
                    slack.why = why.words(),
                    "late news: the app was installed again since"
                );
                Reply::TAKEN
            }
            Err(error) => {
                tracing::warn!(slack.installation = id, %error, "not taken");
                Reply::AGAIN
            }
        }
    }

    fn gone(&self, installation: Option<&str>, why: Departure) {
        self.reach.keyring.changed();
        if self.reach.keyring.configured().is_none() {
            return;
        }
        self.standing.send_modify(|standing| {
            let home = standing.home.as_deref();
            // Another one's end is not this token's.
            if home.is_none() || installation.is_none() || home == installation {
                standing.gone = true;
                standing.trouble = Some(format!("{}; install the app again", why.words()));
            }
        });
    }
}
