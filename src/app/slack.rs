//! Slack, put together. Owns what of it runs beside the engine, and in which order it ends. Must
//! not know what is said.

use std::sync::Arc;

use anyhow::Result;
use axum::Router;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::Rooms;
use crate::config::{SlackConfig, SlackIngress, SlackMode, SlackStreaming};
use crate::core::time::Timestamp;
use crate::http::Check;
use crate::ports::{Channel, Clock, Desk};
use crate::slack::answer::Teller;
use crate::slack::checkup::{self, Finding};
use crate::slack::posting::Posting;
use crate::slack::reception::{Answerer, Reach, Reception};
use crate::slack::socket::{self, Socket};
use crate::slack::watching::Watching;
use crate::slack::web::Web;
use crate::slack::{Ingress, Mode, Settings, Streaming, routes};
use crate::store::SystemClock;

/// What posts, before there is an engine to post for.
pub(crate) struct Slack {
    settings: Settings,
    web: Arc<Web>,
    posting: Arc<Posting>,
}

/// What hears as well.
pub(crate) struct Open {
    reception: Arc<Reception>,
    web: Arc<Web>,
    posting: Arc<Posting>,
    desk: Arc<dyn Desk>,
    /// Where events come by connections.
    socket: Option<Arc<Socket>>,
    clock: Arc<dyn Clock>,
    ending: CancellationToken,
    tasks: TaskTracker,
}

fn settings(config: &SlackConfig) -> Settings {
    let mode = |mode: &SlackMode| match mode {
        SlackMode::Mention => Mode::Mention,
        SlackMode::Thread => Mode::Thread,
        SlackMode::All => Mode::All,
    };
    Settings {
        api: config.api.clone(),
        bot_token: config.bot_token.clone(),
        ingress: match &config.ingress {
            SlackIngress::Socket { app_token, connections } => {
                Ingress::Socket { app_token: app_token.clone(), connections: *connections }
            }
            SlackIngress::Http { signing_secret } => {
                Ingress::Http { signing_secret: signing_secret.clone() }
            }
        },
        mode: mode(&config.mode),
        channels: config.channels.iter().map(|(id, of)| (id.clone(), mode(of))).collect(),
        streaming: match config.streaming {
            SlackStreaming::Auto => Streaming::Auto,
            SlackStreaming::Edit => Streaming::Edit,
            SlackStreaming::Off => Streaming::Off,
        },
        bots: config.bots.clone(),
        guests: config.guests.clone(),
    }
}

/// What `dogwatch doctor` says of it.
pub(crate) async fn looked_at(config: &SlackConfig) -> Result<Vec<Finding>> {
    let settings = settings(config);
    let clock = Arc::new(SystemClock::from_store(Timestamp::ZERO));
    Ok(checkup::look(&settings, &Web::new(&settings.api, clock)?).await)
}

impl Slack {
    /// Asks nobody yet.
    pub(crate) fn new(config: &SlackConfig, rooms: &Rooms) -> Result<Self> {
        let settings = settings(config);
        let web = Arc::new(Web::new(&settings.api, Arc::clone(&rooms.clock))?);
        let posting = Posting::new(&settings, Arc::clone(&web), Arc::clone(&rooms.clock));
        Ok(Self { settings, web, posting: Arc::new(posting) })
    }

    /// For the engine.
    pub(crate) fn channel(&self) -> Arc<dyn Channel> {
        Arc::<Posting>::clone(&self.posting)
    }

    /// What comes is taken from now on, also before anything has begun: it is only written down.
    pub(crate) fn open(self, rooms: &Rooms, desk: Arc<dyn Desk>) -> Result<Open> {
        let Self { settings, web, posting } = self;
        let clock = Arc::clone(&rooms.clock);
        let teller = Teller::new(&settings, Arc::clone(&web), Arc::clone(&clock))?;
        let answers: Arc<dyn Answerer> = Arc::new(teller);
        let reach = Reach { desk: Arc::clone(&desk), answers, clock: Arc::clone(&clock) };
        let ingress = settings.ingress.clone();
        let reception = Reception::new(settings, reach);
        let socket = match ingress {
            Ingress::Http { .. } => None,
            Ingress::Socket { app_token, connections } => {
                let reach = socket::Reach {
                    reception: Arc::clone(&reception),
                    web: Arc::clone(&web),
                    clock: Arc::clone(&clock),
                    ids: Arc::clone(&rooms.ids),
                };
                Some(Arc::new(Socket::new(app_token, connections, reach)))
            }
        };
        let (ending, tasks) = (CancellationToken::new(), TaskTracker::new());
        Ok(Open { reception, web, posting, desk, socket, clock, ending, tasks })
    }
}

impl Open {
    /// Says who it is, opens connections, and shows what runs.
    pub(crate) fn begin(&self) {
        let Self { reception, web, posting, desk, socket, clock, ending, tasks } = self;
        tasks.spawn(posting.tell(ending.clone()));
        tasks.spawn(posting.stream(Arc::clone(desk), ending.clone()));
        let watching = Watching::new(Arc::clone(desk), Arc::clone(posting), Arc::clone(clock));
        tasks.spawn(watching.run(ending.clone()));
        let (learning, web, until) = (Arc::clone(reception), Arc::clone(web), ending.clone());
        let socket = socket.clone();
        tasks.spawn(async move {
            learning.learn(&web, until.clone()).await;
            // Not before: what a bot that does not know itself cannot take, Slack gives up after
            // three tries. What comes while there is no connection it keeps.
            if let Some(socket) = socket {
                socket.run(until).await;
            }
        });
    }

    /// For the server, where events come by requests.
    pub(crate) fn routes(&self) -> Router {
        if self.socket.is_some() {
            return Router::new();
        }
        routes::routes(Arc::clone(&self.reception))
    }

    /// For readiness.
    pub(crate) fn check(&self) -> Check {
        let known = self.reception.health();
        let reached = self.socket.as_ref().map(|socket| socket.health());
        let health = reached.filter(|_| known.ok).unwrap_or(known);
        Check { name: "slack", ok: health.ok, what: health.what }
    }

    /// Takes nothing new; what is in hand is finished within a bound.
    pub(crate) async fn close(&self) {
        self.ending.cancel();
        self.tasks.close();
        // Connections acknowledge what is in hand; only then is nothing left to be finished.
        self.tasks.wait().await;
        self.reception.finish().await;
    }
}
