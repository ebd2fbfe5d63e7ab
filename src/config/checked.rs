//! From raw to checked. Owns every bound and every default. Must not know how a file is read.

use std::net::{Ipv4Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use reqwest::header::{HeaderName, HeaderValue};
use secrecy::{ExposeSecret as _, SecretString};

use super::environment::{Lookup, config_file, path, state_dir};
use super::problem::Problem;
use super::raw::{
    RawColor, RawConfig, RawConsole, RawFormat, RawHttp, RawLimits, RawLog, RawModel, RawModelKind,
    RawStore, RawStoreKind,
};
use super::secret::SecretRef;
use super::source::Source;
use super::{
    Color, Config, ConsoleConfig, HttpConfig, Limits, LogConfig, LogFormat, ModelConfig,
    OpenAiConfig, StoreConfig, agents, credentials, slack, watch,
};
use crate::core::limits::{
    CHAIN_SPAWNS_MAX, CHAIN_TOKENS_MAX, CHAIN_WAKES_MAX, MODEL_CALLS_PER_TURN_MAX, MODEL_IDLE_MS,
    TOOL_CALLS_PER_TURN_MAX,
};
use crate::core::nearest::echo;

const BASE_URL: &str = "https://api.openai.com/v1";
const FILTER: &str = "info";
const BIND: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 7878);

/// One file being checked.
pub(super) struct Checking<'a> {
    /// The file; `None` for the defaults.
    pub(super) source: Option<&'a Source>,
    /// What is wrong so far.
    pub(super) problems: &'a mut Vec<Problem>,
    /// The environment.
    pub(super) lookup: Lookup<'a>,
    /// What relative paths are relative to.
    pub(super) base: PathBuf,
}

impl Checking<'_> {
    /// Notes a mistake.
    pub(super) fn wrong(&mut self, key: &str, what: impl Into<String>, cure: impl Into<String>) {
        self.problems.push(match self.source {
            Some(source) => source.problem(key, what, cure),
            None => Problem::bare(key, what, cure),
        });
    }

    /// A whole number within bounds.
    pub(super) fn whole(
        &mut self,
        key: &str,
        given: Option<i64>,
        default: u64,
        bounds: RangeInclusive<u64>,
    ) -> u64 {
        let Some(given) = given else { return default };
        if let Some(whole) = u64::try_from(given).ok().filter(|n| bounds.contains(n)) {
            return whole;
        }
        let allowed = format!("Allowed: {} to {}.", bounds.start(), bounds.end());
        self.wrong(key, format!("{given} is out of range"), allowed);
        default
    }

    pub(super) fn whole32(
        &mut self,
        key: &str,
        given: Option<i64>,
        default: u32,
        bounds: RangeInclusive<u32>,
    ) -> u32 {
        let wide = u64::from(*bounds.start())..=u64::from(*bounds.end());
        u32::try_from(self.whole(key, given, u64::from(default), wide)).unwrap_or(default)
    }

    /// A text that is not blank and has one line.
    pub(super) fn line(&mut self, key: &str, given: Option<&str>) -> Option<String> {
        let text = given?.trim();
        if text.is_empty() {
            self.wrong(key, "it is empty", "Give it some text, or leave the key out.");
            return None;
        }
        if text.chars().any(char::is_control) {
            self.wrong(key, "it has a control character", "Give one line of text.");
            return None;
        }
        Some(text.to_owned())
    }

    pub(super) fn path(&mut self, key: &str, given: Option<&str>, base: &Path) -> Option<PathBuf> {
        let written = self.line(key, given)?;
        Some(path(self.lookup, base, &written))
    }

    /// A secret that is sent as the value of a header.
    pub(super) fn secret(&mut self, key: &str, given: &SecretRef) -> Option<SecretString> {
        let secret = given.fetch(&self.base, self.lookup).and_then(|secret| {
            match HeaderValue::from_str(secret.expose_secret()) {
                Ok(_) => Ok(secret),
                Err(_) => Err((
                    "the secret has a character that no header may have".to_owned(),
                    "It must be one line of visible characters, without a line break.".to_owned(),
                )),
            }
        });
        match secret {
            Ok(secret) => Some(secret),
            Err((what, cure)) => {
                self.wrong(key, what, cure);
                None
            }
        }
    }
}

