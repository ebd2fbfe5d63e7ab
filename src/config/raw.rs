//! The configuration as it is written: every key optional, nothing checked but its type.
//! Owns the spelling of keys, from which the JSON Schema is made. Must not know bounds.

use std::collections::BTreeMap;
use std::fmt;

use schemars::JsonSchema;
use serde::de::value::{MapAccessDeserializer, StrDeserializer};
use serde::de::{self, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::secret::SecretRef;

/// `dogwatch.toml`.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(title = "dogwatch.toml")]
pub(super) struct RawConfig {
    /// Where dogwatch keeps its data. Relative to this file.
    pub(super) data_dir: Option<String>,
    /// Where agents are described, one file each. Relative to this file.
    pub(super) agents_dir: Option<String>,
    /// The agent that answers.
    pub(super) agent: Option<String>,
    /// Where everything is kept.
    pub(super) store: RawStore,
    /// The language model.
    pub(super) model: RawModel,
    /// Watcher scripts.
    pub(super) watch: RawWatch,
    /// Secrets that are used for scripts and never shown to them, by name.
    pub(super) credentials: BTreeMap<String, RawCredential>,
    /// Budgets.
    pub(super) limits: RawLimits,
    /// `dogwatch chat`.
    pub(super) console: RawConsole,
    /// The server of `dogwatch serve`.
    pub(super) http: RawHttp,
    /// Slack; without this table it is off.
    pub(super) slack: Option<RawSlack>,
    /// What dogwatch writes about itself.
    pub(super) log: RawLog,
}

/// `[store]`
#[derive(Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RawStore {
    /// What sort of store.
    pub(super) kind: Option<RawStoreKind>,
    /// The database file. Relative to the data directory.
    pub(super) path: Option<String>,
    /// Where Redis is, with its user and password.
    pub(super) url: Option<SecretRef>,
    /// What stands before each key in Redis.
    pub(super) prefix: Option<String>,
    /// The certificate authority of Redis. Relative to this file.
    pub(super) ca: Option<String>,
}

/// What sort of store.
#[derive(Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum RawStoreKind {
    /// One file, for one bot.
    Sqlite,
    /// Redis, for several bots.
    Redis,
}

/// What sort of model.
#[derive(Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum RawModelKind {
    /// A server that speaks Chat Completions.
    OpenAi,
    /// A script that plays the model and says so.
    Scripted,
}

/// `[model]`
#[derive(Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RawModel {
    /// What sort of model.
    pub(super) kind: Option<RawModelKind>,
    /// Everything before `/chat/completions`.
    pub(super) base_url: Option<String>,
    /// The model's name there.
    pub(super) model: Option<String>,
    /// Sent as a bearer token.
    pub(super) api_key: Option<SecretRef>,
    /// Further headers, each with a secret.
    pub(super) headers: BTreeMap<String, SecretRef>,
    /// The most tokens of one answer.
    pub(super) max_tokens: Option<i64>,
    /// Sampling temperature.
    pub(super) temperature: Option<f64>,
    /// Milliseconds until the connection is there.
    pub(super) connect_ms: Option<i64>,
    /// Milliseconds until the head of the answer is there.
    pub(super) header_ms: Option<i64>,
    /// Milliseconds of silence after which a call is given up.
    pub(super) idle_ms: Option<i64>,
    /// Milliseconds for a whole call.
    pub(super) total_ms: Option<i64>,
    /// The scripted model's playbook. Relative to this file.
    pub(super) playbook: Option<String>,
}

/// How scripts are fenced in.
#[derive(Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum RawSandbox {
    /// As well as this machine can; where it cannot, no script is run.
    Required,
    /// Not at all.
    Off,
}

/// `[watch.limits]`
#[derive(Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[expect(clippy::struct_field_names, reason = "each is the most of something")]
pub(super) struct RawWatchLimits {
    /// Bytes of memory of all processes of a script together.
    pub(super) memory_bytes_max: Option<i64>,
    /// Processes and threads of a script together.
    pub(super) processes_max: Option<i64>,
    /// Bytes that a script may keep in its directory.
    pub(super) tmp_bytes_max: Option<i64>,
    /// Files and directories that a script may keep there.
    pub(super) files_max: Option<i64>,
    /// Files that each process of a script may have open.
    pub(super) open_files_max: Option<i64>,
    /// Seconds of processor time of all processes of a script together.
    pub(super) cpu_seconds_max: Option<i64>,
}

