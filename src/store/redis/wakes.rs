//! Hints between processes over Redis' publish and subscribe. Owns their wording and the
//! connection on which they are heard. Must not know who waits for them.
//!
//! Each apply says all its hints in one message, from within the script. A process hands its own
//! hints to its own listeners, before the apply is answered, and leaves out what it hears of
//! itself; where it would be the only one to hear it, nothing is said. What is said while the
//! connection is broken is not heard: a sweep stands behind it.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use redis::aio::PubSub;
use redis::{RedisError, RedisResult};
use tokio::sync::broadcast;
use tokio_util::task::{AbortOnDropHandle, TaskTracker};

use super::line::{Line, answer_time, connect_time};
use crate::core::ledger::{Aggregate, Change, Index, IndexWrite, Key};
use crate::core::limits::{REDIS_PING_MS, REDIS_RECONNECT_FIRST_MS, REDIS_RECONNECT_MS_MAX};
use crate::ports::{Hint, Member};

/// As whom a process says its hints.
#[derive(Debug, Clone)]
pub(super) struct Voice {
    /// Names it among those that give hints.
    pub(super) origin: String,
    /// Its own channel; empty where one server does not know all who listen.
    pub(super) own: String,
}

/// What is said on the channel: who says it, then four lines a hint. Empty without hints.
pub(super) fn message(origin: &str, aggregate: &str, change: &Change) -> String {
    let mut said = String::new();
    for IndexWrite { index, key, score } in &change.index {
        let Some(score) = score else { continue };
        if said.is_empty() {
            said.push_str(origin);
        }
        // A string takes everything.
        let _written = write!(said, "\n{index}\n{score}\n{aggregate}\n{key}");
    }
    said
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
    voice: Voice,
    wakes: broadcast::Sender<Hint>,
) -> AbortOnDropHandle<()> {
    AbortOnDropHandle::new(TaskTracker::new().spawn(async move {
        let mut wait = REDIS_RECONNECT_FIRST_MS;
        loop {
            let error = match subscribe(&line, &channel, &voice.own).await {
                Ok(connection) => {
                    wait = REDIS_RECONNECT_FIRST_MS;
                    hear(connection, &voice.origin, &wakes).await
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

async fn subscribe(line: &Line, channel: &str, own: &str) -> RedisResult<PubSub> {
    let connect = async {
        let mut connection = line.client().await?.get_async_pubsub().await?;
        // At once: whoever is counted on its own channel hears the hints.
        let channels: Vec<&str> = [channel, own].into_iter().filter(|c| !c.is_empty()).collect();
        connection.subscribe(channels).await?;
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
    use crate::core::ledger::{Class, Revision};
    use crate::store::hints_of;

    #[test]
    fn hints_come_back_as_they_were_but_not_to_who_said_them() {
        let aggregate = Aggregate::Session(SessionId::new("a b/é").unwrap());
        let member = Member { score: 7, aggregate, key: Key::head() };
        let home = Index::Home(Home::Spool(SpoolId::new("s/1").unwrap()));
        let index = |(index, score)| IndexWrite { index, key: Key::head(), score };
        let entries = [(Index::Ready, Some(7)), (Index::Due, None), (home, Some(7))];
        let mut change = Change {
            aggregate: member.aggregate.clone(),
            expected: None,
            revision: Revision("1".into()),
            writes: vec![],
            index: entries.into_iter().map(index).collect(),
            class: Class::HINT,
        };
        let of = |change: &Change| message("me", &member.aggregate.to_string(), change);
        let said = of(&change);
        let hints: Vec<Hint> = hints_of(&change).collect();
        assert_eq!(hints.len(), 2);
        assert_eq!(heard("you", &said), hints);
        assert_eq!(heard("me", &said), []);
        change.index.remove(2);
        change.index.remove(0);
        assert_eq!(of(&change), "");
        for foreign in
            ["", "x", "x\nready\n1\nsession/a", "x\nno_index\n1\nsession/a\nh", "\n\n\n\n\n"]
        {
            assert_eq!(heard("me", foreign), [], "{foreign:?}");
        }
    }
}
