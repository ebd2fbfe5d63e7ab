//! Slack's Web API, faked at the wire: a real socket behind which channels, threads, messages and
//! files are kept, with Slack's limits and words for what goes beyond them. It does to its client
//! whatever a test says, by events and never by time.
//!
//! ```ignore
//! let slack = FakeSlack::start().await;
//! let root = slack.root("C1");                               // a thread to answer in
//! slack.will("chat.postMessage", Fault::CutAfter);           // done, and nobody hears of it
//! slack.always("conversations.replies", Fault::Limited(30));
//! // … give `slack.settings()` to the client, then:
//! let calls = slack.called("chat.postMessage", 2).await;     // waits for two calls
//! let thread = slack.thread("C1", &root);                    // without its root
//! ```
//!
//! Reads are answered by GET and by POST. JSON is taken only by methods that write, as Slack does.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod api;
mod homes;
mod install;
mod shared;
pub(crate) mod streams;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, Response, StatusCode, header};
use dogwatch::ports::Clock;
use dogwatch::slack::access::Keyring;
use dogwatch::slack::posting::Posting;
use dogwatch::slack::web::Web;
use dogwatch::slack::{Credentials, Ingress, Mode, Settings, Streaming};
use futures_util::stream;
use serde_json::{Map, Value, json};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

pub(crate) use self::install::{enterprise, team};
pub(crate) use self::shared::Sends;

/// The token that it knows.
const TOKEN: &str = "xoxb-of-the-tests";

/// As this method counts what is sent to where Slack takes the answers to presses.
pub(crate) const RESPONSE: &str = "response_url";

/// What becomes of one call.
#[derive(Debug, Clone)]
pub(crate) enum Fault {
    /// HTTP 429 with `Retry-After`, in seconds. Not done.
    Limited(u64),
    /// `rate_limited` in an answer with status 200. Not done.
    LimitedInside,
    /// This status, without a body. Not done.
    Status(u16),
    /// The connection breaks. Not done.
    CutBefore,
    /// Done; then the connection breaks before anything is answered.
    CutAfter,
    /// Not done, and never answered.
    Stall,
    /// Done, and never answered.
    Mute,
    /// Done; half of the answer comes.
    Half,
    /// Done; the answer is `{"ok":true}` and nothing else.
    Bare,
    /// Done and answered once the gate is open.
    Held(CancellationToken),
    /// Slack says no with this word. Not done.
    Refuse(&'static str),
    /// As `missing_scope`, with the scope that is needed.
    Scope(&'static str),
}

/// One call as it came.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    pub(crate) method: String,
    pub(crate) arguments: Map<String, Value>,
    pub(crate) token: Option<String>,
}

/// A message that people see.
#[derive(Debug, Clone, Default)]
pub(crate) struct Message {
    pub(crate) channel: String,
    pub(crate) ts: String,
    pub(crate) thread_ts: Option<String>,
    pub(crate) user: String,
    /// Empty for a person's.
    pub(crate) bot_id: String,
    /// Of what nobody wrote.
    pub(crate) subtype: Option<&'static str>,
    pub(crate) text: String,
    pub(crate) blocks: Value,
    pub(crate) metadata: Value,
    pub(crate) files: Vec<File>,
    /// Everything that was asked for it.
    pub(crate) arguments: Map<String, Value>,
    pub(crate) stream: Stream,
}

/// How far a stream is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Stream {
    /// It is an ordinary message.
    #[default]
    None,
    /// Text is added to it.
    Open,
    /// A person stopped it.
    Stopped,
    /// It is closed, or Slack gave up on it.
    Closed,
}

/// A file in the making or in a thread.
#[derive(Debug, Clone, Default)]
pub(crate) struct File {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) title: String,
    pub(crate) length: usize,
    pub(crate) bytes: Option<Bytes>,
}

/// A channel, and how the bot stands in it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Room {
    pub(crate) is_member: bool,
    pub(crate) is_archived: bool,
    /// Roots of locked threads.
    pub(crate) locked: Vec<String>,
}

/// All that Slack keeps.
#[derive(Default)]
struct World {
    rooms: BTreeMap<String, Room>,
    messages: Vec<Message>,
    files: BTreeMap<String, File>,
    shares: shared::Shares,
    /// By channel and thread.
    statuses: BTreeMap<(String, String), String>,
    /// The status of each agent's session, likewise.
    sessions: BTreeMap<(String, String), String>,
    streaming: Streaming,
    /// A refused token.
    token_is: Option<&'static str>,
    /// Who reads finds no metadata.
    hides_metadata: bool,
    /// What the token is allowed, where Slack says so.
    scopes: Option<String>,
    manifest: Option<(String, Value)>,
    /// Messages of one page at most.
    page_max: usize,
    socket_url: String,
    installs: install::Installs,
    homes: homes::Homes,
    clock: u64,
}

