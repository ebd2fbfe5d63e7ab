//! Files: what Slack says of those that people share, their bytes behind the token, and the bytes
//! that the bot uploads.

use std::collections::BTreeMap;

use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, Response, StatusCode, header};
use serde_json::{Map, Value, json};

use super::{Call, FakeSlack, Shared, TOKEN, World, answered, api};

/// What comes for a download.
#[derive(Debug, Clone)]
pub(crate) enum Sends {
    /// These bytes.
    Bytes(Bytes),
    /// Slack's sign-in, with status 200, as for a token without the scope.
    SignIn,
    /// One is sent on.
    To(String),
    /// Another status.
    Status(u16),
    /// Nothing, ever.
    Stall,
    /// The beginning, and then the connection breaks.
    Cut,
}

/// By id.
pub(super) type Shares = BTreeMap<String, (Value, Sends)>;

impl FakeSlack {
    /// A person shares a file in a thread: its id.
    pub(crate) fn shares(&self, at: (&str, &str), name: &str, kind: &str, text: &str) -> String {
        let (channel, root) = at;
        let mut world = self.world();
        let ts = world.tick();
        let id = format!("F0{}", world.shares.len() + 1);
        let url = format!("http://{}/files-pri/{id}", self.shared.address);
        let file = json!({
            "id": id, "name": name, "title": name, "mimetype": kind, "mode": "hosted",
            "is_external": false, "size": text.len(), "url_private": url,
            "url_private_download": url, "channels": [channel],
            "shares": { "public": { channel: [{ "ts": ts, "thread_ts": root }] } },
        });
        let bytes = Sends::Bytes(Bytes::from(text.to_owned()));
        world.shares.insert(id.clone(), (file, bytes));
        id
    }

    /// Slack says something else of it.
    pub(crate) fn file(&self, id: &str, key: &str, value: Value) {
        let mut world = self.world();
        let file = world.shares.get_mut(id).and_then(|(file, _)| file.as_object_mut()).unwrap();
        file.insert(key.to_owned(), value);
    }

    /// Something else comes for its download.
    pub(crate) fn sends(&self, id: &str, sends: Sends) {
        self.world().shares.get_mut(id).unwrap().1 = sends;
    }

    /// Where this one is reached.
    pub(crate) fn at(&self, path: &str) -> String {
        format!("http://{}{path}", self.shared.address)
    }
}

impl World {
    pub(super) fn file_info(&self, asked: &Map<String, Value>) -> Result<Value, &'static str> {
        let file = self.shares.get(&api::text(asked, "file")).ok_or("file_not_found")?;
        Ok(json!({ "file": file.0, "comments": [] }))
    }
}

pub(super) async fn downloaded(shared: &Shared, id: &str, token: Option<String>) -> Response<Body> {
    let known = token.as_deref() == Some(TOKEN);
    let call = Call { method: "download".to_owned(), arguments: Map::new(), token };
    shared.calls.send_modify(|all| all.push(call));
    let found = shared.world.lock().unwrap().shares.get(id).cloned();
    match found.map(|(_, sends)| sends).filter(|_| known) {
        Some(Sends::Bytes(bytes)) => typed("text/plain", Body::from(bytes)),
        Some(Sends::SignIn) | None => {
            typed("text/html; charset=utf-8", Body::from("<html>Sign in to Slack</html>"))
        }
        Some(Sends::To(url)) => {
            let mut response = answered(StatusCode::FOUND, "");
            response.headers_mut().insert(header::LOCATION, url.parse().unwrap());
            response
        }
        Some(Sends::Status(status)) => answered(StatusCode::from_u16(status).unwrap(), ""),
        Some(Sends::Stall) => std::future::pending().await,
        Some(Sends::Cut) => super::cut("the beg"),
    }
}

pub(super) fn uploaded(shared: &Shared, id: &str, bytes: Bytes) -> Response<Body> {
    let mut world = shared.world.lock().unwrap();
    match world.files.get_mut(id) {
        Some(file) if file.length == bytes.len() => {
            file.bytes = Some(bytes);
            answered(StatusCode::OK, "OK")
        }
        Some(_) => answered(StatusCode::BAD_REQUEST, "another length was announced"),
        None => answered(StatusCode::NOT_FOUND, ""),
    }
}

fn typed(kind: &'static str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}
