//! The system prompt. Owns its parts and the live table of what runs in the background.
//! Must not know how executions are kept: the table is rendered from what the store says now, so
//! that no compaction of prose can forget running work.

use std::fmt::Write as _;

use super::execution::{Execution, State};
use super::inert::inert;
use super::limits::LIVE_PER_SESSION_MAX;
use super::output::one_line;
use super::time::{Timestamp, span};

const BASE: &str = include_str!("../../config/prompts/base.md");
const NOTICES: &str = include_str!("../../config/prompts/notices.md");
const WATCH: &str = include_str!("../../config/prompts/watch.md");
const PROBES: &str = include_str!("../../config/prompts/probes.md");
const SANDBOX: &str = include_str!("../../config/prompts/sandbox.md");
const NETWORK: &str = include_str!("../../config/prompts/network.md");
const OFFLINE: &str = include_str!("../../config/prompts/offline.md");
const SILENCE: &str = include_str!("../../config/prompts/silence.md");
const FILES: &str = include_str!("../../config/prompts/files.md");
const READ_ONLY: &str = include_str!("../../config/prompts/read-only.md");

/// Longest name in the live table.
const NAME_CHARS_MAX: usize = 80;

/// Tools that belong together and are explained together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// `trigger_and_auto_notify`.
    Watch,
    /// `watch__list`, `watch__cancel`, `watch__output`.
    Probes,
    /// What scripts can do where they run in a sandbox.
    Sandbox,
    /// What a sandboxed script may reach, where the agent may ask for hosts.
    Network,
    /// That it reaches nothing, where the agent may not.
    Offline,
    /// `stay_silent`.
    Silence,
    /// `read_file`.
    Files,
}

impl Family {
    const fn text(self) -> &'static str {
        match self {
            Self::Watch => WATCH,
            Self::Probes => PROBES,
            Self::Sandbox => SANDBOX,
            Self::Network => NETWORK,
            Self::Offline => OFFLINE,
            Self::Silence => SILENCE,
            Self::Files => FILES,
        }
    }
}

/// What the system prompt is made from.
#[derive(Debug, Clone, Copy)]
pub struct PromptParts<'a> {
    /// The agent's own instructions, as configured.
    pub instructions: &'a str,
    /// The families that are declared in this request.
    pub families: &'a [Family],
    /// What the agent may ask for of the network, with [`Family::Network`].
    pub reach: &'a str,
    /// The store's time.
    pub now: Timestamp,
    /// Executions of the session; those that are over are left out.
    pub live: &'a [Execution],
    /// The session has no tool that writes.
    pub read_only: bool,
}

/// The system prompt: what never changes first, what changes with each turn last.
pub fn system(parts: &PromptParts<'_>) -> String {
    let mut texts = vec![BASE, parts.instructions];
    for family in parts.families {
        texts.push(family.text());
        if *family == Family::Network {
            texts.push(parts.reach);
        }
    }
    texts.push(NOTICES);
    if parts.read_only {
        texts.push(READ_ONLY);
    }
    let table = table(parts.now, parts.live);
    texts.push(&table);
    let texts: Vec<&str> = texts.iter().map(|t| t.trim()).filter(|t| !t.is_empty()).collect();
    texts.join("\n\n")
}

/// What runs now: id, name, state, elapsed time and deadline, oldest first.
pub fn table(now: Timestamp, executions: &[Execution]) -> String {
    let mut live: Vec<&Execution> = executions.iter().filter(|e| !e.state.is_ended()).collect();
    live.sort_by_key(|e| e.registered_at);
    let mut text = "## Running in the background now\n".to_owned();
    if live.is_empty() {
        text.push_str("\nNothing.");
        return text;
    }
    for execution in live.iter().take(LIVE_PER_SESSION_MAX) {
        text.push('\n');
        text.push_str(&row(now, execution));
    }
    let more = live.len().saturating_sub(LIVE_PER_SESSION_MAX);
    if more > 0 {
        let _ = write!(text, "\n- … and {more} more");
    }
    text
}

fn row(now: Timestamp, execution: &Execution) -> String {
    let name: String = one_line(&execution.name).chars().take(NAME_CHARS_MAX).collect();
    let name = inert(&name).replace('\'', "’");
    let id = inert(execution.id.as_str());
    let state = match execution.state {
        State::Registered => "starting",
        State::Running if execution.unattended => "running, unattended",
        State::Running => "running",
        State::Cancelling => "being cancelled",
        State::Ended(_) => "over",
    };
    let since = execution.started_at.unwrap_or(execution.registered_at);
    let elapsed = span(now.since_ms(since));
    let deadline = since.plus_ms(execution.timeout_ms);
    let left = match deadline.since_ms(now) {
        0 => format!("deadline passed {} ago", span(now.since_ms(deadline))),
        ms => format!("deadline in {}", span(ms)),
    };
    format!("- {id} '{name}': {state} for {elapsed}, {left}")
}

#[cfg(test)]
mod tests;