/// `[watch.network]`
#[derive(Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RawWatchNetwork {
    /// Addresses of this network that may be reached all the same: single ones and ranges.
    pub(super) addresses: Vec<String>,
    /// Certificate authorities as PEM, besides those of the system. Relative to this file.
    pub(super) ca_file: Option<String>,
    /// Bytes that one script may send, and as many that it may receive.
    pub(super) bytes_max: Option<i64>,
    /// Requests a minute to one host, of all scripts together.
    pub(super) requests_per_minute: Option<i64>,
}

/// One of `[credentials]`
#[derive(Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RawCredential {
    /// The one host that gets it.
    pub(super) host: Option<String>,
    /// The header that carries it.
    pub(super) header: Option<String>,
    /// What stands in the header before the secret.
    pub(super) prefix: Option<String>,
    /// The secret.
    pub(super) secret: Option<SecretRef>,
    /// The agents whose scripts may use it.
    pub(super) agents: Vec<String>,
    /// What those agents must be allowed where the script is started.
    pub(super) roles: Option<Vec<RawRole>>,
    /// Requests a minute with it, of all scripts together.
    pub(super) requests_per_minute: Option<i64>,
}

/// `[watch]`
#[derive(Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RawWatch {
    /// How scripts are fenced in.
    pub(super) sandbox: Option<RawSandbox>,
    /// What a sandboxed script may use.
    pub(super) limits: RawWatchLimits,
    /// What holds for every script that has a network.
    pub(super) network: RawWatchNetwork,
    /// The Python that runs scripts: a path, or a name to be found in PATH.
    pub(super) python: Option<String>,
    /// Milliseconds between TERM and KILL.
    pub(super) grace_ms: Option<i64>,
    /// Scripts of one person that may run at the same time, in all conversations together.
    pub(super) live_per_person: Option<i64>,
    /// Where running scripts are kept. Relative to the data directory.
    pub(super) spool_dir: Option<String>,
}

/// `[limits]`
#[derive(Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RawLimits {
    /// Model calls of a turn.
    pub(super) model_calls_per_turn: Option<i64>,
    /// Tool calls of a turn.
    pub(super) tool_calls_per_turn: Option<i64>,
    /// Turns that completions may start after one message of a person.
    pub(super) chain_wakes: Option<i64>,
    /// Tokens that may be used after one message of a person.
    pub(super) chain_tokens: Option<i64>,
    /// Executions that may be started after one message of a person.
    pub(super) chain_spawns: Option<i64>,
}

/// Whether colours are used.
#[derive(Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum RawColor {
    /// On a terminal, unless `NO_COLOR` is set.
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// `[console]`
#[derive(Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RawConsole {
    /// The chat that is opened first.
    pub(super) chat: Option<String>,
    /// Whether typed lines are kept for the next time, in the data directory.
    pub(super) history: Option<bool>,
    /// Whether colours are used.
    pub(super) color: Option<RawColor>,
}

/// `[http]`
#[derive(Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RawHttp {
    /// Address and port.
    pub(super) bind: Option<String>,
    /// Asked for as a bearer token.
    pub(super) token: Option<SecretRef>,
    /// Milliseconds between saying "not ready" and handing over.
    pub(super) drain_ms: Option<i64>,
}

/// How events of Slack come.
#[derive(Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum RawSlackIngress {
    /// By connections that dogwatch opens.
    Socket,
    /// By signed requests to its server.
    Http,
}

/// How an answer is shown in Slack while it comes.
#[derive(Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum RawSlackStreaming {
    /// Streamed where the workspace has that, else in a message that is edited.
    Auto,
    /// In a message that is edited.
    Edit,
    /// Not before it is whole.
    Off,
}

/// What is heard in a channel.
#[derive(Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum RawSlackMode {
    /// Only what names the bot.
    Mention,
    /// What names the bot, and then everything in that thread.
    Thread,
    /// Every message.
    All,
}

/// One of `[slack.channels]`: a mode alone, or a table.
#[derive(JsonSchema)]
#[schemars(untagged)]
pub(super) enum RawSlackChannel {
    /// What is heard there.
    Mode(RawSlackMode),
    /// More than that.
    Table(RawSlackTable),
}

/// A channel whose settings are a table.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RawSlackTable {
    /// What is heard there.
    pub(super) mode: Option<RawSlackMode>,
    /// The agent that answers there.
    pub(super) agent: Option<String>,
    /// Narrows what the agent may do there.
    pub(super) role: Option<RawRole>,
    /// Whether a turn takes messages of several people there, and may do what all of them may.
    pub(super) shared_authority: Option<bool>,
}

