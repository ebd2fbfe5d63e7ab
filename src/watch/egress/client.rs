//! The bot's side of the egress process: a task that starts it where it is not there, tells it
//! every rule, and tells all again to the next one when it ends. Closing it touches nothing.
//! Must not know what a rule means.

use std::collections::BTreeMap;
use std::fs::{DirBuilder, OpenOptions};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;
use tokio::io::AsyncReadExt;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::settings::Settings;
use super::words::{self, Answer, Hello, Line, Rules, Told, Word};
use crate::core::limits::{
    EGRESS_AGAIN_FIRST_MS, EGRESS_AGAIN_MS_MAX, EGRESS_ANSWER_MS, EGRESS_CA_BYTES_MAX,
    EGRESS_START_MS_MAX,
};
use crate::watch::{file, spawn};

/// What the process complains of before it can serve.
const COMPLAINTS: &str = "stderr";
/// What is read of that.
const COMPLAINTS_BYTES_MAX: usize = 2_048;
/// Processes that are retired before one is taken as it is.
const RETIRED_MAX: usize = 2;

/// Why the network of an execution is not there.
#[derive(Debug, thiserror::Error)]
pub enum EgressError {
    /// The process does not start.
    #[error("the egress process does not start: {what}")]
    Start {
        /// What it or the system said.
        what: String,
    },
    /// It does not answer, or in a way that is not understood.
    #[error("the egress process does not answer: {source}; it is tried again")]
    Silent {
        /// What the system said.
        #[from]
        source: io::Error,
    },
    /// It did not take a word.
    #[error("the egress process refuses: {what}")]
    Refused {
        /// What it said.
        what: String,
    },
    /// The certificates cannot be read.
    #[error("the certificates in {path} cannot be read: {source}")]
    Certificates {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The bot ends.
    #[error("the bot ends")]
    Closed,
}

enum Order {
    Rule(Rules, oneshot::Sender<Result<(), EgressError>>),
    Forget(String),
}

/// The bot's way to the egress process of a directory.
#[derive(Debug)]
pub struct Egress {
    // As many as the bot has executions, so no more than those wait in it.
    orders: mpsc::UnboundedSender<Order>,
    stop: CancellationToken,
}

impl Egress {
    /// The way to the process of `dir`, which is `program` run again. Nothing is started before the
    /// first rule. Its task runs in the current runtime and ends when this is dropped.
    pub fn new(dir: PathBuf, program: PathBuf, settings: Settings) -> Self {
        let (orders, inbox) = mpsc::unbounded_channel();
        let stop = CancellationToken::new();
        let mut teller =
            Teller { dir, program, settings, inbox, line: None, kept: BTreeMap::new() };
        let until_the_end = stop.clone();
        TaskTracker::new().spawn(async move {
            until_the_end.run_until_cancelled(Box::pin(teller.run())).await;
        });
        Self { orders, stop }
    }

    /// Returns once the egress process has these rules. They replace earlier ones of the execution
    /// and are told to every later process until they are forgotten, also after an error of this.
    pub async fn rule(&self, rules: Rules) -> Result<(), EgressError> {
        rules.check().map_err(|what| EgressError::Refused { what })?;
        let (told, answer) = oneshot::channel();
        self.orders.send(Order::Rule(rules, told)).map_err(|_closed| EgressError::Closed)?;
        answer.await.unwrap_or(Err(EgressError::Closed))
    }

    /// The execution is over. Returns at once.
    pub fn forget(&self, execution: &str) {
        // Whoever ends has nothing left to forget.
        let _ending = self.orders.send(Order::Forget(execution.to_owned()));
    }
}

impl Drop for Egress {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

struct Teller {
    dir: PathBuf,
    program: PathBuf,
    settings: Settings,
    inbox: mpsc::UnboundedReceiver<Order>,
    line: Option<Line>,
    /// What every process is told.
    kept: BTreeMap<String, Rules>,
}

impl Teller {
    async fn run(&mut self) {
        let mut wait_ms = 0;
        loop {
            let away = self.line.is_none() && !self.kept.is_empty();
            tokio::select! {
                order = self.inbox.recv() => match order {
                    Some(order) => self.obey(order).await,
                    None => return,
                },
                // It says nothing unasked, so this is its end.
                _ended = ended(self.line.as_mut()) => {
                    self.line = None;
                    wait_ms = 0;
                    tracing::info!(dir = %self.dir.display(), "the egress process has ended");
                }
                () = tokio::time::sleep(Duration::from_millis(wait_ms)), if away => {
                    match self.begin().await {
                        Ok(()) => wait_ms = 0,
                        Err(error) => {
                            wait_ms = (wait_ms * 2)
                                .clamp(EGRESS_AGAIN_FIRST_MS, EGRESS_AGAIN_MS_MAX);
                            tracing::warn!(%error, wait_ms, "watchers have no network for now");
                        }
                    }
                }
            }
        }
    }

    async fn obey(&mut self, order: Order) {
        match order {
            Order::Rule(rules, told) => {
                let word = Word::Rules(rules.clone());
                self.kept.insert(rules.execution.clone(), rules);
                let done = match self.line {
                    // It may have ended since the last look.
                    Some(_) => match self.ask(&word).await {
                        Err(EgressError::Silent { .. }) => self.begin_with(&word).await,
                        done => done,
                    },
                    None => self.begin_with(&word).await,
                };
                // Nobody waits any more: the rules are told all the same.
                let _unheard = told.send(done);
            }
            Order::Forget(execution) => {
                self.kept.remove(&execution);
                if self.line.is_some() {
                    // One that has ended has forgotten it.
                    let _ended = self.ask(&Word::Forget { execution }).await;
                }
            }
        }
    }

