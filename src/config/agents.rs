//! Agents and their files. Owns their names, their texts and which of them answers.
//! Must not know tools beyond their families.

use std::path::{Path, PathBuf};

use super::checked::{Checking, limits};
use super::environment::path;
use super::problem::Problem;
use super::raw::{RawAgent, RawFamily, RawRole};
use super::source::Source;
use super::watch::hosts;
use super::{Agent, BUILT_IN_AGENT, Limits};
use crate::core::limits::{AGENTS_MAX, INSTRUCTIONS_BYTES_MAX, NAMES_IN_ERROR_MAX};
use crate::core::nearest::{echo, nearest};
use crate::core::policy::{Family, Role};

const NAME_RULE: &str = "Use 1 to 64 lower case letters, digits, '-' and '_'.";

/// Every agent, by name. The built-in one is there unless a file describes one of its name.
pub(super) fn read(
    written: Option<&str>,
    above: Limits,
    checking: &mut Checking<'_>,
) -> Vec<Agent> {
    let mut agents: Vec<Agent> = Vec::new();
    let lookup = checking.lookup;
    for file in files(written, checking) {
        let source = match Source::open(&file) {
            Ok(source) => source,
            Err(problem) => {
                checking.problems.push(problem);
                continue;
            }
        };
        let raw: RawAgent = source.read(checking.problems);
        let base = file.parent().unwrap_or(Path::new("/")).to_owned();
        let mut own = Checking { source: Some(&source), problems: checking.problems, lookup, base };
        let Some(agent) = agent(&raw, above, &mut own) else { continue };
        if agents.iter().any(|other| other.name == agent.name) {
            let what = format!("another file describes the agent {} too", echo(&agent.name));
            own.wrong("name", what, "Give each agent its own name.");
        }
        agents.push(agent);
    }
    if !agents.iter().any(|agent| agent.name == BUILT_IN_AGENT) {
        agents.push(built_in(above));
    }
    agents.sort_by(|a, b| a.name.cmp(&b.name));
    agents
}

fn built_in(limits: Limits) -> Agent {
    Agent {
        name: BUILT_IN_AGENT.to_owned(),
        model: None,
        instructions: String::new(),
        tools: Family::ALL.to_vec(),
        role: Role::Writable,
        hosts: vec![],
        limits,
    }
}

/// The agent files. A directory that is written down must be there; `agents` beside the
/// configuration may be.
fn files(written: Option<&str>, checking: &mut Checking<'_>) -> Vec<PathBuf> {
    let dir = match checking.line("agents_dir", written) {
        Some(written) => path(checking.lookup, &checking.base, &written),
        None if checking.source.is_some() => checking.base.join("agents"),
        None => return vec![],
    };
    let entries = match std::fs::read_dir(&dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound && written.is_none() => {
            return vec![];
        }
        Err(error) => {
            let what = format!("{} cannot be read: {error}", dir.display());
            checking.wrong("agents_dir", what, "Check the path and its rights.");
            return vec![];
        }
    };
    let mut files: Vec<PathBuf> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|file| file.extension().is_some_and(|extension| extension == "toml"))
        .collect();
    files.sort();
    if files.len() > AGENTS_MAX {
        let what = format!("{} has more than {AGENTS_MAX} agents", dir.display());
        checking.problems.push(Problem::of_file(&dir, what, "Take some away."));
        files.truncate(AGENTS_MAX);
    }
    files
}

fn agent(raw: &RawAgent, above: Limits, checking: &mut Checking<'_>) -> Option<Agent> {
    let limits = limits(&raw.limits, Some(above), checking);
    let model = checking.line("model", raw.model.as_deref());
    let instructions = raw.instructions.as_deref().unwrap_or("").trim();
    if instructions.len() > INSTRUCTIONS_BYTES_MAX {
        let what = format!("they have {} bytes", instructions.len());
        let cure = format!("At most {INSTRUCTIONS_BYTES_MAX} bytes are allowed.");
        checking.wrong("instructions", what, cure);
    }
    let mut tools: Vec<Family> = match &raw.tools {
        None => Family::ALL.to_vec(),
        Some(families) => families.iter().map(|family| family_of(*family)).collect(),
    };
    tools.sort_unstable();
    tools.dedup();
    Some(Agent {
        name: name(raw.name.as_deref(), checking)?,
        model,
        instructions: instructions.to_owned(),
        tools,
        role: role_of(raw.role.unwrap_or(RawRole::Writable)),
        hosts: hosts(&raw.hosts, checking),
        limits,
    })
}

/// As core calls it.
pub(super) const fn role_of(raw: RawRole) -> Role {
    match raw {
        RawRole::Writable => Role::Writable,
        RawRole::ReadOnly => Role::ReadOnly,
    }
}

const fn family_of(raw: RawFamily) -> Family {
    match raw {
        RawFamily::Watch => Family::Watch,
        RawFamily::Silence => Family::Silence,
        RawFamily::Files => Family::Files,
    }
}

fn name(given: Option<&str>, checking: &mut Checking<'_>) -> Option<String> {
    let Some(name) = given else {
        checking.wrong("name", "it is missing", NAME_RULE);
        return None;
    };
    let letter = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '_');
    if name.is_empty() || name.len() > 64 || !name.chars().all(letter) {
        checking.wrong("name", format!("{} is not a name of an agent", echo(name)), NAME_RULE);
        return None;
    }
    Some(name.to_owned())
}

/// The agent that answers: the one that is written, else the built-in one's name.
pub(super) fn answering(
    written: Option<&str>,
    agents: &[Agent],
    checking: &mut Checking<'_>,
) -> String {
    named("agent", written, agents, checking).unwrap_or_else(|| BUILT_IN_AGENT.to_owned())
}

/// The agent that is written there, which must be one of these.
pub(super) fn named(
    key: &str,
    written: Option<&str>,
    agents: &[Agent],
    checking: &mut Checking<'_>,
) -> Option<String> {
    let wanted = checking.line(key, written)?;
    let names: Vec<&str> = agents.iter().map(|agent| agent.name.as_str()).collect();
    if !names.contains(&wanted.as_str()) {
        let meant = nearest(&wanted, names.iter().copied())
            .map_or_else(String::new, |name| format!("Did you mean '{name}'? "));
        let shown: Vec<_> = names.into_iter().take(NAMES_IN_ERROR_MAX).collect();
        let cure = format!("{meant}Agents: {}.", shown.join(", "));
        checking.wrong(key, format!("there is no agent {}", echo(&wanted)), cure);
    }
    Some(wanted)
}
