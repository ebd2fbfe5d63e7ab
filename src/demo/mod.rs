//! `dogwatch demo`: the main job from end to end, with a scripted model, on this machine, in a
//! directory of its own that is gone afterwards. Owns the run: a bot as a child process, spoken to
//! over `dogwatch chat --json`, killed in the middle and started again. Must not know the inside of
//! the bot: what the demo sees is what any program sees.
//!
//! The story is a machine without I/O ([`story`]); this file feeds it.

mod bot;
mod scenes;
pub mod story;
mod tell;
#[cfg(test)]
mod tests;

use std::io::{self, Write};
use std::path::PathBuf;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::Instant;

use bot::{Bot, Stage};
use story::{Effect, Input, Story};

/// What the scripted model says.
pub const PLAYBOOK: &str = include_str!("../../config/demo.toml");

/// What the demo is told.
#[derive(Debug, Clone)]
pub struct Settings {
    /// This program's own file.
    pub exe: PathBuf,
    /// Where its directory is made, such as `/tmp`.
    pub directory: PathBuf,
    /// Makes the directory's name unique: 26 letters and digits.
    pub tag: String,
    /// Colour is wanted and possible.
    pub colour: bool,
}

/// Why the demo could not go on.
#[derive(Debug, thiserror::Error)]
pub enum DemoError {
    /// No place for its files.
    #[error("cannot make {directory}: {source}; is TMPDIR writable and not full?")]
    Stage {
        /// Where.
        directory: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The bot's process.
    #[error("the demo's bot: {0}")]
    Bot(#[source] io::Error),
    /// It did not speak as a program expects.
    #[error("the bot wrote a line that is no event ({what}): {line}")]
    Words {
        /// The line.
        line: String,
        /// What is wrong with it.
        what: String,
    },
    /// The story cannot be shown.
    #[error("cannot write: {0}")]
    Show(#[source] io::Error),
    /// `^C` or TERM.
    #[error("stopped; everything that the demo had started is ended")]
    Interrupted,
}

/// Plays the story. `true` when all of it happened. Whatever comes, nothing is left running and
/// nothing is left behind.
pub async fn run(settings: Settings, out: &mut (dyn Write + Send)) -> Result<bool, DemoError> {
    let Settings { exe, directory, tag, colour } = settings;
    let mut stop = Stop {
        interrupt: signal(SignalKind::interrupt()).map_err(DemoError::Bot)?,
        terminate: signal(SignalKind::terminate()).map_err(DemoError::Bot)?,
    };
    let stage = Stage::set(exe, &directory, &tag)?;
    let mut play = Play { story: Story::new(colour), stage, bot: None, begun: Instant::now() };
    tokio::select! {
        well = play.run(out) => well,
        () = stop.asked() => Err(DemoError::Interrupted),
    }
}

struct Stop {
    interrupt: Signal,
    terminate: Signal,
}

impl Stop {
    async fn asked(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

struct Play {
    story: Story,
    // Fields are dropped in this order: the bot before the directory that it works in.
    bot: Option<Bot>,
    stage: Stage,
    begun: Instant,
}

impl Play {
    fn now(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    async fn run(&mut self, out: &mut (dyn Write + Send)) -> Result<bool, DemoError> {
        let mut effects = self.story.begin(0);
        loop {
            let mut audited = None;
            for effect in std::mem::take(&mut effects) {
                match effect {
                    Effect::Over { well } => return self.over(well, out),
                    Effect::Tell(text) => say(out, &text)?,
                    Effect::Audit => audited = Some(self.stage.audit().await?),
                    Effect::Start => self.bot = Some(self.stage.start()?),
                    Effect::Type(line) => {
                        if let Some(bot) = &mut self.bot {
                            bot.type_line(&line).await?;
                        }
                    }
                    Effect::Leave => self.bot.iter_mut().for_each(Bot::leave),
                    Effect::Kill => self.bot.iter_mut().try_for_each(Bot::kill)?,
                }
            }
            let input = match audited {
                Some((even, summary)) => Input::Audited { even, summary },
                None => self.next().await?,
            };
            effects = self.story.step(self.now(), input);
        }
    }

    async fn next(&mut self) -> Result<Input, DemoError> {
        let wake_at = self.begun + Duration::from_millis(self.story.wake_at());
        let Some(bot) = &mut self.bot else {
            tokio::time::sleep_until(wake_at).await;
            return Ok(Input::Tick);
        };
        let event = tokio::select! {
            event = bot.next() => event?,
            () = tokio::time::sleep_until(wake_at) => return Ok(Input::Tick),
        };
        if let Some(event) = event {
            return Ok(Input::Event(Box::new(event)));
        }
        // It has closed its output: it is as good as gone.
        let exited = tokio::time::timeout(Duration::from_secs(10), bot.wait()).await;
        self.bot = None;
        Ok(Input::Exited { well: exited.unwrap_or(Ok(false))? })
    }

    fn over(&mut self, well: bool, out: &mut (dyn Write + Send)) -> Result<bool, DemoError> {
        let left = self.stage.leftovers();
        if well && left.is_empty() {
            return Ok(true);
        }
        if well {
            say(out, &format!("          ✗ left running: {left:?}; ended now"))?;
        }
        for line in self.stage.last_words() {
            say(out, &format!("          | {line}"))?;
        }
        Ok(false)
    }
}

fn say(out: &mut (dyn Write + Send), text: &str) -> Result<(), DemoError> {
    writeln!(out, "{text}").and_then(|()| out.flush()).map_err(DemoError::Show)
}
