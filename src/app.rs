//! The composition root: the only file that knows everything. Owns the order in which the rooms
//! are opened and closed, and maps configuration onto their settings.

pub(crate) mod agents;
pub(crate) mod sandbox;
pub(crate) mod slack;

use std::collections::HashMap;
use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, anyhow};
use secrecy::ExposeSecret;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::config::{self, Color, Config, LogFormat, ModelConfig, StoreConfig};
use crate::console::{self, AtEnd, ChatName, End, Mode, attach};
use crate::core::id::{BootId, Principal};
use crate::core::redact::Redactor;
use crate::core::time::Timestamp;
use crate::engine::desk::FrontDesk;
use crate::engine::home::Exits;
use crate::engine::{Engine, Ports, Settings};
use crate::model::{self, Playbook};
use crate::ports::{Channel, Clock, ExitSink, Ids, Meter};
use crate::store::{self, Choice, SystemClock, UlidIds};
use crate::telemetry::Sink;
use crate::watch::{self, Watch};
use crate::{demo, load, shutdown, telemetry};

/// Whose messages those of the terminal are.
const PRINCIPAL: &str = "local";
/// Turns that run at the same time.
const TURNS_MAX: usize = 64;
/// How long a pipe's end waits for answers.
const AT_END_MS_MAX: u64 = 600_000;

/// How `dogwatch chat` was called.
#[derive(Debug, Clone)]
pub struct Chat {
    /// The chat in front at first; the configured one if `None`.
    pub name: Option<String>,
    /// One JSON object a line.
    pub json: bool,
    /// At the end of a pipe, wait for running watchers as well.
    pub wait: bool,
    /// With the bot that `dogwatch serve` runs.
    pub attach: bool,
}

/// The redactor of everything that leaves: it knows the configured secrets and what secrets look
/// like.
pub fn redactor(config: &Config) -> Redactor {
    let secrets = config.secrets();
    Redactor::new(secrets.iter().map(|secret| secret.expose_secret().to_owned()).collect())
}

/// Can a store be made of the configuration? Asks nobody.
pub fn check_store(config: &Config) -> Result<()> {
    match store_choice(config)? {
        Choice::Sqlite(_) => Ok(()),
        Choice::Redis(settings) => Ok(settings.is_usable()?),
    }
}

/// The store as configured.
pub fn store_choice(config: &Config) -> Result<Choice> {
    Ok(match &config.store {
        StoreConfig::Sqlite { path } => Choice::Sqlite(store::Settings { path: path.clone() }),
        StoreConfig::Redis { url, prefix, ca } => {
            let read = |path: &PathBuf| {
                std::fs::read(path).with_context(|| format!("{} cannot be read", path.display()))
            };
            let ca = ca.as_ref().map(read).transpose()?;
            let (url, prefix) = (url.clone(), prefix.clone());
            Choice::Redis(store::redis::Settings { url, prefix, ca })
        }
    })
}

/// Drives a scratch store of the configured kind, which goes with the run.
pub async fn load(
    config: Config,
    sessions: u32,
    executions: u32,
    say: &mut (dyn FnMut(&str) + Send),
) -> Result<load::Report> {
    // Whoever interrupts it wants nothing left either.
    let stopped = shutdown::on_signals(&TaskTracker::new())?;
    let name = format!("load-{}", UlidIds.fresh());
    let directory = Scratch(config.data_dir.join(&name));
    let choice = match store_choice(&config)? {
        Choice::Sqlite(_) => {
            std::fs::create_dir_all(&directory.0)
                .with_context(|| format!("{} cannot be made", directory.0.display()))?;
            Choice::Sqlite(store::Settings { path: directory.0.join("dogwatch.db") })
        }
        Choice::Redis(settings) => {
            // Under the configured prefix: a user of Redis may be allowed nothing else.
            let prefix = format!("{}{name}:", settings.prefix);
            Choice::Redis(store::redis::Settings { prefix, ..settings })
        }
    };
    let (store, _) = store::Chosen::open(&choice).await?;
    let now = store.rows().now().await?;
    let scratch = load::Scratch {
        store: store.rows(),
        clock: Arc::new(SystemClock::from_store(now)),
        cpu_us: cpu_of(&store),
        bare: match &store {
            store::Chosen::Sqlite(_) => None,
            store::Chosen::Redis(redis) => redis.bare().await,
        },
    };
    let settings = load::Settings { sessions, executions, sole: store.is_sole() };
    let report = tokio::select! {
        report = load::run(scratch, settings, say) => report.map_err(Into::into),
        () = stopped.cancelled() => Err(anyhow!("stopped; nothing was measured")),
    };
    if let store::Chosen::Redis(redis) = &store {
        say("removing what was written");
        redis.wipe().await.with_context(|| format!("keys with {name}: in their names are left"))?;
    }
    report
}

