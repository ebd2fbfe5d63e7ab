//! The terminal: several named chats in one process, and the `Channel` that posts into them.
//! Owns the commands, the line editor, and the events of `--json`. Must not know the engine, the
//! store or the configuration.
//!
//! [`open`] gives the [`Console`] (the `Channel` for surface `console`) before there is a desk;
//! [`run`] then talks with the person until they leave:
//!
//! ```ignore
//! let (console, seat) = console::open(settings);
//! // … the engine is built with `console` among its channels, and gives the desk …
//! let end = console::run(seat, console::Reach { desk, clock, ids, stopped }).await?;
//! ```
//!
//! A chat NAME is the session `console/NAME` with the address (`console`, NAME). What a line means
//! is in [`typed`].
//!
//! # Three ways to be shown
//!
//! * **interactive**, when stdin and stdout are a terminal: a line editor with history; posts,
//!   answers while they come (whole lines) and changes of watchers appear above the line being
//!   typed. What belongs to a chat that is not in front has `[NAME]` before it. `^C` clears the
//!   line, a second one leaves, `^D` leaves; watchers run on.
//! * **plain**, for pipes: lines in, posts and answers of commands out, each flushed.
//! * **json**, for programs: one object a line, its kind in `event`, its instant in `at`
//!   (milliseconds since 1970), the chat in `chat`:
//!
//! ```text
//! {"event":"ready","chat":"main","at":…}                      lines are read from now on
//! {"event":"accepted","chat":…,"key":…,"at":…}                a message is taken, durably
//! {"event":"post","chat":…,"text":…,"sort":"answer|woken|human|failure","item":…,
//!  "may_repeat":false,"at":…}
//! {"event":"progress","chat":…,"kind":"began","turn":3,"synthetic":true,"at":…}
//! {"event":"progress","chat":…,"kind":"text","text":…} | "discarded" | "whole" | "ended"
//!  | "tool","name":… | "failed","what":…,"again_at":…|null      lossy: never the only source
//! {"event":"watcher","chat":…,"id":…,"name":…,"state":…,"elapsed_ms":…,"timeout_ms":…,
//!  "ending":…,"at":…}                                         seen to run, or to be over
//! {"event":"command","chat":…,"command":"watchers","live":[…],"ended":[…],"at":…}
//! {"event":"command","command":"status|chats|cancel|stop|help|chat", …}
//! {"event":"error","chat":…,"what":…,"at":…}                  what is wrong and what now
//! {"event":"link","up":false,"at":…}                          the bot it is attached to is away
//! {"event":"bye","note":…|null,"at":…}                        the last one
//! ```
//!
//! States are `starting running cancelling completed failed timed_out cancelled lost superseded`.
//!
//! At the end of a pipe the talk goes on until what was typed is answered ([`AtEnd`]).

pub mod attach;
mod channel;
pub mod chat;
mod clean;
pub mod event;
mod face;
mod input;
mod prompt;
mod screen;
mod stream;
mod talk;
mod terminal;
pub mod typed;
mod words;

use std::io::{self, IsTerminal, Read, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use tokio::sync::mpsc;

use crate::core::id::Principal;
use crate::core::limits::{CHATS_MAX, TERMINAL_QUEUE_MAX};

pub use channel::Console;
pub use chat::ChatName;
pub use talk::Reach;

use channel::Signal;
use face::Face;
use input::Desktop;
use screen::{Pen, Screen};
use talk::{Ears, Mouth, Talk};
use terminal::Restore;

/// Columns where the terminal does not say.
const COLUMNS_DEFAULT: usize = 80;

/// How the terminal is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// With a line editor.
    Interactive,
    /// Lines in, lines out.
    Plain,
    /// Lines in, one JSON object a line out.
    Json,
}

impl Mode {
    /// What fits this process's stdin and stdout.
    pub fn detect(json: bool) -> Self {
        if json {
            Self::Json
        } else if io::stdin().is_terminal() && io::stdout().is_terminal() {
            Self::Interactive
        } else {
            Self::Plain
        }
    }
}

/// What is waited for when a pipe is at its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AtEnd {
    /// No turn is open, no message unread, no post undelivered; watchers may run on.
    Answered {
        /// At most so long.
        ms_max: u64,
    },
    /// Likewise, and no watcher runs.
    Quiet {
        /// At most so long.
        ms_max: u64,
    },
}

impl AtEnd {
    const fn ms_max(self) -> u64 {
        match self {
            Self::Answered { ms_max } | Self::Quiet { ms_max } => ms_max,
        }
    }
}

/// What the terminal is told by the composition root.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Whose messages these are.
    pub principal: Principal,
    /// The chat in front at first.
    pub chat: ChatName,
    /// How the terminal is used.
    pub mode: Mode,
    /// Colour is wanted and possible: stdout is a terminal and `NO_COLOR` is not set.
    pub colour: bool,
    /// Where the editor keeps its history.
    pub history: Option<PathBuf>,
    /// What is waited for when a pipe is at its end.
    pub at_end: AtEnd,
    /// Lines under the greeting, such as "the model is a script".
    pub banner: Vec<String>,
    /// The bot is another process and goes on without this terminal.
    pub attached: bool,
}

