//! How long Slack waits until an event is acknowledged, at 200 events a second, each of which starts
//! or continues a conversation: next to a server that brings one row an event safely to the disk. And
//! whether anything was acknowledged before it was safe.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::post;
use dogwatch::core::ledger::Row;
use dogwatch::core::message::{Answer, Delta, ModelError, Request};
use dogwatch::core::transcript::{Finish, Usage};
use dogwatch::engine::desk::FrontDesk;
use dogwatch::ports::{Desk, Model, Store};
use dogwatch::slack::access::Keyring;
use dogwatch::slack::hear::{Visitor, Who};
use dogwatch::slack::panel::Told;
use dogwatch::slack::reception::{Answerer, Reach, Reception, Whom};
use dogwatch::slack::routes::routes;
use dogwatch::slack::{API, Credentials, Ingress, Mode, Settings, Streaming};
use dogwatch::store::{self, Sqlite};
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, join_all};
use rusqlite::Connection;
use serde_json::{Value, json};

use crate::bot::{self, Bot, Parts, Spy};
use crate::figures::{Line, median};
use crate::slack_push::Pusher;

const EVENTS_PER_SECOND: u64 = 200;
/// Events of one round; rounds of the bot and of the reference take turns.
const EVENTS: u64 = 1_000;
const ROUNDS: u64 = 5;
/// Threads that the events are in, so that most continue a conversation.
const THREADS: u64 = 100;
const SECRET: &str = "8f742231b10e8888abcd99yyyzzz85a5";

/// Says the same at once.
struct Ready;

impl Model for Ready {
    fn call<'a>(
        &'a self,
        _: &'a Request,
        _: &'a mut (dyn FnMut(Delta) + Send),
    ) -> BoxFuture<'a, Result<Answer, ModelError>> {
        let usage = Usage::default();
        let answer = Answer { text: "yes".into(), calls: vec![], finish: Finish::Stop, usage };
        async { Ok(answer) }.boxed()
    }
}

/// Nobody is answered here but by the outbox.
struct Nobody;

impl Answerer for Nobody {
    fn tell<'a>(&'a self, _: &'a Whom, told: &'a Told) -> BoxFuture<'a, ()> {
        panic!("refused: {told:?}")
    }

    fn respond<'a>(&'a self, _: &'a str, told: &'a Told) -> BoxFuture<'a, ()> {
        panic!("refused: {told:?}")
    }

    fn show(&self, visitor: Visitor, _: Option<String>) {
        panic!("shown: {visitor:?}")
    }

    fn replace<'a>(&'a self, _: &'a str, _: &'a Whom, told: &'a Told) -> BoxFuture<'a, ()> {
        panic!("refused: {told:?}")
    }
}

/// A mention in one of the threads.
fn event(no: u64) -> Value {
    let (root, ts) = (format!("1700000000.{:06}", no % THREADS), format!("1700000001.{no:06}"));
    json!({
        "type": "event_callback", "team_id": "T1", "api_app_id": "A1", "event_id": format!("Ev{no}"),
        "authorizations": [{
            "enterprise_id": null, "team_id": "T1", "user_id": "UBOT",
            "is_bot": true, "is_enterprise_install": false,
        }],
        "event_time": 1_700_000_000,
        "event": {
            "type": "app_mention", "user": "U1", "text": format!("<@UBOT> event {no}"), "ts": ts,
            "channel": "C1", "event_ts": ts, "thread_ts": root,
            "client_msg_id": format!("00000000-0000-4000-8000-{no:012}"),
        },
    })
}

/// Which event a stored arrival is of.
fn number(text: &str) -> Option<u64> {
    text.rsplit_once("event ")?.1.parse().ok()
}

/// The reference: one row an event, safe on the disk before the answer.
fn bare(place: &std::path::Path) -> Router {
    let store = Connection::open(place.join("bare.db")).unwrap();
    store.pragma_update(None, "journal_mode", "WAL").unwrap();
    store.pragma_update(None, "synchronous", "FULL").unwrap();
    store.execute("CREATE TABLE event (no INTEGER PRIMARY KEY, raw BLOB)", ()).unwrap();
    let store = Arc::new(Mutex::new(store));
    let take = async |State(store): State<Arc<Mutex<Connection>>>, raw: Bytes| {
        let write = move || {
            let store = store.lock().unwrap();
            store.execute("INSERT INTO event (raw) VALUES (?1)", [raw.as_ref()]).unwrap();
        };
        tokio::task::spawn_blocking(write).await.unwrap();
        StatusCode::OK
    };
    Router::new().route("/slack/events", post(take)).with_state(store)
}

