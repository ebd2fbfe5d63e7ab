//! A language model's service, faked at the wire: a real socket that speaks Chat Completions and
//! does to its client whatever a test says, by events and never by time.
//!
//! ```ignore
//! let llm = FakeLlm::start().await;
//! llm.will(Reply::call("c1", "watch__list", "{}"));          // the first request
//! llm.will(Reply::text("Nothing runs."));                    // the second
//! llm.will(Reply::status(429).header("retry-after", "2"));   // the third
//! llm.otherwise(|body| Reply::text("what?"));                // all others
//! // … give `llm.base_url()` to the client, then:
//! let seen = llm.seen(2).await;                              // waits for two requests
//! assert_eq!(seen[1].body["messages"][3]["role"], "tool");
//! ```
//!
//! A stream that stops half-way until the test lets it go on, and one that never does:
//!
//! ```ignore
//! let gate = Gate::default();
//! llm.will(Reply::stream().data(&chunk::text("a")).hold(&gate).data(&chunk::text("b")).done());
//! gate.open();
//! llm.will(Reply::stream().data(&chunk::text("a")).stall());
//! llm.left(1).await;                                         // the client has given up on one
//! ```
//!
//! Without a reply for a request it answers 500 with a message that says so.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, header};
use futures_util::stream;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

/// The service. It ends when it is dropped.
pub(crate) struct FakeLlm {
    address: std::net::SocketAddr,
    shared: Arc<Shared>,
    _stop: DropGuard,
}

/// One request as it came.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    /// The path with the query.
    pub(crate) path: String,
    /// Its headers.
    pub(crate) headers: HeaderMap,
    /// Its body as JSON; `null` if it is none.
    pub(crate) body: Value,
}

type Otherwise = Box<dyn Fn(&Value) -> Reply + Send + Sync>;

struct Shared {
    replies: Mutex<VecDeque<Reply>>,
    otherwise: Mutex<Otherwise>,
    seen: watch::Sender<Vec<Seen>>,
    left: watch::Sender<usize>,
}

impl FakeLlm {
    /// Listens on a free port of the loopback interface.
    pub(crate) async fn start() -> Self {
        Self::start_at("127.0.0.1:0".parse().unwrap()).await
    }

    /// Listens at this address, such as that of a service which was ended.
    pub(crate) async fn start_at(address: std::net::SocketAddr) -> Self {
        let listener = TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            replies: Mutex::default(),
            otherwise: Mutex::new(Box::new(|_| Reply::status(500).error("no reply was prepared"))),
            seen: watch::Sender::default(),
            left: watch::Sender::default(),
        });
        let app = Router::new().fallback(answer).with_state(Arc::clone(&shared));
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        // Nobody waits for it: a stalled stream would keep it for ever.
        TaskTracker::new().spawn(async move {
            tokio::select! {
                served = async { axum::serve(listener, app).await } => served.unwrap(),
                () = stopped.cancelled() => {}
            }
        });
        Self { address, shared, _stop: stop.drop_guard() }
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> std::net::SocketAddr {
        self.address
    }

    /// What a client is to be given: `http://127.0.0.1:PORT/v1`.
    pub(crate) fn base_url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// The reply to the next request that has none yet.
    pub(crate) fn will(&self, reply: Reply) {
        self.shared.replies.lock().unwrap().push_back(reply);
    }

    /// The reply to every request that has none of its own, made from the request's body.
    pub(crate) fn otherwise(&self, reply: impl Fn(&Value) -> Reply + Send + Sync + 'static) {
        *self.shared.otherwise.lock().unwrap() = Box::new(reply);
    }

    /// Waits until `count` requests have come; all that have.
    pub(crate) async fn seen(&self, count: usize) -> Vec<Seen> {
        let mut seen = self.shared.seen.subscribe();
        seen.wait_for(|seen| seen.len() >= count).await.unwrap().clone()
    }

    /// All requests that have come, without waiting.
    pub(crate) fn seen_now(&self) -> Vec<Seen> {
        self.shared.seen.borrow().clone()
    }

    /// Waits until the client has gone away from `count` answers before they were whole.
    pub(crate) async fn left(&self, count: usize) {
        let mut left = self.shared.left.subscribe();
        left.wait_for(|left| *left >= count).await.unwrap();
    }
}