    /// Whoever says a word wants to hear of it, so it is said once more by itself.
    async fn begin_with(&mut self, word: &Word) -> Result<(), EgressError> {
        self.begin().await?;
        self.ask(word).await
    }

    /// Finds the process, or starts it, and tells it everything.
    async fn begin(&mut self) -> Result<(), EgressError> {
        self.line = None;
        let begun = self.tell_all().await;
        if begun.is_err() {
            self.line = None;
        }
        begun
    }

    async fn tell_all(&mut self) -> Result<(), EgressError> {
        let told = self.told()?;
        self.line = Some(self.greet().await?);
        self.ask(&Word::Settings(told)).await?;
        let all: Vec<Rules> = self.kept.values().cloned().collect();
        for rules in all {
            match self.ask(&Word::Rules(rules)).await {
                // Its own caller has heard it.
                Ok(()) | Err(EgressError::Refused { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// A connection to a process of this very build.
    async fn greet(&self) -> Result<Line, EgressError> {
        let mut retired = 0;
        loop {
            let mut line = match Line::connect(&self.dir).await {
                Ok(line) => line,
                Err(_not_there) => {
                    self.start().await?;
                    Line::connect(&self.dir).await?
                }
            };
            match ask(&mut line, &Word::Hello(Hello::own())).await? {
                Answer::Hello(hello) if hello == Hello::own() || retired >= RETIRED_MAX => {
                    return Ok(line);
                }
                Answer::Hello(hello) => {
                    tracing::info!(build = hello.build, "an older egress process is retired");
                    ask(&mut line, &Word::Retire {}).await?;
                    retired += 1;
                }
                Answer::Done {} => return Err(io::Error::from(io::ErrorKind::InvalidData).into()),
                Answer::Refused { what } => return Err(EgressError::Refused { what }),
            }
        }
    }

    /// Starts the process and waits until it serves.
    async fn start(&self) -> Result<(), EgressError> {
        let failed = |what: String| EgressError::Start { what };
        let begin = || -> io::Result<tokio::process::Child> {
            DirBuilder::new().recursive(true).mode(0o700).create(&self.dir)?;
            let path = self.dir.join(COMPLAINTS);
            let mut options = OpenOptions::new();
            let complaints = file::open(&path, options.write(true).create(true).truncate(true))?;
            spawn::egress(&self.program, &self.dir, &self.settings.env, complaints)
        };
        let mut process = begin().map_err(|error| {
            failed(format!("{} in {}: {error}", self.program.display(), self.dir.display()))
        })?;
        let mut says = [0];
        let ready = match process.stdout.as_mut() {
            Some(stdout) => {
                timeout(Duration::from_millis(EGRESS_START_MS_MAX), stdout.read(&mut says)).await
            }
            None => Ok(Ok(0)),
        };
        match ready {
            // It goes on alone; the runtime reaps it when it ends.
            Ok(Ok(1..)) => Ok(()),
            Ok(Ok(0) | Err(_)) => {
                let path = self.dir.join(COMPLAINTS);
                let said = file::read(&path, COMPLAINTS_BYTES_MAX).unwrap_or_default();
                let said = String::from_utf8_lossy(&said);
                Err(failed(said.lines().last().unwrap_or("it says nothing").to_owned()))
            }
            Err(_late) => Err(failed("it does not serve in time".to_owned())),
        }
    }

    fn told(&self) -> Result<Told, EgressError> {
        let extra_ca = match &self.settings.extra_ca {
            None => None,
            Some(path) => {
                let wrong = |source| EgressError::Certificates { path: path.clone(), source };
                // Somebody's own file, which may be a link.
                let bytes = std::fs::read(path).map_err(wrong)?;
                let text = String::from_utf8(bytes)
                    .ok()
                    .filter(|text| text.len() <= EGRESS_CA_BYTES_MAX)
                    .ok_or_else(|| wrong(io::ErrorKind::InvalidData.into()))?;
                Some(text)
            }
        };
        Ok(Told {
            addresses: self.settings.addresses.clone(),
            requests_per_minute: self.settings.requests_per_minute,
            caps: self.settings.caps,
            extra_ca,
            unused_ms: Some(self.settings.unused_ms),
        })
    }

    async fn ask(&mut self, word: &Word) -> Result<(), EgressError> {
        let Some(line) = self.line.as_mut() else {
            return Err(io::Error::from(io::ErrorKind::NotConnected).into());
        };
        match ask(line, word).await {
            Ok(Answer::Done {}) => Ok(()),
            Ok(Answer::Refused { what }) => Err(EgressError::Refused { what }),
            Ok(Answer::Hello(_)) => {
                self.line = None;
                Err(io::Error::from(io::ErrorKind::InvalidData).into())
            }
            Err(error) => {
                self.line = None;
                Err(error.into())
            }
        }
    }
}

/// Waits for the end of the connection, for ever where there is none.
async fn ended(line: Option<&mut Line>) -> io::Result<Option<Vec<u8>>> {
    match line {
        Some(line) => line.next().await,
        None => std::future::pending().await,
    }
}

async fn ask(line: &mut Line, word: &impl Serialize) -> io::Result<Answer> {
    let exchange = async {
        line.say(word).await?;
        let answer = line.next().await?.ok_or(io::ErrorKind::UnexpectedEof)?;
        words::read(&answer)
    };
    let late = |_| io::Error::from(io::ErrorKind::TimedOut);
    timeout(Duration::from_millis(EGRESS_ANSWER_MS), exchange).await.map_err(late)?
}