/// Everything that the file says, and everything that is wrong with it.
pub(super) fn read(file: Option<&Path>, lookup: Lookup<'_>) -> (Option<Config>, Vec<Problem>) {
    let mut problems = Vec::new();
    let usual = config_file(lookup).filter(|usual| usual.exists());
    let source = match file.map(Path::to_owned).or(usual).map(|file| Source::open(&file)) {
        None => None,
        Some(Ok(source)) => Some(source),
        Some(Err(problem)) => return (None, vec![problem]),
    };
    let raw: RawConfig =
        source.as_ref().map(|source| source.read(&mut problems)).unwrap_or_default();
    let base = source.as_ref().and_then(|source| source.file().parent()).unwrap_or(Path::new("."));
    let base = std::path::absolute(if base == Path::new("") { Path::new(".") } else { base })
        .unwrap_or_else(|_| base.to_owned());
    let mut checking = Checking { source: source.as_ref(), problems: &mut problems, lookup, base };
    let config = whole_config(&raw, &mut checking);
    let main = source.as_ref().map(|source| source.file().display().to_string());
    problems.sort_by_key(|p| (p.file != main, p.file.clone(), p.line, p.column));
    (config, problems)
}

fn whole_config(raw: &RawConfig, checking: &mut Checking<'_>) -> Option<Config> {
    let base = checking.base.clone();
    let written = checking.path("data_dir", raw.data_dir.as_deref(), &base);
    let Some(data_dir) = written.or_else(|| state_dir(checking.lookup)) else {
        checking.wrong(
            "data_dir",
            "neither XDG_STATE_HOME nor HOME says where data belongs",
            "Write data_dir = \"/var/lib/dogwatch\", for example.",
        );
        return None;
    };
    let store = store(&raw.store, &data_dir, checking);
    let limits = limits(&raw.limits, None, checking);
    let agents = agents::read(raw.agents_dir.as_deref(), limits, checking);
    let agent = agents::answering(raw.agent.as_deref(), &agents, checking);
    let watch = watch::watch(&raw.watch, &data_dir, checking);
    Some(Config {
        file: checking.source.map(|source| source.file().to_owned()),
        model: model(&raw.model, checking),
        credentials: credentials::read(&raw.credentials, (&agents, watch.sandbox), checking),
        watch,
        limits,
        console: console(&raw.console, &data_dir, checking),
        http: http(&raw.http, checking),
        slack: slack::slack(raw.slack.as_ref(), (&agents, &agent), checking),
        log: log(&raw.log, &data_dir, checking),
        agent,
        agents,
        data_dir,
        store: store?,
    })
}

fn store(raw: &RawStore, data_dir: &Path, checking: &mut Checking<'_>) -> Option<StoreConfig> {
    let base = checking.base.clone();
    let path = checking.path("store.path", raw.path.as_deref(), data_dir);
    let prefix = checking.line("store.prefix", raw.prefix.as_deref());
    if prefix.as_ref().is_some_and(|prefix| prefix.contains(['{', '}'])) {
        let cure = "Leave braces out: Redis gives them a meaning in keys.";
        checking.wrong("store.prefix", "it has a brace", cure);
    }
    let ca = checking.path("store.ca", raw.ca.as_deref(), &base);
    match raw.kind.unwrap_or(RawStoreKind::Sqlite) {
        RawStoreKind::Sqlite => {
            Some(StoreConfig::Sqlite { path: path.unwrap_or_else(|| data_dir.join("dogwatch.db")) })
        }
        RawStoreKind::Redis => {
            // A secret is fetched only by who uses it.
            let Some(url) = &raw.url else {
                checking.wrong(
                    "store.url",
                    "it is missing, and kind = \"redis\" needs it",
                    "Write url = { env = \"DOGWATCH_REDIS_URL\" }, for example.",
                );
                return None;
            };
            let url = checking.secret("store.url", url)?;
            let prefix = prefix.unwrap_or_else(|| "dogwatch:".to_owned());
            Some(StoreConfig::Redis { url, prefix, ca })
        }
    }
}

fn model(raw: &RawModel, checking: &mut Checking<'_>) -> ModelConfig {
    let base = checking.base.clone();
    let playbook = checking.path("model.playbook", raw.playbook.as_deref(), &base);
    let openai = openai(raw, checking);
    match raw.kind.unwrap_or(RawModelKind::Scripted) {
        RawModelKind::OpenAi => {
            if raw.model.is_none() {
                checking.wrong(
                    "model.model",
                    "it is missing, and kind = \"openai\" needs it",
                    "Write the model's name as the server knows it.",
                );
            }
            ModelConfig::OpenAi(Box::new(openai))
        }
        RawModelKind::Scripted => {
            if let Some(playbook) = playbook.as_ref().filter(|playbook| !playbook.is_file()) {
                let what = format!("there is no file {}", playbook.display());
                checking.wrong("model.playbook", what, "Check the path.");
            }
            ModelConfig::Scripted { playbook }
        }
    }
}

