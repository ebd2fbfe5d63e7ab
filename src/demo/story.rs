//! The demo as a machine: events of the bot in, effects out. Owns how far the story is and what
//! happened so far. Must not know processes, clocks or the screen: `now` comes in as data.

use crate::console::event::Event;

use super::scenes::{STORY, Step, Until};
use super::tell;

/// The longest wait for anything, in milliseconds.
const PATIENCE_MS: u64 = 15_000;

/// What happens to the story.
#[derive(Debug, Clone)]
pub enum Input {
    /// The bot said this.
    Event(Box<Event>),
    /// The bot is gone; did it exit with 0?
    Exited {
        /// With exit code 0.
        well: bool,
    },
    /// The audit ended.
    Audited {
        /// Everything is accounted for.
        even: bool,
        /// What it says.
        summary: Vec<String>,
    },
    /// The instant that [`Story::wake_at`] named has come.
    Tick,
}

/// What the story wants done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Start the bot.
    Start,
    /// Type a line.
    Type(String),
    /// Kill the bot at once.
    Kill,
    /// End its input.
    Leave,
    /// Run the audit.
    Audit,
    /// Show this to the person, without the last line end.
    Tell(String),
    /// The story is over.
    Over {
        /// All of it happened.
        well: bool,
    },
}

/// Everything that happened.
#[derive(Debug, Default)]
pub struct Record {
    events: Vec<Event>,
    scene: usize,
}

impl Record {
    /// Since the beginning.
    pub fn all(&self) -> &[Event] {
        &self.events
    }

    /// Since the scene began.
    pub fn scene(&self) -> &[Event] {
        self.events.get(self.scene..).unwrap_or_default()
    }
}

/// What the story waits for.
#[derive(Debug, Clone, Copy)]
enum Wait {
    /// Something to happen.
    For(Until),
    /// Time to pass.
    Time,
    /// The bot to exit.
    Exit,
    /// The audit.
    Audit,
}

impl Wait {
    fn words(self) -> String {
        match self {
            Self::For(until) => until.words(),
            Self::Time => "time to pass".to_owned(),
            Self::Exit => "the bot to exit".to_owned(),
            Self::Audit => "the audit".to_owned(),
        }
    }
}

/// The story.
#[derive(Debug)]
pub struct Story {
    record: Record,
    next: usize,
    scenes: usize,
    wait: Option<Wait>,
    wake_at: u64,
    killed: bool,
    over: bool,
    colour: bool,
}

impl Story {
    /// Before its beginning.
    pub fn new(colour: bool) -> Self {
        Self {
            record: Record::default(),
            next: 0,
            scenes: 0,
            wait: None,
            wake_at: 0,
            killed: false,
            over: false,
            colour,
        }
    }

    /// When to come back with a [`Input::Tick`], in milliseconds since the beginning.
    pub fn wake_at(&self) -> u64 {
        self.wake_at
    }

    /// Begins it.
    pub fn begin(&mut self, now: u64) -> Vec<Effect> {
        let mut effects = vec![Effect::Tell(tell::title(self.colour))];
        self.go_on(now, &mut effects);
        effects
    }

    /// Takes what happened, so many milliseconds after the beginning.
    pub fn step(&mut self, now: u64, input: Input) -> Vec<Effect> {
        let mut effects = Vec::new();
        if self.over {
            return effects;
        }
        match input {
            Input::Event(event) => {
                effects.extend(tell::event(now, &event, self.colour).map(Effect::Tell));
                self.record.events.push(*event);
            }
            Input::Exited { well } => self.exited(now, well, &mut effects),
            Input::Audited { even, summary } => {
                for line in summary {
                    effects.push(Effect::Tell(tell::remark(now, &line, self.colour)));
                }
                if even && matches!(self.wait, Some(Wait::Audit)) {
                    let what = "everything is accounted for";
                    effects.push(Effect::Tell(tell::good(what, self.colour)));
                    self.wait = None;
                } else {
                    self.fail("the audit found what does not balance", &mut effects);
                }
            }
            Input::Tick => self.tick(now, &mut effects),
        }
        self.arrived();
        self.go_on(now, &mut effects);
        effects
    }

