//! What is said on the socket: one JSON object a line. Owns the frames and their bounds. Must not
//! know who says them.

use std::io;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::console::ChatName;
use crate::core::arrival::Incoming;
use crate::core::id::{ExecutionId, SessionId};
use crate::core::limits::FRAME_BYTES_MAX;
use crate::core::time::Timestamp;
use crate::ports::{Command, DeskError, Done, Glance, Post, Progress, SessionView};

/// Both sides must speak the same.
pub(super) const VERSION: u32 = 1;

/// How far a terminal has seen the posts of a boot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Seen {
    pub(super) boot: String,
    pub(super) upto: u64,
}

/// What a terminal says.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "say", rename_all = "snake_case")]
pub(super) enum Ask {
    /// The first word.
    Hello {
        version: u32,
        /// The chats that it follows.
        chats: Vec<ChatName>,
        /// What it has seen before its connection broke.
        seen: Option<Seen>,
    },
    /// Asks the desk.
    Call { no: u64, call: Call },
    /// This post is on the screen.
    Shown { no: u64 },
}

/// What the desk is asked.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Call {
    Accept { session: SessionId, incoming: Incoming },
    Command { session: SessionId, command: Command },
    View { session: SessionId },
    Glance { session: SessionId, execution: ExecutionId },
}

impl Call {
    pub(super) const fn session(&self) -> &SessionId {
        match self {
            Self::Accept { session, .. }
            | Self::Command { session, .. }
            | Self::View { session }
            | Self::Glance { session, .. } => session,
        }
    }
}

/// What the desk answers.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Answer {
    Accepted,
    Done(Done),
    View(Box<SessionView>),
    Glance(Option<Glance>),
    Refused(DeskError),
}

/// What the bot says.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "say", rename_all = "snake_case")]
pub(super) enum Tell {
    /// The answer to the first word.
    Welcome { boot: String, now: Timestamp, banner: Vec<String>, upto: u64 },
    /// It goes no further.
    Refused { what: String },
    /// What the desk answers.
    Answer { no: u64, answer: Answer },
    /// To be shown. Numbers grow within a boot; the same post has the same number.
    Post { no: u64, post: Post },
    /// To be shown, if there is room.
    Progress { session: SessionId, progress: Progress },
    /// A watcher of this session was let run or ended.
    Stir { session: SessionId },
    /// The bot ends.
    Bye,
}

/// A frame in one line.
pub(super) fn line(frame: &impl Serialize) -> io::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(frame)?;
    line.push(b'\n');
    Ok(line)
}

/// Writes a frame.
pub(super) async fn write(
    output: &mut (impl AsyncWrite + Unpin),
    frame: &impl Serialize,
) -> io::Result<()> {
    output.write_all(&line(frame)?).await
}

/// Reads a frame; `None` at the end. What is too long or no frame is an error, and nothing more
/// than a frame's bytes is held.
pub(super) async fn read<T: DeserializeOwned>(
    input: &mut (impl AsyncBufRead + Unpin),
    begun: &mut Vec<u8>,
) -> io::Result<Option<T>> {
    // What a cancelled read has taken stays in `begun`.
    let room = (FRAME_BYTES_MAX - begun.len()) as u64;
    let read = input.take(room).read_until(b'\n', begun).await?;
    if read == 0 && begun.is_empty() {
        return Ok(None);
    }
    if begun.last() != Some(&b'\n') {
        let what = if begun.len() >= FRAME_BYTES_MAX { "it is too long" } else { "it broke off" };
        return Err(io::Error::new(io::ErrorKind::InvalidData, what));
    }
    let frame = serde_json::from_slice(begun)?;
    begun.clear();
    Ok(Some(frame))
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn all(mut bytes: &[u8]) -> (usize, Option<io::ErrorKind>) {
        let mut begun = Vec::new();
        let mut count = 0;
        loop {
            match read::<Ask>(&mut bytes, &mut begun).await {
                Ok(Some(_)) => count += 1,
                Ok(None) => return (count, None),
                Err(error) => return (count, Some(error.kind())),
            }
        }
    }

    #[tokio::test]
    async fn frames_are_lines_and_what_is_none_ends_the_reading() {
        let shown = line(&Ask::Shown { no: 7 }).unwrap();
        assert_eq!(all(&shown.repeat(3)).await, (3, None));
        let bad = Some(io::ErrorKind::InvalidData);
        assert_eq!(all(&[&shown[..], b"{}\n"].concat()).await, (1, bad));
        assert_eq!(all(&[&shown[..], &shown[..5]].concat()).await, (1, bad));
        assert_eq!(all(b"\xff\xfe\n").await, (0, bad));
        assert_eq!(all(&vec![b' '; FRAME_BYTES_MAX + 10]).await, (0, bad));
    }
}
