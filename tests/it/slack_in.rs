//! What Slack sends, at its wire: requests and connections, and what of it reaches the desk. Time
//! is moved by the tests alone.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod answers;
mod buttons;
pub(crate) mod desk;
mod fixtures;
mod reception;
mod requests;
mod socket;
mod wishes;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use dogwatch::ports::Clock;
use dogwatch::slack::access::Keyring;
use dogwatch::slack::envelope::Envelope;
use dogwatch::slack::hear::Who;
use dogwatch::slack::reception::{Delivery, Reach, Reception, Reply};
use dogwatch::slack::{Credentials, Ingress, Mode, OAuth, Settings, Streaming};
use serde_json::{Value, json};

use self::desk::{Answers, TestDesk};
use crate::support::manual_clock::ManualClock;

/// Only to fail a test that hangs.
const PATIENCE: Duration = Duration::from_secs(20);

const SECRET: &str = "8f742231b10e8888abcd99yyyzzz85a5";

async fn patiently<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, work).await.unwrap_or_else(|_elapsed| panic!("it hangs"))
}

fn settings() -> Settings {
    // Another test of this process may have installed it.
    let _ = rustls::crypto::ring::default_provider().install_default();
    Settings {
        api: "http://127.0.0.1:9/api/".to_owned(),
        credentials: Credentials::Token("xoxb-1".to_owned().into()),
        ingress: Ingress::Http { signing_secret: SECRET.to_owned().into() },
        hearing: Mode::Thread.into(),
        channels: BTreeMap::new(),
        bots: Vec::new(),
        streaming: Streaming::Off,
        guests: Vec::new(),
    }
}

fn who() -> Who {
    Who { user: "UBOT".into(), bot: Some("BBOT".into()), app: Some("ABOT".into()) }
}

/// A reception between a desk that a test holds and answers that it reads.
struct Front {
    reception: Arc<Reception>,
    desk: TestDesk,
    answers: Answers,
    clock: ManualClock,
}

impl Front {
    /// It knows who it is.
    fn new() -> Self {
        let front = Self::of(settings());
        front.reception.introduce(who());
        front
    }

    /// With another clock before its own.
    fn at(before: Arc<dyn Clock>) -> Self {
        let front = Self::with(settings(), ManualClock::new(), before);
        front.reception.introduce(who());
        front
    }

    /// Nobody has installed the app.
    fn closed() -> Self {
        let oauth = OAuth {
            client_id: "1.2".to_owned(),
            client_secret: "of-the-tests".to_owned().into(),
            redirect_url: None,
            seal_key: None,
        };
        Self::of(Settings { credentials: Credentials::OAuth(oauth), ..settings() })
    }

    fn of(settings: Settings) -> Self {
        let clock = ManualClock::new();
        Self::with(settings, clock.clone(), Arc::new(clock))
    }

    fn with(settings: Settings, clock: ManualClock, before: Arc<dyn Clock>) -> Self {
        let (desk, answers) = (TestDesk::default(), Answers::default());
        let reach = Reach {
            keyring: Keyring::of(&settings).unwrap(),
            desk: Arc::new(desk.clone()),
            answers: Arc::new(answers.clone()),
            clock: before,
        };
        Self { reception: Reception::new(settings, reach), desk, answers, clock }
    }

    fn delivery(&self, raw: &Value, attempt: u32) -> Delivery {
        Delivery { at: self.clock.now(), envelope: Envelope::of(raw.clone()), attempt }
    }

    async fn receive(&self, raw: &Value) -> Reply {
        patiently(self.reception.receive(self.delivery(raw, 0))).await
    }

    async fn status(&self, raw: &Value) -> u16 {
        self.receive(raw).await.status
    }
}

/// An event, and the id of its envelope.
fn callback(id: &str, event: &Value) -> Value {
    json!({
        "type": "event_callback", "team_id": "T1", "api_app_id": "ABOT", "event_id": id,
        "authorizations": [{ "enterprise_id": null, "team_id": "T1", "user_id": "UBOT",
                             "is_bot": true, "is_enterprise_install": false }],
        "is_ext_shared_channel": false,
        "event": event,
    })
}

/// A message of U7 in C1 that names the bot.
fn message(ts: &str, text: &str) -> Value {
    json!({ "type": "message", "user": "U7", "text": format!("<@UBOT> {text}"), "channel": "C1",
            "channel_type": "channel", "ts": ts, "team": "T1", "event_ts": ts,
            "client_msg_id": format!("m-{ts}") })
}

/// The other event that Slack makes of it.
fn twin(message: &Value) -> Value {
    let mut event = message.clone();
    event["type"] = json!("app_mention");
    event.as_object_mut().unwrap().remove("channel_type");
    event
}

const TS: &str = "1700000000.000100";
