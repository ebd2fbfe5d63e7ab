//! `trigger_and_auto_notify`: starts a watcher script and returns at once. Owns its schema, the
//! readable part of an execution id, and the words of its results.
//! Must not know how a script is run.

use serde_json::{Value, json};

use super::check::{Credentials, Hosts, Line, Script, Supersedes, Told, Whole};
use super::error::{Code, ToolError};
use super::shape::{Field, Shape};
use super::{Action, AfterCrash, Rule, StartScript, Tool, Wiring};
use crate::core::egress::AccessError;
use crate::core::execution::Execution;
use crate::core::id::ExecutionId;
use crate::core::ledger::Refusal;
use crate::core::limits::{
    CODE_BYTES_MAX, ECHO_CHARS_MAX, EGRESS_CREDENTIALS_MAX, EGRESS_HOSTS_MAX, NAME_CHARS_MAX,
    NAMES_IN_ERROR_MAX, OUTPUT_BYTES_MAX, TIMEOUT_SECONDS_MAX, TIMEOUT_SECONDS_MIN,
};
use crate::core::message::ToolSpec;
use crate::ports::{LaunchError, SyntaxFault};

/// Its name.
pub const NAME: &str = "trigger_and_auto_notify";

const TITLE: Field<Line> = Field {
    name: "name",
    about: "What people call this work, for example 'Watch deployment abc123'.",
    check: Line { chars_max: NAME_CHARS_MAX },
};
const PYTHON: Field<Script> = Field {
    name: "python",
    about: "Plain Python 3 source, standard library only. It waits in its own loop, prints what \
            you need to know, and exits: 0 means completed, anything else means failed.",
    check: Script { bytes_max: CODE_BYTES_MAX },
};
const TIMEOUT: Field<Whole> = Field {
    name: "timeout_seconds",
    about: "Deadline in whole seconds. When it passes the script is ended and you are told so.",
    check: Whole { min: TIMEOUT_SECONDS_MIN, max: TIMEOUT_SECONDS_MAX, unit: "seconds" },
};
const KEY: Field<Supersedes> = Field {
    name: "key",
    about: "Optional. A new script with the same key silently ends the older one of this \
            conversation.",
    check: Supersedes,
};
const NOTIFY: Field<Told> = Field {
    name: "notify",
    about: "Optional. Who is told of the end: agent (you are woken), human (a post in the \
            thread, you are not woken), both, or silent (only listed).",
    check: Told,
};

const HOSTS: Field<Hosts> = Field {
    name: "hosts",
    about: "Optional. The hosts that the script reaches by http and https: names, names with a \
            port, or '*.' before a name. Without it the script has no network.",
    check: Hosts { count_max: EGRESS_HOSTS_MAX },
};
const CREDENTIALS: Field<Credentials> = Field {
    name: "credentials",
    about: "Optional. Names of credentials that are put into the script's requests to their \
            hosts. The script writes http://HOST/… without any token.",
    check: Credentials { count_max: EGRESS_CREDENTIALS_MAX },
};

/// Why there are no such arguments where scripts run without a sandbox.
const UNHELD: &[(&str, &str)] = &[
    (
        "hosts",
        "Scripts run without a sandbox here: they reach whatever this machine reaches, and no list \
         of hosts would hold them. Leave 'hosts' out.",
    ),
    (
        "credentials",
        "Scripts run without a sandbox here, where no secret could be kept from them. \
         Leave 'credentials' out, and write no secret into the script.",
    ),
];
/// Why there are none where the agent may reach nothing.
const OFFLINE: &[(&str, &str)] = &[
    (
        "hosts",
        "Scripts of this agent have no network; its operator has listed no host for it. Leave \
         'hosts' out. If the task needs a host, tell the person which one, and that an operator \
         adds it to `hosts` in the agent's file.",
    ),
    (
        "credentials",
        "Scripts of this agent have no network and are lent no credential. Leave 'credentials' \
         out, and write no secret into the script.",
    ),
];

fn shape(way: Way) -> Shape {
    let example = json!({
        "name": "Watch deployment abc123",
        "python": "import time\ntime.sleep(30)\nprint('healthy')",
        "timeout_seconds": 600,
    });
    let shape =
        Shape::new(example).need(&TITLE).need(&PYTHON).need(&TIMEOUT).may(&KEY).may(&NOTIFY);
    match way {
        Way::Unheld => shape.without(UNHELD),
        Way::Offline => shape.without(OFFLINE),
        Way::Asked => shape.may(&HOSTS).may(&CREDENTIALS),
    }
}