/// Checked whatever the kind is, so that a switch of kind brings no surprise.
fn openai(raw: &RawModel, checking: &mut Checking<'_>) -> OpenAiConfig {
    let wanted = matches!(raw.kind, Some(RawModelKind::OpenAi));
    // A secret is fetched only by who uses it.
    let api_key = raw.api_key.as_ref().filter(|_| wanted);
    let api_key = api_key.and_then(|reference| checking.secret("model.api_key", reference));
    let mut headers = Vec::new();
    for (name, reference) in raw.headers.iter().filter(|_| wanted) {
        if HeaderName::from_bytes(name.as_bytes()).is_err() {
            let what = format!("{} is not a name of a header", echo(name));
            checking.wrong("model.headers", what, "Use letters, digits and '-'.");
        } else if let Some(secret) = checking.secret(&format!("model.headers.{name}"), reference) {
            headers.push((name.clone(), secret));
        }
    }
    let temperature = raw.temperature.filter(|t| {
        let fits = (0.0..=2.0).contains(t);
        if !fits {
            let what = format!("{t} is out of range");
            checking.wrong("model.temperature", what, "Allowed: 0.0 to 2.0.");
        }
        fits
    });
    let max_tokens =
        raw.max_tokens.map(|n| checking.whole32("model.max_tokens", Some(n), 1, 1..=1_000_000));
    let before = checking.problems.len();
    let connect_ms = checking.whole("model.connect_ms", raw.connect_ms, 10_000, 100..=60_000);
    let header_ms = checking.whole("model.header_ms", raw.header_ms, 60_000, 1_000..=600_000);
    let idle_ms = checking.whole("model.idle_ms", raw.idle_ms, MODEL_IDLE_MS, 1_000..=600_000);
    let total_ms = checking.whole("model.total_ms", raw.total_ms, 600_000, 1_000..=3_600_000);
    // What they say together means something only if each is right alone.
    if checking.problems.len() == before {
        for (key, part, whole_key, whole) in [
            ("model.connect_ms", connect_ms, "model.header_ms", header_ms),
            ("model.header_ms", header_ms, "model.total_ms", total_ms),
            ("model.idle_ms", idle_ms, "model.total_ms", total_ms),
        ] {
            if part > whole {
                let what = format!("{part} is more than {whole_key}, which includes it ({whole})");
                checking.wrong(key, what, format!("Lower it, or raise {whole_key}."));
            }
        }
    }
    OpenAiConfig {
        base_url: base_url(raw.base_url.as_deref(), checking),
        model: checking.line("model.model", raw.model.as_deref()).unwrap_or_default(),
        api_key,
        headers,
        max_tokens,
        temperature,
        connect_ms,
        header_ms,
        idle_ms,
        total_ms,
    }
}

fn base_url(given: Option<&str>, checking: &mut Checking<'_>) -> String {
    let key = "model.base_url";
    let Some(written) = checking.line(key, given) else { return BASE_URL.to_owned() };
    // The URL itself is not repeated: it may carry a secret.
    let wrong = match reqwest::Url::parse(&written) {
        Err(error) => Some(format!("it is not a URL: {error}")),
        Ok(url) if !matches!(url.scheme(), "http" | "https") => {
            Some("it is neither http nor https".to_owned())
        }
        Ok(url) if !url.username().is_empty() || url.password().is_some() => {
            Some("it carries a user or a password, which would end up in logs".to_owned())
        }
        Ok(url) if url.query().is_some() || url.fragment().is_some() => {
            Some("it has a part after '?' or '#'".to_owned())
        }
        Ok(url) if url.path().ends_with("/chat/completions") => {
            Some("/chat/completions is added by dogwatch".to_owned())
        }
        Ok(_) => None,
    };
    if let Some(what) = wrong {
        checking.wrong(key, what, "Write for example \"http://127.0.0.1:8080/v1\".");
        return BASE_URL.to_owned();
    }
    written
}

