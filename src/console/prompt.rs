//! What stands before the line that is typed: the chat, and how many watchers run. Owns its words
//! and that it stays true while the line is typed. Must not know the editor's thread.
//!
//! The editor draws the prompt again after each line that is printed above it, but measures it only
//! once: so a prompt that shows counts keeps its width while they change.

use std::cell::OnceCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::chat::ChatName;

/// Counts are shown up to here; more is `+`.
const SHOWN_MAX: usize = 9;
/// One text for each count of either kind, `+` included.
const TEXTS: usize = (SHOWN_MAX + 2) * (SHOWN_MAX + 2);

/// How many watchers run now.
#[derive(Debug, Default)]
pub(super) struct Running {
    here: AtomicUsize,
    elsewhere: AtomicUsize,
}

impl Running {
    /// In the chat in front, and in the others.
    pub(super) fn set(&self, here: usize, elsewhere: usize) {
        self.here.store(here, Ordering::Relaxed);
        self.elsewhere.store(elsewhere, Ordering::Relaxed);
    }

    fn get(&self) -> (usize, usize) {
        let shown = |count: &AtomicUsize| count.load(Ordering::Relaxed).min(SHOWN_MAX + 1);
        (shown(&self.here), shown(&self.elsewhere))
    }
}

/// Asks for a line.
#[derive(Debug)]
pub(super) struct Prompt {
    /// The chat in front.
    pub(super) chat: ChatName,
    /// What runs.
    pub(super) running: Arc<Running>,
}

/// Which counts a prompt shows: those that were not zero when the line was begun.
#[derive(Debug, Clone, Copy)]
struct Shape {
    here: bool,
    elsewhere: bool,
}

/// The prompt of one line.
pub(super) struct Live<'a> {
    prompt: &'a Prompt,
    shape: Shape,
    texts: [OnceCell<String>; TEXTS],
}

impl<'a> Live<'a> {
    pub(super) fn new(prompt: &'a Prompt) -> Self {
        let (here, elsewhere) = prompt.running.get();
        Self {
            prompt,
            shape: Shape { here: here > 0, elsewhere: elsewhere > 0 },
            texts: [const { OnceCell::new() }; TEXTS],
        }
    }
}

impl rustyline::Prompt for Live<'_> {
    fn raw(&self) -> &str {
        let (here, elsewhere) = self.prompt.running.get();
        let place = here * (SHOWN_MAX + 2) + elsewhere;
        // There is a place for every pair of counts.
        let Some(text) = self.texts.get(place) else { return "> " };
        text.get_or_init(|| words(&self.prompt.chat, self.shape, here, elsewhere))
    }
}

/// `main> `, `main (2 running)> `, `main (2 running, 1 elsewhere)> `
fn words(chat: &ChatName, shape: Shape, here: usize, elsewhere: usize) -> String {
    let digit = |count: usize| if count > SHOWN_MAX { "+".to_owned() } else { count.to_string() };
    let (here, elsewhere) = (digit(here), digit(elsewhere));
    match (shape.here, shape.elsewhere) {
        (false, false) => format!("{chat}> "),
        (true, false) => format!("{chat} ({here} running)> "),
        (false, true) => format!("{chat} ({elsewhere} running elsewhere)> "),
        (true, true) => format!("{chat} ({here} running, {elsewhere} elsewhere)> "),
    }
}

#[cfg(test)]
mod tests {
    use rustyline::Prompt as _;

    use super::*;

    fn prompt(here: usize, elsewhere: usize) -> Prompt {
        let running = Arc::new(Running::default());
        running.set(here, elsewhere);
        Prompt { chat: ChatName::new("main").unwrap(), running }
    }

    #[test]
    fn it_says_what_runs() {
        let raw = |here, elsewhere| Live::new(&prompt(here, elsewhere)).raw().to_owned();
        assert_eq!(raw(0, 0), "main> ");
        assert_eq!(raw(2, 0), "main (2 running)> ");
        assert_eq!(raw(0, 1), "main (1 running elsewhere)> ");
        assert_eq!(raw(2, 1), "main (2 running, 1 elsewhere)> ");
        assert_eq!(raw(50, 0), "main (+ running)> ");
    }

    #[test]
    fn it_stays_true_and_as_wide_while_the_line_is_typed() {
        for (here, elsewhere) in [(0, 0), (3, 0), (0, 3), (3, 3)] {
            let prompt = prompt(here, elsewhere);
            let live = Live::new(&prompt);
            let width = live.raw().len();
            for count in [0, 1, 9, 10, 1_000] {
                prompt.running.set(count, count);
                assert_eq!(live.raw().len(), width, "{}", live.raw());
            }
        }
        let prompt = prompt(2, 0);
        let live = Live::new(&prompt);
        prompt.running.set(1, 7);
        assert_eq!(live.raw(), "main (1 running)> ");
    }
}
