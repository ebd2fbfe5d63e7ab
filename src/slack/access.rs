//! With which token an installation is spoken for, and whether it is there at all. Owns the tokens.
//! Must not know what is said.

use std::sync::{Arc, OnceLock};

use secrecy::SecretString;

use super::Settings;
use super::place;
use crate::core::id::InstallationId;
use crate::core::installation::Departure;
use crate::ports::{ChannelError, Installations};

/// Why nobody can be spoken to there.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoAccess {
    /// It was, and is no more.
    #[error("{}; install the app again", .0.words())]
    Gone(Departure),
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
            Self::Away(_) => ChannelError::Retry { what, after_ms: 0 },
        }
    }
}

/// All tokens there are.
pub struct Keyring {
    token: SecretString,
    installations: OnceLock<Arc<dyn Installations>>,
}

impl Keyring {
    /// Of the configured token. What becomes of installations is known once it is bound.
    pub fn of(settings: &Settings) -> Arc<Self> {
        let token = settings.bot_token.clone();
        Arc::new(Self { token, installations: OnceLock::new() })
    }

    /// From now on what is kept of installations is looked at.
    pub fn bind(&self, installations: Arc<dyn Installations>) {
        let _ = self.installations.set(installations);
    }

    /// What is kept of installations, once it is bound.
    pub(super) fn installations(&self) -> Option<&Arc<dyn Installations>> {
        self.installations.get()
    }

    /// The configured token.
    pub(super) const fn configured(&self) -> &SecretString {
        &self.token
    }

    /// The token with which an installation is spoken for now.
    ///
    /// # Errors
    /// Where it cannot be.
    pub async fn token(&self, installation: &str) -> Result<SecretString, NoAccess> {
        let (Some(installations), Some(id)) = (self.installations.get(), id_of(installation))
        else {
            return Ok(self.token.clone());
        };
        let found = installations.find(&id).await;
        let found = found.map_err(|error| NoAccess::Away(error.to_string()))?;
        match found.and_then(|one| one.departure()) {
            Some(why) => Err(NoAccess::Gone(why)),
            None => Ok(self.token.clone()),
        }
    }
}

/// What is kept of an enterprise or team stands under this.
pub(super) fn id_of(installation: &str) -> Option<InstallationId> {
    InstallationId::new(format!("{}/{installation}", place::SURFACE)).ok()
}