/// How a talk ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The person left.
    Quit,
    /// The pipe was at its end, and what was typed is answered.
    EndOfInput,
    /// The pipe was at its end, and not everything was answered in time.
    Unfinished,
    /// The process was asked to end.
    Stopped,
}

/// Why a talk cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum ConsoleError {
    /// No lines can be read.
    #[error("cannot read lines: {0}; check what stdin is connected to")]
    Input(#[source] io::Error),
    /// Nothing can be shown. What was not shown is posted at the next start.
    #[error("cannot write: {0}; what was not shown comes at the next start")]
    Output(#[source] io::Error),
    /// The line editor does not work here.
    #[error(
        "the line editor does not work on this terminal: {0}; try `dogwatch chat < /dev/stdin`"
    )]
    Editor(String),
}

/// The other end of a [`Console`]: where its posts are shown.
pub struct Seat {
    settings: Settings,
    signals: mpsc::Receiver<Signal>,
}

/// Makes the channel and the seat before it.
pub fn open(settings: Settings) -> (Arc<Console>, Seat) {
    let (sender, signals) = mpsc::channel(TERMINAL_QUEUE_MAX);
    (Arc::new(Console::new(sender)), Seat { settings, signals })
}

/// Talks with the person at this process's terminal, or with its pipes, until the end.
pub async fn run(seat: Seat, reach: Reach) -> Result<End, ConsoleError> {
    match seat.settings.mode {
        Mode::Interactive => run_editor(seat, reach).await,
        Mode::Plain | Mode::Json => {
            run_pipe(seat, reach, Box::new(io::stdin()), Box::new(io::stdout())).await
        }
    }
}

/// Talks over these streams. In mode [`Mode::Interactive`] there is no editor.
pub async fn run_pipe(
    seat: Seat,
    reach: Reach,
    input: Box<dyn Read + Send>,
    output: Box<dyn Write + Send>,
) -> Result<End, ConsoleError> {
    let (heard, lines) = mpsc::channel(1);
    // Nobody waits for a prompt on a pipe.
    let (prompts, _) = std::sync::mpsc::channel();
    let pen = Pen::on_stream(output)?;
    input::read_pipe(input, heard)?;
    let columns = Arc::new(AtomicUsize::new(COLUMNS_DEFAULT));
    converse(seat, reach, Furniture { pen, columns, lines, prompts }).await
}

async fn run_editor(mut seat: Seat, reach: Reach) -> Result<End, ConsoleError> {
    let columns = Arc::new(AtomicUsize::new(COLUMNS_DEFAULT));
    let history = seat.settings.history.as_deref();
    let opened = Desktop::open(history, Arc::clone(&columns))?;
    let Some((desktop, printer)) = opened else {
        // A terminal without cursor movement, such as TERM=dumb.
        seat.settings.mode = Mode::Plain;
        return run_pipe(seat, reach, Box::new(io::stdin()), Box::new(io::stdout())).await;
    };
    // The editor's thread may still hold the terminal when the talk ends.
    let _restore = Restore::of_stdin();
    let (heard, lines) = mpsc::channel(1);
    let (prompts, wanted) = std::sync::mpsc::channel();
    let pen = Pen::on_editor(printer)?;
    desktop.run(wanted, heard)?;
    converse(seat, reach, Furniture { pen, columns, lines, prompts }).await
}

struct Furniture {
    pen: Pen,
    columns: Arc<AtomicUsize>,
    lines: mpsc::Receiver<input::Heard>,
    prompts: std::sync::mpsc::Sender<prompt::Prompt>,
}

async fn converse(seat: Seat, reach: Reach, furniture: Furniture) -> Result<End, ConsoleError> {
    let Seat { settings, mut signals } = seat;
    let Furniture { pen, columns, lines, prompts } = furniture;
    let (events, shown) = mpsc::channel(TERMINAL_QUEUE_MAX);
    let (looks_out, looks) = mpsc::channel(CHATS_MAX);
    let screen = Screen {
        face: Face::new(settings.mode, settings.chat.clone(), settings.banner.clone()),
        pen,
        clock: Arc::clone(&reach.clock),
        colour: settings.colour && settings.mode != Mode::Json,
        columns,
    };
    let stirs = reach.desk.stirs();
    let talk = Talk::new(&settings, reach, Mouth { events, prompts });
    let mut showing = std::pin::pin!(screen.run(&mut signals, shown, looks_out));
    let mut talking = std::pin::pin!(talk.run(Ears { heard: lines, looks, stirs }));
    let end = tokio::select! {
        // The talk first: its greeting comes before what waits to be posted.
        biased;
        end = &mut talking => end,
        over = &mut showing => {
            over?;
            return Ok(End::Stopped);
        }
    };
    // The talk dropped its events: what it said is shown, then the screen is done.
    showing.await?;
    Ok(end)
}