fn cpu_of(store: &store::Chosen) -> Option<load::CpuOf> {
    match store {
        store::Chosen::Sqlite(_) => None,
        store::Chosen::Redis(redis) => {
            let redis = Arc::clone(redis);
            Some(Arc::new(move || {
                let redis = Arc::clone(&redis);
                Box::pin(async move { redis.cpu_us().await })
            }))
        }
    }
}

/// A directory that goes with its owner.
struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        // What cannot be removed is empty of anything that matters, and named for what it is.
        let _gone = std::fs::remove_dir_all(&self.0);
    }
}

/// The model as configured, ready to be asked.
fn model(config: &Config, clock: Arc<dyn Clock>) -> Result<model::Chosen> {
    let settings = match &config.model {
        ModelConfig::OpenAi(openai) => model::Settings::OpenAi(model::openai::Settings {
            base_url: openai.base_url.clone(),
            model: openai.model.clone(),
            models: agents::models(config),
            api_key: openai.api_key.clone(),
            headers: openai.headers.clone(),
            max_tokens: openai.max_tokens,
            temperature: openai.temperature,
            connect_ms: openai.connect_ms,
            header_ms: openai.header_ms,
            idle_ms: openai.idle_ms,
            total_ms: openai.total_ms,
        }),
        ModelConfig::Scripted { playbook } => {
            let (place, text) = match playbook {
                Some(path) => {
                    let text = std::fs::read_to_string(path).with_context(|| {
                        format!("the playbook {} cannot be read", path.display())
                    })?;
                    (path.display().to_string(), text)
                }
                None => ("the built-in playbook".into(), demo::PLAYBOOK.into()),
            };
            model::Settings::Scripted(Playbook::parse(&text).with_context(|| place)?)
        }
    };
    Ok(model::Chosen::new(settings, clock)?)
}

/// The model as configured, outside of a bot: what it cannot be made of is an error.
pub fn idle_model(config: &Config) -> Result<model::Chosen> {
    model(config, Arc::new(SystemClock::from_store(Timestamp::ZERO)))
}

/// What dogwatch says about itself, to a file or beside the program's answer.
fn log(config: &Config, sink: Sink) -> Result<telemetry::Guard> {
    let color = match config.console.color {
        Color::Always => true,
        Color::Never => false,
        Color::Auto => std::io::stderr().is_terminal(),
    };
    Ok(telemetry::init(telemetry::Settings {
        format: match config.log.format {
            LogFormat::Pretty => telemetry::Format::Pretty,
            LogFormat::Json => telemetry::Format::Json,
        },
        filter: config.log.filter.clone(),
        color: color && sink == Sink::Stderr,
        sink,
        redactor: redactor(config),
    })?)
}

fn terminal(config: &Config, chat: &Chat, banner: Vec<String>) -> Result<console::Settings> {
    let mode = Mode::detect(chat.json);
    let name = chat.name.clone().unwrap_or_else(|| config.console.chat.clone());
    Ok(console::Settings {
        principal: Principal::new(PRINCIPAL)?,
        chat: ChatName::new(name)?,
        mode,
        colour: match config.console.color {
            Color::Always => true,
            Color::Never => false,
            Color::Auto => mode == Mode::Interactive,
        },
        history: config.console.history.clone(),
        at_end: if chat.wait {
            AtEnd::Quiet { ms_max: AT_END_MS_MAX }
        } else {
            AtEnd::Answered { ms_max: AT_END_MS_MAX }
        },
        banner,
        attached: chat.attach,
    })
}

