//! Much at once: rolling restarts, nodes that are killed at random, a store that is away.

use std::collections::BTreeSet;

use dogwatch::core::arrival::{Arrival, Body, Standing};
use dogwatch::core::execution::{Execution, Fate};
use dogwatch::core::ledger::Key;
use dogwatch::core::ledger::audit::Snapshot;
use dogwatch::core::ledger::row::{Live, RowType};
use dogwatch::core::limits::RENEW_MS;
use dogwatch::core::transcript::Entry;

use super::{Stores, fast, of, on_each_store};
use crate::support::cluster::{Cluster, Way};
use crate::support::rack::{Job, printed};

/// Chance, the same in each run.
struct Chance(u64);

impl Chance {
    fn below(&mut self, count: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % count
    }
}

/// Every completion of a chat was told to the model once, in the order of its arrival.
pub(super) fn told_once_in_order(chat: &str, rows: &Snapshot) -> usize {
    let mut carried = vec![];
    for entry in rows.values().filter_map(Entry::of) {
        carried.extend(entry.carries.iter().copied());
    }
    let unique: BTreeSet<u64> = carried.iter().copied().collect();
    assert_eq!(unique.len(), carried.len(), "{chat}: something was told twice");
    let completions: Vec<u64> = carried
        .iter()
        .copied()
        .filter(|seq| {
            let arrival = rows.get(&Key::arrival(*seq)).and_then(Arrival::of).unwrap();
            let acked = matches!(&arrival.standing, Standing::Settled { fate: Fate::Acked, .. });
            assert!(acked, "{chat}: {arrival:?}");
            matches!(arrival.body, Body::Completion { .. })
        })
        .collect();
    assert!(completions.is_sorted(), "{chat}: {completions:?}");
    completions.len()
}

/// Starts scripts in many chats; answers the chats.
async fn begin(cluster: &Cluster, chats: usize, scripts: usize) -> Vec<String> {
    let chats: Vec<String> = (0..chats).map(|no| format!("chat{no}")).collect();
    for (no, chat) in chats.iter().enumerate() {
        cluster.say(no % cluster.nodes.len(), chat, &format!("start {scripts}")).await;
    }
    for chat in &chats {
        cluster
            .until("all starts", chat, |rows| {
                let live = rows.get(&Key::live()).and_then(Live::of);
                let all: Vec<_> = rows.values().filter_map(Execution::of).collect();
                live.is_some_and(|live| live.0.len() == scripts)
                    && all.iter().all(|one| one.started_at.is_some())
            })
            .await;
    }
    cluster.all_run().await;
    chats
}

async fn all_told(cluster: &Cluster, chats: &[String], scripts: usize) {
    for chat in chats {
        cluster
            .until("all ends", chat, |rows| {
                rows.values().filter_map(Execution::of).all(|one| one.state.is_ended())
            })
            .await;
    }
    cluster.quiet(chats).await;
    for chat in chats {
        assert_eq!(told_once_in_order(chat, &cluster.rows(chat).await), scripts, "{chat}");
    }
}

on_each_store!(a_rolling_restart_under_load_loses_and_doubles_nothing);
async fn a_rolling_restart_under_load_loses_and_doubles_nothing(stores: Stores) {
    let mut cluster = fast(stores, 3).await;
    let chats = begin(&cluster, 30, 6).await;
    let mut chance = Chance(7);
    for (round, chat) in chats.iter().take(6).enumerate() {
        let no = round % 3;
        for _ in 0..15 {
            let node = &cluster.nodes[chance.below(3)];
            let running = node.rack.running();
            if !running.is_empty() {
                let name = &running[chance.below(running.len())];
                node.rack.end(name, &printed(name.1.as_str()));
            }
        }
        cluster.say((no + 1) % 3, chat, "and now?").await;
        cluster.shut_down(no).await;
        cluster.boot(no).await;
    }
    for node in &cluster.nodes {
        for name in node.rack.running() {
            node.rack.end(&name, &printed(name.1.as_str()));
        }
    }
    all_told(&cluster, &chats, 6).await;
    let sum = cluster.finish().await;
    assert_eq!((sum.registered, sum.fates["acked"], sum.dead_letters), (180, 180, 0));
}

on_each_store!(b59_b110_two_thousand_completions_outlive_nodes_that_are_killed_at_random);
async fn b59_b110_two_thousand_completions_outlive_nodes_that_are_killed_at_random(stores: Stores) {
    let mut cluster = fast(stores, 3).await;
    let chats = begin(&cluster, 200, 10).await;
    let mut chance = Chance(42);
    let mut kills = 0;
    loop {
        let mut left = 0;
        for node in &cluster.nodes {
            let running = node.rack.running();
            left += running.len();
            for _ in 0..running.len().min(60) {
                // One that ended a moment ago stays as it is.
                let name = &running[chance.below(running.len())];
                node.rack.end(name, &printed(name.1.as_str()));
            }
        }
        if left == 0 {
            break;
        }
        let no = chance.below(3);
        cluster.crash(no).await;
        kills += 1;
        if chance.below(2) == 0 {
            // For others to take over what it left.
            cluster.clock.jump(RENEW_MS);
        }
        cluster.boot(no).await;
    }
    assert!(kills >= 5, "{kills}");
    all_told(&cluster, &chats, 10).await;
    let sum = cluster.finish().await;
    assert_eq!((sum.registered, sum.fates["acked"], sum.dead_letters), (2_000, 2_000, 0));
}

on_each_store!(when_the_store_comes_back_everything_drains_without_a_storm);
async fn when_the_store_comes_back_everything_drains_without_a_storm(stores: Stores) {
    let cluster = of(stores, 2).await;
    let chats = begin(&cluster, 10, 10).await;
    cluster.quiet(&chats).await;
    for node in &cluster.nodes {
        node.wire.set(Way::Away);
    }
    for node in &cluster.nodes {
        for name in node.rack.running() {
            node.rack.end(&name, &printed(name.1.as_str()));
        }
    }
    let refused = cluster.deliver(0, "chat0", "k", "are you there?").await.unwrap_err();
    assert!(refused.to_string().contains("sending it again"), "{refused}");
    let before: u64 = cluster.nodes.iter().map(|node| node.wire.applies()).sum();
    for _ in 0..12 {
        cluster.clock.jump(RENEW_MS);
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    let while_away: u64 =
        cluster.nodes.iter().map(|node| node.wire.applies()).sum::<u64>() - before;
    assert!(while_away < 100 * 3 * 8, "{while_away} applies in a minute");
    for node in &cluster.nodes {
        assert!(node.rack.jobs().values().all(|job| matches!(job, Job::Over(_))));
        node.wire.set(Way::Open);
    }
    cluster.pass(2 * RENEW_MS).await;
    all_told(&cluster, &chats, 10).await;
    for node in &cluster.nodes {
        node.rack.until(|jobs| jobs.values().all(|job| matches!(job, Job::Settled(_)))).await;
    }
    let sum = cluster.finish().await;
    assert_eq!((sum.registered, sum.fates["acked"]), (100, 100));
}
