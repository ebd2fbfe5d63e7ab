//! Requests that come at about the same time go to Redis in one piece, and their answers come back
//! in one: a system call, and the wakeup at its other end, cost both sides as much as several small
//! requests. Owns the task that carries them. Must not know what is asked.

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use redis::aio::MultiplexedConnection;
use redis::{Cmd, Pipeline, RedisError, RedisResult, Value};
use tokio::sync::{mpsc, oneshot};
use tokio_util::task::TaskTracker;

use super::fault::is_of_the_connection;
use crate::core::limits::{REDIS_QUEUE_MAX, REDIS_TOGETHER_MAX, REDIS_UNDER_WAY_MAX};

struct Request {
    command: Cmd,
    answer: oneshot::Sender<RedisResult<Value>>,
}

/// A connection on which requests are sent together; clones share it.
#[derive(Clone)]
pub(super) struct Together(mpsc::Sender<Request>);

impl Together {
    /// Within a runtime. The task that carries ends with the last clone.
    pub(super) fn over(one: MultiplexedConnection) -> Self {
        let (requests, waiting) = mpsc::channel(REDIS_QUEUE_MAX);
        TaskTracker::new().spawn(carry(waiting, one));
        Self(requests)
    }

    pub(super) async fn ask(&self, command: Cmd) -> RedisResult<Value> {
        let (answer, answered) = oneshot::channel();
        self.0.send(Request { command, answer }).await.map_err(|_| gone())?;
        answered.await.map_err(|_| gone())??.extract_error()
    }
}

fn gone() -> RedisError {
    std::io::Error::from(std::io::ErrorKind::BrokenPipe).into()
}

/// Carries until nobody can ask any more, or the connection is of no use.
async fn carry(mut waiting: mpsc::Receiver<Request>, one: MultiplexedConnection) {
    let mut under_way = FuturesUnordered::new();
    let broken = loop {
        let mut piece = vec![];
        let more = under_way.len() < REDIS_UNDER_WAY_MAX;
        tokio::select! {
            count = waiting.recv_many(&mut piece, REDIS_TOGETHER_MAX), if more => {
                if count == 0 {
                    break None;
                }
                // Whoever is about to ask as well goes along.
                tokio::task::yield_now().await;
                let room = REDIS_TOGETHER_MAX - piece.len();
                piece.extend(std::iter::from_fn(|| waiting.try_recv().ok()).take(room));
                under_way.push(send(one.clone(), piece));
            }
            Some(ended) = under_way.next() => {
                if let Err(error) = ended && is_of_the_connection(&error, false) {
                    break Some(error);
                }
            }
        }
    };
    waiting.close();
    if let Some(error) = broken {
        while let Ok(request) = waiting.try_recv() {
            // Who does not wait any more needs no answer.
            let _waits = request.answer.send(Err(error.clone()));
        }
    }
    while under_way.next().await.is_some() {}
}

/// Sends requests in one piece and hands out the answers.
async fn send(mut one: MultiplexedConnection, piece: Vec<Request>) -> RedisResult<()> {
    let mut commands = Pipeline::with_capacity(piece.len());
    let mut askers = Vec::with_capacity(piece.len());
    for Request { command, answer } in piece {
        commands.add_command(command);
        askers.push(answer);
    }
    match one.send_packed_commands(&commands, 0, askers.len()).await {
        Ok(values) => {
            for (asker, value) in askers.into_iter().zip(values) {
                let _waits = asker.send(Ok(value));
            }
            Ok(())
        }
        Err(error) => {
            for asker in askers {
                let _waits = asker.send(Err(error.clone()));
            }
            Err(error)
        }
    }
}