/// How scripts get at the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// As whatever runs here: nothing holds them.
    Unheld,
    /// Not at all.
    Offline,
    /// As far as the call asks.
    Asked,
}

impl Way {
    const fn of(wiring: &Wiring) -> Self {
        match (wiring.sandboxed, wiring.networked) {
            (false, _) => Self::Unheld,
            (true, false) => Self::Offline,
            (true, true) => Self::Asked,
        }
    }
}

/// The tool. A repeat of a call after a crash is recognised by its start key.
pub(super) fn tool(wiring: &Wiring) -> Tool {
    let way = Way::of(wiring);
    Tool {
        spec: ToolSpec {
            name: NAME.to_owned(),
            description: format!(
                "Start a Python script in the background and return at once. When it completes, \
                 fails or times out, this conversation is resumed with an [AUTO-NOTIFICATION] \
                 that carries its output: up to {} KiB each of stdout and stderr, head and tail. \
                 The script has at most {} KiB. \
                 Use it for anything that takes longer than a moment. Afterwards say in one line \
                 what you started and end your turn; do not wait for it and do not poll.",
                OUTPUT_BYTES_MAX / 1024,
                CODE_BYTES_MAX / 1024
            ),
            parameters: shape(way).schema(),
        },
        rule: Rule {
            probe: false,
            parallel: false,
            ends_turn: false,
            after_crash: AfterCrash::Rerun,
        },
        writes: true,
        parse: match way {
            Way::Unheld => |arguments| parse(Way::Unheld, arguments),
            Way::Offline => |arguments| parse(Way::Offline, arguments),
            Way::Asked => |arguments| parse(Way::Asked, arguments),
        },
    }
}

fn parse(way: Way, arguments: &str) -> Result<Action, ToolError> {
    let given = shape(way).read(arguments)?;
    Ok(Action::StartScript(StartScript {
        name: given.need(&TITLE)?,
        python: given.need(&PYTHON)?,
        timeout_seconds: given.need(&TIMEOUT)?,
        key: given.may(&KEY)?,
        notify: given.may(&NOTIFY)?.unwrap_or_default(),
        hosts: given.may(&HOSTS)?.unwrap_or_default(),
        credentials: given.may(&CREDENTIALS)?.unwrap_or_default(),
    }))
}

/// The readable part of an execution id: `auto-notify-` and the first four ASCII letters or
/// digits of the name, in lower case; fewer are used as they are, and without any it is `work`.
/// The ledger adds `-` and the sequence number. People type these ids, and directories are named
/// by them, so other alphabets do not enter.
pub fn id_prefix(name: &str) -> String {
    let mut word: String =
        name.chars().filter(char::is_ascii_alphanumeric).take(4).collect::<String>();
    word.make_ascii_lowercase();
    if word.is_empty() {
        word.push_str("work");
    }
    format!("auto-notify-{word}")
}

/// It is registered and will run.
pub fn started(id: &ExecutionId, name: &str) -> Value {
    json!({ "execution_id": id, "status": "waiting", "name": name })
}

/// Python cannot compile it. `python` is the source that was sent.
pub fn syntax_error(fault: &SyntaxFault, python: &str) -> ToolError {
    let index = usize::try_from(fault.line).ok().and_then(|line| line.checked_sub(1));
    let line = index.and_then(|index| python.lines().nth(index));
    let place = if fault.line == 0 { String::new() } else { format!(" in line {}", fault.line) };
    let mut error = ToolError::new(
        Code::SyntaxError,
        format!("Python cannot compile the script{place}: {}", fault.message),
        "Correct the script and call again. Nothing was started.",
    )
    .of(PYTHON.name);
    if fault.line > 0 {
        error = error.with("line", fault.line);
    }
    if let Some(line) = line {
        let short: String = line.chars().take(ECHO_CHARS_MAX * 2).collect();
        error = error.with("source", short);
    }
    error
}

