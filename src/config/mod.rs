//! Configuration. Owns `dogwatch.toml`, `agents/*.toml` and the environment: their keys, bounds,
//! defaults and errors. Must not know who uses a value: `app.rs` maps it onto each room's own
//! `Settings`.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use secrecy::SecretString;
use serde_json::{Value, json};

use crate::core::egress::{AddressRule, CredentialName, Destination, HostRule};
use crate::core::policy::{Family, Role};

mod agents;
mod checked;
mod credentials;
mod environment;
mod problem;
mod raw;
mod report;
mod secret;
mod slack;
mod source;
mod watch;

pub use environment::{Lookup, of_process};
pub use problem::{ConfigError, Problem};
pub use report::{Report, check, check_with};

/// The agent that is there when no file describes one.
pub const BUILT_IN_AGENT: &str = "dogwatch";

/// A checked configuration. All paths are absolute.
#[derive(Debug, Clone)]
pub struct Config {
    /// The file it was read from, `None` for the defaults.
    pub file: Option<PathBuf>,
    /// Where dogwatch keeps its data.
    pub data_dir: PathBuf,
    /// Where everything is kept.
    pub store: StoreConfig,
    /// The language model.
    pub model: ModelConfig,
    /// Watcher scripts.
    pub watch: WatchConfig,
    /// Secrets that are used for scripts and never shown to them, by name.
    pub credentials: Vec<Credential>,
    /// Budgets of agents that set none of their own.
    pub limits: Limits,
    /// `dogwatch chat`.
    pub console: ConsoleConfig,
    /// `dogwatch serve`.
    pub http: HttpConfig,
    /// Slack, where it is asked for.
    pub slack: Option<SlackConfig>,
    /// The log.
    pub log: LogConfig,
    /// Name of the agent that answers; it is one of `agents`.
    pub agent: String,
    /// Every agent, at least one, by name.
    pub agents: Vec<Agent>,
}

/// Where everything is kept.
#[derive(Debug, Clone)]
pub enum StoreConfig {
    /// One file, for one bot.
    Sqlite {
        /// The database.
        path: PathBuf,
    },
    /// Redis, for several bots.
    Redis {
        /// Where it is, with its user and password.
        url: SecretString,
        /// Stands before each key.
        prefix: String,
        /// The certificate authority of its servers, where the system does not know it.
        ca: Option<PathBuf>,
    },
}

/// The language model.
#[derive(Debug, Clone)]
pub enum ModelConfig {
    /// A server that speaks Chat Completions.
    OpenAi(Box<OpenAiConfig>),
    /// A script that plays the model; without a file, the one that is built in.
    Scripted {
        /// The playbook.
        playbook: Option<PathBuf>,
    },
}

/// A server that speaks Chat Completions.
#[derive(Debug, Clone)]
pub struct OpenAiConfig {
    /// Everything before `/chat/completions`; http or https, without user or password.
    pub base_url: String,
    /// The model's name there.
    pub model: String,
    /// Sent as a bearer token.
    pub api_key: Option<SecretString>,
    /// Further headers.
    pub headers: Vec<(String, SecretString)>,
    /// The most tokens of one answer; the server's own bound if `None`.
    pub max_tokens: Option<u32>,
    /// The server's own if `None`.
    pub temperature: Option<f64>,
    /// Until the connection is there.
    pub connect_ms: u64,
    /// Until the head of the answer is there.
    pub header_ms: u64,
    /// Silence after which a call is given up.
    pub idle_ms: u64,
    /// The whole call.
    pub total_ms: u64,
}

/// How scripts are fenced in.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Sandbox {
    /// As well as this machine can; where it cannot, no script is run.
    #[default]
    Required,
    /// Not at all, and that is written down.
    Off,
}

/// What a sandboxed script may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WatchLimits {
    /// Memory of all its processes together.
    pub memory_bytes_max: u64,
    /// Its processes and threads together.
    pub processes_max: u64,
    /// What it may keep in its directory.
    pub tmp_bytes_max: u64,
    /// Files and directories that it may keep there.
    pub files_max: u64,
    /// Files that each of its processes may have open.
    pub open_files_max: u64,
    /// Processor time of all its processes together.
    pub cpu_seconds_max: u64,
}

