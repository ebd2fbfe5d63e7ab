//! Terminals of other processes: `dogwatch chat --attach` talks with the bot that `dogwatch serve`
//! runs. Owns the socket, who may use it, and the words on it. Must not know what a line means or
//! how anything looks: the terminal is the same [`super::run`], with its desk and its posts at the
//! other end of the socket.
//!
//! * [`Host`] is the bot's side: the channel of every attached terminal.
//! * [`reach`] is the terminal's side: a desk that asks the bot, and a task that brings posts.
//!
//! **Who may.** The socket stands in the data directory, for its owner alone (mode 0600), and both
//! sides ask the kernel who is at the other end: another user is refused, whatever the mode says.
//!
//! **What reaches whom.** A terminal follows the chats that it has opened. A post goes to every
//! terminal that follows its chat and is done when one of them has shown it. While nobody follows
//! the chat it waits in the outbox, untouched, and is posted as soon as somebody does. A terminal
//! whose connection broke says how far it has seen; what others were shown meanwhile comes once.

mod guest;
mod host;
mod service;
mod wire;

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use tokio::net::UnixStream;

pub use guest::{Arrived, Means, reach};
pub use host::{Host, Settings};

/// The socket's name in the data directory.
const SOCKET: &str = "chat.sock";

/// Why a terminal and a bot do not come together.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    /// Nobody is there.
    #[error(
        "no bot serves {}: start one with `dogwatch serve`, or talk with one of your own by \
         `dogwatch chat`; if one runs there, its socket was removed: start it again",
        directory.display()
    )]
    Nobody {
        /// The data directory.
        directory: PathBuf,
    },
    /// It accepts terminals and says nothing.
    #[error(
        "the bot at {} does not answer: it is stopped or very busy; look at its process, then try \
         again", directory.display()
    )]
    Silent {
        /// The data directory.
        directory: PathBuf,
    },
    /// A bot of somebody else, or a terminal of somebody else.
    #[error(
        "the bot at {} runs as another user (uid {uid}); attach as that user", directory.display()
    )]
    Stranger {
        /// The data directory.
        directory: PathBuf,
        /// Whose it is.
        uid: u32,
    },
    /// It does not take this terminal.
    #[error("{0}")]
    Refused(String),
    /// A bot serves terminals there already.
    #[error(
        "another bot serves terminals in {}: give this one another data_dir", directory.display()
    )]
    Held {
        /// The data directory.
        directory: PathBuf,
    },
    /// It cannot be used.
    #[error("the socket for terminals in {} cannot be used: {source}", directory.display())]
    Socket {
        /// The data directory.
        directory: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// Does a bot seem to serve terminals there?
pub fn is_served(directory: &Path) -> bool {
    std::os::unix::net::UnixStream::connect(directory.join(SOCKET)).is_ok()
}

/// The socket's path as the kernel takes it: it takes no long ones, so it is named by the open
/// directory.
struct Place {
    directory: File,
}

impl Place {
    fn open(directory: &Path) -> io::Result<Self> {
        Ok(Self { directory: File::open(directory)? })
    }

    fn socket(&self) -> String {
        format!("/proc/self/fd/{}/{SOCKET}", self.directory.as_raw_fd())
    }
}

/// Whose process is at the other end, where it is not ours.
fn stranger(stream: &UnixStream) -> io::Result<Option<u32>> {
    let uid = stream.peer_cred()?.uid();
    Ok((uid != nix::unistd::geteuid().as_raw()).then_some(uid))
}
