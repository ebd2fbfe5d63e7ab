//! The command line. Owns the subcommands, what they print and their exit codes:
//! 0 ok, 1 failed, 64 usage, 78 configuration.

use std::ffi::OsString;
use std::io::{IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::builder::RangedU64ValueParser;
use clap::{Args, Parser, Subcommand};

use crate::config::{self, Config, ConfigError};
use crate::console::End;
#[cfg(feature = "failpoints")]
use crate::failpoint;
use crate::model::{PlaybookError, SettingsError};
use crate::ports::Ids as _;
use crate::store::UlidIds;
use crate::{app, audit, demo, doctor, load, serve, tools, watch};

/// Something was wrong with the call.
const USAGE: u8 = 64;
/// Something was wrong with the configuration.
const CONFIG: u8 = 78;

/// dogwatch: a chat-ops bot whose background work always finds its way back.
#[derive(Debug, Parser)]
#[command(name = "dogwatch", version, about, long_about = None)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Show the main job, end to end: no key, no server, under a minute
    Demo,
    /// Talk with the bot in this terminal
    Chat(ChatArgs),
    /// Run the bot as a service, with probes and metrics over HTTP
    Serve(Place),
    /// Prove that every result is accounted for
    Audit(Report),
    /// Measure how much the store bears, in a scratch store beside yours
    Load(LoadArgs),
    /// Check this machine and say how to mend what is missing
    Doctor(Report),
    /// Check the configuration; every mistake with its place and its cure
    CheckConfig(Report),
    /// Print the JSON Schemas of the tools and of the configuration
    Schema,
    /// List the points at which a test may kill the bot (test builds only)
    #[cfg(feature = "failpoints")]
    Failpoints {
        /// Print JSON, for programs
        #[arg(long)]
        json: bool,
    },
    /// Supervise one script (internal)
    #[command(hide = true)]
    Shim {
        /// The execution's directory in the spool
        dir: PathBuf,
    },
    /// Be what supervisors of scripts are copies of (internal)
    #[command(hide = true)]
    Zygote {
        /// Where executions stand in the spool
        place: PathBuf,
        /// Nothing: its copies write their own names over it
        room: String,
    },
    /// Take watchers to the network (internal)
    #[command(hide = true)]
    Egress {
        /// Its directory
        dir: PathBuf,
    },
    /// Try the sandbox (internal)
    #[command(hide = true)]
    Probe(ProbeArgs),
}

#[derive(Debug, Args)]
struct ProbeArgs {
    /// The Python that runs scripts
    python: PathBuf,
    /// What scripts may use, as JSON
    limits: String,
    /// Where to make a directory for it
    place: PathBuf,
}

impl ProbeArgs {
    fn run(&self) -> u8 {
        watch::probe::run(&self.python, &self.limits, &self.place)
    }
}

#[derive(Debug, Args)]
struct Place {
    /// The configuration file [default: ~/.config/dogwatch/dogwatch.toml where there is one]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

#[derive(Debug, Args)]
struct Report {
    #[command(flatten)]
    place: Place,
    /// Print JSON, for programs
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct LoadArgs {
    #[command(flatten)]
    report: Report,
    /// Sessions, all at once
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = up_to(load::SESSIONS_MAX))]
    sessions: u32,
    /// Executions of each session in a round, one after the other
    #[arg(long, value_name = "M", default_value_t = 50, value_parser = up_to(load::EXECUTIONS_MAX))]
    executions: u32,
}

fn up_to(most: u32) -> RangedU64ValueParser<u32> {
    RangedU64ValueParser::new().range(1..=u64::from(most))
}

#[derive(Debug, Args)]
struct ChatArgs {
    #[command(flatten)]
    place: Place,
    /// The chat that is in front at first
    #[arg(long, value_name = "NAME")]
    chat: Option<String>,
    /// One JSON object a line on stdout, for programs
    #[arg(long)]
    json: bool,
    /// At the end of a pipe, wait for running watchers as well
    #[arg(long)]
    wait: bool,
    /// Talk with the bot that `dogwatch serve` runs on the same data directory
    #[arg(long)]
    attach: bool,
}