struct Shared {
    world: Mutex<World>,
    faults: Mutex<HashMap<String, VecDeque<Fault>>>,
    always: Mutex<HashMap<String, Fault>>,
    calls: watch::Sender<Vec<Call>>,
    /// Raised by each change that people see.
    changes: watch::Sender<u64>,
    address: std::net::SocketAddr,
}

/// The service. It ends when it is dropped.
pub(crate) struct FakeSlack {
    shared: Arc<Shared>,
    _stop: DropGuard,
}

impl FakeSlack {
    /// Listens on a free port of the loopback interface; the bot is a member of C1 and C2.
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let room = Room { is_member: true, ..Room::default() };
        let rooms = ["C1", "C2"].map(|channel| (channel.to_owned(), room.clone()));
        let world = World { rooms: rooms.into(), page_max: 1_000, ..World::default() };
        let world = World { streaming: Streaming::Off, ..world };
        let shared = Arc::new(Shared {
            world: Mutex::new(world),
            faults: Mutex::default(),
            always: Mutex::default(),
            calls: watch::Sender::default(),
            changes: watch::Sender::default(),
            address: listener.local_addr().unwrap(),
        });
        let app = Router::new().fallback(serve).with_state(Arc::clone(&shared));
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        // Nobody waits for it: a stalled call would keep it for ever.
        TaskTracker::new().spawn(async move {
            tokio::select! {
                served = async { axum::serve(listener, app).await } => served.unwrap(),
                () = stopped.cancelled() => {}
            }
        });
        Self { shared, _stop: stop.drop_guard() }
    }

    /// What a client is to be given.
    pub(crate) fn api(&self) -> String {
        format!("http://{}/api/", self.shared.address)
    }

    /// Where the answer to a press may be given.
    pub(crate) fn response_url(&self) -> String {
        format!("http://{}/hooks/1", self.shared.address)
    }

    /// How a bot is set up for it.
    pub(crate) fn settings(&self) -> Settings {
        Settings {
            api: self.api(),
            credentials: Credentials::Token(TOKEN.to_owned().into()),
            ingress: Ingress::Socket { app_token: "xapp-1".to_owned().into(), connections: 1 },
            hearing: Mode::default().into(),
            channels: BTreeMap::new(),
            bots: Vec::new(),
            guests: vec![],
            streaming: self.world().streaming,
        }
    }

    /// A bot's way to post here.
    pub(crate) fn posting(&self, clock: Arc<dyn Clock>) -> Posting {
        // Another test of this process may have installed it.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let web = Arc::new(Web::new(&self.api(), Arc::clone(&clock)).unwrap());
        {
            let settings = self.settings();
            Posting::new(settings.streaming, Keyring::of(&settings).unwrap(), web, clock)
        }
    }

    // ------------------------------------------------------------ what it does

    /// The next call of this method that has no fault yet fares so.
    pub(crate) fn will(&self, method: &str, fault: Fault) {
        self.shared.faults.lock().unwrap().entry(method.to_owned()).or_default().push_back(fault);
    }

    /// Every call of this method, or of all with `*`, fares so, but for those with a fault of
    /// their own.
    pub(crate) fn always(&self, method: &str, fault: Fault) {
        self.shared.always.lock().unwrap().insert(method.to_owned(), fault);
    }

    /// No longer.
    pub(crate) fn never_again(&self, method: &str) {
        self.shared.always.lock().unwrap().remove(method);
    }

    /// A person begins a thread: the time stamp of its root.
    pub(crate) fn root(&self, channel: &str) -> String {
        self.says(channel, None, "hey bot")
    }

    /// A person writes; the message's time stamp.
    pub(crate) fn says(&self, channel: &str, thread: Option<&str>, text: &str) -> String {
        let ts = self.world().tick();
        let message = Message {
            channel: channel.to_owned(),
            ts: ts.clone(),
            thread_ts: thread.map(str::to_owned),
            user: "U7".to_owned(),
            text: text.to_owned(),
            ..Message::default()
        };
        self.world().messages.push(message);
        ts
    }

    /// Somebody has invited the bot, which Slack tells in the bot's name.
    pub(crate) fn invited(&self, channel: &str) {
        let ts = self.says(channel, None, "has joined the channel");
        let mut world = self.world();
        let message = world.messages.iter_mut().find(|message| message.ts == ts).unwrap();
        api::USER.clone_into(&mut message.user);
        message.subtype = Some("channel_join");
    }

    /// Another app writes under a root of C1, with this beside its text.
    pub(crate) fn forged(&self, root: &str, metadata: Value) {
        let ts = self.says("C1", Some(root), "forged");
        let mut world = self.world();
        let message = world.messages.iter_mut().find(|message| message.ts == ts).unwrap();
        (message.bot_id, message.metadata) = ("B9".to_owned(), metadata);
    }

    /// Changes a channel, or makes it.
    pub(crate) fn room(&self, channel: &str, change: impl FnOnce(&mut Room)) {
        change(self.world().rooms.entry(channel.to_owned()).or_default());
    }

    /// The token is refused with this word, or taken again.
    pub(crate) fn token_is(&self, word: Option<&'static str>) {
        self.world().token_is = word;
    }

    /// The token is allowed this, with commas between.
    pub(crate) fn scopes_are(&self, scopes: &str) {
        self.world().scopes = Some(scopes.to_owned());
    }

    /// How this app is set up.
    pub(crate) fn manifest_is(&self, app: &str, manifest: Value) {
        self.world().manifest = Some((app.to_owned(), manifest));
    }

    /// Who reads finds no metadata any more.
    pub(crate) fn hide_metadata(&self) {
        self.world().hides_metadata = true;
    }

    /// A page of a thread has no more messages than this, whatever is asked.
    pub(crate) fn page_max(&self, messages: usize) {
        self.world().page_max = messages;
    }

    /// What `apps.connections.open` answers.
    pub(crate) fn socket_url(&self, url: &str) {
        url.clone_into(&mut self.world().socket_url);
    }

    // ------------------------------------------------------------ what is seen

    /// Waits until a method was called so often; all these calls.
    pub(crate) async fn called(&self, method: &str, count: usize) -> Vec<Call> {
        let of = |all: &[Call]| -> Vec<Call> {
            all.iter().filter(|call| call.method == method).cloned().collect()
        };
        let mut calls = self.shared.calls.subscribe();
        let all = calls.wait_for(|all| of(all).len() >= count).await.unwrap();
        of(&all)
    }

    /// How often a method was called.
    pub(crate) fn count(&self, method: &str) -> usize {
        self.shared.calls.borrow().iter().filter(|call| call.method == method).count()
    }

    /// All messages under a root, in order.
    pub(crate) fn thread(&self, channel: &str, root: &str) -> Vec<Message> {
        let under =
            |one: &&Message| one.channel == channel && one.thread_ts.as_deref() == Some(root);
        self.world().messages.iter().filter(under).cloned().collect()
    }

    /// Waits until the messages under a root are like that.
    pub(crate) async fn until(
        &self,
        channel: &str,
        root: &str,
        like: impl Fn(&[Message]) -> bool,
    ) -> Vec<Message> {
        let mut changes = self.shared.changes.subscribe();
        changes.wait_for(|_| like(&self.thread(channel, root))).await.unwrap();
        self.thread(channel, root)
    }

    /// Every message of the bot.
    pub(crate) fn posted(&self) -> Vec<Message> {
        self.world().messages.iter().filter(|one| !one.bot_id.is_empty()).cloned().collect()
    }

    /// Waits until something that people see is so.
    pub(crate) async fn until_any(&self, like: impl Fn() -> bool) {
        self.shared.changes.subscribe().wait_for(|_| like()).await.unwrap();
    }

    /// The status line under a thread.
    pub(crate) fn status(&self, channel: &str, root: &str) -> Option<String> {
        self.world().statuses.get(&(channel.to_owned(), root.to_owned())).cloned()
    }

    /// Waits until the status line of a thread is this.
    pub(crate) async fn status_is(&self, channel: &str, root: &str, status: Option<&str>) {
        let mut changes = self.shared.changes.subscribe();
        let is = |_: &u64| self.status(channel, root).as_deref() == status;
        changes.wait_for(is).await.unwrap();
    }

    fn world(&self) -> MutexGuard<'_, World> {
        self.shared.world.lock().unwrap()
    }
}

