//! Slack, put together. Owns what of it runs beside the engine, and in which order it ends. Must
//! not know what is said.

use std::sync::Arc;

use anyhow::Result;
use axum::Router;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::Rooms;
use crate::config::{
    SlackConfig, SlackCredentials, SlackIngress, SlackMode, SlackPlace, SlackStreaming,
};
use crate::core::time::Timestamp;
use crate::engine::Engine;
use crate::engine::desk::FrontDesk;
use crate::engine::installations::Register;
use crate::http::Check;
use crate::ports::{Channel, Clock, Desk};
use crate::slack::access::Keyring;
use crate::slack::answer::Teller;
use crate::slack::checkup::setup::Setup;
use crate::slack::checkup::{self, Finding, Kept};
use crate::slack::home::Homes;
use crate::slack::oauth::{self, Installing};
use crate::slack::posting::Posting;
use crate::slack::reception::{Answerer, Reach, Reception};
use crate::slack::rotation::Rotation;
use crate::slack::socket::{self, Socket};
use crate::slack::watching::Watching;
use crate::slack::web::Web;
use crate::slack::{Credentials, Hearing, Ingress, Mode, OAuth, Settings, Streaming, routes};
use crate::store::SystemClock;

/// What posts, before there is an engine to post for.
pub(crate) struct Slack {
    settings: Settings,
    keyring: Arc<Keyring>,
    web: Arc<Web>,
    posting: Arc<Posting>,
}

/// What hears as well.
pub(crate) struct Open {
    reception: Arc<Reception>,
    web: Arc<Web>,
    posting: Arc<Posting>,
    engine: Arc<Engine>,
    desk: Arc<dyn Desk>,
    homes: Arc<Homes>,
    /// Where events come by connections.
    socket: Option<Arc<Socket>>,
    /// Where people install the app.
    oauth: Option<(Arc<Rotation>, Arc<Installing>)>,
    clock: Arc<dyn Clock>,
    ending: CancellationToken,
    tasks: TaskTracker,
}

