//! Fault cases, played by two replicas.

use dogwatch::core::execution::{PostSort, State, Status};
use dogwatch::core::ledger::Key;
use dogwatch::core::ledger::audit::Snapshot;
use dogwatch::core::ledger::row::{Head, Lane, RowType};
use dogwatch::core::limits::{BACKOFF_MS_MAX, LEASE_MS, RENEW_MS, SETTLE_MS};
use dogwatch::core::message::ModelError;
use dogwatch::ports::Clock;

use super::{Stores, host, is_over, of, on_each_store, one_script};
use crate::support::cluster::{Cluster, Says, Way, notices, plain};
use crate::support::rack::printed;

fn lane(rows: &Snapshot) -> Option<Lane> {
    rows.get(&Key::head()).and_then(Head::of)?.lane.clone()
}

/// The node that runs the turn of a chat.
async fn holder(cluster: &Cluster, chat: &str) -> usize {
    let boot = lane(&cluster.rows(chat).await).unwrap().boot;
    let is_it = |node: &crate::support::cluster::Node| node.engine().boot() == boot;
    cluster.nodes.iter().position(is_it).unwrap()
}

on_each_store!(b05_a_notice_before_the_model_of_a_dead_node_is_offered_once_by_another);
async fn b05_a_notice_before_the_model_of_a_dead_node_is_offered_once_by_another(stores: Stores) {
    let mut cluster = of(stores, 2).await;
    let name = one_script(&cluster, 0, "main").await;
    let asked = cluster.mind.requests();
    cluster.mind.thinks(|_| Says::Nothing);
    cluster.nodes[host(&cluster, &name)].rack.end(&name, &printed("green"));
    cluster.wait("a request", cluster.mind.asked(asked + 1)).await;
    let dead = holder(&cluster, "main").await;
    cluster.mind.thinks(plain);
    cluster.crash(dead).await;
    cluster.pass(LEASE_MS + RENEW_MS).await;
    let seen = cluster.wait("a request", cluster.mind.asked(asked + 2)).await;
    assert!(seen[asked..].iter().all(|request| notices(request) == 1));
    cluster.quiet(&["main".into()]).await;
    cluster.boot(dead).await;
    cluster.pass(LEASE_MS).await;
    cluster.quiet(&["main".into()]).await;
    assert_eq!((cluster.mind.requests(), cluster.stage.posted().len()), (asked + 2, 2));
    assert_eq!(cluster.finish().await.fates["acked"], 1);
}

on_each_store!(b06_a_completion_of_another_node_waits_ten_minutes_for_a_busy_chat);
async fn b06_a_completion_of_another_node_waits_ten_minutes_for_a_busy_chat(stores: Stores) {
    let cluster = of(stores, 2).await;
    let name = one_script(&cluster, 0, "main").await;
    let there = host(&cluster, &name);
    // The turn runs at the other node.
    cluster.nodes[there].wire.set(Way::Held);
    let asked = cluster.mind.requests();
    let (go, gate) = tokio::sync::watch::channel(false);
    cluster.mind.waits(gate);
    cluster.say(1 - there, "main", "think hard").await;
    cluster.wait("a request", cluster.mind.asked(asked + 1)).await;
    cluster.nodes[there].wire.set(Way::Open);
    assert_eq!(holder(&cluster, "main").await, 1 - there);
    cluster.nodes[there].rack.end(&name, &printed("green"));
    cluster.until_first("its end", "main", is_over).await;
    for _ in 0..120 {
        cluster.pass(RENEW_MS).await;
        // Its holder is given the time to say that it still has it.
        let fresh = cluster.clock.now().plus_ms(LEASE_MS - RENEW_MS);
        let is_renewed = |rows: &Snapshot| lane(rows).is_some_and(|lane| lane.until >= fresh);
        cluster.until("the lane to be renewed", "main", is_renewed).await;
    }
    assert_eq!(cluster.mind.requests(), asked + 1, "it ran beside a turn, or took it over");
    go.send_replace(true);
    let seen = cluster.wait("a request", cluster.mind.asked(asked + 2)).await;
    assert_eq!(notices(&seen[asked + 1]), 1);
    // Real time passes too, and more of it on a slow machine.
    let told = format!("{:?}", seen[asked + 1]);
    let minutes = told.split("delayed (finished ").nth(1).and_then(|rest| rest.split('m').next());
    assert!(minutes.unwrap().parse::<u64>().unwrap() >= 10, "{told}");
    cluster.quiet(&["main".into()]).await;
    assert_eq!(cluster.mind.requests(), asked + 2);
    assert_eq!(cluster.finish().await.fates["acked"], 1);
}

