//! With which token an installation is spoken for, as whom, and whether it is there at all. Owns
//! the tokens: configured, or sealed with what is kept. Must not know what is said.

use std::sync::{Arc, OnceLock};

use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Value, json};
use tokio::sync::watch;

use super::hear::Who;
use super::place;
use super::reception::Health;
use super::seal::{Seal, SealError};
use super::{Credentials, Settings};
use crate::core::id::InstallationId;
use crate::core::installation::{Departure, Installation};
use crate::core::limits::SLACK_MENDED_MS;
use crate::ports::{ChannelError, DeskError, Installations};

/// Why nobody can be spoken to there.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoAccess {
    /// It was, and is no more.
    #[error("{}; install the app again", .0.words())]
    Gone(Departure),
    /// Nobody has let the bot in there.
    #[error("nobody has installed the app there: open /slack/install")]
    Unknown,
    /// What is kept of its token cannot be read.
    #[error(transparent)]
    Sealed(#[from] SealError),
    /// The store does not answer.
    #[error("{0}")]
    Away(String),
}

impl NoAccess {
    /// What follows for a post.
    pub(super) fn for_post(&self) -> ChannelError {
        let what = self.to_string();
        match self {
            Self::Gone(_) => ChannelError::Never { what },
            Self::Unknown | Self::Sealed(_) => {
                ChannelError::Retry { what, after_ms: SLACK_MENDED_MS }
            }
            Self::Away(_) => ChannelError::Retry { what, after_ms: 0 },
        }
    }
}

impl From<DeskError> for NoAccess {
    fn from(error: DeskError) -> Self {
        Self::Away(error.to_string())
    }
}

/// How an installation is spoken for.
#[derive(Clone)]
pub struct Access {
    /// With this.
    pub token: SecretString,
    /// As whom, where that is kept.
    pub who: Option<Who>,
}

/// The tokens of one installation.
pub(super) struct Tokens {
    /// Posts and reads.
    pub(super) access: SecretString,
    /// Gets new ones, once.
    pub(super) refresh: Option<SecretString>,
    /// How long they live; `None` where they do not end.
    pub(super) expires_ms: Option<u64>,
}

impl Tokens {
    /// Of an answer of `oauth.v2.access`.
    pub(super) fn of(answer: &Value) -> Option<Self> {
        let word = |key: &str| {
            let text = answer.get(key).and_then(Value::as_str).filter(|text| !text.is_empty());
            text.map(|text| SecretString::from(text.to_owned()))
        };
        let life_s = answer.get("expires_in").and_then(Value::as_u64).filter(|life_s| *life_s > 0);
        let refresh = word("refresh_token");
        let expires_ms = life_s.filter(|_| refresh.is_some()).map(|s| s.saturating_mul(1_000));
        Some(Self { access: word("access_token")?, refresh, expires_ms })
    }
}

/// Where tokens come from.
enum Source {
    /// One, for whatever installation there is.
    Token(SecretString),
    /// One for each installation, kept sealed.
    Kept(Box<Seal>),
}

/// All tokens there are.
pub struct Keyring {
    source: Source,
    installations: OnceLock<Arc<dyn Installations>>,
    /// Raised when something about installations has changed here.
    changes: watch::Sender<u64>,
    health: watch::Sender<Health>,
}

impl Keyring {
    /// As it is set up. What becomes of installations is known once it is bound.
    ///
    /// # Errors
    /// Where tokens are to be sealed and no key can be made.
    pub fn of(settings: &Settings) -> Result<Arc<Self>, SealError> {
        let source = match &settings.credentials {
            Credentials::Token(token) => Source::Token(token.clone()),
            Credentials::OAuth(oauth) => Source::Kept(Box::new(Seal::of(
                oauth.seal_key.as_ref().unwrap_or(&oauth.client_secret),
            )?)),
        };
        let what = "what is kept of installations was not looked at yet".to_owned();
        let health = watch::Sender::new(Health { ok: false, what });
        let changes = watch::Sender::default();
        Ok(Arc::new(Self { source, installations: OnceLock::new(), changes, health }))
    }

    /// From now on what is kept of installations is looked at.
    pub fn bind(&self, installations: Arc<dyn Installations>) {
        let _ = self.installations.set(installations);
    }

    /// What is kept of installations, once it is bound.
    pub(super) fn installations(&self) -> Option<&Arc<dyn Installations>> {
        self.installations.get()
    }

    /// The one token that is configured, if one is.
    pub(super) const fn configured(&self) -> Option<&SecretString> {
        match &self.source {
            Source::Token(token) => Some(token),
            Source::Kept(_) => None,
        }
    }