fn settings(config: &SlackConfig) -> Settings {
    let hearing = |place: &SlackPlace| Hearing {
        mode: match place.mode {
            SlackMode::Mention => Mode::Mention,
            SlackMode::Thread => Mode::Thread,
            SlackMode::All => Mode::All,
        },
        shared: place.shared_authority,
    };
    Settings {
        api: config.api.clone(),
        credentials: match &config.credentials {
            SlackCredentials::Token(token) => Credentials::Token(token.clone()),
            SlackCredentials::OAuth { client_id, client_secret, redirect_url, seal_key } => {
                Credentials::OAuth(OAuth {
                    client_id: client_id.clone(),
                    client_secret: client_secret.clone(),
                    redirect_url: redirect_url.clone(),
                    seal_key: seal_key.clone(),
                })
            }
        },
        ingress: match &config.ingress {
            SlackIngress::Socket { app_token, connections } => {
                Ingress::Socket { app_token: app_token.clone(), connections: *connections }
            }
            SlackIngress::Http { signing_secret } => {
                Ingress::Http { signing_secret: signing_secret.clone() }
            }
        },
        hearing: hearing(&config.place),
        channels: config.channels.iter().map(|(id, of)| (id.clone(), hearing(of))).collect(),
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
pub(crate) async fn looked_at(
    config: &SlackConfig,
    kept: &Kept,
    setup: &Setup,
) -> Result<Vec<Finding>> {
    let settings = settings(config);
    let clock = Arc::new(SystemClock::from_store(Timestamp::ZERO));
    Ok(checkup::look(&settings, &Web::new(&settings.api, clock)?, kept, setup).await)
}

impl Slack {
    /// Asks nobody yet.
    pub(crate) fn new(config: &SlackConfig, rooms: &Rooms) -> Result<Self> {
        let settings = settings(config);
        let web = Arc::new(Web::new(&settings.api, Arc::clone(&rooms.clock))?);
        let keyring = Keyring::of(&settings)?;
        let posting = Posting::new(
            settings.streaming,
            Arc::clone(&keyring),
            Arc::clone(&web),
            Arc::clone(&rooms.clock),
        );
        Ok(Self { settings, keyring, web, posting: Arc::new(posting) })
    }

    /// For the engine.
    pub(crate) fn channel(&self) -> Arc<dyn Channel> {
        Arc::<Posting>::clone(&self.posting)
    }

    /// What comes is taken from now on, also before anything has begun: it is only written down.
    pub(crate) fn open(self, rooms: &Rooms, engine: &Arc<Engine>) -> Result<Open> {
        let Self { settings, keyring, web, posting } = self;
        let desk: Arc<dyn Desk> = Arc::new(FrontDesk(Arc::clone(engine)));
        keyring.bind(Arc::new(Register::of(engine)));
        let clock = Arc::clone(&rooms.clock);
        let homes = Homes::new(
            Arc::clone(&desk),
            Arc::clone(&keyring),
            Arc::clone(&web),
            Arc::clone(&clock),
        );
        let homes = Arc::new(homes);
        let (ring, shown) = (Arc::clone(&keyring), Arc::clone(&homes));
        let teller = Teller::new(ring, Arc::clone(&web), Arc::clone(&clock), shown)?;
        let answers: Arc<dyn Answerer> = Arc::new(teller);
        let reach = Reach {
            desk: Arc::clone(&desk),
            keyring: Arc::clone(&keyring),
            answers,
            clock: Arc::clone(&clock),
        };
        let oauth = match &settings.credentials {
            Credentials::Token(_) => None,
            Credentials::OAuth(oauth) => Some(oauth.clone()),
        };
        let rotation = oauth.clone().map(|oauth| {
            let (keyring, web) = (Arc::clone(&keyring), Arc::clone(&web));
            let (clock, ids) = (Arc::clone(&clock), Arc::clone(&rooms.ids));
            Arc::new(Rotation { oauth, keyring, web, clock, ids })
        });
        let installing = oauth.map(|oauth| {
            let (keyring, web) = (Arc::clone(&keyring), Arc::clone(&web));
            Arc::new(Installing { oauth, keyring, web, clock: Arc::clone(&clock) })
        });
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
        let oauth = rotation.zip(installing);
        let (ending, tasks) = (CancellationToken::new(), TaskTracker::new());
        let engine = Arc::clone(engine);
        Ok(Open {
            reception,
            web,
            posting,
            engine,
            desk,
            homes,
            socket,
            oauth,
            clock,
            ending,
            tasks,
        })
    }
}

impl Open {
    /// Says who it is, opens connections, and shows what runs.
    pub(crate) fn begin(&self) {
        let Self { reception, web, posting, engine, desk, socket, oauth, .. } = self;
        let Self { homes, clock, ending, tasks, .. } = self;
        if let Some((rotation, _)) = oauth {
            // It hears what is due from the beginning.
            tasks.spawn(Arc::clone(rotation).run(ending.clone()));
        }
        engine.attend_installations();
        let (mending, mended, until) = (Arc::clone(reception), Arc::clone(web), ending.clone());
        tasks.spawn(async move { mending.mend(&mended, until).await });
        tasks.spawn(posting.tell(ending.clone()));
        tasks.spawn(posting.stream(Arc::clone(desk), ending.clone()));
        let watching = Watching::new(Arc::clone(desk), Arc::clone(posting), Arc::clone(clock));
        tasks.spawn(watching.run(ending.clone()));
        tasks.spawn(Arc::clone(homes).run(ending.clone()));
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
        let installs = match &self.oauth {
            Some((_, installing)) => oauth::routes(Arc::clone(installing)),
            None => Router::new(),
        };
        if self.socket.is_some() {
            return installs;
        }
        installs.merge(routes::routes(Arc::clone(&self.reception)))
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
