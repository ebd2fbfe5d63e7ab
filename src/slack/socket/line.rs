//! One connection of Socket Mode, from its ticket to its end. Owns the web socket. Must not know
//! what frames mean.

use futures_util::{SinkExt as _, StreamExt as _};
use reqwest::Url;
use secrecy::SecretString;
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio_tungstenite::tungstenite::error::CapacityError;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async_tls_with_config};

use super::machine::{Input, LineNo};
use crate::core::limits::SLACK_FRAME_BYTES_MAX;
use crate::slack::envelope::Frame;
use crate::slack::web::{CallError, Web};

/// What a connection is told to do.
#[derive(Debug)]
pub(super) enum Order {
    /// Send this.
    Send(String),
    /// Ask whether somebody is there.
    Ping,
    /// Say goodbye, and wait for the other side's.
    Close,
}

type Stream = WebSocketStream<MaybeTlsStream<TcpStream>>;

/// Makes the connection and keeps it until it ends. Says all that comes.
pub(super) async fn run(
    line: LineNo,
    web: &Web,
    app_token: &SecretString,
    mut orders: mpsc::Receiver<Order>,
    says: mpsc::Sender<Input>,
) {
    let input = match open(web, app_token).await {
        Ok(stream) => {
            if says.send(Input::Joined(line)).await.is_err() {
                return;
            }
            talk(line, stream, &mut orders, &says).await;
            Input::Gone(line)
        }
        Err((what, after_ms)) => Input::Failed { line, what, after_ms },
    };
    // Whoever listens has ended, and everything with it.
    let _ = says.send(input).await;
}

/// Or what was seen, and how long Slack wants a pause. The address is a ticket: it is never shown.
async fn open(web: &Web, app_token: &SecretString) -> Result<Stream, (String, u64)> {
    let answer = web.call(app_token, "apps.connections.open", &json!({})).await;
    let answer = answer.map_err(|error| match error {
        CallError::Limited { after_ms, .. } => (error.to_string(), after_ms),
        CallError::Refused { .. } | CallError::Unreached { .. } | CallError::Unknown { .. } => {
            (error.to_string(), 0)
        }
    })?;
    let url = answer.get("url").and_then(Value::as_str).and_then(|url| Url::parse(url).ok());
    let url = url.filter(is_fit).ok_or(("Slack names no wss address".to_owned(), 0))?;
    let config = WebSocketConfig::default()
        .max_message_size(Some(SLACK_FRAME_BYTES_MAX))
        .max_frame_size(Some(SLACK_FRAME_BYTES_MAX));
    let joined = connect_async_tls_with_config(url.as_str(), Some(config), true, None).await;
    joined.map(|(stream, _)| stream).map_err(|error| (words(&error), 0))
}

/// Only this machine is spoken to without TLS.
fn is_fit(url: &Url) -> bool {
    let here = url.host_str().is_some_and(|host| {
        host == "localhost" || host.parse().is_ok_and(|ip: std::net::IpAddr| ip.is_loopback())
    });
    url.scheme() == "wss" || (url.scheme() == "ws" && here)
}

/// Without the address, which the error may hold.
fn words(error: &Error) -> String {
    match error {
        Error::Http(response) => format!("no web socket: HTTP {}", response.status().as_u16()),
        Error::Tls(_) => {
            "no web socket: no TLS; are the system's certificates installed?".to_owned()
        }
        Error::Io(error) => format!("no web socket: {}", error.kind()),
        Error::ConnectionClosed
        | Error::AlreadyClosed
        | Error::Capacity(_)
        | Error::Protocol(_)
        | Error::WriteBufferFull(_)
        | Error::Utf8(_)
        | Error::AttackAttempt
        | Error::Url(_)
        | Error::HttpFormat(_) => "the other side does not speak as a web socket does".to_owned(),
    }
}

async fn talk(
    line: LineNo,
    mut stream: Stream,
    orders: &mut mpsc::Receiver<Order>,
    says: &mpsc::Sender<Input>,
) {
    loop {
        let went = tokio::select! {
            order = orders.recv() => match order {
                Some(Order::Send(text)) => stream.send(Message::text(text)).await,
                Some(Order::Ping) => stream.send(Message::Ping(Vec::new().into())).await,
                Some(Order::Close) => stream.close(None).await,
                None => return,
            },
            came = stream.next() => match came {
                Some(Ok(Message::Text(text))) => {
                    let heard = Input::Heard(line, Frame::of(text.as_str()));
                    if says.send(heard).await.is_err() {
                        return;
                    }
                    Ok(())
                }
                Some(Ok(
                    Message::Binary(_)
                    | Message::Ping(_)
                    | Message::Pong(_)
                    | Message::Close(_)
                    | Message::Frame(_),
                )) => {
                    if says.send(Input::Alive(line)).await.is_err() {
                        return;
                    }
                    Ok(())
                }
                Some(Err(error)) => Err(error),
                None => return,
            },
        };
        if let Err(Error::Capacity(CapacityError::MessageTooLong { size, .. })) = went {
            // The rest of it cannot be passed over, so the connection is lost with it.
            let _ = says.send(Input::Large(line, size)).await;
            return;
        }
        if let Err(error) = went {
            tracing::debug!(slack.line = line, what = %words(&error), "a connection broke off");
            return;
        }
    }
}
