//! Several nodes on one store: who dies, who goes on, and that nobody does anything twice.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod death;
mod replicas;
mod sharing;
mod storms;
mod trips;

use dogwatch::core::execution::{Execution, State};
use dogwatch::core::id::SessionId;

use crate::support::bot::session;
use crate::support::cluster::Cluster;
use crate::support::rack::Name;

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