// ---------------------------------------------------------------- the wire

async fn serve(State(shared): State<Arc<Shared>>, request: Request) -> Response<Body> {
    let (parts, body) = request.into_parts();
    let bytes = axum::body::to_bytes(body, usize::MAX).await.unwrap_or_default();
    if let Some(id) = parts.uri.path().strip_prefix("/upload/") {
        return shared::uploaded(&shared, id, bytes);
    }
    let bearer = parts.headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let token = bearer.and_then(|bearer| Some(bearer.split_once(' ')?.1.to_owned()));
    if let Some(id) = parts.uri.path().strip_prefix("/files-pri/") {
        return shared::downloaded(&shared, id, token).await;
    }
    let path = parts.uri.path();
    let hook = path.starts_with("/hooks/").then_some(RESPONSE);
    let Some(method) = hook.or_else(|| path.strip_prefix("/api/")) else {
        return answered(StatusCode::NOT_FOUND, "");
    };
    let call = Call {
        method: method.to_owned(),
        arguments: arguments(method, &parts.headers, parts.uri.query(), &bytes),
        token,
    };
    let fault = fault_of(&shared, method);
    shared.calls.send_modify(|all| all.push(call.clone()));
    fared(&shared, call, fault).await
}

/// What becomes of a call.
async fn fared(shared: &Shared, call: Call, fault: Option<Fault>) -> Response<Body> {
    let done = || {
        let answer = shared.world.lock().unwrap().answer(&call, shared.address);
        shared.changes.send_modify(|count| *count += 1);
        answer.to_string()
    };
    let no =
        |word: &str| answered(StatusCode::OK, &json!({ "ok": false, "error": word }).to_string());
    match fault {
        None => {
            let mut response = answered(StatusCode::OK, &done());
            let scopes = shared.world.lock().unwrap().scopes.clone();
            if let Some(scopes) = scopes {
                response.headers_mut().insert("x-oauth-scopes", scopes.parse().unwrap());
            }
            response
        }
        Some(Fault::Limited(seconds)) => {
            let mut response =
                answered(StatusCode::TOO_MANY_REQUESTS, r#"{"ok":false,"error":"ratelimited"}"#);
            response.headers_mut().insert(header::RETRY_AFTER, seconds.into());
            response
        }
        Some(Fault::LimitedInside) => no("rate_limited"),
        Some(Fault::Status(status)) => answered(StatusCode::from_u16(status).unwrap(), ""),
        Some(Fault::CutBefore) => cut(""),
        Some(Fault::CutAfter) => {
            done();
            cut("")
        }
        Some(Fault::Stall) => std::future::pending().await,
        Some(Fault::Mute) => {
            done();
            std::future::pending().await
        }
        Some(Fault::Half) => {
            let answer = done();
            cut(answer.get(..answer.len() / 2).unwrap_or_default())
        }
        Some(Fault::Bare) => {
            done();
            answered(StatusCode::OK, r#"{"ok":true}"#)
        }
        Some(Fault::Held(gate)) => {
            gate.cancelled().await;
            answered(StatusCode::OK, &done())
        }
        Some(Fault::Refuse(word)) => no(word),
        Some(Fault::Scope(scope)) => {
            let body = json!({ "ok": false, "error": "missing_scope", "needed": scope });
            answered(StatusCode::OK, &body.to_string())
        }
    }
}

fn fault_of(shared: &Shared, method: &str) -> Option<Fault> {
    let own = shared.faults.lock().unwrap().get_mut(method).and_then(VecDeque::pop_front);
    let always = shared.always.lock().unwrap();
    own.or_else(|| always.get(method).cloned()).or_else(|| always.get("*").cloned())
}

fn answered(status: StatusCode, body: &str) -> Response<Body> {
    let mut response = Response::new(Body::from(body.to_owned()));
    *response.status_mut() = status;
    let json = header::HeaderValue::from_static("application/json; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    response
}

/// Promises more than it sends.
fn cut(body: &str) -> Response<Body> {
    let steps = [Ok(Bytes::from(body.to_owned())), Err(std::io::Error::other("cut by the test"))];
    Response::new(Body::from_stream(stream::iter(steps)))
}

/// As an object, however they were sent.
fn arguments(
    method: &str,
    headers: &HeaderMap,
    query: Option<&str>,
    body: &[u8],
) -> Map<String, Value> {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let kind = kind.unwrap_or_default();
    if kind.starts_with("application/json") {
        // Slack reads JSON only where something is written.
        let taken = !api::READS.contains(&method);
        let value: Value = serde_json::from_slice(body).unwrap_or_default();
        return value.as_object().filter(|_| taken).cloned().unwrap_or_default();
    }
    let body = String::from_utf8_lossy(body);
    let pairs = query.into_iter().chain([body.as_ref()]).flat_map(|text| text.split('&'));
    pairs
        .filter_map(|pair| pair.split_once('='))
        .map(|(key, value)| (decoded(key), Value::String(decoded(value))))
        .collect()
}

fn decoded(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        match byte {
            b'+' => bytes.push(b' '),
            b'%' => {
                let pair = [rest.next().unwrap(), rest.next().unwrap()];
                let pair = std::str::from_utf8(&pair).unwrap().to_owned();
                bytes.push(u8::from_str_radix(&pair, 16).unwrap());
            }
            _ => bytes.push(byte),
        }
    }
    String::from_utf8(bytes).unwrap_or_else(|error| panic!("{text}: {error}"))
}