    /// Something about installations has changed.
    pub(super) fn changed(&self) {
        self.changes.send_modify(|count| *count += 1);
    }

    /// Hears of such changes.
    pub(super) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// How well the installations are, where they are kept.
    pub(super) fn health(&self) -> Option<Health> {
        match self.source {
            Source::Token(_) => None,
            Source::Kept(_) => {
                let health = self.health.borrow().clone();
                if !health.ok {
                    // Another node may have mended it: whoever asks again hears of it.
                    self.changed();
                }
                Some(health)
            }
        }
    }

    /// The token with which an installation is spoken for now.
    ///
    /// # Errors
    /// Where it cannot be.
    pub async fn token(&self, installation: &str) -> Result<SecretString, NoAccess> {
        self.access(installation).await.map(|access| access.token)
    }

    /// How an installation is spoken for now.
    ///
    /// # Errors
    /// Where it cannot be.
    pub async fn access(&self, installation: &str) -> Result<Access, NoAccess> {
        let found = match (self.installations.get(), id_of(installation)) {
            (Some(installations), Some(id)) => installations.find(&id).await?.map(|one| (id, one)),
            (None, _) | (_, None) => None,
        };
        if let Some(why) = found.as_ref().and_then(|(_, one)| one.departure()) {
            return Err(NoAccess::Gone(why));
        }
        let seal = match &self.source {
            Source::Token(token) => return Ok(Access { token: token.clone(), who: None }),
            Source::Kept(seal) => seal,
        };
        let Some((id, grant)) = found.and_then(|(id, one)| Some((id, one.grant?))) else {
            return Err(NoAccess::Unknown);
        };
        let token = opened(seal, &id, &grant.sealed)?.access;
        let who = Who { user: grant.user, bot: grant.bot, app: grant.app };
        Ok(Access { token, who: Some(who) })
    }

    /// Seals tokens for an installation.
    pub(super) fn close(&self, id: &InstallationId, tokens: &Tokens) -> Result<String, SealError> {
        let Source::Kept(seal) = &self.source else { return Err(SealError::Form) };
        let refresh = tokens.refresh.as_ref().map(SecretString::expose_secret);
        let text = json!({ "access": tokens.access.expose_secret(), "refresh": refresh });
        seal.close(id.as_str(), &text.to_string())
    }

    /// Opens the tokens of an installation.
    pub(super) fn open(&self, id: &InstallationId, sealed: &str) -> Result<Tokens, SealError> {
        let Source::Kept(seal) = &self.source else { return Err(SealError::Form) };
        opened(seal, id, sealed)
    }

    /// Looks at all installations, for readiness.
    pub(super) async fn survey(&self) {
        let Some(installations) = self.installations.get() else { return };
        let health = match installations.all().await {
            Ok(all) => self.health_of(&all),
            Err(error) => Health { ok: false, what: error.to_string() },
        };
        self.health.send_replace(health);
    }

    /// One that cannot be spoken for is named; readiness ends only where none can.
    fn health_of(&self, all: &[(InstallationId, Installation)]) -> Health {
        let (mut fine, mut lost) = (0_usize, vec![]);
        for (id, one) in all {
            let Some(grant) = one.grant.as_ref().filter(|_| one.departure().is_none()) else {
                continue;
            };
            let void = grant.refresh.as_ref().and_then(|refresh| refresh.void.clone());
            match void.or_else(|| self.open(id, &grant.sealed).err().map(|e| e.to_string())) {
                Some(why) => lost.push(format!("{} ({id}): {why}", grant.name)),
                None => fine += 1,
            }
        }
        let mut what = match fine {
            0 => "nobody has installed the app: open /slack/install".to_owned(),
            1 => "installed in 1 place".to_owned(),
            many => format!("installed in {many} places"),
        };
        if !lost.is_empty() {
            what = format!("{}; {what}", lost.join("; "));
        }
        Health { ok: fine > 0 || lost.is_empty(), what }
    }
}

fn opened(seal: &Seal, id: &InstallationId, sealed: &str) -> Result<Tokens, SealError> {
    let text = seal.open(id.as_str(), sealed)?;
    let kept: Value = serde_json::from_str(text.expose_secret()).map_err(|_| SealError::Form)?;
    let word = |key: &str| {
        let text = kept.get(key).and_then(Value::as_str);
        text.map(|text| SecretString::from(text.to_owned()))
    };
    let access = word("access").ok_or(SealError::Form)?;
    Ok(Tokens { access, refresh: word("refresh"), expires_ms: None })
}

/// What is kept of an enterprise or team stands under this.
pub(super) fn id_of(installation: &str) -> Option<InstallationId> {
    InstallationId::new(format!("{}/{installation}", place::SURFACE)).ok()
}