/// The launcher of this host's scripts. Takes the spool's lock.
fn launcher(
    config: &Config,
    clock: &Arc<dyn Clock>,
    exits: &Arc<Exits>,
    tasks: &TaskTracker,
) -> Result<Watch> {
    let env = environment();
    let python = watch::find_python(&config.watch.python, &env).with_context(|| {
        format!(
            "no Python at '{}'; install python3, or name it in [watch] python",
            config.watch.python.display()
        )
    })?;
    let redactor = redactor(config);
    let program = program()?;
    let settings = watch::Settings {
        spool: config.watch.spool_dir.clone(),
        shim: shim(&program),
        program,
        python,
        network: sandbox::network(config, &env),
        env,
        redactor: Arc::new(move |text: &str| redactor.redact(text).into_owned()),
        timing: watch::Timing::default(),
        sandbox: sandbox::wanted(config),
    };
    let sink: Arc<dyn ExitSink> = Arc::<Exits>::clone(exits);
    Ok(Watch::open(settings, &UlidIds, Arc::clone(clock), sink, tasks.clone())?)
}

/// What scripts may see of this process's environment.
pub fn environment() -> Vec<(String, String)> {
    let known = watch::ENV_ALLOWED.iter();
    known.filter_map(|name| Some(((*name).to_owned(), config::of_process(name)?))).collect()
}

/// What is run beside each script.
fn shim(program: &Path) -> PathBuf {
    watch::shim_of(program).unwrap_or_else(|why| {
        tracing::info!(%why, "each script has the whole of this program beside it");
        program.to_owned()
    })
}

/// This very binary, also when its file was replaced meanwhile.
pub fn program() -> Result<PathBuf> {
    std::env::current_exe().context("this program's own file cannot be found")
}

/// What every bot is made of, opened in order.
pub(crate) struct Rooms {
    /// Everything is kept here.
    pub(crate) store: store::Chosen,
    /// The database, where the store is a file.
    pub(crate) store_file: Option<PathBuf>,
    _log: telemetry::Guard,
    /// The store's time.
    pub(crate) clock: Arc<dyn Clock>,
    /// Fresh ids.
    pub(crate) ids: Arc<dyn Ids>,
    /// What must end before the process does.
    pub(crate) tasks: TaskTracker,
    /// Cancelled when the process is asked to end.
    pub(crate) stopped: CancellationToken,
    /// The spool.
    pub(crate) launcher: Arc<Watch>,
    /// Who answers.
    pub(crate) model: Arc<model::Chosen>,
    exits: Arc<Exits>,
}

impl Rooms {
    /// The store first: whoever finds it held has touched nothing else.
    pub(crate) async fn open(config: &Config, log_to: Sink) -> Result<Self> {
        let choice = store_choice(config)?;
        let (store, findings) = store::Chosen::open(&choice).await?;
        let log = log(config, log_to)?;
        for finding in findings {
            tracing::warn!(store.check = finding.check, "{finding}");
        }
        let now = store.rows().now().await?;
        #[cfg(feature = "failpoints")]
        let now = now.plus_ms(crate::failpoint::clock_ahead_ms());
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::from_store(now));
        let tasks = TaskTracker::new();
        let stopped = shutdown::on_signals(&tasks)?;
        let exits = Arc::new(Exits::default());
        let launcher = Arc::new(launcher(config, &clock, &exits, &tasks)?);
        let model = Arc::new(model(config, Arc::clone(&clock))?);
        sandbox::log(&launcher);
        let ids: Arc<dyn Ids> = Arc::new(UlidIds);
        let store_file = choice.file().cloned();
        Ok(Self {
            store,
            store_file,
            _log: log,
            clock,
            ids,
            tasks,
            stopped,
            launcher,
            model,
            exits,
        })
    }

    /// The engine, which posts to these channels and is counted by this meter.
    pub(crate) fn engine(
        &self,
        config: &Config,
        channels: HashMap<String, Arc<dyn Channel>>,
        meter: Arc<dyn Meter>,
    ) -> Result<Arc<Engine>> {
        let ports = Ports {
            store: self.store.rows(),
            clock: Arc::clone(&self.clock),
            ids: Arc::clone(&self.ids),
            model: Arc::<model::Chosen>::clone(&self.model),
            channels,
            launcher: Arc::<Watch>::clone(&self.launcher),
            redactor: Arc::new(redactor(config)),
        };
        let settings = Settings {
            boot: BootId::new(self.ids.fresh())?,
            sole: self.store.is_sole(),
            agents: agents::agents(config)?,
            grace_ms: config.watch.grace_ms,
            live_per_owner: config.watch.live_per_person,
            turns_max: TURNS_MAX,
        };
        let engine = Engine::metered(settings, ports, meter);
        self.exits.bind(&engine);
        Ok(engine)
    }

    /// After the engine: the spool, then whatever still runs here.
    pub(crate) async fn close(self) {
        self.launcher.release();
        self.stopped.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }
}