on_each_store!(b104_what_is_overdue_is_ended_once_and_its_turn_runs_once);
async fn b104_what_is_overdue_is_ended_once_and_its_turn_runs_once(stores: Stores) {
    let cluster = of(stores, 2).await;
    one_script(&cluster, 0, "main").await;
    let asked = cluster.mind.requests();
    let (go, gate) = tokio::sync::watch::channel(false);
    cluster.mind.waits(gate);
    let due_at = cluster.executions("main").await[0].due_at;
    // Both find it due, one ends it.
    while cluster.clock.now() <= due_at {
        cluster.pass(RENEW_MS).await;
    }
    cluster.wait("a request", cluster.mind.asked(asked + 1)).await;
    // A turn of 150 s: its holder says that it still has it, and the other one keeps off.
    for _ in 0..30 {
        cluster.pass(RENEW_MS).await;
        let fresh = cluster.clock.now().plus_ms(LEASE_MS - RENEW_MS);
        let is_renewed = |rows: &Snapshot| lane(rows).is_some_and(|lane| lane.until >= fresh);
        cluster.until("the lane to be renewed", "main", is_renewed).await;
    }
    go.send_replace(true);
    cluster.quiet(&["main".into()]).await;
    assert_eq!(cluster.mind.requests(), asked + 1, "two nodes ran its turn");
    let State::Ended(outcome) = cluster.executions("main").await[0].state.clone() else {
        panic!("it lives")
    };
    assert_eq!(outcome.status, Status::TimedOut);
    assert_eq!(cluster.finish().await.fates["acked"], 1);
}

on_each_store!(b07_what_fails_at_every_node_dies_and_is_told_once);
async fn b07_what_fails_at_every_node_dies_and_is_told_once(stores: Stores) {
    let cluster = of(stores, 3).await;
    cluster.mind.thinks(|_| Says::Fails(ModelError::Garbled { what: "no JSON".into() }));
    cluster.say(0, "main", "hello").await;
    for attempt in 1..=5 {
        cluster.wait("an attempt", cluster.mind.asked(attempt)).await;
        cluster
            .until("its release", "main", |rows| {
                rows.get(&Key::head()).and_then(Head::of).is_some_and(|head| head.lane.is_none())
            })
            .await;
        // After the last there is nothing to wait for, but a post whose lease would end too.
        if attempt < 5 {
            cluster.clock.jump(BACKOFF_MS_MAX);
        }
    }
    let posts = cluster.wait("word", cluster.stage.posted_when(|all| !all.is_empty())).await;
    assert_eq!((posts.len(), posts[0].sort), (1, PostSort::Failure));
    cluster.quiet(&["main".into()]).await;
    cluster.mind.thinks(plain);
    cluster.say(1, "main", "hello again").await;
    let posts = cluster.wait("an answer", cluster.stage.posted_when(|all| all.len() == 2)).await;
    assert_eq!(posts[1].text, "heard hello again");
    cluster.quiet(&["main".into()]).await;
    assert_eq!(cluster.mind.requests(), 6);
    cluster.finish().await;
}

on_each_store!(b109_a_message_that_a_node_took_before_it_died_is_answered_by_another);
async fn b109_a_message_that_a_node_took_before_it_died_is_answered_by_another(stores: Stores) {
    let mut cluster = of(stores, 2).await;
    // The other one hears nothing of it: only the index tells.
    cluster.nodes[1].wire.set(Way::Held);
    cluster.deliver(0, "main", "m1", "hello").await.unwrap();
    cluster.crash(0).await;
    cluster.nodes[1].wire.set(Way::Open);
    cluster.clock.jump(SETTLE_MS);
    // The sender saw no answer and sends it again.
    cluster.deliver(1, "main", "m1", "hello").await.unwrap();
    cluster.pass(LEASE_MS + RENEW_MS).await;
    cluster.wait("an answer", cluster.stage.posted_when(|all| !all.is_empty())).await;
    cluster.quiet(&["main".into()]).await;
    assert_eq!(cluster.stage.posted().len(), 1);
    assert_eq!(cluster.finish().await.arrivals, 1);
}
