//! A node that dies, one that only stood still, and one that never comes back.

use dogwatch::core::egress::Access;
use dogwatch::core::execution::{Home, Kind, Notify, State, Status};
use dogwatch::core::id::BootId;
use dogwatch::core::ledger::audit::Snapshot;
use dogwatch::core::ledger::row::{Beat, Head, Item, ItemState, RowType};
use dogwatch::core::ledger::session::{Register, Token};
use dogwatch::core::ledger::{Aggregate, Index, Key};
use dogwatch::core::limits::{
    HOME_GONE_MS, KILL_GRACE_MS, LEASE_MS, OVERDUE_MS, POST_MS_MAX, RENEW_MS, SWEEP_MS,
};

use super::{Stores, chat_session, host, is_over, of, on_each_store, one_script, runs};
use dogwatch::ports::Clock;

use crate::support::cluster::{Cluster, Says, Way, plain};
use crate::support::rack::{Job, printed};

async fn buried(cluster: &Cluster, boot: &BootId) -> bool {
    let of = Aggregate::Node(boot.clone());
    let rows = cluster.store.load(&of, &[Key::beat()]).await.unwrap().rows;
    rows[0].as_ref().and_then(Beat::of).unwrap().buried_at.is_some()
}

on_each_store!(b108_a_dead_nodes_script_is_unattended_until_its_host_is_back);
async fn b108_a_dead_nodes_script_is_unattended_until_its_host_is_back(stores: Stores) {
    let mut cluster = of(stores, 2).await;
    let name = one_script(&cluster, 0, "main").await;
    let (dead, alive) = (host(&cluster, &name), 1 - host(&cluster, &name));
    let boot = cluster.nodes[dead].engine().boot();
    cluster.crash(dead).await;
    cluster.pass(LEASE_MS - RENEW_MS).await;
    assert!(!buried(&cluster, &boot).await, "a lease has not passed");
    assert!(!cluster.view(alive, "main").await.live[0].unattended);
    cluster.pass(LEASE_MS + 2 * SWEEP_MS).await;
    cluster.until_first("unattended", "main", |one| one.unattended && runs(one)).await;
    assert!(buried(&cluster, &boot).await);
    assert!(cluster.view(alive, "main").await.live[0].unattended);
    // The chat goes on elsewhere, and the model sees how it stands.
    let asked = cluster.mind.requests();
    cluster.say(alive, "main", "how is it?").await;
    let seen = cluster.wait("an answer", cluster.mind.asked(asked + 1)).await;
    assert!(format!("{:?}", seen[asked]).contains("running, unattended"));
    let restored = cluster.boot(dead).await;
    assert_eq!((restored.adopted, restored.ended), (1, 0));
    let execution = cluster.execution("main", &name.1).await;
    assert!(!execution.unattended && execution.boot == cluster.nodes[dead].engine().boot());
    cluster.nodes[dead].rack.end(&name, &printed("green"));
    cluster.until_first("its end", "main", is_over).await;
    cluster.quiet(&["main".into()]).await;
    let sum = cluster.finish().await;
    assert_eq!((sum.registered, sum.fates["acked"]), (1, 1));
}

