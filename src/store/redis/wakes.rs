//! Hints between processes over Redis' publish and subscribe. Owns their wording and the
//! connection on which they are heard. Must not know who waits for them.
//!
//! Each apply says all its hints in one message, from within the script. A process hands its own
//! hints to its own listeners, before the apply is answered, and leaves out what it hears of
//! itself. What is said while the connection is broken is not heard: a sweep stands behind it.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use redis::aio::PubSub;
use redis::{RedisError, RedisResult};
use tokio::sync::broadcast;
use tokio_util::task::{AbortOnDropHandle, TaskTracker};

use super::line::{Line, answer_time, connect_time};
use crate::core::ledger::{Aggregate, Index, Key};
use crate::core::limits::{REDIS_PING_MS, REDIS_RECONNECT_FIRST_MS, REDIS_RECONNECT_MS_MAX};
use crate::ports::{Hint, Member};

/// What is said on the channel: who says it, then four lines a hint. Empty without hints.
pub(super) fn message(origin: &str, hints: &[Hint]) -> String {
    if hints.is_empty() {
        return String::new();
    }
    let line = |Hint { index, member: Member { score, aggregate, key } }: &Hint| {
        format!("\n{index}\n{score}\n{aggregate}\n{key}")
    };
    let lines: String = hints.iter().map(line).collect();
    format!("{origin}{lines}")
}

/// The hints of a message of somebody else; what is no hint is left out.
fn heard(origin: &str, message: &str) -> Vec<Hint> {
    let mut lines = message.split('\n');
    if lines.next() == Some(origin) {
        return vec![];
    }
    let lines: Vec<&str> = lines.collect();
    let hint = |lines: &[&str]| {
        let [index, score, aggregate, key] = lines else { return None };
        let member = Member {
            score: score.parse().ok()?,
            aggregate: Aggregate::parse(aggregate)?,
            key: Key::stored(*key),
        };
        Some(Hint { index: Index::parse(index)?, member })
    };
    lines.chunks(4).filter_map(hint).collect()
}

/// Hears until it is dropped, over one connection after the other.
pub(super) fn listen(
    line: Arc<Line>,
    channel: String,
    origin: String,
    wakes: broadcast::Sender<Hint>,
) -> AbortOnDropHandle<()> {
    AbortOnDropHandle::new(TaskTracker::new().spawn(async move {
        let mut wait = REDIS_RECONNECT_FIRST_MS;
        loop {
            let error = match subscribe(&line, &channel).await {
                Ok(connection) => {
                    wait = REDIS_RECONNECT_FIRST_MS;
                    hear(connection, &origin, &wakes).await
                }
                Err(error) => error,
            };
            let error = line.address.scrub(&error.to_string());
            tracing::debug!(store = %line.address, %error, "hints are not heard for a while");
            tokio::time::sleep(Duration::from_millis(wait)).await;
            wait = (wait * 2).min(REDIS_RECONNECT_MS_MAX);
        }
    }))
}

fn timed_out() -> RedisError {
    std::io::Error::from(std::io::ErrorKind::TimedOut).into()
}

async fn subscribe(line: &Line, channel: &str) -> RedisResult<PubSub> {
    let connect = async {
        let mut connection = line.client().await?.get_async_pubsub().await?;
        connection.subscribe(channel).await?;
        Ok(connection)
    };
    let time = connect_time() + answer_time();
    tokio::time::timeout(time, connect).await.map_err(|_| timed_out())?
}

/// Hears until the connection is broken; says how.
async fn hear(connection: PubSub, origin: &str, wakes: &broadcast::Sender<Hint>) -> RedisError {
    let (mut sink, mut messages) = connection.split();
    let quiet = Duration::from_millis(REDIS_PING_MS);
    loop {
        match tokio::time::timeout(quiet, messages.next()).await {
            Ok(Some(message)) => {
                let text = message.get_payload::<String>().unwrap_or_default();
                for hint in heard(origin, &text) {
                    // Nobody listening is no error.
                    let _listeners = wakes.send(hint);
                }
            }
            Ok(None) => return std::io::Error::from(std::io::ErrorKind::ConnectionReset).into(),
            // Nothing was said for a while: is the other end still there?
            Err(_) => {
                match tokio::time::timeout(answer_time(), sink.ping::<redis::Value>()).await {
                    Ok(Ok(_)) => {}
                    Ok(Err(error)) => return error,
                    Err(_) => return timed_out(),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::execution::Home;
    use crate::core::id::{SessionId, SpoolId};

    #[test]
    fn hints_come_back_as_they_were_but_not_to_who_said_them() {
        let aggregate = Aggregate::Session(SessionId::new("a b/é").unwrap());
        let member = Member { score: 7, aggregate, key: Key::head() };
        let home = Index::Home(Home::Spool(SpoolId::new("s/1").unwrap()));
        let hints: Vec<Hint> = [Index::Ready, home]
            .into_iter()
            .map(|index| Hint { index, member: member.clone() })
            .collect();
        let said = message("me", &hints);
        assert_eq!(heard("you", &said), hints);
        assert_eq!(heard("me", &said), []);
        assert_eq!(message("me", &[]), "");
        for foreign in
            ["", "x", "x\nready\n1\nsession/a", "x\nno_index\n1\nsession/a\nh", "\n\n\n\n\n"]
        {
            assert_eq!(heard("me", foreign), [], "{foreign:?}");
        }
    }
}