/// Holds a stream until it is opened. Clones are the same gate.
#[derive(Debug, Clone, Default)]
pub(crate) struct Gate(CancellationToken);

impl Gate {
    /// Lets everything through, from now on.
    pub(crate) fn open(&self) {
        self.0.cancel();
    }

    async fn pass(&self) {
        self.0.cancelled().await;
    }
}

/// What is sent to one request.
#[derive(Debug, Clone)]
pub(crate) struct Reply {
    status: u16,
    headers: Vec<(String, String)>,
    before: Vec<Step>,
    body: Vec<Step>,
}

#[derive(Debug, Clone)]
enum Step {
    Send(Bytes),
    Hold(Gate),
    Stall,
    Cut,
}

impl Reply {
    /// A stream of events, empty so far.
    pub(crate) fn stream() -> Self {
        Self {
            status: 200,
            headers: vec![("content-type".to_owned(), "text/event-stream".to_owned())],
            before: Vec::new(),
            body: Vec::new(),
        }
    }

    /// A whole streamed answer: each word a chunk, then the finish, usage and `[DONE]`.
    pub(crate) fn text(text: &str) -> Self {
        let words = text.split_inclusive(' ');
        let reply = words.fold(Self::stream(), |reply, word| reply.data(&chunk::text(word)));
        reply.data(&chunk::finish("stop")).data(&chunk::usage(10, 5)).done()
    }

    /// A whole streamed answer that calls one tool.
    pub(crate) fn call(id: &str, name: &str, arguments: &str) -> Self {
        Self::calls(&[(id, name, arguments)])
    }

    /// A whole streamed answer that calls tools: id, name, arguments.
    pub(crate) fn calls(calls: &[(&str, &str, &str)]) -> Self {
        let mut reply = Self::stream();
        for (index, (id, name, arguments)) in calls.iter().enumerate() {
            let middle = arguments.floor_char_boundary(arguments.len() / 2);
            let (head, tail) = arguments.split_at(middle);
            reply = reply.data(&chunk::call(index, id, name, head));
            reply = reply.data(&chunk::call(index, "", "", tail));
        }
        reply.data(&chunk::finish("tool_calls")).data(&chunk::usage(10, 5)).done()
    }

    /// A status without a body.
    pub(crate) fn status(status: u16) -> Self {
        Self { status, headers: Vec::new(), before: Vec::new(), body: Vec::new() }
    }

    /// A JSON body, as from a server that does not stream.
    pub(crate) fn json(value: &Value) -> Self {
        Self::status(200).header("content-type", "application/json").raw(value.to_string())
    }

    /// Sets the body to an error with this message.
    pub(crate) fn error(self, message: &str) -> Self {
        let body = json!({ "error": { "message": message, "type": "test" } }).to_string();
        self.header("content-type", "application/json").raw(body)
    }

    /// Sets a header.
    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.retain(|(had, _)| had != name);
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Adds an event with this JSON as its data.
    pub(crate) fn data(self, value: &Value) -> Self {
        self.raw(format!("data: {value}\n\n"))
    }

    /// Adds the event that ends a stream.
    pub(crate) fn done(self) -> Self {
        self.raw("data: [DONE]\n\n")
    }

    /// Adds bytes as they are. Each call is one frame on the wire.
    pub(crate) fn raw(mut self, bytes: impl Into<Bytes>) -> Self {
        self.body.push(Step::Send(bytes.into()));
        self
    }

    /// Goes on only once the gate is open.
    pub(crate) fn hold(mut self, gate: &Gate) -> Self {
        self.body.push(Step::Hold(gate.clone()));
        self
    }

    /// Sends nothing more and keeps the connection.
    pub(crate) fn stall(mut self) -> Self {
        self.body.push(Step::Stall);
        self
    }

