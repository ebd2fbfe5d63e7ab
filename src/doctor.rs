//! `dogwatch doctor`: what this machine lacks, and the cure for each. Owns the checks and their
//! words. Must not change anything.

use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use serde::Serialize;

use crate::config::{self, Config, ModelConfig};
use crate::core::limits::LIVE_PER_SESSION_MAX;
use crate::core::message::{Message, Request};
use crate::engine::installations;
use crate::ports::Model;
use crate::slack::checkup::Kept;
use crate::slack::checkup::setup::{APP_VARIABLE, Setup, TOKEN_VARIABLE};
use crate::store::redis::health::Verdict;
use crate::store::{Chosen, Redis};
use crate::{app, audit, watch};

/// A model that is asked one word answers within this, or it is said to be away.
const MODEL_MS_MAX: u64 = 20_000;

/// How one check went.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Grade {
    /// As it should be.
    Ok,
    /// It works, but somebody should know.
    Warning,
    /// It does not work.
    Failed,
}

/// One check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Check {
    /// What was looked at.
    pub name: &'static str,
    /// How it went.
    pub grade: Grade,
    /// What was seen.
    pub what: String,
    /// What to do, where there is something to do.
    pub cure: Option<String>,
}

/// All checks.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Checkup {
    /// In the order they were made.
    pub checks: Vec<Check>,
}

impl Checkup {
    /// Did nothing fail?
    pub fn is_well(&self) -> bool {
        self.checks.iter().all(|check| check.grade != Grade::Failed)
    }

    /// For programs.
    pub fn to_json(&self) -> String {
        let report = serde_json::json!({ "well": self.is_well(), "checks": self.checks });
        format!("{report:#}")
    }

    /// For people.
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        for check in &self.checks {
            let mark = match check.grade {
                Grade::Ok => "ok     ",
                Grade::Warning => "warning",
                Grade::Failed => "FAILED ",
            };
            let _ = writeln!(text, "{mark}  {:<13}  {}", check.name, under(&check.what));
            if let Some(cure) = &check.cure {
                let _ = writeln!(text, "{INDENT}→ {}", under(cure));
            }
        }
        text.push_str(if self.is_well() { "Nothing failed." } else { "Something failed." });
        text
    }

    fn ok(&mut self, name: &'static str, what: impl Into<String>) {
        self.add(name, Grade::Ok, what.into(), None);
    }

    fn add(&mut self, name: &'static str, grade: Grade, what: String, cure: Option<&str>) {
        self.checks.push(Check { name, grade, what, cure: cure.map(Into::into) });
    }
}

/// Where what was seen stands in a line.
const INDENT: &str = "                        ";

/// Further lines of a text, under its first.
fn under(text: &str) -> String {
    text.replace('\n', &format!("\n{INDENT}"))
}

/// Makes all checks.
pub async fn run(file: Option<&Path>) -> Checkup {
    let mut checkup = Checkup::default();
    let config = match config::load(file) {
        Ok(config) => config,
        Err(error) => {
            let cure = Some("`dogwatch check-config` lists every mistake with its place");
            checkup.add("configuration", Grade::Failed, error.to_string(), cure);
            return checkup;
        }
    };
    let place =
        config.file.as_ref().map_or("no file, defaults".into(), |f| f.display().to_string());
    checkup.ok("configuration", place);
    directories(&mut checkup, &config);
    store(&mut checkup, &config).await;
    python(&mut checkup, &config);
    let found = sandbox(&mut checkup, &config);
    network(&mut checkup, &config, found.as_ref());
    watchers(&mut checkup, &config);
    model(&mut checkup, &config).await;
    slack(&mut checkup, &config).await;
    checkup
}

/// Nothing to find out: it answers who asks why nothing more is started.
fn watchers(checkup: &mut Checkup, config: &Config) {
    let cap = config.watch.live_per_person;
    let what = format!(
        "one person may have {cap} running at the same time, in all conversations together \
         (watch.live_per_person), and {LIVE_PER_SESSION_MAX} run in one conversation at most"
    );
    checkup.ok("watchers", what);
    if let Some(why) = app::program().ok().and_then(|program| watch::shim_of(&program).err()) {
        let what = format!("{why}, so each has the whole of dogwatch beside it: 1 MiB more each");
        let cure = "install dogwatch-shim of the same build beside dogwatch";
        checkup.add("watchers", Grade::Warning, what, Some(cure));
    }
}

