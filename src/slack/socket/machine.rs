//! The machine of Socket Mode: what came and what time it is go in, what is to be done comes out.
//! Owns how many connections there are, when one is opened, left or given up, and what is
//! acknowledged. Must not know sockets, clocks or the reception.
//!
//! A connection that Slack announces to end is left only once another one has been greeted, so that
//! there is no gap in which events come to nobody. What fails is tried again after a wait that
//! doubles; what ends young counts as failed, so that no quarrel with Slack becomes a storm.

use std::collections::BTreeMap;

use serde_json::json;

use crate::core::limits::{
    SLACK_FRAME_BYTES_MAX, SLACK_SOCKET_AGAIN_FIRST_MS, SLACK_SOCKET_AGAIN_MS_MAX,
    SLACK_SOCKET_DEAF_MS, SLACK_SOCKET_HELLO_MS, SLACK_SOCKET_LEAVE_MS, SLACK_SOCKET_OPEN_MS,
    SLACK_SOCKET_PING_MS, SLACK_SOCKET_STEADY_MS, SLACK_SOCKETS_MAX,
};
use crate::core::time::Timestamp;
use crate::slack::envelope::{Frame, Parcel, Reason};
use crate::slack::reception::{Health, Reply};

/// Names a connection; no two have the same.
pub(super) type LineNo = u64;

/// What happened.
#[derive(Debug, PartialEq)]
pub(super) enum Input {
    /// Time passed.
    Tick,
    /// The connection is there; Slack has not greeted yet.
    Joined(LineNo),
    /// It could not be made.
    Failed {
        /// Which.
        line: LineNo,
        /// What was seen.
        what: String,
        /// Slack wants so long a pause.
        after_ms: u64,
    },
    /// A frame came.
    Heard(LineNo, Frame),
    /// Something else came: a ping, or the answer to one.
    Alive(LineNo),
    /// The reception is done with an envelope.
    Settled {
        /// On which connection it came.
        line: LineNo,
        /// Its id.
        envelope_id: String,
        /// What it says; what goes along only where Slack takes that.
        reply: Reply,
    },
    /// So many bytes came at once that they are not read, and the connection ended.
    Large(LineNo, usize),
    /// The connection ended.
    Gone(LineNo),
    /// The bot ends.
    End,
}

/// What is to be done.
#[derive(Debug, PartialEq)]
pub(super) enum Effect {
    /// Make a connection.
    Open(LineNo),
    /// Ask whether somebody is there.
    Ping(LineNo),
    /// Hand it to the reception.
    Hand(LineNo, Box<Parcel>),
    /// Send this.
    Send(LineNo, String),
    /// Say goodbye.
    Close(LineNo),
    /// Forget it, without a word.
    Drop(LineNo, &'static str),
}

/// Where a connection stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// It is being made.
    Opening,
    /// It is there, and Slack has not greeted.
    Greeting,
    /// It is one of those that are wanted.
    Live,
    /// It will end; another one is not there yet.
    Parting,
    /// Another one is there; what is in hand is still acknowledged.
    Leaving(Timestamp),
    /// Goodbye was said.
    Closing(Timestamp),
}

#[derive(Debug)]
struct Line {
    stage: Stage,
    /// When it came to its stage; for one that lives, since it was greeted.
    since: Timestamp,
    heard_at: Timestamp,
    pinged_at: Timestamp,
    in_hand: usize,
}

impl Line {
    const fn is_wanted(&self) -> bool {
        matches!(self.stage, Stage::Opening | Stage::Greeting | Stage::Live)
    }

    const fn is_greeted(&self) -> bool {
        matches!(self.stage, Stage::Live | Stage::Parting | Stage::Leaving(_))
    }

    fn is_steady(&self, now: Timestamp) -> bool {
        self.is_greeted() && now.since_ms(self.since) >= SLACK_SOCKET_STEADY_MS
    }

    /// When something is due with it, and goes wrong or on.
    fn due(&self) -> Timestamp {
        match self.stage {
            Stage::Opening => self.since.plus_ms(SLACK_SOCKET_OPEN_MS),
            Stage::Greeting => self.since.plus_ms(SLACK_SOCKET_HELLO_MS),
            Stage::Live | Stage::Parting => self.deaf_at(),
            Stage::Leaving(until) | Stage::Closing(until) => until,
        }
    }

