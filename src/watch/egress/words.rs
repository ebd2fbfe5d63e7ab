//! The words on the socket of the egress process: one JSON object a line, each answered by one.
//! Owns their form and how lines are read. Must not know what a word does.
//!
//! A bot says `hello`, `settings`, `rules`, `forget` and `retire`; a shim says `serve`, once, with
//! its listener. `hello` and `retire` stay as they are in every version.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

use hyper::header::{HeaderName, HeaderValue};
use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Serialize, Serializer};
use tokio::io::{AsyncWriteExt, Interest};
use tokio::net::UnixStream;

use super::settings::Caps;
use crate::core::egress::{AddressRule, CredentialName, Destination, HostRule};
use crate::core::limits::{
    EGRESS_LINE_BYTES_MAX, EGRESS_REQUESTS_PER_MINUTE, EGRESS_REQUESTS_PER_MINUTE_RANGE,
};
use crate::watch::file;
use crate::watch::passing;

/// The socket's name in the directory.
pub(super) const SOCKET: &str = "ctl";
/// Version of the words.
pub(super) const VERSION: u32 = 1;
/// What is read at once.
const READ_BYTES: usize = 8 * 1024;

/// What the egress process is told.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Word {
    /// Who speaks.
    Hello(Hello),
    /// How the network is used, for all executions.
    Settings(Told),
    /// What an execution may do. Replaces what it might before.
    Rules(Rules),
    /// An execution is over.
    Forget {
        /// Which.
        execution: String,
    },
    /// Another egress process takes over.
    Retire {},
    /// Take connections from the listener that comes with this.
    Serve(Serve),
}

/// Its answer to each.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Answer {
    /// To `hello`.
    Hello(Hello),
    /// It is so.
    Done {},
    /// It is not.
    Refused {
        /// Why.
        what: String,
    },
}

/// Who speaks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Hello {
    /// Version of the words.
    pub(super) version: u32,
    /// The dogwatch that speaks.
    #[serde(default)]
    pub(super) build: String,
}

impl Hello {
    /// What this process says.
    pub(super) fn own() -> Self {
        Self { version: VERSION, build: env!("CARGO_PKG_VERSION").to_owned() }
    }
}

/// How the network is used, for all executions.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Told {
    /// Addresses that are reached though they are not public.
    pub(super) addresses: Vec<AddressRule>,
    /// Requests a minute to one host, of all executions together.
    pub(super) requests_per_minute: u32,
    /// What one execution may use.
    pub(super) caps: Caps,
    /// More certificates that upstreams are trusted by, as PEM.
    pub(super) extra_ca: Option<String>,
    /// How long the process stays when nobody is connected, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) unused_ms: Option<u64>,
}

impl Default for Told {
    fn default() -> Self {
        Self {
            addresses: vec![],
            requests_per_minute: EGRESS_REQUESTS_PER_MINUTE,
            caps: Caps::default(),
            extra_ca: None,
            unused_ms: None,
        }
    }
}

/// What an execution may do in the network. Never written to a disk: it holds secrets.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Rules {
    /// The execution: `<session>/<id>`.
    pub execution: String,
    /// What its shim says as well, and its script where the listener is guarded. Random.
    #[serde(serialize_with = "exposed")]
    pub pass: SecretString,
    /// Hosts that it may reach.
    pub hosts: Vec<HostRule>,
    /// Credentials that are put into its requests.
    #[serde(default)]
    pub lent: Vec<Lent>,
}

/// A credential that is put into the requests of an execution.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Lent {
    /// Its name. All executions that are lent it share its budget.
    pub name: CredentialName,
    /// The only place where it is sent, by TLS.
    pub host: Destination,
    /// The header field that it stands in, such as `Authorization`.
    pub header: String,
    /// The whole value of that field.
    #[serde(serialize_with = "exposed")]
    pub value: SecretString,
    /// Requests a minute with it, of all executions together.
    #[serde(default = "per_minute")]
    pub requests_per_minute: u32,
}

fn per_minute() -> u32 {
    EGRESS_REQUESTS_PER_MINUTE
}

impl Rules {
    /// Can they be kept? Says what is wrong, without a secret.
    pub(super) fn check(&self) -> Result<(), String> {
        use crate::core::limits::{
            CREDENTIAL_VALUE_BYTES_MAX, EGRESS_CREDENTIALS_MAX, EGRESS_HOSTS_MAX,
        };
        check_execution(&self.execution)?;
        if self.hosts.len() > EGRESS_HOSTS_MAX || self.lent.len() > EGRESS_CREDENTIALS_MAX {
            return Err("too many hosts or credentials for one execution".to_owned());
        }
        for lent in &self.lent {
            let value = lent.value.expose_secret();
            let header = HeaderName::try_from(lent.header.as_str()).is_ok();
            if !header || HeaderValue::try_from(value).is_err() {
                return Err(format!("the credential {} makes no header field", lent.name));
            }
            if value.len() > CREDENTIAL_VALUE_BYTES_MAX {
                return Err(format!("the credential {} is too long", lent.name));
            }
            if !EGRESS_REQUESTS_PER_MINUTE_RANGE.contains(&lent.requests_per_minute) {
                return Err(format!("the credential {} has no such budget", lent.name));
            }
        }
        Ok(())
    }
}