    /// Breaks the connection here.
    pub(crate) fn cut(mut self) -> Self {
        self.body.push(Step::Cut);
        self
    }

    /// Sends not even the head until the gate is open.
    pub(crate) fn hold_head(mut self, gate: &Gate) -> Self {
        self.before.push(Step::Hold(gate.clone()));
        self
    }
}

/// Chunks of a stream.
pub(crate) mod chunk {
    use serde_json::{Value, json};

    /// One choice with this delta.
    pub(crate) fn delta(delta: &Value) -> Value {
        json!({ "object": "chat.completion.chunk", "choices": [{ "index": 0, "delta": delta }] })
    }

    /// A piece of text.
    pub(crate) fn text(text: &str) -> Value {
        delta(&json!({ "content": text }))
    }

    /// A piece of a call.
    pub(crate) fn call(index: usize, id: &str, name: &str, arguments: &str) -> Value {
        let function = json!({ "name": name, "arguments": arguments });
        delta(&json!({ "tool_calls": [{ "index": index, "id": id, "function": function }] }))
    }

    /// The end of the answer.
    pub(crate) fn finish(reason: &str) -> Value {
        json!({ "choices": [{ "index": 0, "delta": {}, "finish_reason": reason }] })
    }

    /// What was used.
    pub(crate) fn usage(input: u64, output: u64) -> Value {
        json!({
            "choices": [],
            "usage": { "prompt_tokens": input, "completion_tokens": output },
        })
    }
}

/// Counts an answer that is dropped before it is whole, unless it is the fake that breaks it off.
struct Unfinished {
    shared: Arc<Shared>,
    over: AtomicBool,
}

impl Unfinished {
    fn over(&self) {
        self.over.store(true, Ordering::Relaxed);
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if !self.over.load(Ordering::Relaxed) {
            self.shared.left.send_modify(|left| *left += 1);
        }
    }
}

async fn answer(State(shared): State<Arc<Shared>>, request: Request) -> Response<Body> {
    let (parts, body) = request.into_parts();
    let bytes = axum::body::to_bytes(body, usize::MAX).await.unwrap_or_default();
    let body: Value = serde_json::from_slice(&bytes).unwrap_or_default();
    let prepared = shared.replies.lock().unwrap().pop_front();
    let reply = prepared.unwrap_or_else(|| (shared.otherwise.lock().unwrap())(&body));
    let path = parts.uri.to_string();
    let seen = Seen { path, headers: parts.headers, body };
    let guard = Unfinished { shared: Arc::clone(&shared), over: AtomicBool::new(false) };
    shared.seen.send_modify(|all| all.push(seen));
    for step in &reply.before {
        let _ = act(step, &guard).await;
    }
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::from_u16(reply.status).unwrap();
    for (name, value) in &reply.headers {
        let name: HeaderName = name.parse().unwrap();
        response.headers_mut().insert(name, HeaderValue::from_str(value).unwrap());
    }
    if reply.body.is_empty() {
        guard.over();
        response.headers_mut().insert(header::CONTENT_LENGTH, HeaderValue::from_static("0"));
        return response;
    }
    let steps = stream::unfold((guard, reply.body.into_iter()), |(guard, mut steps)| async move {
        let Some(step) = steps.next() else {
            guard.over();
            return None;
        };
        let done = act(&step, &guard).await;
        Some((done, (guard, steps)))
    });
    *response.body_mut() = Body::from_stream(steps);
    response
}

/// Each frame is flushed by itself, since the next one is made only after it was polled for.
async fn act(step: &Step, guard: &Unfinished) -> Result<Bytes, std::io::Error> {
    match step {
        Step::Send(bytes) => Ok(bytes.clone()),
        Step::Hold(gate) => {
            gate.pass().await;
            Ok(Bytes::new())
        }
        Step::Stall => {
            let never: Infallible = std::future::pending().await;
            match never {}
        }
        Step::Cut => {
            // What stands before it must leave first: an error drops what is buffered.
            tokio::task::yield_now().await;
            guard.over();
            Err(std::io::Error::other("cut by the test"))
        }
    }
}