    fn deaf_at(&self) -> Timestamp {
        self.heard_at.plus_ms(SLACK_SOCKET_DEAF_MS)
    }

    fn ping_at(&self) -> Option<Timestamp> {
        self.is_greeted().then(|| self.pinged_at.plus_ms(SLACK_SOCKET_PING_MS))
    }
}

/// Why no connection is made any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Over {
    /// The bot ends.
    Ended,
    /// Socket Mode is switched off.
    Disabled,
}

/// All connections.
#[derive(Debug)]
pub(super) struct Machine {
    wanted: usize,
    lines: BTreeMap<LineNo, Line>,
    opened: LineNo,
    failures: u32,
    open_at: Timestamp,
    over: Option<Over>,
    trouble: Option<String>,
    /// Frames that were not read.
    large: u64,
    /// Chance, from a seed.
    dice: u64,
}

impl Machine {
    /// Wants so many connections. `seed` is by chance.
    pub(super) fn new(connections: u8, seed: u64) -> Self {
        Self {
            wanted: usize::from(connections.clamp(1, SLACK_SOCKETS_MAX)),
            lines: BTreeMap::new(),
            opened: 0,
            failures: 0,
            open_at: Timestamp::ZERO,
            over: None,
            trouble: None,
            large: 0,
            dice: seed,
        }
    }

    /// Nothing is left to be done.
    pub(super) fn is_over(&self) -> bool {
        self.over.is_some() && self.lines.is_empty()
    }

    /// How well it is.
    pub(super) fn health(&self) -> Health {
        let live = self.lines.values().filter(|line| line.is_greeted()).count();
        let mute = self.lines.values().filter(|line| line.stage == Stage::Greeting).count();
        let mute = if mute > 0 { format!(", {mute} not greeted yet") } else { String::new() };
        let large = match self.large {
            0 => String::new(),
            count => {
                format!(", {count} times more than {SLACK_FRAME_BYTES_MAX} bytes came at once")
            }
        };
        let there = format!("{live} of {} connections to Slack{mute}{large}", self.wanted);
        let (ok, what) = match (self.over, &self.trouble) {
            (Some(Over::Disabled), _) => (
                false,
                "Socket Mode is switched off for the app (link_disabled): switch it on in its \
                 settings at Slack, then start dogwatch again"
                    .to_owned(),
            ),
            (Some(Over::Ended), _) => (false, "the bot ends".to_owned()),
            (None, Some(trouble)) => (live > 0, format!("{there}: {trouble}")),
            (None, None) => (live > 0, there),
        };
        Health { ok, what }
    }

    /// When [`Input::Tick`] is due.
    pub(super) fn next_at(&self) -> Timestamp {
        let lines = self.lines.values();
        let dues = lines.flat_map(|line| [Some(line.due()), line.ping_at()]).flatten();
        let opens = self.is_short().then_some(self.open_at);
        dues.chain(opens).min().unwrap_or(Timestamp::MAX)
    }

    /// Something happened.
    pub(super) fn step(&mut self, now: Timestamp, input: Input) -> Vec<Effect> {
        let mut effects = Vec::new();
        match input {
            Input::Tick => {}
            Input::Joined(no) => self.stand(no, now, Stage::Greeting),
            Input::Failed { line, what, after_ms } => {
                if self.lines.remove(&line).is_some() {
                    self.fail(now, what, after_ms);
                }
            }
            Input::Heard(no, frame) => {
                self.alive(no, now);
                self.heard(now, no, frame, &mut effects);
            }
            Input::Alive(no) => self.alive(no, now),
            Input::Settled { line, envelope_id, reply } => {
                effects.extend(self.settle(line, &envelope_id, reply));
            }
            Input::Large(no, _) => {
                self.large += u64::from(self.lines.contains_key(&no));
                self.gone(now, no);
            }
            Input::Gone(no) => self.gone(now, no),
            Input::End => self.end(now, Over::Ended, &mut effects),
        }
        self.look(now, &mut effects);
        self.fill(now, &mut effects);
        effects
    }

