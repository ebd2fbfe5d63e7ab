//! Tokens that end: changed for new ones ahead of time. Owns the way of each change: leased, asked
//! for once, written down before anything is said with it. Must not know when one is due: that is
//! decided where it is kept.
//!
//! The token that gets new ones works once. A process that dies between Slack's answer and its
//! write has lost them; the next try asks with the old one, which Slack takes until the new ones
//! are used, and nobody has. Where Slack does not, only installing again helps, and it is said.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use secrecy::ExposeSecret as _;
use serde_json::json;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::OAuth;
use super::access::{Keyring, Tokens};
use super::web::{CallError, Web};
use crate::core::id::{InstallationId, LeaseId};
use crate::core::ledger::installation::Change;
use crate::core::limits::{SLACK_WHO_FIRST_MS, SLACK_WHO_MS_MAX};
use crate::ports::{Clock, Ids, Installations};

/// Changes tokens.
pub struct Rotation {
    /// How Slack knows the app.
    pub oauth: OAuth,
    /// What is kept.
    pub keyring: Arc<Keyring>,
    /// Asks Slack.
    pub web: Arc<Web>,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Names of tries.
    pub ids: Arc<dyn Ids>,
}

impl Rotation {
    /// Until `ending`; what is asked for by then is written down. What is due is heard from now on,
    /// also before this is waited for.
    pub fn run(self: Arc<Self>, ending: CancellationToken) -> BoxFuture<'static, ()> {
        let Some(installations) = self.keyring.installations().cloned() else {
            return Box::pin(std::future::ready(()));
        };
        let due = installations.due();
        Box::pin(self.attend(installations, due, ending))
    }

    async fn attend(
        self: Arc<Self>,
        installations: Arc<dyn Installations>,
        mut due: Receiver<InstallationId>,
        ending: CancellationToken,
    ) {
        let mut changes = self.keyring.changes();
        let tasks = TaskTracker::new();
        self.keyring.survey().await;
        loop {
            tokio::select! {
                () = ending.cancelled() => break,
                due = due.recv() => match due {
                    Ok(id) => {
                        let (this, kept) = (Arc::clone(&self), Arc::clone(&installations));
                        tasks.spawn(async move { this.renew(&*kept, &id).await });
                    }
                    // What is due stays due, and is told again.
                    Err(RecvError::Lagged(_)) => {}
                    Err(RecvError::Closed) => break,
                },
                _ = changes.changed() => self.keyring.survey().await,
            }
        }
        tasks.close();
        tasks.wait().await;
    }

    async fn renew(&self, installations: &dyn Installations, id: &InstallationId) {
        let Ok(lease) = LeaseId::new(self.ids.fresh()) else { return };
        let sealed = match installations.lease_refresh(id, &lease).await {
            Ok(Some(sealed)) => sealed,
            // Another one is at it, or it is done.
            Ok(None) => return,
            Err(error) => {
                tracing::debug!(installation.id = %id, %error, "tokens are not changed yet");
                return;
            }
        };
        let change = self.change(id, &sealed).await;
        self.keep(installations, id, (&lease, &sealed), change).await;
        self.keyring.changed();
    }

    async fn change(&self, id: &InstallationId, sealed: &str) -> Change {
        let tokens = match self.keyring.open(id, sealed) {
            Ok(tokens) => tokens,
            Err(error) => {
                tracing::error!(installation.id = %id, %error, "tokens cannot be changed");
                return Change::Later { after_ms: 0 };
            }
        };
        let Some(refresh) = tokens.refresh else {
            return Change::Void("its token ends and nothing gets a new one".to_owned());
        };
        let asked =
            json!({ "grant_type": "refresh_token", "refresh_token": refresh.expose_secret() });
        match self.web.exchange(&self.oauth, &asked).await {
            Ok(answer) => {
                let sealed = Tokens::of(&answer).and_then(|tokens| {
                    Some((self.keyring.close(id, &tokens).ok()?, tokens.expires_ms))
                });
                if let Some((sealed, life_ms)) = sealed {
                    return Change::New { sealed, life_ms };
                }
                tracing::error!(installation.id = %id, "Slack's new tokens are none");
                Change::Later { after_ms: 0 }
            }
            Err(CallError::Refused { error, .. }) if is_final(&error) => {
                tracing::error!(installation.id = %id, slack.error = %error,
                    "Slack gives no new tokens: open /slack/install and install the app again, \
                     before the ones there are end");
                Change::Void(format!("Slack gives no new tokens ({error}); install the app again"))
            }
            Err(error) => {
                tracing::warn!(installation.id = %id, %error, "tokens are not changed yet");
                let after_ms = match error {
                    CallError::Limited { after_ms, .. } => after_ms,
                    CallError::Refused { .. }
                    | CallError::Unreached { .. }
                    | CallError::Unknown { .. } => 0,
                };
                Change::Later { after_ms }
            }
        }
    }

    /// New tokens exist nowhere else: they are not let go while the store is away.
    async fn keep(
        &self,
        installations: &dyn Installations,
        id: &InstallationId,
        (lease, of): (&LeaseId, &str),
        change: Change,
    ) {
        let mut wait_ms = SLACK_WHO_FIRST_MS;
        loop {
            match installations.refreshed(id, (lease, of), &change).await {
                Ok(true) => return,
                Ok(false) => {
                    tracing::info!(installation.id = %id, "others have changed its tokens");
                    return;
                }
                Err(error) => {
                    tracing::warn!(installation.id = %id, %error, "its tokens are not kept yet");
                }
            }
            self.clock.sleep_until(self.clock.now().plus_ms(wait_ms)).await;
            wait_ms = (wait_ms * 2).min(SLACK_WHO_MS_MAX);
        }
    }
}

/// It will never be otherwise.
fn is_final(error: &str) -> bool {
    matches!(error, "invalid_refresh_token" | "token_revoked" | "account_inactive")
}
