//! A script that stands in for a language model, and says so. Owns what is matched, what is counted
//! and how an answer is played. Must not know tools: it calls whatever the playbook names, since a
//! real model may call anything too.
//!
//! A playbook is TOML. Its rules are tried in order, the first that matches answers:
//!
//! ```toml
//! name = "demo"                 # said in the first answer of each chat
//!
//! [[rule]]
//! name = "start"                # for people; `rule N` if not given
//! when = { person = '(?i)watch (\w+)' }
//! text = "I will watch {1}."    # streamed word by word
//! delay_ms = 20                 # before each word and each call
//!
//! [[rule.calls]]
//! tool = "trigger_and_auto_notify"
//! arguments = { name = "Watch {1}", timeout_seconds = 60, python = "print('{1}')" }
//!
//! [[rule]]
//! when = { tool = "trigger_and_auto_notify", result = '"execution_id":"([^"]+)"' }
//! text = "Started as {1}."
//!
//! [[rule]]
//! when = { notice = '^.AUTO-NOTIFICATION. (?<what>.*)' }
//! text = "News: {what}"
//!
//! [[rule]]
//! when = { person = "^be unwell$" }
//! times = 2
//! fail = "outage"               # or "refused", "garbled"
//! retry_after_ms = 100          # only with "outage"
//!
//! [[rule]]
//! text = "I only know my script."   # no `when`: matches everything, so it is the last
//! ```
//!
//! **What is matched.** The news: all that stands in the request behind the model's last answer.
//! All conditions of a `when` must hold; each is searched in the newest text first.
//!
//! A merged notice is a text under the key `system_notifications` of the result.
//!
//! | condition | what it searches |
//! |---|---|
//! | `person` | a person's message |
//! | `notice` | a notice: `[AUTO-NOTIFICATION] …` as a report, or merged into a tool's result |
//! | `tool` | a tool's result, by the tool's exact name |
//! | `result` | the JSON text of a tool's result; of that very result if `tool` is given |
//! | `any` | any of these, and other reports |
//!
//! **What is filled in.** `{1}` is the first group of the first condition that has groups, in the
//! order of the table, `{0}` its whole match; `{name}` is a named group of any condition. This
//! holds in `text` and in every string of `arguments`. Braces around anything else are left as they
//! are, so Python code needs no escapes. `arguments` given as a string are sent as they are: that
//! is how a playbook breaks its JSON, or makes a number of a group.
//!
//! **What is counted.** `times` bounds how often a rule answers in one chat; after that the rules
//! below it have their turn. The count is read from the request: each earlier answer in it is
//! traced to the rule that gave it. So a bot that is started anew goes on where it was. A rule that
//! fails leaves no answer to be traced: its `times` counts tries of the same request in this
//! process.
//!
//! **What else.** A `text` with `fail` is streamed before the call fails. A request without tools
//! gets the text alone. A request that no rule matches is told so.

mod news;
mod playbook;

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::future::BoxFuture;

use self::news::{Captured, News};
use self::playbook::{Act, Failure, Rule};
pub use self::playbook::{Playbook, PlaybookError};
use super::openai::estimate;
use crate::core::message::{Answer, Delta, Message, ModelError, Request};
use crate::core::transcript::{Call, Finish};
use crate::ports::{Clock, Model};

/// Failures of one rule for one request are counted for so many requests.
const TRIES_KEPT_MAX: usize = 1_024;

/// Plays a playbook.
pub struct Scripted {
    playbook: Playbook,
    clock: Arc<dyn Clock>,
    tries: Mutex<HashMap<(usize, u64), u32>>,
}

/// What a rule makes of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Line {
    text: String,
    /// Tools and arguments.
    calls: Vec<(String, String)>,
    delay_ms: u64,
    fail: Option<(Failure, Option<u64>)>,
}

impl Scripted {
    /// Ready to answer.
    pub fn new(playbook: Playbook, clock: Arc<dyn Clock>) -> Self {
        Self { playbook, clock, tries: Mutex::default() }
    }

    /// Says that it is a script.
    pub fn describe(&self) -> String {
        format!("the script `{}`, not a language model", self.playbook.name)
    }

    async fn play(
        &self,
        request: &Request,
        progress: &mut (dyn FnMut(Delta) + Send),
    ) -> Result<Answer, ModelError> {
        let mut line = self.line(&request.messages);
        if request.tools.is_empty() {
            line.calls.clear();
        }
        if line.calls.is_empty() && line.fail.is_none() {
            line.text = self.introduced(&request.messages, line.text);
        }
        for word in line.text.split_inclusive(char::is_whitespace) {
            self.pause(line.delay_ms).await;
            progress(Delta::Text(word.to_owned()));
        }
        for (name, _) in &line.calls {
            self.pause(line.delay_ms).await;
            progress(Delta::Call { name: name.clone() });
        }
        if let Some((failure, retry_after_ms)) = line.fail {
            return Err(failed(failure, retry_after_ms));
        }
        let spoken = request.messages.iter().filter(|message| model_said(message).is_some());
        let turn = spoken.count();
        let call = |(place, (name, arguments)): (usize, (String, String))| Call {
            id: format!("script-{turn}-{place}"),
            name,
            arguments,
        };
        let calls: Vec<Call> = line.calls.into_iter().enumerate().map(call).collect();
        let read = serde_json::to_string(&request.messages).map_or(0, |text| text.len());
        let written = calls.iter().map(|call| call.arguments.len()).sum::<usize>();
        Ok(Answer {
            usage: estimate(read, line.text.len() + written),
            finish: if calls.is_empty() { Finish::Stop } else { Finish::ToolCalls },
            text: line.text,
            calls,
        })
    }

