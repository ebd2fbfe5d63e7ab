//! Slack's side of Socket Mode, on a real socket: tickets, greetings, envelopes, and everything
//! that goes wrong with them, as a test says and never by time.
//!
//! ```ignore
//! let slack = SlackSocket::start().await;         // … give `slack.api()` to the client
//! let line = slack.line(1).await;                 // the first connection, not greeted
//! line.hello();
//! line.envelope("e1", "events_api", payload);
//! slack.acked("e1").await;
//! line.disconnect("refresh_requested");
//! line.deaf();                                    // reads nothing and answers nothing
//! line.cut();                                     // is gone without a word
//! ```

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::extract::State;
use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

/// Fails a test that hangs; nothing waits for it.
const PATIENCE: Duration = Duration::from_secs(20);

/// The service. It ends when it is dropped.
pub(crate) struct SlackSocket {
    address: std::net::SocketAddr,
    shared: Arc<Shared>,
    _stop: DropGuard,
}

/// Something that happened, in the order in which Slack saw it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Saw {
    /// A ticket was asked for, with this token.
    Ticket(String),
    /// A connection was made.
    Joined(usize),
    /// An envelope was acknowledged on a connection, with this payload.
    Ack(usize, String, Value),
    /// The client asked whether anybody is there.
    Ping(usize),
    /// Slack does not listen any more.
    Deaf(usize),
    /// The client said goodbye, or went away.
    Left(usize),
}

struct Shared {
    saw: watch::Sender<Vec<Saw>>,
    lines: watch::Sender<Vec<Line>>,
    /// What the next tickets are instead.
    refusals: Mutex<Vec<Value>>,
    tickets: AtomicUsize,
    address: std::net::SocketAddr,
}

#[derive(Debug)]
enum Order {
    Send(String),
    Deaf,
    Cut,
    Close,
}

/// One connection, from Slack's side.
#[derive(Debug, Clone)]
pub(crate) struct Line {
    orders: mpsc::UnboundedSender<Order>,
}

impl Line {
    fn order(&self, order: Order) {
        // A connection that is gone takes none: as with Slack.
        let _ = self.orders.send(order);
    }

    pub(crate) fn send(&self, frame: &Value) {
        self.order(Order::Send(frame.to_string()));
    }

    pub(crate) fn raw(&self, text: &str) {
        self.order(Order::Send(text.to_owned()));
    }

    pub(crate) fn hello(&self) {
        self.send(&json!({ "type": "hello", "num_connections": 1,
                           "connection_info": { "app_id": "ABOT" } }));
    }

    pub(crate) fn envelope(&self, id: &str, kind: &str, payload: &Value) {
        self.send(&json!({ "type": kind, "envelope_id": id, "payload": payload,
                           "accepts_response_payload": kind == "slash_commands" }));
    }

    /// The same once more, as after an acknowledgement that got lost.
    pub(crate) fn again(&self, id: &str, payload: &Value, attempt: u32) {
        self.send(&json!({ "type": "events_api", "envelope_id": id, "payload": payload,
                           "accepts_response_payload": false, "retry_attempt": attempt,
                           "retry_reason": "timeout" }));
    }

    pub(crate) fn disconnect(&self, reason: &str) {
        self.send(&json!({ "type": "disconnect", "reason": reason }));
    }

    /// Nothing is read or answered from now on, and nothing is closed.
    pub(crate) fn deaf(&self) {
        self.order(Order::Deaf);
    }

    pub(crate) fn cut(&self) {
        self.order(Order::Cut);
    }

    pub(crate) fn close(&self) {
        self.order(Order::Close);
    }
}