impl<'de> Deserialize<'de> for RawSlackChannel {
    /// By what is written, so that a mistake in it is named: of an untagged enum nobody learns more
    /// than that nothing fits.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Written;
        impl<'de> Visitor<'de> for Written {
            type Value = RawSlackChannel;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a mode, such as \"all\", or a table, such as { mode = \"all\" }")
            }
            fn visit_str<E: de::Error>(self, word: &str) -> Result<Self::Value, E> {
                RawSlackMode::deserialize(StrDeserializer::new(word)).map(RawSlackChannel::Mode)
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
                let table = RawSlackTable::deserialize(MapAccessDeserializer::new(map))?;
                Ok(RawSlackChannel::Table(table))
            }
        }
        deserializer.deserialize_any(Written)
    }
}

/// `[slack.oauth]`
#[derive(Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RawSlackOAuth {
    /// The app's name at Slack.
    pub(super) client_id: Option<String>,
    /// Proves that dogwatch is the app.
    pub(super) client_secret: Option<SecretRef>,
    /// Where Slack sends people back.
    pub(super) redirect_url: Option<String>,
    /// Seals the tokens that are kept.
    pub(super) seal_key: Option<SecretRef>,
}

/// `[slack]`
#[derive(Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RawSlack {
    /// Posts and reads: `xoxb-…`.
    pub(super) bot_token: Option<SecretRef>,
    /// Instead of it: people install the app, in as many places as they like.
    pub(super) oauth: Option<RawSlackOAuth>,
    /// How events come.
    pub(super) ingress: Option<RawSlackIngress>,
    /// Opens connections: `xapp-…`.
    pub(super) app_token: Option<SecretRef>,
    /// How many connections at once.
    pub(super) connections: Option<i64>,
    /// Signs requests.
    pub(super) signing_secret: Option<SecretRef>,
    /// What is heard in channels that are not in `channels`.
    pub(super) mode: Option<RawSlackMode>,
    /// The agent that answers, also in direct messages.
    pub(super) agent: Option<String>,
    /// Narrows what the agent may do.
    pub(super) role: Option<RawRole>,
    /// Whether a turn takes messages of several people, and may do what all of them may.
    pub(super) shared_authority: Option<bool>,
    /// The same for a channel, by its id.
    pub(super) channels: BTreeMap<String, RawSlackChannel>,
    /// Other bots that are heard, by their ids.
    pub(super) bots: Vec<String>,
    /// People of other companies who are heard, by their ids.
    pub(super) guests: Vec<String>,
    /// How an answer is shown while it comes.
    pub(super) streaming: Option<RawSlackStreaming>,
    /// Everything before the name of a method.
    pub(super) api: Option<String>,
}

/// How log lines look.
#[derive(Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum RawFormat {
    /// For people.
    Pretty,
    /// One JSON object a line.
    Json,
}

/// `[log]`
#[derive(Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RawLog {
    /// How log lines look.
    pub(super) format: Option<RawFormat>,
    /// Which lines, in the syntax of `RUST_LOG`.
    pub(super) filter: Option<String>,
    /// A file instead of stderr. Relative to the data directory.
    pub(super) file: Option<String>,
}

/// Whether an agent may change anything.
#[derive(Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(super) enum RawRole {
    /// It may start and end work.
    Writable,
    /// It sees no tool that writes.
    ReadOnly,
}

/// Tools that belong together.
#[derive(Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum RawFamily {
    /// `trigger_and_auto_notify` and `watch__*`.
    Watch,
    /// `stay_silent`.
    Silence,
    /// `read_file`, where people share files.
    Files,
}

/// `agents/*.toml`
#[derive(Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(title = "agents/*.toml")]
pub(super) struct RawAgent {
    /// Its name.
    pub(super) name: Option<String>,
    /// Its model's name, instead of the one in dogwatch.toml.
    pub(super) model: Option<String>,
    /// What it is told about its work.
    pub(super) instructions: Option<String>,
    /// Its families of tools.
    pub(super) tools: Option<Vec<RawFamily>>,
    /// Whether it may change anything.
    pub(super) role: Option<RawRole>,
    /// Hosts that its scripts may reach.
    pub(super) hosts: Vec<String>,
    /// Its own limits, instead of those in dogwatch.toml.
    pub(super) limits: RawLimits,
}
