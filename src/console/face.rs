//! What a person gets to see of an event, and when. Owns the chat in front, the streams of the
//! open turns, and what is too much for a pipe. Must not know screens or the desk.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::core::execution::PostSort;
use crate::core::time::Timestamp;

use super::Mode;
use super::chat::ChatName;
use super::clean;
use super::event::{Event, Reply, Step};
use super::stream::{Left, Stream};
use super::words::{self, Look};

/// Streams of earlier turns whose posts may still come.
const STREAMS_KEPT_MAX: usize = 4;

/// What was streamed in one chat.
#[derive(Debug, Default)]
struct Turns {
    open: Stream,
    synthetic: bool,
    /// Tools that were named since the last text: one is called first and runs then.
    tools: BTreeSet<String>,
    /// Of turns that ended while their posts were still to come.
    older: VecDeque<Stream>,
}

impl Turns {
    fn begin(&mut self, synthetic: bool) {
        self.synthetic = synthetic;
        self.tools.clear();
        self.put_aside();
    }

    /// The open stream waits for its post.
    fn put_aside(&mut self) {
        let before = std::mem::take(&mut self.open);
        if before.is_shown() {
            self.older.push_back(before);
        }
        if self.older.len() > STREAMS_KEPT_MAX {
            self.older.pop_front();
        }
    }

    /// The answer that came is whole: if its lines are on the screen, so is the last one now.
    fn whole(&mut self) -> Option<String> {
        let rest = if self.open.is_shown() { self.open.close() } else { None };
        self.put_aside();
        rest
    }

    fn post(&mut self, text: &str) -> Option<Left> {
        self.older
            .iter_mut()
            .chain(std::iter::once(&mut self.open))
            .find_map(|stream| stream.post(text))
    }
}

/// Turns events into text.
pub(super) struct Face {
    mode: Mode,
    front: ChatName,
    turns: BTreeMap<ChatName, Turns>,
    banner: Vec<String>,
}

impl Face {
    pub(super) fn new(mode: Mode, front: ChatName, banner: Vec<String>) -> Self {
        Self { mode, front, turns: BTreeMap::new(), banner }
    }

    /// The chat in front.
    pub(super) fn front(&self) -> ChatName {
        self.front.clone()
    }

    /// The text to show, without the last line end; nothing for what is not worth a line.
    pub(super) fn show(&mut self, event: &Event, look: Look) -> Option<String> {
        match self.mode {
            Mode::Json => serde_json::to_string(event).ok(),
            Mode::Plain | Mode::Interactive => self.tell(event, look),
        }
    }

    fn live(&self) -> bool {
        matches!(self.mode, Mode::Interactive)
    }

    fn tell(&mut self, event: &Event, look: Look) -> Option<String> {
        match event {
            Event::Ready { .. } => self.live().then(|| self.greeting(look)),
            Event::Accepted { .. } => None,
            Event::Post { chat, text, sort, may_repeat, .. } => {
                self.post(chat, (*sort, text, *may_repeat), look)
            }
            Event::Progress { chat, step, at } => self.progress(chat, step, *at, look),
            Event::Watcher { chat, work, .. } => {
                self.live().then(|| self.under(chat, &words::watcher(work, look)))
            }
            Event::Command { chat, reply, at } => {
                if let Reply::Chat { name } = reply {
                    self.front = name.clone();
                }
                Some(words::reply(reply, chat.as_str(), *at, look))
            }
            Event::Error { chat, what, .. } => {
                let line = format!("{} {what}", look.ink(words::Ink::Bad, "!"));
                Some(self.under(chat, &line))
            }
            Event::Link { up, .. } => Some(words::link(*up, look)),
            Event::Bye { note, .. } => note.clone(),
        }
    }

    fn greeting(&self, look: Look) -> String {
        let mut lines = vec![format!(
            "{} chat {}; write a message, `help` lists the commands",
            look.ink(words::Ink::Bold, "dogwatch"),
            self.front
        )];
        lines.extend(self.banner.iter().map(|line| look.aside(line)));
        lines.join("\n")
    }