/// Longest name of an execution in bytes, as it stands in the log.
const EXECUTION_BYTES_MAX: usize = 2 * crate::core::id::ID_BYTES_MAX + 1;

fn check_execution(name: &str) -> Result<(), String> {
    let fits = (1..=EXECUTION_BYTES_MAX).contains(&name.len());
    if fits && !name.chars().any(char::is_control) {
        return Ok(());
    }
    Err("that names no execution".to_owned())
}

/// What a shim says, with its listener.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Serve {
    /// The execution: `<session>/<id>`.
    pub(super) execution: String,
    /// The same as in its rules.
    #[serde(serialize_with = "exposed")]
    pub(super) pass: SecretString,
    /// Everybody on this machine can connect, so each request brings the pass.
    #[serde(default)]
    pub(super) guarded: bool,
}

fn exposed<S: Serializer>(secret: &SecretString, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(secret.expose_secret())
}

/// A word as it is sent.
pub(super) fn line(word: &impl Serialize) -> io::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(word)?;
    line.push(b'\n');
    if line.len() > EGRESS_LINE_BYTES_MAX {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "the line is too long"));
    }
    Ok(line)
}

/// Reads a word. An error says where, and never what stands there.
pub(super) fn read<'a, T: Deserialize<'a>>(line: &'a [u8]) -> io::Result<T> {
    serde_json::from_slice(line).map_err(|error| {
        let what = format!("the word is not understood at column {}", error.column());
        io::Error::new(io::ErrorKind::InvalidData, what)
    })
}

/// One end of a connection, with what was read of it.
#[derive(Debug)]
pub(super) struct Line {
    stream: UnixStream,
    buffer: Vec<u8>,
    /// So much of the buffer has no line's end.
    looked: usize,
    passed: Option<OwnedFd>,
}

impl Line {
    /// The end of a connection that is open.
    pub(super) fn new(stream: UnixStream) -> Self {
        Self { stream, buffer: Vec::new(), looked: 0, passed: None }
    }

    /// Connects to the process of a directory.
    pub(super) async fn connect(dir: &Path) -> io::Result<Self> {
        // A socket's path may not be longer than 107 bytes; this one is short wherever it is.
        let dir = file::directory(dir)?;
        let path = format!("/proc/self/fd/{}/{SOCKET}", dir.as_raw_fd());
        Ok(Self::new(UnixStream::connect(path).await?))
    }

    /// The next line without its end; `None` when there is no other. Nothing is lost when it is
    /// dropped.
    pub(super) async fn next(&mut self) -> io::Result<Option<Vec<u8>>> {
        loop {
            let rest = self.buffer.get(self.looked..).unwrap_or_default();
            if let Some(at) = rest.iter().position(|byte| *byte == b'\n') {
                let mut line: Vec<u8> = self.buffer.drain(..=self.looked + at).collect();
                line.pop();
                self.looked = 0;
                return Ok(Some(line));
            }
            self.looked = self.buffer.len();
            if self.buffer.len() > EGRESS_LINE_BYTES_MAX {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "the line has no end"));
            }
            let (buffer, stream) = (&mut self.buffer, &self.stream);
            let receive = || {
                let before = buffer.len();
                buffer.resize(before + READ_BYTES, 0);
                let got = passing::receive(stream, buffer.get_mut(before..).unwrap_or_default());
                buffer.truncate(before + got.as_ref().map_or(0, |(count, _)| *count));
                got
            };
            let (count, passed) = self.stream.async_io(Interest::READABLE, receive).await?;
            // Of several the first is kept and the others are closed.
            if let Some(passed) = passed.into_iter().next() {
                self.passed = Some(passed);
            }
            if count == 0 {
                return Ok(None);
            }
        }
    }

    /// The descriptor that came with the latest line.
    pub(super) fn take_passed(&mut self) -> Option<OwnedFd> {
        self.passed.take()
    }

    /// The other end's user, as the kernel knows it.
    pub(super) fn peer_uid(&self) -> io::Result<u32> {
        Ok(self.stream.peer_cred()?.uid())
    }

    /// Sends a word.
    pub(super) async fn say(&mut self, word: &impl Serialize) -> io::Result<()> {
        self.stream.write_all(&line(word)?).await
    }
}
