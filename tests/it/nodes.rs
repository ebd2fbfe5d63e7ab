//! Several nodes on one store: who dies, who goes on, and that nobody does anything twice. The same
//! tests over memory and over Redis.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod death;
mod lost_rows;
mod replicas;
mod sharing;
mod storms;
mod trips;

use std::sync::Arc;

use dogwatch::core::execution::{Execution, State};
use dogwatch::core::id::SessionId;
use dogwatch::store::{Memory, Redis, redis};

use crate::support::bot::session;
use crate::support::cluster::Cluster;
use crate::support::jump_clock::JumpClock;
use crate::support::rack::Name;
use crate::support::redis_server::RedisServer;

/// Where the rows are.
#[derive(Debug, Clone, Copy)]
enum Stores {
    Memory,
    Redis,
}

/// The same test over each store that several nodes can share.
macro_rules! on_each_store {
    ($name:ident) => {
        mod $name {
            #[tokio::test(flavor = "multi_thread")]
            async fn memory() {
                super::$name(super::Stores::Memory).await;
            }

            #[tokio::test(flavor = "multi_thread")]
            async fn redis() {
                super::$name(super::Stores::Redis).await;
            }
        }
    };
}
use on_each_store;

async fn at(stores: Stores, clock: JumpClock, count: usize) -> Cluster {
    match stores {
        Stores::Memory => {
            let memory = Arc::new(Memory::new(Arc::new(clock.clone())));
            Cluster::over(Box::new(move || Arc::<Memory>::clone(&memory) as _), clock, count).await
        }
        Stores::Redis => {
            let server = RedisServer::start(&[]);
            let settings =
                redis::Settings { url: server.url().into(), prefix: "nodes:".into(), ca: None };
            // Each node has connections of its own, and the server lives as long as this.
            let connect = move || {
                let _server = &server;
                Arc::new(Redis::open(&settings).unwrap()) as _
            };
            Cluster::over(Box::new(connect), clock, count).await
        }
    }
}

/// So many nodes.
async fn of(stores: Stores, count: usize) -> Cluster {
    at(stores, JumpClock::start(), count).await
}

/// So many nodes, for which a lease is over in a second.
async fn fast(stores: Stores, count: usize) -> Cluster {
    at(stores, JumpClock::fast(15), count).await
}

fn chat_session(chat: &str) -> SessionId {
    session(chat)
}

fn runs(execution: &Execution) -> bool {
    execution.state == State::Running
}

fn is_over(execution: &Execution) -> bool {
    execution.state.is_ended()
}

/// A chat starts one script; it runs, and the turn is over.
async fn one_script(cluster: &Cluster, node: usize, chat: &str) -> Name {
    cluster.say(node, chat, "start 1").await;
    cluster.until_first("a start", chat, runs).await;
    cluster.quiet(&[chat.to_owned()]).await;
    let id = cluster.executions(chat).await[0].id.clone();
    (chat_session(chat), id)
}

/// The node whose rack has it.
fn host(cluster: &Cluster, name: &Name) -> usize {
    cluster.nodes.iter().position(|node| node.rack.jobs().contains_key(name)).unwrap()
}