on_each_store!(a_script_whose_host_never_returns_is_lost_and_its_result_a_late_fact);
async fn a_script_whose_host_never_returns_is_lost_and_its_result_a_late_fact(stores: Stores) {
    let mut cluster = of(stores, 2).await;
    let name = one_script(&cluster, 0, "main").await;
    let (dead, alive) = (host(&cluster, &name), 1 - host(&cluster, &name));
    cluster.crash(dead).await;
    cluster.pass(2 * LEASE_MS + SWEEP_MS).await;
    cluster.until_first("unattended", "main", |one| one.unattended).await;
    cluster.nodes[dead].rack.end(&name, &printed("green"));
    // Its deadline, the grace, and the time in which a host may come back.
    cluster.clock.jump(3_000_000 + KILL_GRACE_MS + OVERDUE_MS);
    cluster.pass(2 * RENEW_MS).await;
    assert!(!is_over(&cluster.execution("main", &name.1).await));
    cluster.clock.jump(HOME_GONE_MS);
    cluster.until_first("its loss", "main", is_over).await;
    let State::Ended(outcome) = cluster.execution("main", &name.1).await.state else { panic!() };
    assert_eq!((outcome.status, outcome.reason.as_deref()), (Status::Lost, Some("home gone")));
    cluster.quiet(&["main".into()]).await;
    // Another day: what was to be ended there is still to be ended, and nobody looks at it.
    let item = Key::stored(format!("m/kill/{}", name.1));
    let loads = cluster.nodes[alive].wire.trips("main").0;
    cluster.pass(20 * RENEW_MS).await;
    assert!(cluster.nodes[alive].wire.trips("main").0 <= loads + 1);
    let state = |rows: &Snapshot| rows.get(&item).and_then(Item::of).map(|item| item.state.clone());
    assert_eq!(state(&cluster.rows("main").await), Some(ItemState::Pending));
    // The host comes back after all.
    cluster.boot(dead).await;
    cluster.until_first("a late fact", "main", |one| one.late.len() == 1).await;
    cluster.until("a kill", "main", |rows| matches!(state(rows), Some(ItemState::Done(_)))).await;
    let late = cluster.wait("word", cluster.stage.posted_when(|all| all.len() >= 3)).await;
    assert!(late[2].text.contains("completed"), "{}", late[2].text);
    let sum = cluster.finish().await;
    assert_eq!((sum.registered, sum.fates["acked"], sum.dead_letters), (1, 1, 0));
}

on_each_store!(what_nobody_can_end_any_more_is_given_up_and_said);
async fn what_nobody_can_end_any_more_is_given_up_and_said(stores: Stores) {
    let mut cluster = of(stores, 2).await;
    let name = one_script(&cluster, 0, "main").await;
    let dead = host(&cluster, &name);
    cluster.crash(dead).await;
    cluster.pass(2 * LEASE_MS + SWEEP_MS).await;
    cluster.until_first("unattended", "main", |one| one.unattended).await;
    cluster.clock.jump(3_000_000 + KILL_GRACE_MS + HOME_GONE_MS);
    cluster.until_first("its loss", "main", is_over).await;
    cluster.clock.jump(POST_MS_MAX + SWEEP_MS);
    let item = Key::stored(format!("m/kill/{}", name.1));
    cluster
        .until("its end", "main", |rows| {
            let item = rows.get(&item).and_then(Item::of);
            matches!(item.map(|item| &item.state), Some(ItemState::Dead(why)) if why.contains("gone"))
        })
        .await;
    cluster.quiet(&["main".into()]).await;
    // Also after that its host can end it: the ledger has ended what it finds.
    cluster.boot(dead).await;
    cluster.nodes[dead]
        .rack
        .until(|jobs| matches!(jobs[&name], Job::Over(_) | Job::Settled(_)))
        .await;
    cluster.finish().await;
}

/// Work that lives in the process of a node, as later kinds do.
async fn in_process(cluster: &Cluster, node: usize, chat: &str, boot: &BootId) {
    cluster.mind.thinks(|_| Says::Nothing);
    cluster.say(node, chat, "work").await;
    let lane = |rows: &Snapshot| rows.get(&Key::head()).and_then(Head::of)?.lane.clone();
    cluster.until("a turn", chat, |rows| lane(rows).is_some()).await;
    let lane = lane(&cluster.rows(chat).await).unwrap();
    let token = Token {
        session: chat_session(chat),
        turn: lane.turn,
        fence: lane.fence,
        claim: lane.claim,
    };
    let register = Register {
        token,
        call: (0, 0),
        request: "r".into(),
        prefix: "job-test".into(),
        kind: Kind::Script,
        name: "in process".into(),
        notify: Notify::Agent,
        key: None,
        timeout_ms: 3_000_000,
        home: Home::Process(boot.clone()),
        boot: boot.clone(),
        shown: false,
        access: Access::default(),
    };
    cluster.nodes[node].engine().ledger().run(&register).await.unwrap();
    cluster.mind.thinks(plain);
}