    fn exited(&mut self, now: u64, well: bool, effects: &mut Vec<Effect>) {
        if std::mem::take(&mut self.killed) {
            effects.push(Effect::Tell(tell::remark(now, "the bot is dead", self.colour)));
        } else if well && matches!(self.wait, Some(Wait::Exit)) {
            self.wait = None;
        } else {
            self.fail("the bot exited before the story was over", effects);
        }
    }

    fn tick(&mut self, now: u64, effects: &mut Vec<Effect>) {
        if now < self.wake_at {
            return;
        }
        match self.wait {
            Some(Wait::Time) => self.wait = None,
            Some(wait) => {
                let what = format!("waited {} s for {}", PATIENCE_MS / 1000, wait.words());
                self.fail(&what, effects);
            }
            None => {}
        }
    }

    /// Has what is waited for happened?
    fn arrived(&mut self) {
        if let Some(Wait::For(until)) = self.wait
            && self.record.scene().iter().any(|event| until.is(event))
        {
            self.wait = None;
        }
    }

    fn fail(&mut self, why: &str, effects: &mut Vec<Effect>) {
        effects.push(Effect::Tell(tell::bad(why, self.colour)));
        effects.push(Effect::Over { well: false });
        self.over = true;
    }

    fn go_on(&mut self, now: u64, effects: &mut Vec<Effect>) {
        while self.wait.is_none() && !self.over {
            let Some(step) = STORY.get(self.next) else {
                effects.push(Effect::Tell(tell::end(now, self.colour)));
                effects.push(Effect::Over { well: true });
                self.over = true;
                return;
            };
            self.next += 1;
            self.wake_at = now + PATIENCE_MS;
            self.take(now, *step, effects);
            self.arrived();
        }
    }

    fn take(&mut self, now: u64, step: Step, effects: &mut Vec<Effect>) {
        match step {
            Step::Scene(title) => {
                self.scenes += 1;
                self.record.scene = self.record.events.len();
                effects.push(Effect::Tell(tell::scene(self.scenes, title, self.colour)));
            }
            Step::Remark(what) => {
                effects.push(Effect::Tell(tell::remark(now, what, self.colour)));
            }
            Step::Type(line) => {
                effects.push(Effect::Tell(tell::typed(now, line, self.colour)));
                effects.push(Effect::Type(line.to_owned()));
            }
            Step::Until(until) => self.wait = Some(Wait::For(until)),
            Step::Pause(ms) => {
                self.wait = Some(Wait::Time);
                self.wake_at = now + ms;
            }
            Step::Kill => {
                effects.push(Effect::Tell(tell::remark(now, "kill -9 of the bot", self.colour)));
                effects.push(Effect::Kill);
                self.killed = true;
            }
            Step::Start => {
                let what = if now == 0 { "the bot starts" } else { "the bot starts again" };
                effects.push(Effect::Tell(tell::remark(now, what, self.colour)));
                effects.push(Effect::Start);
            }
            Step::Check(what, check) => self.verdict(what, check(self.record.scene()), effects),
            Step::CheckAll(what, check) => self.verdict(what, check(&self.record), effects),
            Step::Leave => {
                self.wait = Some(Wait::Exit);
                effects.push(Effect::Leave);
            }
            Step::Audit => {
                self.wait = Some(Wait::Audit);
                effects.push(Effect::Audit);
            }
        }
    }

    fn verdict(&mut self, what: &str, verdict: Result<(), String>, effects: &mut Vec<Effect>) {
        match verdict {
            Ok(()) => effects.push(Effect::Tell(tell::good(what, self.colour))),
            Err(why) => self.fail(&format!("not so: {what}; {why}"), effects),
        }
    }
}
