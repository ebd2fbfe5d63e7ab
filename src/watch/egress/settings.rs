//! What the bot is told about the network by its owner. Must not know where that was written down.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::core::egress::AddressRule;
use crate::core::limits::{
    EGRESS_BYTES_MAX, EGRESS_CONNECT_MS, EGRESS_CONNECTIONS_MAX, EGRESS_HEAD_MS, EGRESS_IDLE_MS,
    EGRESS_REQUESTS_MAX, EGRESS_REQUESTS_PER_MINUTE, EGRESS_UNUSED_MS, EGRESS_WAIT_MS_MAX,
};

/// How the network is used, for all executions.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// Addresses that are reached though they are not public.
    pub addresses: Vec<AddressRule>,
    /// Requests a minute to one host, of all executions together.
    pub requests_per_minute: u32,
    /// What one execution may use.
    pub caps: Caps,
    /// A PEM file of more certificates that upstreams are trusted by, beside the system's.
    pub extra_ca: Option<PathBuf>,
    /// How long the process stays when nobody is connected, in milliseconds.
    pub unused_ms: u64,
    /// The host's environment. Only what says where certificates are is passed on.
    pub env: Vec<(String, String)>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            addresses: vec![],
            requests_per_minute: EGRESS_REQUESTS_PER_MINUTE,
            caps: Caps::default(),
            extra_ca: None,
            unused_ms: EGRESS_UNUSED_MS,
            env: vec![],
        }
    }
}

/// What one execution may use, and how long is waited for what.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Caps {
    /// Connections at once.
    pub connections: usize,
    /// Requests in its life.
    pub requests: u64,
    /// Bytes in its life, each way.
    pub bytes: u64,
    /// From the first byte of a request to the end of its head, in milliseconds.
    pub head_ms: u64,
    /// A connection on which nothing moves for so many milliseconds is ended.
    pub idle_ms: u64,
    /// To find a host's addresses and connect to one, in milliseconds.
    pub connect_ms: u64,
    /// A request waits so many milliseconds for its turn.
    pub wait_ms: u64,
}

impl Default for Caps {
    fn default() -> Self {
        Self {
            connections: EGRESS_CONNECTIONS_MAX,
            requests: EGRESS_REQUESTS_MAX,
            bytes: EGRESS_BYTES_MAX,
            head_ms: EGRESS_HEAD_MS,
            idle_ms: EGRESS_IDLE_MS,
            connect_ms: EGRESS_CONNECT_MS,
            wait_ms: EGRESS_WAIT_MS_MAX,
        }
    }
}