on_each_store!(what_lived_in_a_dead_process_is_lost_within_two_leases_and_a_sweep);
async fn what_lived_in_a_dead_process_is_lost_within_two_leases_and_a_sweep(stores: Stores) {
    let mut cluster = of(stores, 2).await;
    let boot = cluster.nodes[0].engine().boot();
    in_process(&cluster, 0, "main", &boot).await;
    cluster.crash(0).await;
    let died_at = cluster.clock.now();
    cluster.pass(2 * LEASE_MS + SWEEP_MS).await;
    cluster.until_first("its loss", "main", is_over).await;
    let ended_at = cluster.executions("main").await[0].ended_at.unwrap();
    assert!(ended_at.since_ms(died_at) <= 2 * LEASE_MS + SWEEP_MS);
    let State::Ended(outcome) = cluster.executions("main").await[0].state.clone() else { panic!() };
    assert_eq!(
        (outcome.status, outcome.reason.as_deref()),
        (Status::Lost, Some("its process is gone"))
    );
    // The dead had this one under way; the sweep begins at its home.
    in_process(&cluster, 1, "late", &boot).await;
    cluster.pass(2 * SWEEP_MS).await;
    cluster.until_first("its loss", "late", is_over).await;
    let homes = Index::Home(Home::Process(boot));
    assert!(cluster.store.members(&homes, u64::MAX, None, 10).await.unwrap().is_empty());
}

on_each_store!(b107_a_node_that_stood_still_is_buried_and_goes_on_under_a_new_name);
async fn b107_a_node_that_stood_still_is_buried_and_goes_on_under_a_new_name(stores: Stores) {
    let cluster = of(stores, 2).await;
    let name = one_script(&cluster, 0, "main").await;
    let (slow, quick) = (host(&cluster, &name), 1 - host(&cluster, &name));
    let old = cluster.nodes[slow].engine().boot();
    // It stands still in the middle of a turn.
    cluster.nodes[quick].wire.set(Way::Held);
    cluster.mind.thinks(|_| Says::Nothing);
    let asked = cluster.mind.requests();
    cluster.say(slow, "other", "hello").await;
    cluster.wait("a request", cluster.mind.asked(asked + 1)).await;
    cluster.nodes[slow].wire.set(Way::Held);
    cluster.nodes[quick].wire.set(Way::Open);
    cluster.mind.thinks(plain);
    cluster.pass(LEASE_MS + 3 * SWEEP_MS).await;
    cluster.until_first("unattended", "main", |one| one.unattended).await;
    assert!(buried(&cluster, &old).await);
    cluster.quiet(&["other".into()]).await;
    assert_eq!(cluster.stage.posted().last().unwrap().text, "heard hello");
    let (before, posts) = (cluster.rows("other").await, cluster.stage.posted().len());
    // It goes on, and finds that it is dead.
    cluster.nodes[slow].wire.set(Way::Open);
    cluster.pass(2 * RENEW_MS).await;
    cluster.until_first("adoption", "main", |one| !one.unattended && one.boot != old).await;
    let new = cluster.nodes[slow].engine().boot();
    assert_ne!(new, old);
    assert!(!buried(&cluster, &new).await && buried(&cluster, &old).await);
    assert_eq!(cluster.execution("main", &name.1).await.boot, new);
    assert_eq!((before, posts), (cluster.rows("other").await, cluster.stage.posted().len()));
    // Its script ran on, and its end is heard.
    cluster.nodes[slow].rack.end(&name, &printed("green"));
    cluster.until_first("its end", "main", is_over).await;
    cluster.say(slow, "more", "still there?").await;
    cluster.quiet(&["main".into(), "more".into()]).await;
    let sum = cluster.finish().await;
    assert_eq!((sum.registered, sum.fates["acked"]), (1, 1));
}

on_each_store!(a_store_that_answers_nobody_makes_nobody_dead);
async fn a_store_that_answers_nobody_makes_nobody_dead(stores: Stores) {
    let cluster = of(stores, 3).await;
    let boots: Vec<BootId> = cluster.nodes.iter().map(|node| node.engine().boot()).collect();
    for node in &cluster.nodes {
        node.wire.set(Way::Away);
    }
    for _ in 0..20 {
        cluster.clock.jump(RENEW_MS);
        tokio::task::yield_now().await;
    }
    for node in &cluster.nodes {
        node.wire.set(Way::Open);
    }
    cluster.pass(LEASE_MS * 2).await;
    for boot in &boots {
        assert!(!buried(&cluster, boot).await);
    }
    assert!(cluster.nodes.iter().zip(&boots).all(|(node, boot)| node.engine().boot() == *boot));
    cluster.finish().await;
}
