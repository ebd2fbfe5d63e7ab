//! Talks to language models. Owns the way from a `Request` to an `Answer`: the provider's words,
//! the wire, and what went wrong. Must not know turns, retries or configuration: one call is one
//! try, and when it is tried again is the ledger's decision.

pub mod error;
pub mod openai;
pub mod scripted;
pub mod sse;

use std::sync::Arc;

use futures_util::future::BoxFuture;

pub use self::openai::{OpenAi, SettingsError};
pub use self::scripted::{Playbook, PlaybookError, Scripted};

use crate::core::message::{Answer, Delta, ModelError, Request};
use crate::ports::{Clock, Model};

/// Which model answers.
#[derive(Debug, Clone)]
pub enum Settings {
    /// A server that speaks Chat Completions.
    OpenAi(openai::Settings),
    /// A script that stands in for a model.
    Scripted(Playbook),
}

/// The model that was chosen.
pub enum Chosen {
    /// A server.
    OpenAi(OpenAi),
    /// A script.
    Scripted(Scripted),
}

impl Chosen {
    /// Makes the model ready; does not connect. TLS needs a crypto provider installed before.
    pub fn new(settings: Settings, clock: Arc<dyn Clock>) -> Result<Self, SettingsError> {
        Ok(match settings {
            Settings::OpenAi(settings) => Self::OpenAi(OpenAi::new(settings, clock)?),
            Settings::Scripted(playbook) => Self::Scripted(Scripted::new(playbook, clock)),
        })
    }

    /// What answers, in one line for people. A script says that it is one.
    pub fn describe(&self) -> String {
        match self {
            Self::OpenAi(model) => model.describe(),
            Self::Scripted(model) => model.describe(),
        }
    }
}

impl Model for Chosen {
    fn call<'a>(
        &'a self,
        request: &'a Request,
        progress: &'a mut (dyn FnMut(Delta) + Send),
    ) -> BoxFuture<'a, Result<Answer, ModelError>> {
        match self {
            Self::OpenAi(model) => model.call(request, progress),
            Self::Scripted(model) => model.call(request, progress),
        }
    }
}