impl Cli {
    /// Does what the command line says.
    pub fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
        let cli = match Self::try_parse_from(arguments) {
            Ok(cli) => cli,
            Err(error) => {
                let usage = error.use_stderr();
                // Nothing is left to be done when even this cannot be shown.
                let _shown = error.print();
                return if usage { USAGE.into() } else { ExitCode::SUCCESS };
            }
        };
        // Both of TLS's providers may be linked one day, so the choice is made here.
        let _first = rustls::crypto::ring::default_provider().install_default();
        #[cfg(feature = "failpoints")]
        failpoint::arm(&config::of_process);
        match cli.command {
            Command::Shim { dir } => watch::shim::run(&dir).into(),
            Command::Zygote { .. } => watch::shim::zygote::run().into(),
            Command::Egress { dir } => watch::egress::run(&dir).into(),
            Command::Probe(tried) => tried.run().into(),
            #[cfg(feature = "failpoints")]
            Command::Failpoints { json } => print(&failpoints(json)),
            Command::Schema => print(&schemas()),
            Command::CheckConfig(report) => check_config(&report),
            Command::Audit(report) => on_runtime(&report.place, move |config| async move {
                let audited = audit::run(&config).await?;
                let text = if report.json { audited.to_json() } else { audited.to_text() };
                Ok((text, audited.is_even()))
            }),
            Command::Load(args) => on_runtime(&args.report.place, move |config| async move {
                let mut say = |what: &str| narrate(what);
                let report = app::load(config, args.sessions, args.executions, &mut say).await?;
                narrate("");
                let text = if args.report.json { report.to_json() } else { report.to_string() };
                Ok((text, true))
            }),
            Command::Doctor(report) => {
                let file = report.place.config.clone();
                answer(block_on(async move {
                    let checked = doctor::run(file.as_deref()).await;
                    let text = if report.json { checked.to_json() } else { checked.to_text() };
                    Ok((text, checked.is_well()))
                }))
            }
            Command::Demo => answer(block_on(async {
                let settings = demo::Settings {
                    exe: app::program()?,
                    directory: std::env::temp_dir(),
                    tag: UlidIds.fresh(),
                    colour: colour(),
                };
                let happened = demo::run(settings, &mut std::io::stdout()).await?;
                Ok((String::new(), happened))
            })),
            Command::Serve(place) => on_runtime(&place, |config| async move {
                let all_handed_over = serve::run(config).await?;
                Ok((String::new(), all_handed_over))
            }),
            Command::Chat(args) => on_runtime(&args.place, move |config| async move {
                let ChatArgs { chat, json, wait, attach, .. } = args;
                let chat = app::Chat { name: chat, json, wait, attach };
                let end = app::chat(config, chat).await?;
                Ok((String::new(), end != End::Unfinished))
            }),
        }
    }
}

fn schemas() -> String {
    let mut schemas = tools::schema();
    if let Some(schemas) = schemas.as_object_mut() {
        schemas.insert("config".into(), config::schema());
    }
    format!("{schemas:#}")
}

#[cfg(feature = "failpoints")]
fn failpoints(json: bool) -> String {
    let points = failpoint::points();
    if json {
        let resting = failpoint::RESTING
            .map(|(operation, why)| serde_json::json!({ "operation": operation, "why": why }));
        return format!("{:#}", serde_json::json!({ "points": points, "resting": resting }));
    }
    points.into_iter().map(|point| point.name).collect::<Vec<_>>().join("\n")
}

fn check_config(report: &Report) -> ExitCode {
    let file = report.place.config.as_deref();
    let mut checked = config::check(file);
    if checked.ok
        && let Ok(config) = read(file)
    {
        if let Err(error) = app::idle_model(&config) {
            checked.reject(&config, "model", &format!("{error:#}"));
        }
        if let Err(error) = app::check_store(&config) {
            checked.reject(&config, "store", &format!("{error:#}"));
        }
    }
    let text = if report.json {
        serde_json::to_string_pretty(&checked).unwrap_or_else(|error| error.to_string())
    } else {
        checked.to_text()
    };
    let shown = print(&text);
    if checked.ok { shown } else { CONFIG.into() }
}

/// Reads the configuration and works with it.
fn on_runtime<F, R>(place: &Place, work: F) -> ExitCode
where
    F: FnOnce(Config) -> R,
    R: Future<Output = anyhow::Result<(String, bool)>>,
{
    let config = match read(place.config.as_deref()) {
        Ok(config) => config,
        Err(error) => {
            complain(&error.to_string());
            return CONFIG.into();
        }
    };
    answer(block_on(work(config)))
}

fn read(file: Option<&Path>) -> Result<Config, ConfigError> {
    config::load(file)
}

fn block_on<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    // One processor is left to what the bot waits for: Redis, SQLite's writer, scripts. On a
    // machine of two, a second worker costs more in waking the other than it does: with Redis
    // beside it 5,900 cycles a second instead of 9,500. `TOKIO_WORKER_THREADS` says otherwise.
    if config::of_process("TOKIO_WORKER_THREADS").is_none() {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        runtime.worker_threads(processors.saturating_sub(1).max(1));
    }
    let runtime = runtime.enable_all().build()?;
    let done = runtime.block_on(work);
    runtime.shutdown_background();
    done
}

/// Prints what came out, or what went wrong.
fn answer(done: anyhow::Result<(String, bool)>) -> ExitCode {
    match done {
        Ok((text, well)) => {
            let shown = if text.is_empty() { ExitCode::SUCCESS } else { print(&text) };
            if well { shown } else { ExitCode::FAILURE }
        }
        Err(error) => {
            complain(&format!("{error:#}"));
            if is_configuration(&error) { CONFIG.into() } else { ExitCode::FAILURE }
        }
    }
}

/// A file of the configuration is wrong, or what it says cannot be.
fn is_configuration(error: &anyhow::Error) -> bool {
    error.is::<ConfigError>() || error.is::<PlaybookError>() || error.is::<SettingsError>()
}

/// Shows a person at a terminal what goes on, on a line that the next one takes.
fn narrate(what: &str) {
    let mut terminal = std::io::stderr();
    if terminal.is_terminal() {
        // Nobody is there to be told when it cannot be shown.
        let _shown = write!(terminal, "\r\x1b[K{what}").and_then(|()| terminal.flush());
    }
}

/// Colour is for people at a terminal who did not forbid it.
fn colour() -> bool {
    std::io::stdout().is_terminal() && config::of_process("NO_COLOR").is_none()
}

fn print(text: &str) -> ExitCode {
    match writeln!(std::io::stdout(), "{text}") {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

fn complain(text: &str) {
    // Where stderr is closed the exit code says it alone.
    let _shown = writeln!(std::io::stderr(), "dogwatch: {text}");
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }
}