impl SlackSocket {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            saw: watch::Sender::default(),
            lines: watch::Sender::default(),
            refusals: Mutex::default(),
            tickets: AtomicUsize::new(0),
            address,
        });
        let app = Router::new()
            .route("/api/apps.connections.open", post(ticket))
            .route("/link", get(link))
            .with_state(Arc::clone(&shared));
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        TaskTracker::new().spawn(async move {
            tokio::select! {
                served = async { axum::serve(listener, app).await } => served.unwrap(),
                () = stopped.cancelled() => {}
            }
        });
        Self { address, shared, _stop: stop.drop_guard() }
    }

    /// What a client is to be given.
    pub(crate) fn api(&self) -> String {
        format!("http://{}/api/", self.address)
    }

    /// Where the connections are made, for a Web API that gives the tickets.
    pub(crate) fn url(&self) -> String {
        format!("ws://{}/link?ticket=given", self.address)
    }

    /// The next ticket is this answer instead.
    pub(crate) fn refuses(&self, answer: Value) {
        self.shared.refusals.lock().unwrap().insert(0, answer);
    }

    /// Waits for the connection of this number, from 1.
    pub(crate) async fn line(&self, no: usize) -> Line {
        let mut lines = self.shared.lines.subscribe();
        let lines = lines.wait_for(|lines| lines.len() >= no);
        let lines = tokio::time::timeout(PATIENCE, lines).await.unwrap().unwrap();
        lines.get(no - 1).unwrap().clone()
    }

    /// Waits for the connection of this number, and greets.
    pub(crate) async fn greeted(&self, no: usize) -> Line {
        let line = self.line(no).await;
        line.hello();
        line
    }

    /// Waits until Slack has seen what is asked for; all that it has.
    pub(crate) async fn saw(&self, is_it: impl Fn(&[Saw]) -> bool) -> Vec<Saw> {
        let mut saw = self.shared.saw.subscribe();
        let saw = saw.wait_for(|saw| is_it(saw));
        tokio::time::timeout(PATIENCE, saw).await.unwrap().unwrap().clone()
    }

    pub(crate) fn saw_now(&self) -> Vec<Saw> {
        self.shared.saw.borrow().clone()
    }

    /// Waits for the acknowledgement of this envelope; on which connection, and what it holds.
    pub(crate) async fn acked(&self, id: &str) -> (usize, Value) {
        let saw = self.saw(|saw| ack_of(saw, id).is_some()).await;
        ack_of(&saw, id).unwrap()
    }

    /// How many acknowledgements there were.
    pub(crate) fn acks(&self) -> usize {
        self.saw_now().iter().filter(|saw| matches!(saw, Saw::Ack(..))).count()
    }

    /// How many tickets were asked for.
    pub(crate) fn tickets(&self) -> usize {
        self.shared.tickets.load(Ordering::SeqCst)
    }
}

fn ack_of(saw: &[Saw], id: &str) -> Option<(usize, Value)> {
    saw.iter().find_map(|saw| match saw {
        Saw::Ack(line, envelope, payload) if envelope == id => Some((*line, payload.clone())),
        Saw::Ticket(_)
        | Saw::Joined(_)
        | Saw::Ack(..)
        | Saw::Ping(_)
        | Saw::Deaf(_)
        | Saw::Left(_) => None,
    })
}

impl Shared {
    fn see(&self, saw: Saw) {
        self.saw.send_modify(|seen| seen.push(saw));
    }
}

async fn ticket(State(shared): State<Arc<Shared>>, headers: HeaderMap) -> Response {
    let token = headers.get("authorization").and_then(|value| value.to_str().ok());
    shared.see(Saw::Ticket(token.unwrap_or_default().to_owned()));
    shared.tickets.fetch_add(1, Ordering::SeqCst);
    let refusal = shared.refusals.lock().unwrap().pop();
    let answer = refusal.unwrap_or_else(
        || json!({ "ok": true, "url": format!("ws://{}/link?ticket=secret", shared.address) }),
    );
    Json(answer).into_response()
}

async fn link(State(shared): State<Arc<Shared>>, upgrade: WebSocketUpgrade) -> Response {
    upgrade.max_message_size(4 << 20).on_upgrade(move |socket| serve(shared, socket))
}

async fn serve(shared: Arc<Shared>, mut socket: WebSocket) {
    let (orders, mut takes) = mpsc::unbounded_channel();
    let mut no = 0;
    shared.lines.send_modify(|lines| {
        no = lines.len() + 1;
        lines.push(Line { orders });
    });
    shared.see(Saw::Joined(no));
    loop {
        tokio::select! {
            order = takes.recv() => match order {
                Some(Order::Send(text)) => {
                    if socket.send(Message::Text(text.into())).await.is_err() {
                        break;
                    }
                }
                Some(Order::Close) => {
                    // Whether or not somebody still listens.
                    let _ = socket.send(Message::Close(None)).await;
                }
                Some(Order::Deaf) => {
                    // The connection stays, and nobody is at this end of it.
                    shared.see(Saw::Deaf(no));
                    return std::future::pending().await;
                }
                Some(Order::Cut) | None => break,
            },
            came = socket.recv() => match came {
                Some(Ok(Message::Text(text))) => {
                    let frame: Value = serde_json::from_str(&text).unwrap();
                    let id = frame.get("envelope_id").and_then(Value::as_str).unwrap().to_owned();
                    let payload = frame.get("payload").cloned().unwrap_or_default();
                    shared.see(Saw::Ack(no, id, payload));
                }
                Some(Ok(Message::Ping(_))) => shared.see(Saw::Ping(no)),
                Some(Ok(Message::Binary(_) | Message::Pong(_) | Message::Close(_))) => {}
                Some(Err(_)) | None => break,
            },
        }
    }
    shared.see(Saw::Left(no));
}
