//! `dogwatch serve`: the bot as a service. Owns readiness, what is read at a scrape, and the order
//! of an orderly end. Must not know how a page looks.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use anyhow::Result;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::sync::Mutex;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::app::slack::{self, Slack};
use crate::app::{self, Rooms};
use crate::config::Config;
use crate::console::attach::Host;
use crate::console::chat;
use crate::core::ledger::Index;
use crate::core::limits::{HAND_OVER_MS_MAX, PROBE_KEPT_MS, PROBE_MS_MAX, SCRAPE_MEMBERS_MAX};
use crate::core::redact::Redactor;
use crate::core::time::Timestamp;
use crate::engine::Engine;
use crate::engine::desk::FrontDesk;
use crate::http::{self, Check, House, Server};
use crate::ports::{Channel, Clock, Desk, Store, StoreError};
use crate::slack::place;
use crate::telemetry::Sink;
use crate::telemetry::metrics::{Gauges, Metrics, Stored};
use crate::tools::{silence, trigger, watch as probes};
use crate::watch::Watch;

/// Where the process is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Starting,
    Working,
    Ending,
}

/// What was seen at the last look, shared by all who ask within a moment.
#[derive(Clone)]
struct Seen {
    at: Timestamp,
    stored: Result<Stored, String>,
}

/// What the pages show of a bot.
struct Lookout {
    stage: AtomicU8,
    engine: Arc<Engine>,
    host: Arc<Host>,
    slack: Option<Arc<slack::Open>>,
    store: Arc<dyn Store>,
    /// The database, where the store is a file.
    file: Option<std::path::PathBuf>,
    launcher: Arc<Watch>,
    clock: Arc<dyn Clock>,
    redactor: Redactor,
    metrics: Arc<Metrics>,
    seen: Mutex<Option<Seen>>,
}

/// Runs until the process is asked to end. Answers whether all was handed over in time.
pub async fn run(config: Config) -> Result<bool> {
    let http = http::Settings { bind: config.http.bind, token: config.http.token.clone() };
    // The port first: whoever finds it taken has touched nothing else.
    let server = Server::bind(http).await?;
    let log_to = config.log.file.clone().map_or(Sink::Stderr, Sink::File);
    let rooms = Rooms::open(&config, log_to).await?;
    let metrics = Arc::new(Metrics::new(tools()));
    let host = app::host(&config, &rooms)?;
    let terminals: Arc<dyn Channel> = Arc::<Host>::clone(&host);
    let mut channels = HashMap::from([(chat::SURFACE.to_owned(), terminals)]);
    let slack = config.slack.as_ref().map(|slack| Slack::new(slack, &rooms)).transpose()?;
    channels.extend(slack.as_ref().map(|slack| (place::SURFACE.to_owned(), slack.channel())));
    let engine = rooms.engine(&config, channels, Arc::<Metrics>::clone(&metrics))?;
    let desk: Arc<dyn Desk> = Arc::new(FrontDesk(Arc::clone(&engine)));
    let slack = slack.map(|slack| slack.open(&rooms, &engine)).transpose()?;
    let more = slack.as_ref().map(slack::Open::routes).unwrap_or_default();
    let slack = slack.map(Arc::new);
    let lookout = Lookout {
        stage: AtomicU8::new(Stage::Starting as u8),
        engine: Arc::clone(&engine),
        host: Arc::clone(&host),
        slack: slack.clone(),
        store: rooms.store.rows(),
        file: rooms.store_file.clone(),
        launcher: Arc::clone(&rooms.launcher),
        clock: Arc::clone(&rooms.clock),
        redactor: app::redactor(&config),
        metrics,
        seen: Mutex::new(None),
    };
    let lookout = Arc::new(lookout);
    let house: Arc<dyn House> = Arc::<Lookout>::clone(&lookout);
    let reach = http::Reach { house, clock: Arc::clone(&rooms.clock), ids: Arc::clone(&rooms.ids) };
    let closed = CancellationToken::new();
    tracing::info!(http.address = %server.address(), "serves");
    let serving = rooms.tasks.spawn(server.serve(reach, more, closed.clone()));
    engine.start().await?;
    if let Some(slack) = &slack {
        slack.begin();
    }
    let attending = host.serve(desk)?;
    let attending = rooms.tasks.spawn(attending);
    lookout.enter(Stage::Working);
    rooms.stopped.cancelled().await;
    lookout.enter(Stage::Ending);
    let drain_ms = config.http.drain_ms;
    rooms.clock.sleep_until(rooms.clock.now().plus_ms(drain_ms)).await;
    if let Some(slack) = &slack {
        slack.close().await;
    }
    let in_time =
        timeout(Duration::from_millis(HAND_OVER_MS_MAX), engine.shut_down()).await.is_ok();
    if !in_time {
        tracing::error!("not all was handed over in time; the next start takes it");
    }
    host.close();
    closed.cancel();
    let _broken_by_a_panic = tokio::join!(attending, serving);
    rooms.close().await;
    tracing::info!(all_handed_over = in_time, "ended");
    Ok(in_time)
}

