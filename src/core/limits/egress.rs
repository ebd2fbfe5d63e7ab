//! What a watcher with a network may do there: the defaults, and how far a configuration may go.

use std::ops::RangeInclusive;

/// Hosts that one execution may name.
pub const EGRESS_HOSTS_MAX: usize = 32;
/// Credentials that one execution may be lent.
pub const EGRESS_CREDENTIALS_MAX: usize = 8;
/// Addresses that a configuration may list.
pub const EGRESS_ADDRESSES_MAX: usize = 256;
/// A host's name with its dots, in bytes (RFC 1035).
pub const HOST_BYTES_MAX: usize = 253;
/// One part of a host's name, in bytes (RFC 1035).
pub const HOST_LABEL_BYTES_MAX: usize = 63;
/// A credential's name, in bytes.
pub const CREDENTIAL_NAME_BYTES_MAX: usize = 64;
/// A credential's value, in bytes.
pub const CREDENTIAL_VALUE_BYTES_MAX: usize = 8 * 1024;

/// Requests a minute to one host, of all executions together.
pub const EGRESS_REQUESTS_PER_MINUTE: u32 = 600;
/// None at all is no network.
pub const EGRESS_REQUESTS_PER_MINUTE_RANGE: RangeInclusive<u32> = 1..=60_000;
/// The span over which requests are counted.
pub const EGRESS_MINUTE_MS: u64 = 60_000;
/// What may go at once is the minute's number divided by this.
pub const EGRESS_BURST_DIVISOR: u32 = 6;
/// A request waits so long for its turn before it is refused.
pub const EGRESS_WAIT_MS_MAX: u64 = 30_000;
/// Requests of one execution that wait for the same budget.
pub const EGRESS_WAITING_MAX: usize = 64;
/// Longest that one answer of an upstream holds requests back.
pub const EGRESS_HOLD_MS_MAX: u64 = 3_600_000;
/// How long, where it only says that there were too many.
pub const EGRESS_HOLD_MS: u64 = 10_000;
/// Those who were held back come again spread over so long.
pub const EGRESS_SPREAD_MS: u64 = 2_000;
/// Hosts and credentials whose requests are counted at once.
pub const EGRESS_LINES_MAX: usize = 16_384;

/// Executions with rules at once.
pub const EGRESS_EXECUTIONS_MAX: usize = 4_096;
/// Connections of one execution at once.
pub const EGRESS_CONNECTIONS_MAX: usize = 64;
/// How far a configuration may go.
pub const EGRESS_CONNECTIONS_RANGE: RangeInclusive<usize> = 1..=1_024;
/// Connections above that, which are only told so; more wait in the system's queue.
pub const EGRESS_TURNED_AWAY_MAX: usize = 8;
/// Connections of all executions at once.
pub const EGRESS_CONNECTIONS_TOTAL_MAX: usize = 4_096;
/// Requests of one execution.
pub const EGRESS_REQUESTS_MAX: u64 = 100_000;
/// How far a configuration may go.
pub const EGRESS_REQUESTS_RANGE: RangeInclusive<u64> = 1..=1_000_000_000;
/// Bytes of one execution, each way.
pub const EGRESS_BYTES_MAX: u64 = 1 << 30;
/// How far a configuration may go.
pub const EGRESS_BYTES_RANGE: RangeInclusive<u64> = 1..=1 << 40;
/// The head of a request or of an answer.
pub const EGRESS_HEAD_BYTES_MAX: usize = 32 * 1024;
/// Header fields of a request or of an answer.
pub const EGRESS_FIELDS_MAX: usize = 100;
/// From the first byte of a request to the end of its head.
pub const EGRESS_HEAD_MS: u64 = 10_000;
/// A connection on which nothing moves for so long is ended.
pub const EGRESS_IDLE_MS: u64 = 300_000;
/// How far a configuration may go, for both of these spans.
pub const EGRESS_MS_RANGE: RangeInclusive<u64> = 1..=86_400_000;
/// To find a host's addresses and connect to one of them.
pub const EGRESS_CONNECT_MS: u64 = 10_000;
/// Addresses of a host that are tried.
pub const EGRESS_ADDRESSES_TRIED_MAX: usize = 8;
/// What a tunnel reads at once, each way.
pub const EGRESS_COPY_BYTES: usize = 16 * 1024;

/// The egress process ends when for so long neither a bot nor a shim was connected.
pub const EGRESS_UNUSED_MS: u64 = 60_000;
/// One that was retired ends its open connections within so long.
pub const EGRESS_RETIRED_MS_MAX: u64 = 3_600_000;
/// Its lock is waited for so long.
pub const EGRESS_LOCK_MS_MAX: u64 = 2_000;
/// From its start to its first word.
pub const EGRESS_START_MS_MAX: u64 = 10_000;
/// An answer on its socket that takes longer is none.
pub const EGRESS_ANSWER_MS: u64 = 5_000;
/// The same for a shim, which has nothing else to wait for.
pub const EGRESS_HAND_OVER_MS: u64 = 1_000;
/// First wait before it is started again; it doubles.
pub const EGRESS_AGAIN_FIRST_MS: u64 = 100;
/// Longest such wait.
pub const EGRESS_AGAIN_MS_MAX: u64 = 5_000;
/// Connections of bots and shims at once.
pub const EGRESS_PEERS_MAX: usize = 8_192;
/// One line on its socket.
pub const EGRESS_LINE_BYTES_MAX: usize = 512 * 1024;
/// Certificates of a configuration, as PEM.
pub const EGRESS_CA_BYTES_MAX: usize = 256 * 1024;
/// Its log is set aside when it has so many bytes.
pub const EGRESS_LOG_BYTES_MAX: u64 = 1024 * 1024;

const _: () = assert!(EGRESS_CONNECT_MS < EGRESS_IDLE_MS && EGRESS_HEAD_MS < EGRESS_IDLE_MS);
const _: () = assert!(EGRESS_WAIT_MS_MAX < EGRESS_IDLE_MS);
// Each byte of a certificate or of a credential may become two in a line.
const _: () = assert!(EGRESS_CA_BYTES_MAX * 2 <= EGRESS_LINE_BYTES_MAX);
const _: () = assert!(
    EGRESS_CREDENTIALS_MAX * CREDENTIAL_VALUE_BYTES_MAX * 2 < EGRESS_LINE_BYTES_MAX / 2
        && EGRESS_HOSTS_MAX * HOST_BYTES_MAX * 2 < EGRESS_LINE_BYTES_MAX / 4
);