/// Watcher scripts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WatchConfig {
    /// How scripts are fenced in.
    pub sandbox: Sandbox,
    /// What a sandboxed script may use.
    pub limits: WatchLimits,
    /// What holds for every script that has a network.
    pub network: WatchNetwork,
    /// A path, or a name to be found in PATH.
    pub python: PathBuf,
    /// Between TERM and KILL.
    pub grace_ms: u64,
    /// Scripts of one person that may run at the same time, in all sessions together.
    pub live_per_person: u32,
    /// Where running scripts are kept.
    pub spool_dir: PathBuf,
}

/// What holds for every script that has a network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WatchNetwork {
    /// Addresses of this network that may be reached all the same.
    pub addresses: Vec<AddressRule>,
    /// Certificate authorities as PEM, besides those of the system.
    pub ca_file: Option<PathBuf>,
    /// Bytes that one script may send, and as many that it may receive.
    pub bytes_max: u64,
    /// Requests a minute to one host, of all scripts together.
    pub requests_per_minute: u32,
}

/// A secret that is used for scripts and never shown to them.
#[derive(Debug, Clone)]
pub struct Credential {
    /// How it is asked for.
    pub name: CredentialName,
    /// The one host that gets it, and its port.
    pub to: Destination,
    /// The header that carries it.
    pub header: String,
    /// What stands in the header before the secret.
    pub prefix: String,
    /// The secret.
    pub secret: SecretString,
    /// The agents whose scripts may use it; each is one of `agents`.
    pub agents: Vec<String>,
    /// What those agents must be allowed where the script is started.
    pub roles: Vec<Role>,
    /// Requests a minute with it, of all scripts together.
    pub requests_per_minute: u32,
}

/// Budgets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Model calls of a turn.
    pub model_calls_per_turn: u32,
    /// Tool calls of a turn.
    pub tool_calls_per_turn: u32,
    /// Synthetic turns of a chain.
    pub chain_wakes: u32,
    /// Tokens of a chain.
    pub chain_tokens: u64,
    /// Executions of a chain.
    pub chain_spawns: u32,
}

/// Whether colours are used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Color {
    /// On a terminal, unless `NO_COLOR` was set.
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// `dogwatch chat`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConsoleConfig {
    /// The chat that is opened first.
    pub chat: String,
    /// Where typed lines are kept, `None` for not at all.
    pub history: Option<PathBuf>,
    /// Whether colours are used. `NO_COLOR` is taken into account already.
    pub color: Color,
}

/// The server of `dogwatch serve`.
#[derive(Debug, Clone)]
pub struct HttpConfig {
    /// Where it listens; not loopback only with a token.
    pub bind: SocketAddr,
    /// Asked for as a bearer token, by all but the probes.
    pub token: Option<SecretString>,
    /// Between saying "not ready" and handing over.
    pub drain_ms: u64,
}

/// How events of Slack come.
#[derive(Debug, Clone)]
pub enum SlackIngress {
    /// By connections that dogwatch opens.
    Socket {
        /// Opens them.
        app_token: SecretString,
        /// How many at once.
        connections: u8,
    },
    /// By signed requests to its server.
    Http {
        /// Signs them.
        signing_secret: SecretString,
    },
}

/// How an answer is shown in Slack while it comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SlackStreaming {
    /// Streamed where the workspace has that, else in a message that is edited.
    Auto,
    /// In a message that is edited.
    Edit,
    /// Not before it is whole.
    Off,
}

/// What is heard in a channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SlackMode {
    /// Only what names the bot.
    Mention,
    /// What names the bot, and then everything in that thread.
    Thread,
    /// Every message.
    All,
}

/// How it is in a place of Slack.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlackPlace {
    /// What is heard.
    pub mode: SlackMode,
    /// Name of the agent that answers; it is one of `agents`.
    pub agent: String,
    /// What that agent may do there: never more than elsewhere.
    pub role: Role,
    /// A turn takes messages of several people, and may do what all of them may.
    pub shared_authority: bool,
}

