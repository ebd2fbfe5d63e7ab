//! `dogwatch check-config`: what is wrong and what is only doubtful, for people and for programs.
//! Must not know how it is printed.

use std::path::Path;

use serde::Serialize;

use super::environment::{Lookup, of_process};
use super::problem::{Problem, listed};
use super::{Config, ModelConfig, Sandbox, checked};

/// What a check found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Report {
    /// It can be used.
    pub ok: bool,
    /// The file that was read; `None` for the defaults.
    pub file: Option<String>,
    /// What must be changed.
    pub errors: Vec<Problem>,
    /// What somebody should know.
    pub warnings: Vec<Problem>,
}

impl Report {
    /// For people.
    pub fn to_text(&self) -> String {
        let name = self.file.as_deref().unwrap_or("no file, the defaults");
        let mut parts = Vec::new();
        if !self.errors.is_empty() {
            parts.push(listed(&self.errors));
        }
        parts.extend(self.warnings.iter().map(|warning| format!("note: {warning}")));
        parts.push(match (self.errors.len(), self.warnings.len()) {
            (0, 0) => format!("{name}: ok"),
            (0, notes) => format!("{name}: ok, {}", count(notes, "note")),
            (errors, _) => format!("{name}: {}", count(errors, "error")),
        });
        parts.join("\n")
    }
}

impl Report {
    /// Adds what another room says about the value of a key.
    pub fn reject(&mut self, config: &Config, key: &str, what: &str) {
        self.errors.push(about(config, key, what, ""));
        self.ok = false;
    }
}

fn count(n: usize, noun: &str) -> String {
    if n == 1 { format!("1 {noun}") } else { format!("{n} {noun}s") }
}

/// Checks the configuration that [`super::load`] would read.
pub fn check(file: Option<&Path>) -> Report {
    check_with(file, &of_process)
}

/// Like [`check`], with another environment.
pub fn check_with(file: Option<&Path>, lookup: Lookup<'_>) -> Report {
    let (config, errors) = checked::read(file, lookup);
    let mut warnings = Vec::new();
    if let Some(config) = &config {
        match config.watch.sandbox {
            Sandbox::Required => {}
            Sandbox::Off => warnings.push(about(
                config,
                "watch.sandbox",
                "scripts of the model run unsandboxed: with the rights, the files and the \
                 network of the user that runs dogwatch",
                "Take the line out: then a sandbox is required. Else run dogwatch as a user of its \
                 own.",
            )),
        }
        if config.watch.sandbox == Sandbox::Off
            && let Some(agent) = config.agents.iter().find(|agent| !agent.hosts.is_empty())
        {
            warnings.push(about(
                config,
                "watch.sandbox",
                &format!(
                    "the agent '{}' lists hosts, and without a sandbox nothing holds a script to \
                     them: it reaches whatever this machine reaches",
                    agent.name
                ),
                "Take the line out: then a script reaches what it asked for and may have.",
            ));
        }
        if sends_secret_in_clear(config) {
            warnings.push(about(
                config,
                "model.base_url",
                "a secret is sent over http to another machine, so others can read it",
                "Use https.",
            ));
        }
    }
    let file = config.and_then(|config| config.file).or_else(|| file.map(Path::to_owned));
    let file = file.map(|file| file.display().to_string());
    Report { ok: errors.is_empty(), file, errors, warnings }
}

fn sends_secret_in_clear(config: &Config) -> bool {
    let ModelConfig::OpenAi(openai) = &config.model else { return false };
    let Ok(url) = reqwest::Url::parse(&openai.base_url) else { return false };
    let near = match url.host_str() {
        Some("localhost" | "[::1]") => true,
        Some(host) => host.starts_with("127."),
        None => false,
    };
    url.scheme() == "http" && !near && !config.secrets().is_empty()
}

fn about(config: &Config, key: &str, what: &str, cure: &str) -> Problem {
    let file = config.file.as_deref();
    // Found again here rather than kept: this runs once, for a person.
    match file.and_then(|file| super::source::Source::open(file).ok()) {
        Some(source) => source.problem(key, what, cure),
        None => Problem::bare(key, what, cure),
    }
}