/// The names of all tools there are.
fn tools() -> Vec<String> {
    let names = [trigger::NAME, probes::LIST, probes::CANCEL, probes::OUTPUT, silence::NAME];
    names.map(str::to_owned).to_vec()
}

impl Lookout {
    fn enter(&self, stage: Stage) {
        self.stage.store(stage as u8, Ordering::Relaxed);
        match stage {
            Stage::Starting => {}
            Stage::Working => tracing::info!("ready"),
            Stage::Ending => {
                tracing::info!("asked to end; turns are handed over");
            }
        }
    }

    fn boot(&self) -> Check {
        let (ok, what) = match self.stage.load(Ordering::Relaxed) {
            stage if stage == Stage::Starting as u8 => {
                (false, "starting: what an earlier start left is taken over")
            }
            stage if stage == Stage::Working as u8 => (true, "works"),
            _ending => (false, "ending: it hands over and takes nothing new"),
        };
        Check { name: "boot", ok, what: what.to_owned() }
    }

    fn spool(&self) -> Check {
        let ok = self.launcher.holds_its_spool();
        let what = if ok {
            "held by this bot alone"
        } else {
            "its lock was taken away or replaced: another bot may use it; end this one, look at \
             the directory, start again"
        };
        Check { name: "spool", ok, what: what.to_owned() }
    }

    fn terminals(&self) -> Check {
        let ok = self.host.is_open();
        let what = if ok {
            "can attach"
        } else {
            "cannot attach: the socket in the data directory is not there yet, or was removed; it \
             comes back at the next start"
        };
        Check { name: "terminals", ok, what: what.to_owned() }
    }

    /// One look at the store, shared by all who ask within a moment: probes and scrapes cost the
    /// store as much as one of them a second, however many there are.
    async fn look(&self) -> Seen {
        let mut seen = self.seen.lock().await;
        let now = self.clock.now();
        if let Some(kept) = seen.as_ref().filter(|kept| now.since_ms(kept.at) < PROBE_KEPT_MS) {
            return kept.clone();
        }
        let read = timeout(Duration::from_millis(PROBE_MS_MAX), self.read(now)).await;
        let stored = match read {
            Ok(Ok(stored)) => Ok(stored),
            Ok(Err(error)) => Err(self.redactor.redact(&error.to_string()).into_owned()),
            Err(_) => Err(format!("it has not answered for {PROBE_MS_MAX} ms")),
        };
        let fresh = Seen { at: now, stored };
        *seen = Some(fresh.clone());
        fresh
    }

    async fn read(&self, now: Timestamp) -> Result<Stored, StoreError> {
        let home = self.engine.home();
        let (live, _) = self.count(&Index::Home(home.clone()), now).await?;
        let (cancelling, _) = self.count(&Index::Wish(home.clone()), now).await?;
        let (queue, queue_ms) = self.count(&Index::Ready, now).await?;
        let (outbox, outbox_ms) = self.count(&Index::Outbox, now).await?;
        let running = live.saturating_sub(cancelling);
        Ok(Stored { running, cancelling, queue, queue_ms, outbox, outbox_ms })
    }

    /// How many members, and how long the first is due.
    async fn count(&self, index: &Index, now: Timestamp) -> Result<(usize, u64), StoreError> {
        let members = self.store.members(index, u64::MAX, None, SCRAPE_MEMBERS_MAX).await?;
        let first = members.first().map(|member| Timestamp::from_ms(member.score));
        Ok((members.len(), first.map_or(0, |at| now.since_ms(at))))
    }

    async fn checks(&self) -> (Vec<Check>, Seen) {
        let seen = self.look().await;
        let what = seen.stored.as_ref().map_or_else(Clone::clone, |_| "answers".to_owned());
        let store = Check { name: "store", ok: seen.stored.is_ok(), what };
        let mut checks = vec![self.boot(), store, self.spool(), self.terminals()];
        checks.extend(self.slack.as_ref().map(|slack| slack.check()));
        (checks, seen)
    }
}

impl House for Lookout {
    fn readiness(&self) -> BoxFuture<'_, Vec<Check>> {
        async { self.checks().await.0 }.boxed()
    }

    fn metrics(&self) -> BoxFuture<'_, String> {
        async {
            let (checks, seen) = self.checks().await;
            self.metrics.text(&Gauges {
                ready: checks.iter().all(|check| check.ok),
                turns: self.engine.turns_in_progress(),
                terminals: self.host.terminals(),
                stored: seen.stored.ok(),
                store_bytes: self.file.as_ref().and_then(|file| Some(file.metadata().ok()?.len())),
            })
        }
        .boxed()
    }
}