/// Slack.
#[derive(Debug, Clone)]
pub struct SlackConfig {
    /// Everything before the name of a method; https, or this machine.
    pub api: String,
    /// Where tokens come from.
    pub credentials: SlackCredentials,
    /// How events come.
    pub ingress: SlackIngress,
    /// How it is in direct messages, and in channels that are not in `channels`.
    pub place: SlackPlace,
    /// How it is in a channel, by its id.
    pub channels: BTreeMap<String, SlackPlace>,
    /// How an answer is shown while it comes.
    pub streaming: SlackStreaming,
    /// Other bots that are heard, by their ids.
    pub bots: Vec<String>,
    /// People of other companies who are heard, by their ids.
    pub guests: Vec<String>,
}

/// Where Slack's tokens come from.
#[derive(Debug, Clone)]
pub enum SlackCredentials {
    /// One is configured: it posts and reads.
    Token(SecretString),
    /// From whoever installs the app.
    OAuth {
        /// The app's name at Slack.
        client_id: String,
        /// Proves that dogwatch is the app.
        client_secret: SecretString,
        /// Where Slack sends people back, if the app's page names several places.
        redirect_url: Option<String>,
        /// Seals the tokens that are kept, if not `client_secret` does.
        seal_key: Option<SecretString>,
    },
}

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Pretty,
    /// One JSON object a line.
    Json,
}

/// The log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogConfig {
    /// How lines look.
    pub format: LogFormat,
    /// Which lines, in the syntax of `RUST_LOG`; checked.
    pub filter: String,
    /// A file instead of stderr.
    pub file: Option<PathBuf>,
}

/// Who answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Agent {
    /// Lower case letters, digits, `-` and `_`; unique.
    pub name: String,
    /// Its model's name, instead of the configured one.
    pub model: Option<String>,
    /// What it is told about its work.
    pub instructions: String,
    /// Its families of tools.
    pub tools: Vec<Family>,
    /// Whether it may change anything.
    pub role: Role,
    /// Hosts that its scripts may reach.
    pub hosts: Vec<HostRule>,
    /// Its budgets.
    pub limits: Limits,
}

impl Config {
    /// The agent that answers.
    pub fn default_agent(&self) -> Option<&Agent> {
        self.agent_named(&self.agent)
    }

    /// The agent of this name.
    pub fn agent_named(&self, name: &str) -> Option<&Agent> {
        self.agents.iter().find(|agent| agent.name == name)
    }

    /// Every secret it holds, so that each can be taken out of logs and posts.
    pub fn secrets(&self) -> Vec<SecretString> {
        let mut secrets: Vec<_> = self.http.token.iter().cloned().collect();
        match &self.model {
            ModelConfig::OpenAi(openai) => {
                let headers = openai.headers.iter().map(|(_, secret)| secret);
                secrets.extend(openai.api_key.iter().chain(headers).cloned());
            }
            ModelConfig::Scripted { .. } => {}
        }
        match &self.store {
            StoreConfig::Sqlite { .. } => {}
            StoreConfig::Redis { url, .. } => secrets.extend([url.clone()]),
        }
        secrets.extend(self.credentials.iter().map(|credential| credential.secret.clone()));
        if let Some(slack) = &self.slack {
            match &slack.credentials {
                SlackCredentials::Token(token) => secrets.push(token.clone()),
                SlackCredentials::OAuth { client_secret, seal_key, .. } => {
                    secrets.push(client_secret.clone());
                    secrets.extend(seal_key.clone());
                }
            }
            secrets.push(match &slack.ingress {
                SlackIngress::Socket { app_token, .. } => app_token.clone(),
                SlackIngress::Http { signing_secret } => signing_secret.clone(),
            });
        }
        secrets
    }
}

/// The configuration in `file`, or in the usual place, or the defaults where there is no file.
pub fn load(file: Option<&Path>) -> Result<Config, ConfigError> {
    load_with(file, &of_process)
}

/// Like [`load`], with another environment.
pub fn load_with(file: Option<&Path>, lookup: Lookup<'_>) -> Result<Config, ConfigError> {
    let (config, problems) = checked::read(file, lookup);
    match config {
        Some(config) if problems.is_empty() => Ok(config),
        Some(_) | None => Err(ConfigError { problems }),
    }
}

/// The JSON Schemas of the configuration files, as `dogwatch schema` prints them.
pub fn schema() -> Value {
    json!({
        "dogwatch.toml": schemars::schema_for!(raw::RawConfig),
        "agents/*.toml": schemars::schema_for!(raw::RawAgent),
    })
}

#[cfg(test)]
mod tests;