    /// Each line with the chat's name before it, unless that chat is in front.
    fn under(&self, chat: &ChatName, text: &str) -> String {
        if *chat == self.front {
            return text.to_owned();
        }
        text.split('\n').map(|line| format!("[{chat}] {line}")).collect::<Vec<_>>().join("\n")
    }

    fn post(
        &mut self,
        chat: &ChatName,
        (sort, text, may_repeat): (PostSort, &str, bool),
        look: Look,
    ) -> Option<String> {
        let streamed = matches!(sort, PostSort::Answer | PostSort::Woken) && !may_repeat;
        let turns = self.turns.entry(chat.clone()).or_default();
        let left = if streamed { turns.post(text) } else { None };
        match left {
            Some(Left::Rest(rest)) if rest.is_empty() => None,
            Some(Left::Rest(rest)) => Some(self.under(chat, &rest)),
            Some(Left::Whole) | None => {
                Some(self.under(chat, &words::post(sort, text, may_repeat, look)))
            }
        }
    }

    fn progress(
        &mut self,
        chat: &ChatName,
        step: &Step,
        now: Timestamp,
        look: Look,
    ) -> Option<String> {
        if !self.live() {
            let failed = matches!(step, Step::Failed { .. });
            return failed.then(|| words::step(step, now, look)).flatten();
        }
        let streamed = self.stream(chat, step, look);
        let line = if self.is_news(chat, step) { words::step(step, now, look) } else { None };
        let text = match (streamed, line) {
            (None, None) => return None,
            (Some(one), None) | (None, Some(one)) => one,
            (Some(first), Some(second)) => format!("{first}\n{second}"),
        };
        Some(self.under(chat, &text))
    }

    /// A tool that was named already is not worth another line.
    fn is_news(&mut self, chat: &ChatName, step: &Step) -> bool {
        let turns = self.turns.entry(chat.clone()).or_default();
        match step {
            Step::Tool { name } => turns.tools.insert(name.clone()),
            Step::Text { .. } => {
                turns.tools.clear();
                true
            }
            Step::Began { .. }
            | Step::Discarded
            | Step::Whole
            | Step::Ended
            | Step::Failed { .. } => true,
        }
    }

    fn stream(&mut self, chat: &ChatName, step: &Step, look: Look) -> Option<String> {
        let in_front = *chat == self.front;
        let turns = self.turns.entry(chat.clone()).or_default();
        match step {
            Step::Began { synthetic, .. } => {
                turns.begin(*synthetic);
                None
            }
            Step::Text { text } => {
                let sort = if turns.synthetic { PostSort::Woken } else { PostSort::Answer };
                let stream = &mut turns.open;
                let first = !stream.is_shown();
                if first && !in_front {
                    stream.give_up();
                }
                let lines = stream.push(text)?;
                Some(if first { format!("{} {lines}", words::speaker(sort, look)) } else { lines })
            }
            Step::Discarded => {
                let stream = std::mem::take(&mut turns.open);
                discarded(&stream, look)
            }
            Step::Whole => turns.whole(),
            Step::Failed { .. } => {
                let stream = std::mem::take(&mut turns.open);
                stream.is_shown().then(|| look.aside("(the text above was not the whole answer)"))
            }
            Step::Tool { .. } | Step::Ended => None,
        }
    }
}

/// Text that will not be the answer: what the model said beside its tool calls, or half an answer.
fn discarded(stream: &Stream, look: Look) -> Option<String> {
    let unshown = stream.unshown();
    match (stream.is_shown(), unshown.trim().is_empty()) {
        (false, true) => None,
        // A taste of it: two lines of the screen.
        (false, false) => Some(look.aside(&clean::cut(&unshown, look.columns * 2))),
        (true, true) => Some(look.aside("(so far; the answer follows)")),
        (true, false) => Some(format!("{unshown}\n{}", look.aside("(so far; the answer follows)"))),
    }
}