/// Sends events when they are due, however slow the answers are; how long each waited.
async fn round(
    pusher: &Arc<Pusher>,
    from: u64,
    on_ack: &Arc<dyn Fn(u64) + Send + Sync>,
) -> Vec<f64> {
    let begun = tokio::time::Instant::now();
    let sent = (0..EVENTS).map(|no| {
        let (pusher, on_ack) = (Arc::clone(pusher), Arc::clone(on_ack));
        tokio::spawn(async move {
            let due = begun + Duration::from_micros(no * 1_000_000 / EVENTS_PER_SECOND);
            let seconds = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
            let push = pusher.push("/slack/events", event(from + no).to_string(), seconds);
            tokio::time::sleep_until(due).await;
            let at = Instant::now();
            assert_eq!(pusher.try_send(push).await, Some(200));
            let waited = at.elapsed().as_secs_f64() * 1e3;
            on_ack(from + no);
            waited
        })
    });
    join_all(sent).await.into_iter().map(Result::unwrap).collect()
}

fn p99(mut waited: Vec<f64>) -> f64 {
    waited.sort_by(f64::total_cmp);
    waited[waited.len() * 99 / 100]
}

/// A store that notes which events it has made safe.
fn noting(inner: Arc<dyn Store>, safe: &Arc<Mutex<BTreeSet<u64>>>) -> Arc<dyn Store> {
    let safe = Arc::clone(safe);
    let on_applied = Box::new(move |change: &dogwatch::core::ledger::Change| {
        for write in &change.writes {
            if let Some(Row::Arrival(arrival)) = write.row.as_deref()
                && let dogwatch::core::arrival::Body::Message { text } = &arrival.body
                && let Some(no) = number(text)
            {
                safe.lock().unwrap().insert(no);
            }
        }
    });
    Arc::new(Spy { inner, on_apply: Box::new(|_| {}), on_applied })
}

pub(crate) async fn run() -> Vec<Line> {
    let (place, clock) = (bot::place(), bot::clock());
    let path = place.path().join("store.db");
    let safe = Arc::<Mutex<BTreeSet<u64>>>::default();
    let store = Arc::new(Sqlite::open(&store::Settings { path }).unwrap());
    let bot = Bot::start(Parts {
        store: noting(store, &safe),
        clock: Arc::clone(&clock),
        model: Arc::new(Ready),
        spool: place.path().join("spool"),
        on_tool: Arc::new(|| {}),
    })
    .await;
    let settings = Settings {
        api: API.to_owned(),
        credentials: Credentials::Token("xoxb-1".to_owned().into()),
        ingress: Ingress::Http { signing_secret: SECRET.to_owned().into() },
        hearing: Mode::Thread.into(),
        streaming: Streaming::Auto,
        channels: BTreeMap::new(),
        bots: vec![],
        guests: vec![],
    };
    let desk: Arc<dyn Desk> = Arc::new(FrontDesk(Arc::clone(&bot.desk.0)));
    let (keyring, answers) = (Keyring::of(&settings).unwrap(), Arc::new(Nobody));
    let reception = Reception::new(settings, Reach { desk, keyring, answers, clock });
    reception.introduce(Who { user: "UBOT".into(), bot: Some("BBOT".into()), app: None });
    let ours = Arc::new(Pusher::to(routes(reception), SECRET).await);
    let other = Arc::new(Pusher::to(bare(place.path()), SECRET).await);
    let early = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&early);
    let on_ack: Arc<dyn Fn(u64) + Send + Sync> = Arc::new(move |no| {
        let is_safe = safe.lock().unwrap().contains(&no);
        counted.fetch_add(u64::from(!is_safe), Ordering::Relaxed);
    });
    let nothing: Arc<dyn Fn(u64) + Send + Sync> = Arc::new(|_| {});
    let mut of = (vec![], vec![]);
    for no in 0..=ROUNDS {
        let reference = p99(round(&other, no * EVENTS, &nothing).await);
        let measured = p99(round(&ours, no * EVENTS, &on_ack).await);
        // The first makes the connections.
        if no > 0 {
            of.0.push(measured);
            of.1.push(reference);
        }
    }
    bot.end().await;
    let ratio = median(of.0.iter().zip(&of.1).map(|(one, other)| one / other));
    let (one, other) = (median(of.0), median(of.1));
    let note = format!("p99 {one:.2} ms to {other:.2} ms, {EVENTS_PER_SECOND} events/s");
    let what = "p99 of an event's acknowledgement, to one safe row an event";
    let early = early.load(Ordering::Relaxed);
    vec![
        Line::new("ack", what, ratio).at_most(4.0).note(note),
        Line::new("ack", "acknowledged before it was safe", early as f64).at_most(0.0),
    ]
}