/// The ledger did not register it; nothing runs. One error for each refusal, so that it is never
/// told as a success.
pub fn refused(refusal: &Refusal) -> ToolError {
    match refusal {
        Refusal::Stopped => ToolError::new(
            Code::Stopped,
            "a person stopped this conversation; nothing new is started in it",
            "End your turn. A new message of a person opens it again.",
        ),
        Refusal::Cap { what, limit } => ToolError::new(
            Code::LimitReached,
            format!("nothing was started: {what} ({limit})"),
            format!(
                "End what is not needed with {} and call again, or end your turn and say so.",
                super::watch::CANCEL
            ),
        )
        .later(),
        Refusal::Full(unread) => ToolError::new(
            Code::LimitReached,
            format!("nothing was started: too many notifications are unread ({unread})"),
            "End your turn; they are delivered first.",
        )
        .later(),
        Refusal::Foreign(owner) => ToolError::new(
            Code::NotOwner,
            format!("nothing was started: the key is in use by running work of {owner}"),
            "It would end that work, which only its owner may. Call again with another key, or \
             without one.",
        )
        .of("key")
        .with("owner", owner.as_str()),
        Refusal::Void | Refusal::Conflict => not_started(&refusal.to_string()),
        Refusal::Fenced
        | Refusal::Buried
        | Refusal::Busy(_)
        | Refusal::Crowd
        | Refusal::Idle
        | Refusal::NotYet(_)
        | Refusal::Ended(_)
        | Refusal::Unknown
        | Refusal::Length(_)
        | Refusal::Unseen
        | Refusal::Invalid(_)
        | Refusal::Alive
        | Refusal::Unnamed(_) => not_started(&refusal.to_string()).later(),
    }
}

/// The agent may not have what it asked for; nothing was registered.
pub fn not_allowed(error: &AccessError) -> ToolError {
    const ASK: &str = "tell the person that an operator has to add it";
    let (code, field, hint) = match error {
        AccessError::NoNetwork => (
            Code::HostNotAllowed,
            HOSTS.name,
            format!(
                "Leave it out; if the task needs a host, {ASK} to `hosts` in the agent's file."
            ),
        ),
        AccessError::Host { .. } => (
            Code::HostNotAllowed,
            HOSTS.name,
            format!(
                "Name what is allowed; if the task needs it, {ASK} to `hosts` in the agent's file."
            ),
        ),
        AccessError::Credential { .. } => (
            Code::CredentialNotAllowed,
            CREDENTIALS.name,
            format!(
                "Leave it out, and write no secret into the script; else {ASK} in [credentials]."
            ),
        ),
        AccessError::NoHost { .. } => {
            (Code::HostNotAllowed, HOSTS.name, "Add it to hosts and call again.".to_owned())
        }
        AccessError::Twice { .. } => (
            Code::CredentialNotAllowed,
            CREDENTIALS.name,
            "Start one script for each of them.".to_owned(),
        ),
        AccessError::ManyHosts { .. } => {
            (Code::TooLong, HOSTS.name, "Name only what the script needs.".to_owned())
        }
        AccessError::ManyCredentials { .. } => {
            (Code::TooLong, CREDENTIALS.name, "Name only what the script needs.".to_owned())
        }
    };
    ToolError::new(code, format!("nothing was started: {error}"), hint).of(field)
}

/// So many executions of the person are live, these of them in this session.
pub fn crowded(limit: usize, here: &[Execution]) -> ToolError {
    let listed = here.iter().take(NAMES_IN_ERROR_MAX);
    let listed: Vec<Value> =
        listed.map(|one| json!({ "execution_id": one.id, "name": one.name })).collect();
    ToolError::new(
        Code::LimitReached,
        format!(
            "nothing was started: {limit} executions of this person are live, over all their \
             conversations, and more are not allowed; {} of them in this one",
            here.len()
        ),
        format!(
            "End what is not needed here with {} and call again once it has ended, or end your \
             turn and tell the person that one of theirs has to end first.",
            super::watch::CANCEL
        ),
    )
    .later()
    .with("limit", limit)
    .with("running_here", listed)
}

/// The launcher could not start it, or not compile it; nothing runs.
pub fn not_launched(error: &LaunchError) -> ToolError {
    not_started(&error.to_string()).later()
}

fn not_started(what: &str) -> ToolError {
    ToolError::new(
        Code::NotStarted,
        format!("nothing was started: {what}"),
        "Tell the person that it was not started. Do not report it as running.",
    )
}

#[cfg(test)]
mod tests;