/// Those of `raw`, else those of `above`, else the defaults.
pub(super) fn limits(
    raw: &RawLimits,
    above: Option<Limits>,
    checking: &mut Checking<'_>,
) -> Limits {
    let above = above.unwrap_or(Limits {
        model_calls_per_turn: MODEL_CALLS_PER_TURN_MAX,
        tool_calls_per_turn: TOOL_CALLS_PER_TURN_MAX,
        chain_wakes: CHAIN_WAKES_MAX,
        chain_tokens: CHAIN_TOKENS_MAX,
        chain_spawns: CHAIN_SPAWNS_MAX,
    });
    let mut few = |key: &str, given, default, max| {
        checking.whole32(&format!("limits.{key}"), given, default, 1..=max)
    };
    let model_calls_per_turn =
        few("model_calls_per_turn", raw.model_calls_per_turn, above.model_calls_per_turn, 500);
    let tool_calls_per_turn =
        few("tool_calls_per_turn", raw.tool_calls_per_turn, above.tool_calls_per_turn, 2_000);
    let chain_wakes = few("chain_wakes", raw.chain_wakes, above.chain_wakes, 10_000);
    let chain_spawns = few("chain_spawns", raw.chain_spawns, above.chain_spawns, 10_000);
    let chain_tokens = checking.whole(
        "limits.chain_tokens",
        raw.chain_tokens,
        above.chain_tokens,
        1_000..=1_000_000_000,
    );
    Limits { model_calls_per_turn, tool_calls_per_turn, chain_wakes, chain_tokens, chain_spawns }
}

fn console(raw: &RawConsole, data_dir: &Path, checking: &mut Checking<'_>) -> ConsoleConfig {
    let chat = checking.line("console.chat", raw.chat.as_deref()).filter(|chat| {
        let letter = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '.');
        let fits = chat.chars().all(letter) && chat.chars().count() <= 64;
        if !fits {
            let cure = "Use at most 64 letters, digits, '-', '_' and '.'.";
            checking.wrong("console.chat", "it is not a name of a chat", cure);
        }
        fits
    });
    let history = raw.history.unwrap_or(true).then(|| data_dir.join("history.txt"));
    let color = match raw.color.unwrap_or(RawColor::Auto) {
        RawColor::Auto if (checking.lookup)("NO_COLOR").is_some() => Color::Never,
        RawColor::Auto => Color::Auto,
        RawColor::Always => Color::Always,
        RawColor::Never => Color::Never,
    };
    ConsoleConfig { chat: chat.unwrap_or_else(|| "main".to_owned()), history, color }
}

fn http(raw: &RawHttp, checking: &mut Checking<'_>) -> HttpConfig {
    let token = raw.token.as_ref().and_then(|token| checking.secret("http.token", token));
    let written = checking.line("http.bind", raw.bind.as_deref());
    let bind = written.and_then(|written| {
        let bind = written.parse::<SocketAddr>().ok();
        if bind.is_none() {
            let what = format!("{} is not an address with a port", echo(&written));
            checking.wrong("http.bind", what, "Write for example \"127.0.0.1:7878\".");
        }
        bind
    });
    if let Some(bind) = bind
        && !bind.ip().is_loopback()
        && raw.token.is_none()
    {
        let what = format!("{bind} can be reached from other machines, and no token is asked for");
        let cure = "Set [http] token, or bind to 127.0.0.1 and put a proxy before it.";
        checking.wrong("http.bind", what, cure);
    }
    HttpConfig {
        bind: bind.unwrap_or(BIND),
        token,
        drain_ms: checking.whole("http.drain_ms", raw.drain_ms, 0, 0..=60_000),
    }
}

fn log(raw: &RawLog, data_dir: &Path, checking: &mut Checking<'_>) -> LogConfig {
    let filter = checking.line("log.filter", raw.filter.as_deref()).filter(|filter| {
        let parsed = tracing_subscriber::EnvFilter::builder().parse(filter);
        if let Err(error) = &parsed {
            let cure = "Write for example \"info\" or \"info,dogwatch::engine=debug\".";
            checking.wrong("log.filter", error.to_string(), cure);
        }
        parsed.is_ok()
    });
    LogConfig {
        format: match raw.format.unwrap_or(RawFormat::Pretty) {
            RawFormat::Pretty => LogFormat::Pretty,
            RawFormat::Json => LogFormat::Json,
        },
        filter: filter.unwrap_or_else(|| FILTER.to_owned()),
        file: checking.path("log.file", raw.file.as_deref(), data_dir),
    }
}