    /// Zero is no pause at all, so a test's clock need not move.
    async fn pause(&self, ms: u64) {
        if ms > 0 {
            self.clock.sleep_until(self.clock.now().plus_ms(ms)).await;
        }
    }

    /// What the script says to these messages.
    fn line(&self, messages: &[Message]) -> Line {
        let answered = self.answered(messages);
        let news = News::of(messages);
        for (place, rule) in self.playbook.rules.iter().enumerate() {
            let Some(captured) = rule.when.captures(&news) else { continue };
            let spent = match rule.act {
                Act::Answer { .. } => answered.get(place).copied().unwrap_or(0),
                Act::Fail { .. } if rule.times.is_some() => self.tried(place, messages),
                Act::Fail { .. } => 0,
            };
            if rule.times.is_none_or(|times| spent < times) {
                return line_of(rule, &captured);
            }
        }
        let names: Vec<&str> = self.playbook.rules.iter().map(|rule| rule.name.as_str()).collect();
        let text = format!("My script has no rule for this. Its rules: {}.", names.join(", "));
        Line { text, calls: Vec::new(), delay_ms: 0, fail: None }
    }

    /// How often each rule has answered already: every answer is traced to the first rule that
    /// would have given it.
    fn answered(&self, messages: &[Message]) -> Vec<u32> {
        let mut counts = vec![0_u32; self.playbook.rules.len()];
        for (place, message) in messages.iter().enumerate() {
            let Some((text, calls)) = model_said(message) else { continue };
            let text = text.strip_prefix(&self.introduction()).unwrap_or(text);
            let (before, _) = messages.split_at(place);
            let news = News::of(before);
            let gave_it = |rule: &Rule, count: u32| {
                rule.times.is_none_or(|times| count < times)
                    && rule.when.captures(&news).is_some_and(|captured| {
                        let line = line_of(rule, &captured);
                        let same = |((name, arguments), call): (&(String, String), &Call)| {
                            *name == call.name && *arguments == call.arguments
                        };
                        line.fail.is_none()
                            && line.text == text
                            && (calls.is_empty() || line.calls.len() == calls.len())
                            && line.calls.iter().zip(calls).all(same)
                    })
            };
            let rules = self.playbook.rules.iter().zip(&mut counts);
            if let Some((_, count)) = rules.into_iter().find(|(rule, count)| gave_it(rule, **count))
            {
                *count += 1;
            }
        }
        counts
    }

    /// How often this rule has failed for this request before; counts this time too.
    fn tried(&self, rule: usize, messages: &[Message]) -> u32 {
        let mut hasher = DefaultHasher::new();
        // The rules of the house are rendered anew at each try and may differ.
        for message in messages.iter().filter(|m| !matches!(m, Message::Instructions(_))) {
            serde_json::to_string(message).unwrap_or_default().hash(&mut hasher);
        }
        let mut tries = self.tries.lock().unwrap_or_else(PoisonError::into_inner);
        if tries.len() >= TRIES_KEPT_MAX {
            tries.clear();
        }
        let count = tries.entry((rule, hasher.finish())).or_default();
        *count = count.saturating_add(1);
        *count - 1
    }

    fn introduction(&self) -> String {
        format!("(The script `{}` answers here, not a language model.)\n\n", self.playbook.name)
    }

    /// The first answer that is posted in a chat says that a script gives it.
    fn introduced(&self, messages: &[Message], text: String) -> String {
        let introduction = self.introduction();
        let said = |message: &Message| {
            model_said(message)
                .is_some_and(|(text, calls)| calls.is_empty() && text.starts_with(&introduction))
        };
        if text.is_empty() || messages.iter().any(said) {
            return text;
        }
        introduction + &text
    }
}

impl Model for Scripted {
    fn call<'a>(
        &'a self,
        request: &'a Request,
        progress: &'a mut (dyn FnMut(Delta) + Send),
    ) -> BoxFuture<'a, Result<Answer, ModelError>> {
        Box::pin(self.play(request, progress))
    }
}

fn line_of(rule: &Rule, captured: &Captured) -> Line {
    match &rule.act {
        Act::Answer { text, calls } => Line {
            text: captured.fill(text),
            calls: calls.iter().map(|call| call.fill(captured)).collect(),
            delay_ms: rule.delay_ms,
            fail: None,
        },
        Act::Fail { text, failure, retry_after_ms } => Line {
            text: captured.fill(text),
            calls: Vec::new(),
            delay_ms: rule.delay_ms,
            fail: Some((*failure, *retry_after_ms)),
        },
    }
}

fn model_said(message: &Message) -> Option<(&str, &[Call])> {
    match message {
        Message::Model { text, calls } => Some((text, calls)),
        Message::Instructions(_)
        | Message::Person(_)
        | Message::Report(_)
        | Message::Tool { .. } => None,
    }
}

fn failed(failure: Failure, retry_after_ms: Option<u64>) -> ModelError {
    let what = "the script says so".to_owned();
    match failure {
        Failure::Outage => ModelError::Outage { what, retry_after_ms },
        Failure::Refused => ModelError::Refused { what },
        Failure::Garbled => ModelError::Garbled { what },
    }
}