async fn slack(checkup: &mut Checkup, config: &Config) {
    let Some(slack) = &config.slack else { return };
    let kept = kept(config).await.unwrap_or_default();
    let token = config::of_process(TOKEN_VARIABLE).map(Into::into);
    let setup = Setup { token, app: config::of_process(APP_VARIABLE) };
    match app::slack::looked_at(slack, &kept, &setup).await {
        Ok(findings) => {
            for finding in findings {
                let grade = if finding.ok { Grade::Ok } else { Grade::Failed };
                checkup.add("slack", grade, finding.what, finding.cure);
            }
        }
        Err(error) => checkup.add("slack", Grade::Failed, format!("{error:#}"), None),
    }
}

/// What the store keeps of installations; nothing where it cannot be read, which is said elsewhere.
async fn kept(config: &Config) -> Option<Kept> {
    let choice = app::store_choice(config).ok()?;
    if choice.file().is_some_and(|file| !file.exists()) {
        return None;
    }
    let store = Chosen::look(&choice).ok()?.rows();
    let all = installations::all(&*store).await.ok()?;
    Some(Kept { all, now: store.now().await.ok()? })
}

fn directories(checkup: &mut Checkup, config: &Config) {
    for (name, path) in [("data", &config.data_dir), ("spool", &config.watch.spool_dir)] {
        match writable(path) {
            Ok(()) => checkup.ok(name, format!("{} can be written", path.display())),
            Err(error) => {
                let what = format!("{} cannot be written: {error}", path.display());
                let cure = Some("give it to the user that runs dogwatch, or name another place");
                checkup.add(name, Grade::Failed, what, cure);
            }
        }
    }
}

/// Looks without leaving anything: the nearest directory that exists must let us write.
fn writable(path: &Path) -> std::io::Result<()> {
    let there = path.ancestors().find(|ancestor| ancestor.exists()).unwrap_or(path);
    if !there.is_dir() {
        return Err(std::io::Error::other(format!("{} is no directory", there.display())));
    }
    Ok(nix::unistd::access(there, nix::unistd::AccessFlags::W_OK)?)
}

async fn store(checkup: &mut Checkup, config: &Config) {
    let choice = match app::store_choice(config) {
        Ok(choice) => choice,
        Err(error) => return checkup.add("store", Grade::Failed, format!("{error:#}"), None),
    };
    if let Some(file) = choice.file().filter(|file| !file.exists()) {
        checkup.ok("store", format!("{} will be made at the first start", file.display()));
        return;
    }
    let store = match Chosen::look(&choice) {
        Ok(store) => store,
        Err(error) => return checkup.add("store", Grade::Failed, error.to_string(), None),
    };
    if let Chosen::Redis(redis) = &store
        && !redis_is_fit(checkup, redis).await
    {
        return;
    }
    let place = choice.file().map_or("redis".to_owned(), |file| file.display().to_string());
    let store = store.rows();
    match store.aggregates(None, 1).await {
        Ok(_) => checkup.ok("store", format!("{place} can be read")),
        Err(error) => {
            let cure = Some("restore it from a copy; `dogwatch audit` proves what it holds");
            return checkup.add("store", Grade::Failed, error.to_string(), cure);
        }
    }
    match audit::strangers(config, &*store).await {
        Ok(strangers) if strangers.is_empty() => {}
        Ok(strangers) => {
            let what = format!("not in the store: {}", strangers.join("\n"));
            let cure = Some(
                "was an older copy of the store put back? They are ended at the next start and \
                 kept for a day: look at what they printed, then nothing is to be done",
            );
            checkup.add("spool entries", Grade::Warning, what, cure);
        }
        Err(error) => checkup.add("spool entries", Grade::Failed, format!("{error:#}"), None),
    }
}

/// What a start would check too. Answers whether it would go on.
async fn redis_is_fit(checkup: &mut Checkup, redis: &Redis) -> bool {
    let mut fit = true;
    for finding in redis.health().await {
        let grade = match finding.verdict {
            Verdict::Ok => Grade::Ok,
            Verdict::Warn => Grade::Warning,
            Verdict::Refuse => Grade::Failed,
        };
        fit &= finding.verdict != Verdict::Refuse;
        checkup.add("redis", grade, format!("{}: {}", finding.check, finding.what), finding.cure);
    }
    fit
}

fn python(checkup: &mut Checkup, config: &Config) {
    let env = app::environment();
    match watch::find_python(&config.watch.python, &env) {
        Ok(path) => checkup.ok("python", path.display().to_string()),
        Err(error) => {
            let what = format!("'{}' does not run: {error}", config.watch.python.display());
            let cure = Some("install python3 (Debian: apt-get install python3)");
            checkup.add("python", Grade::Failed, what, cure);
        }
    }
}

