//! What the model can call. Owns the names, schemas, rules and results of the tools, and the pure
//! way from the model's argument text to a typed [`Action`]. Must not know how an action is done:
//! the engine does it and comes back for the words of the result.

use serde_json::{Value, json};

use crate::core::egress::{CredentialName, HostRule};
use crate::core::execution::Notify;
use crate::core::id::{FileId, SupersessionKey};
use crate::core::limits::{KILL_GRACE_MS, NAMES_IN_ERROR_MAX};
use crate::core::message::ToolSpec;
use crate::core::nearest::{echo, nearest};
use crate::core::policy::{Family, Role};

mod check;
pub mod error;
pub mod file;
mod shape;
pub mod silence;
pub mod trigger;
pub mod watch;

pub use crate::core::turn::AfterCrash;
pub use error::{Code, ToolError};

/// What the tools may rely on; their texts and their number follow from it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wiring {
    /// Families that the agent is offered.
    pub families: Vec<Family>,
    /// Whether the agent may change anything.
    pub role: Role,
    /// Between TERM and KILL.
    pub grace_ms: u64,
    /// Scripts run in a sandbox, so they reach less than a script usually does.
    pub sandboxed: bool,
    /// In it they may ask for hosts.
    pub networked: bool,
}

impl Wiring {
    /// Everything that this build has.
    pub fn all() -> Self {
        Self {
            families: Family::ALL.to_vec(),
            role: Role::Writable,
            grace_ms: KILL_GRACE_MS,
            sandboxed: true,
            networked: true,
        }
    }
}

/// How the engine treats the calls of a tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rule {
    /// It only looks: the loop guard neither checks nor records it.
    pub probe: bool,
    /// It may run beside other calls of the same answer.
    pub parallel: bool,
    /// Its result ends the turn.
    pub ends_turn: bool,
    /// What becomes of it after a crash.
    pub after_crash: AfterCrash,
}

impl Rule {
    const PROBE: Self =
        Self { probe: true, parallel: true, ends_turn: false, after_crash: AfterCrash::Rerun };
}

/// One tool.
#[derive(Debug, Clone)]
pub struct Tool {
    spec: ToolSpec,
    rule: Rule,
    writes: bool,
    parse: fn(&str) -> Result<Action, ToolError>,
}

impl Tool {
    /// As it is declared to the model.
    pub const fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    /// How its calls are treated.
    pub const fn rule(&self) -> Rule {
        self.rule
    }

    /// Does it change anything? A read-only agent does not see it.
    pub const fn writes(&self) -> bool {
        self.writes
    }

    /// The model's arguments as an action.
    pub fn parse(&self, arguments: &str) -> Result<Action, ToolError> {
        (self.parse)(arguments)
    }
}

/// Starts a watcher script.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StartScript {
    /// What people call it: trimmed, one line.
    pub name: String,
    /// Its source.
    pub python: String,
    /// Its deadline.
    pub timeout_seconds: u64,
    /// An older one with it ends.
    pub key: Option<SupersessionKey>,
    /// Who is told of its end.
    pub notify: Notify,
    /// Hosts that it wants to reach.
    pub hosts: Vec<HostRule>,
    /// Credentials that it wants to use.
    pub credentials: Vec<CredentialName>,
}

/// What a call asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// `trigger_and_auto_notify`.
    StartScript(StartScript),
    /// `watch__list`.
    ListWatchers,
    /// `watch__cancel`. The id is the model's text, see [`watch::resolve`].
    CancelWatcher {
        /// Which.
        id: String,
    },
    /// `watch__output`. The id is the model's text, see [`watch::resolve`].
    WatcherOutput {
        /// Which.
        id: String,
        /// How many of the last lines of each stream.
        tail_lines: u64,
    },
    /// `stay_silent`.
    StaySilent {
        /// Why, for the log.
        reason: String,
    },
    /// `read_file`.
    ReadFile {
        /// Which.
        file: FileId,
        /// The first line to be shown, from 1.
        from_line: u64,
    },
}

/// The tools of one agent, in the order they are declared.
pub fn toolbox(wiring: &Wiring) -> Vec<Tool> {
    let mut families = wiring.families.clone();
    families.sort_unstable();
    families.dedup();
    let mut tools: Vec<Tool> = families
        .into_iter()
        .flat_map(|family| match family {
            Family::Watch => {
                let mut tools = vec![trigger::tool(wiring)];
                tools.extend(watch::tools(wiring));
                tools
            }
            Family::Silence => vec![silence::tool()],
            Family::Files => vec![file::tool()],
        })
        .collect();
    tools.retain(|tool| !tool.writes() || wiring.role == Role::Writable);
    tools
}

/// The tool of exactly that name among those declared in the current request. The model's text
/// goes no further than this comparison.
pub fn find<'a>(declared: &'a [Tool], name: &str) -> Result<&'a Tool, ToolError> {
    declared.iter().find(|tool| tool.spec.name == name).ok_or_else(|| unknown_tool(declared, name))
}

/// The action of a call, if its tool is among `declared`.
pub fn parse(declared: &[Tool], name: &str, arguments: &str) -> Result<Action, ToolError> {
    find(declared, name)?.parse(arguments)
}

fn unknown_tool(declared: &[Tool], name: &str) -> ToolError {
    let names: Vec<&str> = declared.iter().map(|tool| tool.spec.name.as_str()).collect();
    let meant = nearest(name, names.iter().copied())
        .map_or_else(String::new, |meant| format!("Did you mean '{meant}'? "));
    let hint = if names.is_empty() {
        "No tools can be called now; answer in text.".to_owned()
    } else {
        let more = if names.len() > NAMES_IN_ERROR_MAX { ", …" } else { "" };
        let shown: Vec<_> = names.into_iter().take(NAMES_IN_ERROR_MAX).collect();
        format!("{meant}Tools: {}{more}.", shown.join(", "))
    };
    ToolError::new(Code::UnknownTool, format!("there is no tool {} here", echo(name)), hint)
}

/// The schemas of all tools, as `dogwatch schema` prints them.
pub fn schema() -> Value {
    let tools: Vec<_> = toolbox(&Wiring::all())
        .into_iter()
        .map(|tool| {
            json!({
                "name": tool.spec.name,
                "description": tool.spec.description,
                "writes": tool.writes,
                "parameters": tool.spec.parameters,
            })
        })
        .collect();
    json!({ "tools": tools })
}

#[cfg(test)]
mod tests;