    fn stand(&mut self, no: LineNo, now: Timestamp, stage: Stage) {
        if let Some(line) = self.lines.get_mut(&no) {
            line.stage = stage;
            line.since = now;
            line.heard_at = now;
            line.pinged_at = now;
        }
    }

    fn alive(&mut self, no: LineNo, now: Timestamp) {
        if let Some(line) = self.lines.get_mut(&no) {
            line.heard_at = now;
        }
    }

    fn heard(&mut self, now: Timestamp, no: LineNo, frame: Frame, effects: &mut Vec<Effect>) {
        let Some(line) = self.lines.get_mut(&no) else { return };
        match frame {
            Frame::Hello => {
                if line.stage == Stage::Greeting {
                    self.stand(no, now, Stage::Live);
                    self.trouble = None;
                    self.leave_one(now);
                }
            }
            Frame::Envelope(parcel) => {
                // After the end nothing is taken: Slack gives it to another connection, or later.
                let closing = matches!(line.stage, Stage::Closing(_));
                if self.over.is_none() && !closing {
                    line.in_hand += 1;
                    effects.push(Effect::Hand(no, parcel));
                }
            }
            Frame::Disconnect(reason) => self.parted(now, no, &reason, effects),
            // Whoever reads it has said so in the log.
            Frame::Unknown(_) => {}
        }
    }

    /// One that waited for another is no longer needed.
    fn leave_one(&mut self, now: Timestamp) {
        let live = self.lines.values().filter(|line| line.stage == Stage::Live).count();
        let parting = self.lines.values_mut().find(|line| line.stage == Stage::Parting);
        if let Some(line) = parting.filter(|_| live > 0) {
            line.stage = Stage::Leaving(now.plus_ms(SLACK_SOCKET_LEAVE_MS));
        }
    }

    fn parted(&mut self, now: Timestamp, no: LineNo, reason: &Reason, effects: &mut Vec<Effect>) {
        let Some(line) = self.lines.get_mut(&no) else { return };
        let leaves = Stage::Leaving(now.plus_ms(SLACK_SOCKET_LEAVE_MS));
        match reason {
            Reason::Disabled => self.end(now, Over::Disabled, effects),
            Reason::TooMany => {
                if line.is_wanted() || line.stage == Stage::Parting {
                    line.stage = leaves;
                    self.fail(now, "Slack says too_many_websockets".to_owned(), 0);
                }
            }
            Reason::Warning | Reason::Refresh | Reason::Other(_) => match line.stage {
                Stage::Live => {
                    let young = !line.is_steady(now);
                    line.stage = Stage::Parting;
                    if young {
                        self.fail(now, "Slack ends connections that are young".to_owned(), 0);
                    }
                }
                Stage::Opening | Stage::Greeting => {
                    line.stage = leaves;
                    self.fail(now, "Slack does not greet".to_owned(), 0);
                }
                Stage::Parting | Stage::Leaving(_) | Stage::Closing(_) => {}
            },
        }
    }

    fn settle(&mut self, no: LineNo, envelope_id: &str, reply: Reply) -> Option<Effect> {
        // On another connection Slack would not know it.
        let line = self.lines.get_mut(&no)?;
        line.in_hand = line.in_hand.saturating_sub(1);
        let closing = matches!(line.stage, Stage::Closing(_));
        if closing || !reply.is_ack() {
            return None;
        }
        let mut text = json!({ "envelope_id": envelope_id });
        if let (Some(payload), Some(fields)) = (reply.body, text.as_object_mut()) {
            fields.insert("payload".to_owned(), payload);
        }
        Some(Effect::Send(no, text.to_string()))
    }

    fn gone(&mut self, now: Timestamp, no: LineNo) {
        let Some(line) = self.lines.remove(&no) else { return };
        match line.stage {
            Stage::Opening | Stage::Greeting => {
                self.fail(now, "the connection ended before Slack greeted".to_owned(), 0);
            }
            Stage::Live if !line.is_steady(now) => {
                self.fail(now, "the connection ended young".to_owned(), 0);
            }
            Stage::Live | Stage::Parting | Stage::Leaving(_) | Stage::Closing(_) => {}
        }
    }