/// What the terminals of other processes attach to.
pub(crate) fn host(config: &Config, rooms: &Rooms) -> Result<Arc<attach::Host>> {
    let settings = attach::Settings {
        directory: config.data_dir.clone(),
        boot: rooms.ids.fresh(),
        principal: Principal::new(PRINCIPAL)?,
        banner: vec![rooms.model.describe(), sandbox::held(&rooms.launcher)],
    };
    Ok(attach::Host::open(settings, Arc::clone(&rooms.clock))?)
}

/// Talks at this process's terminal with the bot that another process runs.
async fn attach(config: Config, chat: Chat) -> Result<End> {
    let name = chat.name.clone().unwrap_or_else(|| config.console.chat.clone());
    let arrived = attach::reach(&config.data_dir, &ChatName::new(name)?).await?;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::from_store(arrived.now));
    let tasks = TaskTracker::new();
    let stopped = shutdown::on_signals(&tasks)?;
    let attached = format!("attached to the bot of {}", config.data_dir.display());
    let banner = std::iter::once(attached).chain(arrived.banner.clone()).collect();
    let (console, seat) = console::open(terminal(&config, &chat, banner)?);
    let means = attach::Means { console, clock: Arc::clone(&clock), stopped: stopped.clone() };
    let desk = arrived.begin(means, &tasks);
    let ids: Arc<dyn Ids> = Arc::new(UlidIds);
    let end =
        console::run(seat, console::Reach { desk, clock, ids, stopped: stopped.clone() }).await;
    stopped.cancel();
    tasks.close();
    tasks.wait().await;
    Ok(end?)
}

/// Runs the bot at this process's terminal, or talks there with the one that another process runs.
pub async fn chat(config: Config, chat: Chat) -> Result<End> {
    if chat.attach {
        return attach(config, chat).await;
    }
    let file = config.log.file.clone().unwrap_or_else(|| config.data_dir.join("dogwatch.log"));
    // The log goes to a file: the terminal is the person's.
    let rooms = Rooms::open(&config, Sink::File(file)).await;
    let rooms = match rooms {
        Err(error) if attach::is_served(&config.data_dir) => {
            return Err(error.context(
                "a bot serves this data directory: `dogwatch chat --attach` talks with it",
            ));
        }
        rooms => rooms?,
    };
    let banner = vec![rooms.model.describe(), sandbox::held(&rooms.launcher)];
    let (console, seat) = console::open(terminal(&config, &chat, banner)?);
    let console: Arc<dyn Channel> = console;
    let channels = HashMap::from([(console::chat::SURFACE.to_owned(), console)]);
    let engine = rooms.engine(&config, channels, Arc::new(()))?;
    engine.start().await?;
    let desk = Arc::new(FrontDesk(Arc::clone(&engine)));
    let (clock, ids) = (Arc::clone(&rooms.clock), Arc::clone(&rooms.ids));
    let reach = console::Reach { desk, clock, ids, stopped: rooms.stopped.clone() };
    let end = console::run(seat, reach).await;
    engine.shut_down().await;
    rooms.close().await;
    Ok(end?)
}