/// What was found of the sandbox, where one is wanted and could be tried.
fn sandbox(checkup: &mut Checkup, config: &Config) -> Option<watch::probe::Finding> {
    let limits = match app::sandbox::wanted(config) {
        watch::Sandbox::Required(limits) => limits,
        watch::Sandbox::Off => {
            let what = "off: scripts that the model writes run with the rights, the files and the \
                        network of this user; a script can forge its own exit record";
            let cure = "take `sandbox = \"off\"` out of [watch]; else run dogwatch as a user of \
                        its own, on a machine without secrets";
            checkup.add("sandbox", Grade::Warning, what.into(), Some(cure));
            return None;
        }
    };
    // What it runs in the sandbox is what would run there: without Python there is nothing to try.
    let Ok(python) = watch::find_python(&config.watch.python, &app::environment()) else {
        let what = "not tried, since there is no Python".to_owned();
        checkup.add("sandbox", Grade::Failed, what, Some("see python"));
        return None;
    };
    let shim = app::program().map(|program| watch::shim_of(&program).unwrap_or(program)).ok()?;
    let spool = &config.watch.spool_dir;
    let place = if spool.exists() { spool.clone() } else { std::env::temp_dir() };
    let found = watch::probe::ask(&shim, &python, limits, &place);
    match (found.tier, &found.no_namespaces) {
        (Some(tier), None) => checkup.ok("sandbox", tier.words().to_owned()),
        (Some(tier), Some(why)) => {
            let what = format!("{}; {why}", tier.words());
            checkup.add("sandbox", Grade::Warning, what, found.cure());
        }
        (None, _) => checkup.add("sandbox", Grade::Failed, found.refusal(), found.cure()),
    }
    if found.tier.is_some() {
        let what = format!("each script has {}; {}", limits.described(), found.bounded());
        checkup.add("limits", Grade::Ok, what, found.cure_of_groups());
    }
    Some(found)
}

/// Which scripts may reach what, by names alone, and whether any can.
fn network(checkup: &mut Checkup, config: &Config, found: Option<&watch::probe::Finding>) {
    let mut lines: Vec<String> = Vec::new();
    for agent in config.agents.iter().filter(|agent| !agent.hosts.is_empty()) {
        let hosts: Vec<String> = agent.hosts.iter().map(ToString::to_string).collect();
        lines.push(format!("scripts of {} may name {}", agent.name, hosts.join(", ")));
    }
    for one in &config.credentials {
        let roles: Vec<&str> = one.roles.iter().map(|role| role.word()).collect();
        let (agents, roles) = (one.agents.join(", "), roles.join(" or "));
        lines.push(format!("credential {} for {}: {agents} ({roles})", one.name, one.to));
    }
    let wanted = !lines.is_empty();
    let open = config.watch.sandbox == config::Sandbox::Off;
    if open {
        lines.push("without a sandbox scripts reach whatever this machine reaches".to_owned());
    } else if !wanted {
        lines.push("no agent lists hosts, so scripts reach nothing".to_owned());
    }
    let refusal = found.and_then(watch::probe::Finding::network_refusal);
    lines.extend(refusal.clone());
    let (grade, cure) = match (wanted && refusal.is_some(), wanted && open) {
        (true, _) => (Grade::Failed, found.and_then(watch::probe::Finding::cure)),
        (false, true) => (Grade::Warning, Some("take `sandbox = \"off\"` out of [watch]")),
        (false, false) => (Grade::Ok, None),
    };
    checkup.add("network", grade, lines.join("\n"), cure);
}

async fn model(checkup: &mut Checkup, config: &Config) {
    let chosen = match app::idle_model(config) {
        Ok(chosen) => chosen,
        Err(error) => {
            checkup.add("model", Grade::Failed, format!("{error:#}"), None);
            return;
        }
    };
    match &config.model {
        ModelConfig::Scripted { .. } => checkup.add(
            "model",
            Grade::Warning,
            chosen.describe(),
            Some("for a real one set [model] kind = \"openai\", base_url, model and api_key"),
        ),
        ModelConfig::OpenAi(_) => {
            let request = Request {
                agent: config.agent.clone(),
                messages: vec![Message::Person("Say ok.".into())],
                tools: vec![],
            };
            let mut ignore = |_| {};
            let asked = chosen.call(&request, &mut ignore);
            let patience = Duration::from_millis(MODEL_MS_MAX);
            match tokio::time::timeout(patience, asked).await {
                Ok(Ok(_)) => checkup.ok("model", format!("{} answers", chosen.describe())),
                Ok(Err(error)) => {
                    let cure = Some("compare [model] base_url, model and api_key with the server");
                    checkup.add("model", Grade::Failed, error.to_string(), cure);
                }
                Err(_) => {
                    let what = format!("no answer within {MODEL_MS_MAX} ms");
                    checkup.add("model", Grade::Failed, what, Some("is the server overloaded?"));
                }
            }
        }
    }
}