    fn end(&mut self, now: Timestamp, over: Over, effects: &mut Vec<Effect>) {
        // Who switched it off is told so also while the bot ends.
        self.over = self.over.filter(|known| *known == Over::Disabled).or(Some(over));
        self.lines.retain(|no, line| {
            let opening = line.stage == Stage::Opening;
            if opening {
                effects.push(Effect::Drop(*no, "it is not needed any more"));
            }
            !opening
        });
        for line in self.lines.values_mut() {
            if line.is_wanted() || line.stage == Stage::Parting {
                line.stage = Stage::Leaving(now.plus_ms(SLACK_SOCKET_LEAVE_MS));
            }
        }
    }

    fn fail(&mut self, now: Timestamp, what: String, after_ms: u64) {
        self.failures = self.failures.saturating_add(1);
        self.trouble = Some(what);
        let doubled = SLACK_SOCKET_AGAIN_FIRST_MS.saturating_mul(1 << (self.failures - 1).min(16));
        let wait_ms = doubled.clamp(SLACK_SOCKET_AGAIN_FIRST_MS, SLACK_SOCKET_AGAIN_MS_MAX);
        // Many bots that lost Slack together do not come back together.
        let wait_ms = wait_ms / 2 + self.roll() % (wait_ms / 2 + 1);
        self.open_at = self.open_at.max(now.plus_ms(wait_ms.max(after_ms)));
    }

    /// Any number, each as likely.
    fn roll(&mut self) -> u64 {
        self.dice = self.dice.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.dice;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// What time has made due.
    fn look(&mut self, now: Timestamp, effects: &mut Vec<Effect>) {
        let numbers: Vec<LineNo> = self.lines.keys().copied().collect();
        for no in numbers {
            self.look_at(now, no, effects);
        }
        let steady = self.lines.values().filter(|line| line.is_steady(now)).count();
        if steady >= self.wanted {
            self.failures = 0;
        }
    }

    fn look_at(&mut self, now: Timestamp, no: LineNo, effects: &mut Vec<Effect>) {
        let Some(line) = self.lines.get_mut(&no) else { return };
        let late = now >= line.due();
        let dropped = match line.stage {
            Stage::Opening if late => Some("no connection was made in time"),
            Stage::Greeting if late => Some("Slack did not greet in time"),
            Stage::Closing(_) if late => Some("Slack did not say goodbye in time"),
            _ if line.is_greeted() && now >= line.deaf_at() => Some("nothing came for too long"),
            Stage::Leaving(_) if late || line.in_hand == 0 => {
                line.stage = Stage::Closing(now.plus_ms(SLACK_SOCKET_LEAVE_MS));
                effects.push(Effect::Close(no));
                None
            }
            Stage::Opening
            | Stage::Greeting
            | Stage::Live
            | Stage::Parting
            | Stage::Leaving(_)
            | Stage::Closing(_) => None,
        };
        if let Some(why) = dropped {
            let fresh = matches!(line.stage, Stage::Opening | Stage::Greeting);
            self.lines.remove(&no);
            effects.push(Effect::Drop(no, why));
            if fresh {
                self.fail(now, why.to_owned(), 0);
            }
            return;
        }
        if line.ping_at().is_some_and(|at| now >= at) {
            line.pinged_at = now;
            effects.push(Effect::Ping(no));
        }
    }

    fn is_short(&self) -> bool {
        let there = self.lines.values().filter(|line| line.is_wanted());
        let opening = self.lines.values().filter(|line| line.stage == Stage::Opening).count();
        // After a failure one finds out for all whether it works again.
        self.over.is_none() && there.count() < self.wanted && !(self.failures > 0 && opening > 0)
    }

    fn fill(&mut self, now: Timestamp, effects: &mut Vec<Effect>) {
        while self.is_short() && now >= self.open_at {
            self.opened += 1;
            let line = Line {
                stage: Stage::Opening,
                since: now,
                heard_at: now,
                pinged_at: now,
                in_hand: 0,
            };
            self.lines.insert(self.opened, line);
            effects.push(Effect::Open(self.opened));
        }
    }
}

#[cfg(test)]
mod tests;
