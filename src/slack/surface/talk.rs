//! What the surface of one turn shows, and what it is to show next. Owns what may be shown of a
//! text that is not whole yet. Decides from `now`; must not know calls.

use crate::core::id::SessionId;
use crate::core::ledger::row::SurfaceForm;
use crate::core::limits::{
    SLACK_STREAM_BYTES_MAX, SLACK_STREAM_CHARS_MIN, SLACK_STREAM_KEPT_MS, SLACK_STREAM_LEFT_MS,
    SLACK_STREAM_MS, SLACK_STREAM_RETRY_MS,
};
use crate::core::time::Timestamp;
use crate::slack::text::begun;

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Next {
    /// Begin, with this text; the number of its stretch.
    Open(String, u32),
    /// Add this text to a stream.
    Add(String, String, u32),
    /// Let a draft say this.
    Edit(String, String, u32),
    /// The turn is over and nothing was posted: it stays as it is.
    Close(String),
}

/// What came of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Told {
    /// It is there.
    Opened(SurfaceForm, String),
    /// It is there, but nothing may be added to it.
    OpenedOnly(SurfaceForm, String),
    /// It says so.
    Said,
    /// Nothing was done; it may be later.
    NotYet,
    /// Nobody knows what was done.
    Unsure,
    /// Nothing more is shown.
    Never,
}

/// How far it is.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Stand {
    /// Nothing was asked for, or nothing was done; with what it was to begin, if it was asked for.
    Unopened(Option<(String, u32)>),
    /// It was asked for, and nobody heard what came of it.
    Lost,
    /// It is there.
    Open(String),
    /// Nothing more is shown; where it is, if it is there.
    Shut(Option<String>),
}

/// What is known of a surface when a post takes it over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::slack) struct Held {
    pub(in crate::slack) form: SurfaceForm,
    /// Where it is.
    pub(in crate::slack) at: Option<String>,
    /// It may be there, and nobody knows where.
    pub(in crate::slack) lost: bool,
    /// All that it shows, where that is known and only the beginning of one answer.
    pub(in crate::slack) shown: Option<String>,
    /// Something may still arrive there.
    pub(in crate::slack) unsure: bool,
}

/// The surface of one turn.
pub(super) struct Talk {
    pub(super) session: SessionId,
    form: SurfaceForm,
    stand: Stand,
    /// The turn's row names it: another process has none there.
    own: bool,
    /// What the model says just now; what it said before is no beginning of its answer.
    text: String,
    /// The number of that stretch.
    stretch: u32,
    /// So much of what may be shown of it is shown.
    added: usize,
    shown: Option<String>,
    unsure: bool,
    /// The answer is whole: what is left of it comes by the outbox.
    frozen: bool,
    pub(super) calling: bool,
    /// A post takes it over.
    pub(super) sealed: bool,
    not_before: Timestamp,
    /// Since when something waits to be shown, and how much.
    waits: Option<(Timestamp, usize)>,
    over_at: Option<Timestamp>,
    /// Its stream is closed, or Slack does that itself by now.
    closed: bool,
    pub(super) heard_at: Timestamp,
}

impl Talk {
    pub(super) fn new(session: SessionId, now: Timestamp) -> Self {
        Self {
            session,
            form: SurfaceForm::Stream,
            stand: Stand::Unopened(None),
            own: false,
            text: String::new(),
            stretch: 0,
            added: 0,
            shown: Some(String::new()),
            unsure: false,
            frozen: false,
            calling: false,
            sealed: false,
            not_before: now,
            waits: None,
            over_at: None,
            closed: false,
            heard_at: now,
        }
    }

    /// A piece of text came. Answers whether that is to be looked at.
    pub(super) fn said(&mut self, now: Timestamp, piece: &str) -> bool {
        self.heard_at = now;
        let over = matches!(self.stand, Stand::Lost | Stand::Shut(_)) || self.frozen;
        if over || self.text.len() > 4 * SLACK_STREAM_BYTES_MAX {
            return false;
        }
        let piece = if self.text.is_empty() { piece.trim_start() } else { piece };
        self.text.push_str(piece);
        if piece.is_empty() {
            return false;
        }
        let (since, before) = self.waits.unwrap_or((now, 0));
        let chars = before + piece.chars().count();
        self.waits = Some((since, chars));
        before == 0 || chars >= SLACK_STREAM_CHARS_MIN
    }

    /// What was said so far is no answer.
    pub(super) fn discarded(&mut self) {
        if self.frozen {
            return;
        }
        if self.added > 0 || self.calling {
            self.shown = None;
        }
        self.text.clear();
        (self.added, self.waits) = (0, None);
        self.stretch += 1;
    }

    /// What was said so far is an answer.
    pub(super) const fn whole(&mut self) {
        self.frozen = true;
    }

    /// The turn runs, or does not run any more.
    pub(super) const fn runs(&mut self, now: Timestamp, runs: bool) {
        self.heard_at = now;
        self.over_at = if runs { None } else { Some(now) };
    }

    /// Nobody needs to know of it any more.
    pub(super) fn is_left(&self, now: Timestamp, after_ms: u64) -> bool {
        let over = self.over_at.is_some_and(|over_at| now.since_ms(over_at) >= after_ms);
        over && !self.calling
    }

