//! Where typed lines come from: a pipe, or the line editor of a terminal. Owns the threads that
//! block on them. Must not know what a line means.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::Receiver;
use std::thread;

use rustyline::config::Configurer;
use rustyline::error::ReadlineError;
use rustyline::history::{FileHistory, History};
use rustyline::{Config, Editor};
use tokio::sync::mpsc::Sender;

use crate::core::limits::{MESSAGE_BYTES_MAX, TERMINAL_HISTORY_LINES_MAX};

use super::ConsoleError;
use super::prompt::{Live, Prompt};

/// What was heard of the person.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Heard {
    /// A line, or a pasted text of several.
    Line(String),
    /// A line longer than a message may be; it was thrown away.
    TooLong,
    /// `^C`: the line was cleared.
    Interrupted,
    /// `^D`: the person leaves.
    Left,
    /// The pipe is at its end.
    End,
}

/// Reads lines of a pipe on a thread of its own, until its end or until nobody listens.
pub(super) fn read_pipe(
    input: Box<dyn Read + Send>,
    heard: Sender<Heard>,
) -> Result<(), ConsoleError> {
    let work = move || {
        let mut input = BufReader::new(input);
        loop {
            let next = match bounded_line(&mut input) {
                Ok(next) => next,
                // A pipe that breaks is at its end.
                Err(_) => Heard::End,
            };
            let end = next == Heard::End;
            if heard.blocking_send(next).is_err() || end {
                return;
            }
        }
    };
    spawn("console-input", work)
}

/// A line without its end. No more than a message's bytes are held, whatever comes.
fn bounded_line(input: &mut impl BufRead) -> io::Result<Heard> {
    let most = MESSAGE_BYTES_MAX as u64 + 2;
    let mut line = Vec::new();
    if input.take(most).read_until(b'\n', &mut line)? == 0 {
        return Ok(Heard::End);
    }
    if line.last() == Some(&b'\n') {
        line.pop();
    } else if line.len() as u64 == most {
        skip_line(input)?;
        return Ok(Heard::TooLong);
    }
    Ok(Heard::Line(String::from_utf8_lossy(&line).into_owned()))
}

fn skip_line(input: &mut impl BufRead) -> io::Result<()> {
    loop {
        let chunk = input.fill_buf()?;
        let end = chunk.iter().position(|byte| *byte == b'\n');
        let used = end.map_or(chunk.len(), |at| at + 1);
        input.consume(used);
        if end.is_some() || used == 0 {
            return Ok(());
        }
    }
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> Result<(), ConsoleError> {
    // The thread blocks on its input and is left to the end of the process.
    thread::Builder::new().name(name.to_owned()).spawn(work).map_err(ConsoleError::Input)?;
    Ok(())
}

type LineEditor = Editor<(), FileHistory>;

/// The editor, its printer, and the width of its terminal.
pub(super) struct Desktop {
    editor: LineEditor,
    history: Option<PathBuf>,
    columns: Arc<AtomicUsize>,
}

/// Prints above the line that is typed.
pub(super) type Printer = Box<dyn FnMut(String) -> io::Result<()> + Send>;

impl Desktop {
    /// Opens the editor on the terminal of stdin and stdout. `None` when that terminal cannot edit
    /// lines.
    pub(super) fn open(
        history: Option<&Path>,
        columns: Arc<AtomicUsize>,
    ) -> Result<Option<(Self, Printer)>, ConsoleError> {
        let failed = |error: ReadlineError| ConsoleError::Editor(error.to_string());
        let config = Config::builder()
            .auto_add_history(false)
            .history_ignore_space(true)
            .bracketed_paste(true)
            .build();
        let mut editor = LineEditor::with_config(config).map_err(failed)?;
        editor.set_max_history_size(TERMINAL_HISTORY_LINES_MAX).map_err(failed)?;
        if let Some(path) = history {
            // A history that cannot be read is an empty one.
            let _ = editor.load_history(path);
        }
        let Ok(mut printer) = editor.create_external_printer() else { return Ok(None) };
        let print = move |text: String| {
            // An editor that is gone leaves the terminal to whoever writes.
            let gone = rustyline::ExternalPrinter::print(&mut printer, text.clone()).is_err();
            if gone { io::stdout().write_all(text.as_bytes()) } else { Ok(()) }
        };
        let mut desktop = Self { editor, history: history.map(Path::to_owned), columns };
        desktop.measure();
        Ok(Some((desktop, Box::new(print))))
    }

    fn measure(&mut self) {
        if let Some((columns, _)) = self.editor.dimensions() {
            self.columns.store(usize::from(columns).max(1), Ordering::Relaxed);
        }
    }

    /// Reads lines on a thread of its own, one for each prompt.
    pub(super) fn run(
        mut self,
        prompts: Receiver<Prompt>,
        heard: Sender<Heard>,
    ) -> Result<(), ConsoleError> {
        let work = move || {
            while let Ok(prompt) = prompts.recv() {
                self.measure();
                let next = self.line(&prompt);
                let last = matches!(next, Heard::Left | Heard::End);
                if heard.blocking_send(next).is_err() || last {
                    return;
                }
            }
        };
        spawn("console-editor", work)
    }

    fn line(&mut self, prompt: &Prompt) -> Heard {
        match self.editor.readline(&Live::new(prompt)) {
            Ok(line) => {
                self.remember(&line);
                Heard::Line(line)
            }
            Err(ReadlineError::Interrupted) => Heard::Interrupted,
            Err(ReadlineError::Eof) => Heard::Left,
            Err(_) => Heard::End,
        }
    }

    fn remember(&mut self, line: &str) {
        if line.trim().is_empty() {
            return;
        }
        let _ = self.editor.history_mut().add(line);
        if let Some(path) = &self.history {
            // The history is a comfort; a full disk must not end the talk.
            let _ = self.editor.append_history(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_bounded_and_the_next_one_is_whole() {
        let long = "x".repeat(MESSAGE_BYTES_MAX * 3);
        let most = "y".repeat(MESSAGE_BYTES_MAX);
        let text = format!("one\n{long}\n{most}\n\nlast");
        let mut input = BufReader::with_capacity(1000, text.as_bytes());
        let mut next = || bounded_line(&mut input).unwrap();
        assert_eq!(next(), Heard::Line("one".to_owned()));
        assert_eq!(next(), Heard::TooLong);
        assert_eq!(next(), Heard::Line(most));
        assert_eq!(next(), Heard::Line(String::new()));
        assert_eq!(next(), Heard::Line("last".to_owned()));
        assert_eq!(next(), Heard::End);
    }
}
