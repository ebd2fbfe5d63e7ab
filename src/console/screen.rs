//! From events and posts to written text. Owns the order of what is shown and the thread that
//! writes it. Must not know how anything reads.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use tokio::sync::{mpsc, oneshot};

use crate::ports::{Clock, Post};

use super::ConsoleError;
use super::channel::Signal;
use super::chat::ChatName;
use super::clean;
use super::event::Event;
use super::face::Face;
use super::input::Printer;
use super::words::Look;

/// One text to write, and who waits for it.
type Sheet = (String, oneshot::Sender<io::Result<()>>);

/// Writes on a thread of its own, so that a reader who is slow holds up nobody else.
pub(super) struct Pen {
    sheets: mpsc::Sender<Sheet>,
}

impl Pen {
    /// Writes to a stream, flushing each text.
    pub(super) fn on_stream(mut output: Box<dyn Write + Send>) -> Result<Self, ConsoleError> {
        Self::start(Box::new(move |text| {
            output.write_all(text.as_bytes())?;
            output.flush()
        }))
    }

    /// Writes above the line that is typed.
    pub(super) fn on_editor(printer: Printer) -> Result<Self, ConsoleError> {
        Self::start(printer)
    }

    fn start(mut write: Printer) -> Result<Self, ConsoleError> {
        let (sheets, mut queue) = mpsc::channel::<Sheet>(1);
        let work = move || {
            while let Some((text, written)) = queue.blocking_recv() {
                let _ = written.send(write(text));
            }
        };
        thread::Builder::new()
            .name("console-output".to_owned())
            .spawn(work)
            .map_err(ConsoleError::Output)?;
        Ok(Self { sheets })
    }

    async fn write(&self, text: String) -> Result<(), ConsoleError> {
        let gone = || ConsoleError::Output(io::Error::other("the writing thread is gone"));
        let (written, done) = oneshot::channel();
        self.sheets.send((text + "\n", written)).await.map_err(|_| gone())?;
        done.await.map_err(|_| gone())?.map_err(ConsoleError::Output)
    }
}

/// Shows what comes.
pub(super) struct Screen {
    pub(super) face: Face,
    pub(super) pen: Pen,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) colour: bool,
    pub(super) columns: Arc<AtomicUsize>,
}

impl Screen {
    /// Shows until the talk is over. A chat in which something happened is named to `looks`.
    pub(super) async fn run(
        mut self,
        signals: &mut mpsc::Receiver<Signal>,
        mut events: mpsc::Receiver<Event>,
        looks: mpsc::Sender<ChatName>,
    ) -> Result<(), ConsoleError> {
        loop {
            tokio::select! {
                biased;
                event = events.recv() => match event {
                    Some(event) => self.show(&event).await?,
                    None => return Ok(()),
                },
                Some(signal) = signals.recv() => self.signal(signal, &looks).await?,
            }
        }
    }

    async fn signal(
        &mut self,
        signal: Signal,
        looks: &mpsc::Sender<ChatName>,
    ) -> Result<(), ConsoleError> {
        let at = self.clock.now();
        let chat = match signal {
            Signal::Post { chat, post, written } => {
                let Post { item, text, sort, may_repeat, .. } = post;
                let text = clean::text(&text);
                let event = Event::Post { chat: chat.clone(), text, sort, item, may_repeat, at };
                self.show(&event).await?;
                // Whoever waited may have given up; then the item comes again.
                let _ = written.send(());
                chat
            }
            Signal::Progress { chat, progress } => {
                let text = matches!(progress, crate::ports::Progress::Text(_));
                let step = progress.into();
                self.show(&Event::Progress { chat: chat.clone(), step, at }).await?;
                if text {
                    return Ok(());
                }
                chat
            }
            Signal::Link { up } => return self.show(&Event::Link { up, at }).await,
            Signal::Trouble { what } => {
                let chat = self.face.front();
                return self.show(&Event::Error { chat, what, at }).await;
            }
        };
        // When many wait to be looked at, this one is looked at with the next sweep.
        let _ = looks.try_send(chat);
        Ok(())
    }

    async fn show(&mut self, event: &Event) -> Result<(), ConsoleError> {
        let columns = self.columns.load(Ordering::Relaxed);
        match self.face.show(event, Look { columns, colour: self.colour }) {
            Some(text) => self.pen.write(text).await,
            None => Ok(()),
        }
    }
}
