//! Where Slack lets the bot stream, and where edit. Owns that one workspace's word counts for that
//! workspace alone. Must not know turns, nor calls.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use crate::core::limits::INSTALLATIONS_KEPT_MAX;

/// What may not be everywhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Way {
    /// Text is added to a message.
    Stream,
    /// A message is written anew.
    Edit,
}

/// What is known of it.
pub(super) struct Able {
    streams: bool,
    refused: Mutex<BTreeSet<(Way, String)>>,
}

impl Able {
    pub(super) fn new(streams: bool) -> Self {
        Self { streams, refused: Mutex::default() }
    }

    /// May it be, as far as is known?
    pub(super) fn may(&self, way: Way, installation: &str) -> bool {
        let refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        let set_up = way != Way::Stream || self.streams;
        set_up && !refused.contains(&(way, installation.to_owned()))
    }

    /// It may not. Answers whether that is news.
    pub(super) fn refuse(&self, way: Way, installation: &str) -> bool {
        let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        // Where there is no room it is asked again.
        let room = refused.len() < 2 * INSTALLATIONS_KEPT_MAX;
        room && refused.insert((way, installation.to_owned()))
    }
}
