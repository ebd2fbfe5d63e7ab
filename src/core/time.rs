//! Instants and spans as plain numbers. Owns their arithmetic and wording.
//! Must not know any clock.

use serde::{Deserialize, Serialize};

use super::limits::SCORE_MAX;

/// Milliseconds since the Unix epoch, by the store's time.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Timestamp(u64);

impl Timestamp {
    /// The earliest instant.
    pub const ZERO: Self = Self(0);

    /// The end of time: the latest instant that every store keeps in order.
    pub const MAX: Self = Self(SCORE_MAX);

    /// From milliseconds since the Unix epoch, at most the end of time.
    pub const fn from_ms(ms: u64) -> Self {
        if ms > SCORE_MAX { Self::MAX } else { Self(ms) }
    }

    /// Milliseconds since the Unix epoch.
    pub const fn as_ms(self) -> u64 {
        self.0
    }

    /// Later by `ms`, at most the end of time.
    #[must_use]
    pub const fn plus_ms(self, ms: u64) -> Self {
        Self::from_ms(self.0.saturating_add(ms))
    }

    /// Milliseconds since `earlier`, 0 when that is later.
    pub const fn since_ms(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

/// A span in words of an operator: `0.4s`, `12s`, `6m2s`, `3h5m`, `2d4h`.
pub fn span(ms: u64) -> String {
    let s = ms / 1000;
    match s {
        0..=9 => format!("{}.{}s", s, ms % 1000 / 100),
        10..=59 => format!("{s}s"),
        60..=3599 => format!("{}m{}s", s / 60, s % 60),
        3600..=86_399 => format!("{}h{}m", s / 3600, s % 3600 / 60),
        _ => format!("{}d{}h", s / 86_400, s % 86_400 / 3600),
    }
}
