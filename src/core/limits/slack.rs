//! Limits of Slack's own, and of how the bot behaves there. Owns their relations to the others.

use super::{HAND_OVER_MS_MAX, MODEL_TOTAL_MS, POST_LEASE_MS, SWEEP_MS};

/// Until Slack has taken the connection.
pub const SLACK_CONNECT_MS: u64 = 5_000;
/// A whole call of Slack's Web API.
pub const SLACK_CALL_MS: u64 = 10_000;
/// Until the next call where Slack says "too many" but not how long.
pub const SLACK_LIMITED_MS: u64 = 5_000;
/// Longest wait that Slack's own word can impose.
pub const SLACK_LIMITED_MS_MAX: u64 = 3_600_000;
/// Largest answer of Slack's Web API.
pub const SLACK_ANSWER_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Characters of Markdown in one message. Slack takes 12,000 in a block, and somewhat more in all.
pub const SLACK_BLOCK_CHARS_MAX: usize = 11_500;
/// Characters of a message's text beside or without blocks.
pub const SLACK_TEXT_CHARS_MAX: usize = 4_000;
/// Of either so many are kept free, for the mark of a repeat.
pub const SLACK_MARK_CHARS_MAX: usize = 100;
/// Messages of one post; what needs more is one message and a file.
pub const SLACK_PARTS_MAX: usize = 3;
/// Characters of the beginning that is shown of what is a file.
pub const SLACK_INTRO_CHARS_MAX: usize = 3_000;
/// Between messages into one channel, in the long run.
pub const SLACK_PACE_MS: u64 = 1_000;
/// Messages into one channel that need not keep that distance.
pub const SLACK_BURST_MAX: u64 = 4;
/// Channels whose pace is known, and limits that are known.
pub const SLACK_PACED_MAX: usize = 1_024;
/// One try of a post with all its calls and waits.
pub const SLACK_POST_MS_MAX: u64 = 20_000;
/// A call of a post is not begun when less is left of the try.
pub const SLACK_CALL_MS_MIN: u64 = 2_000;
/// Looking for what an earlier try has posted.
pub const SLACK_LOOK_MS_MAX: u64 = 10_000;
/// Pages of a thread that are looked at.
pub const SLACK_LOOK_PAGES_MAX: usize = 5;
/// Messages of such a page; Slack gives fewer to some.
pub const SLACK_LOOK_MESSAGES_MAX: usize = 200;
/// Looked at from so long before the first try on: clocks differ.
pub const SLACK_LOOK_BACK_MS: u64 = 3_600_000;
/// Posts of which is remembered what is posted of them.
pub const SLACK_POSTS_KEPT_MAX: usize = 256;
/// Between tries of what only an operator can mend.
pub const SLACK_MENDED_MS: u64 = 300_000;
/// Between changes of what is shown of one turn.
pub const SLACK_STATUS_MS: u64 = 1_000;
/// A status is set again after so long: Slack takes it away after two minutes.
pub const SLACK_STATUS_AGAIN_MS: u64 = 90_000;
/// Before a status is tried again that could not be set.
pub const SLACK_STATUS_RETRY_MS: u64 = 5_000;
/// A status that cannot be taken away is left to Slack after so long.
pub const SLACK_STATUS_LEFT_MS: u64 = 60_000;
/// A turn of which nothing was heard for so long is not shown any more.
pub const SLACK_STATUS_QUIET_MS_MAX: u64 = 2_400_000;
/// Threads in which a status is shown.
pub const SLACK_STATUSES_MAX: usize = 256;
/// Calls for statuses at a time.
pub const SLACK_STATUS_CALLS_MAX: usize = 4;
/// Until all statuses are taken away when the bot is asked to end.
pub const SLACK_STATUS_END_MS: u64 = 2_000;

const _: () = assert!(SLACK_CONNECT_MS < SLACK_CALL_MS && SLACK_CALL_MS < SLACK_POST_MS_MAX);
// A try of a post ends while its lease still lives, and before the bot is ended by force.
const _: () = assert!(SLACK_POST_MS_MAX + SWEEP_MS <= POST_LEASE_MS);
const _: () = assert!(SLACK_POST_MS_MAX + SWEEP_MS <= HAND_OVER_MS_MAX);
const _: () = assert!(SLACK_LOOK_MS_MAX + SLACK_CALL_MS_MIN < SLACK_POST_MS_MAX);
const _: () = assert!(SLACK_MARK_CHARS_MAX < SLACK_TEXT_CHARS_MAX);
const _: () = assert!(SLACK_INTRO_CHARS_MAX + SLACK_TEXT_CHARS_MAX < SLACK_BLOCK_CHARS_MAX);
const _: () = assert!(SLACK_PARTS_MAX as u64 <= SLACK_BURST_MAX);
const _: () =
    assert!(SLACK_STATUS_AGAIN_MS < 120_000 && MODEL_TOTAL_MS < SLACK_STATUS_QUIET_MS_MAX);
