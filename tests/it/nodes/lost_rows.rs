//! A store that comes back with less than it had.

use std::collections::BTreeMap;
use std::sync::Arc;

use dogwatch::core::limits::{LEASE_MS, RENEW_MS, SWEEP_MS};
use dogwatch::store::{Memory, memory};

use super::storms::told_once_in_order;
use super::{host, is_over, one_script};
use crate::support::cluster::Cluster;
use crate::support::jump_clock::JumpClock;
use crate::support::rack::{Job, printed};

/// Two nodes on a store that the test can put back.
async fn two_nodes() -> (Cluster, Arc<Memory>) {
    let clock = JumpClock::start();
    let memory = Arc::new(Memory::new(Arc::new(clock.clone())));
    let store = Arc::clone(&memory);
    (Cluster::over(Box::new(move || Arc::<Memory>::clone(&store) as _), clock, 2).await, memory)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_comes_back_empty_is_believed_and_nothing_is_made_up() {
    let (cluster, memory) = two_nodes().await;
    let name = one_script(&cluster, 0, "main").await;
    let there = host(&cluster, &name);
    cluster.pass(2 * RENEW_MS).await;
    memory.restore(memory::Snapshot::default());
    cluster.pass(2 * RENEW_MS).await;
    // What the store does not know is ended, and makes no completion.
    cluster.nodes[there].rack.until(|jobs| matches!(jobs[&name], Job::Settled(_))).await;
    assert!(cluster.rows("main").await.is_empty());
    let posts = cluster.stage.posted().len();
    cluster.say(1, "main", "hello").await;
    cluster.wait("an answer", cluster.stage.posted_when(|all| all.len() > posts)).await;
    cluster.quiet(&["main".into()]).await;
    let sum = cluster.balance().await;
    assert_eq!((sum.registered, sum.arrivals), (0, 1));
    assert!(sum.is_even());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_lost_its_last_second_is_told_again() {
    let (cluster, memory) = two_nodes().await;
    let name = one_script(&cluster, 0, "main").await;
    cluster.pass(2 * RENEW_MS).await;
    let earlier = memory.snapshot();
    cluster.pass(RENEW_MS + 1).await;
    let node = &cluster.nodes[host(&cluster, &name)];
    node.rack.end(&name, &printed("green"));
    node.rack.until(|jobs| matches!(jobs[&name], Job::Settled(_))).await;
    cluster.until_first("its end", "main", is_over).await;
    cluster.quiet(&["main".into()]).await;
    memory.restore(earlier);
    assert!(!is_over(&cluster.execution("main", &name.1).await));
    cluster.pass(3 * RENEW_MS).await;
    cluster.until_first("its end", "main", is_over).await;
    cluster.pass(LEASE_MS + SWEEP_MS).await;
    cluster.quiet(&["main".into()]).await;
    assert_eq!(told_once_in_order("main", &cluster.rows("main").await), 1);
    assert_eq!(cluster.balance().await.fates, BTreeMap::from([("acked".to_owned(), 1)]));
}