    /// When something is to be done, if at all.
    pub(super) fn due_at(&self) -> Option<Timestamp> {
        if self.calling || self.sealed {
            return None;
        }
        match (&self.stand, self.over_at) {
            (Stand::Open(_) | Stand::Shut(Some(_)), Some(over_at)) => {
                let closes = self.form == SurfaceForm::Stream && !self.unsure && !self.closed;
                closes.then(|| over_at.plus_ms(SLACK_STREAM_LEFT_MS).max(self.not_before))
            }
            (Stand::Unopened(_) | Stand::Open(_), None) if !self.frozen => {
                let (since, chars) = self.waits?;
                let wait_ms = if chars < SLACK_STREAM_CHARS_MIN { SLACK_STREAM_MS } else { 0 };
                Some(since.plus_ms(wait_ms).max(self.not_before))
            }
            (Stand::Unopened(_) | Stand::Open(_) | Stand::Lost | Stand::Shut(_), _) => None,
        }
    }

    /// What is to be done now, once it is due.
    pub(super) fn next(&mut self, now: Timestamp) -> Option<Next> {
        if self.over_at.is_some() {
            let (Stand::Open(at) | Stand::Shut(Some(at))) = &self.stand else { return None };
            return Some(Next::Close(at.clone()));
        }
        // What was asked for once is asked for with the same words.
        if let Stand::Unopened(Some((first, stretch))) = &self.stand {
            return Some(Next::Open(first.clone(), *stretch));
        }
        let shown = begun(&self.text, SLACK_STREAM_BYTES_MAX);
        let fresh = shown.get(self.added..).unwrap_or_default();
        if fresh.trim().is_empty() {
            // The end of a line, or more of it, shows what it is.
            self.waits = self.waits.map(|_| (now, 1));
            return None;
        }
        match &self.stand {
            Stand::Unopened(_) => {
                self.stand = Stand::Unopened(Some((shown.clone(), self.stretch)));
                Some(Next::Open(shown, self.stretch))
            }
            Stand::Open(at) if self.form == SurfaceForm::Draft => {
                Some(Next::Edit(at.clone(), shown, self.stretch))
            }
            Stand::Open(at) => {
                let joint = if self.added == 0 { "\n\n" } else { "" };
                Some(Next::Add(at.clone(), format!("{joint}{fresh}"), self.stretch))
            }
            Stand::Lost | Stand::Shut(_) => None,
        }
    }

    /// The turn's row says that it is shown here.
    pub(super) const fn owned(&mut self) {
        self.own = true;
    }

    /// It waits for the pace.
    pub(super) const fn put_off(&mut self, until: Timestamp) {
        self.not_before = until;
    }

    /// A call is over.
    pub(super) fn told(&mut self, now: Timestamp, next: &Next, told: Told) {
        self.calling = false;
        self.not_before = now.plus_ms(SLACK_STREAM_MS);
        if matches!(next, Next::Close(_)) {
            // Once is enough, also where Slack says no.
            self.closed = told != Told::NotYet || self.is_left(now, SLACK_STREAM_KEPT_MS);
        }
        match told {
            Told::Opened(form, at) => {
                self.form = form;
                self.stand = Stand::Open(at);
                self.says(now, next);
            }
            Told::OpenedOnly(form, at) => {
                self.form = form;
                self.stand = Stand::Shut(Some(at));
                self.says(now, next);
            }
            Told::Said => self.says(now, next),
            Told::NotYet => self.not_before = now.plus_ms(SLACK_STREAM_RETRY_MS),
            Told::Unsure => {
                (self.unsure, self.shown) = (true, None);
                self.stand = match &self.stand {
                    Stand::Unopened(_) | Stand::Lost => Stand::Lost,
                    Stand::Open(at) => Stand::Shut(Some(at.clone())),
                    Stand::Shut(at) => Stand::Shut(at.clone()),
                };
            }
            Told::Never => self.shut(),
        }
    }

    fn shut(&mut self) {
        self.stand = match &self.stand {
            Stand::Unopened(_) | Stand::Lost => Stand::Shut(None),
            Stand::Open(at) => Stand::Shut(Some(at.clone())),
            Stand::Shut(at) => Stand::Shut(at.clone()),
        };
    }

    /// What was to be said is there.
    fn says(&mut self, now: Timestamp, next: &Next) {
        let (text, stretch) = match next {
            Next::Open(text, stretch)
            | Next::Add(_, text, stretch)
            | Next::Edit(_, text, stretch) => (text, *stretch),
            Next::Close(_) => return self.shut(),
        };
        if stretch != self.stretch {
            return;
        }
        match next {
            Next::Add(..) if self.added == 0 => self.added = text.trim_start().len(),
            Next::Add(..) => self.added += text.len(),
            Next::Open(..) | Next::Edit(..) | Next::Close(_) => self.added = text.len(),
        }
        if let Some(shown) = &mut self.shown {
            shown.push_str(text);
        }
        // What came meanwhile waits since now.
        let left = begun(&self.text, SLACK_STREAM_BYTES_MAX).len() > self.added;
        self.waits = left.then_some((now, 1));
    }

    /// As a post finds it; `None` where what shows the turn is another process's.
    pub(super) fn held(&self) -> Option<Held> {
        let at = match &self.stand {
            Stand::Open(at) | Stand::Shut(Some(at)) => Some(at.clone()),
            Stand::Unopened(_) | Stand::Lost | Stand::Shut(None) => None,
        };
        let shown = self.shown.clone().filter(|shown| !shown.is_empty());
        let (form, lost, unsure) = (self.form, self.stand == Stand::Lost, self.unsure);
        self.own.then_some(Held { form, at, lost, shown, unsure })
    }
}
