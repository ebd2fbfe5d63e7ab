//! Nodes that leave each other what is the other's.

use dogwatch::core::execution::Scope;
use dogwatch::core::id::StopId;
use dogwatch::core::ledger::Index;
use dogwatch::core::ledger::row::{Item, ItemState, RowType};
use dogwatch::core::limits::{LEASE_MS, POST_MS_MAX, RENEW_MS, SWEEP_MS};
use dogwatch::core::time::Timestamp;
use dogwatch::engine::desk::FrontDesk;
use dogwatch::ports::{Clock, Command, Desk};
use futures_util::future::BoxFuture;
use std::sync::Arc;
use tokio::sync::watch;

use super::{Stores, chat_session, host, is_over, of, on_each_store, one_script};
use crate::support::bot::principal;
use crate::support::jump_clock::JumpClock;
use crate::support::rack::{Job, printed};

on_each_store!(b42_a_chat_is_answered_once_and_by_the_node_at_which_people_read);
async fn b42_a_chat_is_answered_once_and_by_the_node_at_which_people_read(stores: Stores) {
    let cluster = of(stores, 3).await;
    for node in &cluster.nodes[..2] {
        node.reaches.send_replace(false);
    }
    let chats: Vec<String> = (0..20).map(|no| format!("chat{no}")).collect();
    for (no, chat) in chats.iter().enumerate() {
        cluster.say(no % 3, chat, "hello").await;
    }
    // Whoever posts where nobody reads fails in the channel.
    cluster.quiet(&chats).await;
    assert_eq!((cluster.mind.requests(), cluster.stage.posted().len()), (20, 20));
    assert!(cluster.stage.posted().iter().all(|post| !post.may_repeat));
    cluster.finish().await;
}

on_each_store!(a_post_that_only_another_node_can_deliver_waits_for_that_one_and_costs_nothing);
async fn a_post_that_only_another_node_can_deliver_waits_for_that_one_and_costs_nothing(
    stores: Stores,
) {
    let mut cluster = of(stores, 2).await;
    cluster.crash(1).await;
    cluster.nodes[0].reaches.send_replace(false);
    cluster.say(0, "main", "hello").await;
    let item = |rows: &dogwatch::core::ledger::audit::Snapshot| {
        rows.values().find_map(Item::of).map(|item| (item.state.clone(), item.tries))
    };
    cluster.until("a post", "main", |rows| item(rows).is_some()).await;
    cluster.pass(LEASE_MS).await;
    let trips = cluster.nodes[0].wire.trips("main");
    cluster.pass(40 * RENEW_MS).await;
    assert_eq!(cluster.nodes[0].wire.trips("main"), trips, "it is looked at again and again");
    assert_eq!(item(&cluster.rows("main").await), Some((ItemState::Pending, 0)));
    cluster.boot(1).await;
    let posted = cluster.wait("a post", cluster.stage.posted_when(|all| all.len() == 1)).await;
    assert!(!posted[0].may_repeat);
    // One that nobody ever reads is given up after two days.
    cluster.nodes[1].reaches.send_replace(false);
    cluster.say(0, "other", "hello").await;
    cluster.until("a post", "other", |rows| item(rows).is_some()).await;
    cluster.clock.jump(POST_MS_MAX + SWEEP_MS);
    cluster
        .until("its end", "other", |rows| matches!(item(rows), Some((ItemState::Dead(_), _))))
        .await;
    assert_eq!(cluster.finish().await.dead_letters, 1);
}

on_each_store!(a_stop_at_one_node_ends_the_script_at_another);
async fn a_stop_at_one_node_ends_the_script_at_another(stores: Stores) {
    let cluster = of(stores, 2).await;
    let name = one_script(&cluster, 0, "main").await;
    let (there, here) = (host(&cluster, &name), 1 - host(&cluster, &name));
    let desk = FrontDesk(Arc::clone(cluster.nodes[here].engine()));
    let stop = Command::Stop { scope: Scope::All, stop: StopId::new("s1").unwrap(), said_at: None };
    desk.command(&chat_session("main"), &principal(), stop).await.unwrap();
    cluster.nodes[there].rack.until(|jobs| matches!(jobs[&name], Job::Settled(_))).await;
    cluster.until_first("its end", "main", is_over).await;
    cluster
        .until("the kill", "main", |rows| {
            let kills = rows.values().filter_map(Item::of);
            kills
                .filter(|item| item.id.as_str().starts_with("kill/"))
                .all(|item| item.ended_at.is_some())
        })
        .await;
    assert_eq!(cluster.finish().await.fates["stopped"], 1);
}

on_each_store!(b18_b19_completions_at_other_nodes_steer_the_turn_that_runs);
async fn b18_b19_completions_at_other_nodes_steer_the_turn_that_runs(stores: Stores) {
    let cluster = of(stores, 3).await;
    let mut names = vec![];
    for round in 0..6 {
        // Whoever claims it starts it.
        cluster.say(round % 3, "main", "start 3").await;
        cluster
            .until("starts", "main", |rows| {
                use dogwatch::core::execution::{Execution, State};
                let all: Vec<_> = rows.values().filter_map(Execution::of).collect();
                all.len() == 3 * (round + 1) && all.iter().all(|one| one.state == State::Running)
            })
            .await;
        cluster.quiet(&["main".into()]).await;
    }
    cluster.all_run().await;
    for node in &cluster.nodes {
        names.extend(node.rack.running().into_iter().map(|name| (node, name)));
    }
    assert_eq!(names.len(), 18);
    for (node, name) in &names {
        node.rack.end(name, &printed(name.1.as_str()));
    }
    cluster
        .until("all read", "main", |rows| {
            use dogwatch::core::execution::Execution;
            rows.values().filter_map(Execution::of).all(|one| one.state.is_ended())
        })
        .await;
    cluster.quiet(&["main".into()]).await;
    let last = cluster.mind.asked(1).await.pop().unwrap();
    let text = format!("{last:?}");
    for (_, name) in &names {
        // Once as the output; the id stands in its own notice as well.
        let lines = text.matches(&format!("Output: {}", name.1)).count();
        assert!(lines <= 1, "{} stands there {lines} times", name.1);
    }
    let sum = cluster.finish().await;
    assert_eq!((sum.registered, sum.fates["acked"]), (18, 18));
}

on_each_store!(nodes_share_the_chats_and_hardly_get_into_each_others_way);
async fn nodes_share_the_chats_and_hardly_get_into_each_others_way(stores: Stores) {
    let cluster = of(stores, 3).await;
    let chats: Vec<String> = (0..60).map(|no| format!("chat{no}")).collect();
    for (no, chat) in chats.iter().enumerate() {
        cluster.say(no % 3, chat, "hello").await;
    }
    cluster.quiet(&chats).await;
    let conflicts: u64 = cluster.nodes.iter().map(|node| node.wire.asked().conflicts).sum();
    let applies: u64 = cluster.nodes.iter().map(|node| node.wire.applies()).sum();
    // Without a head start every node tries every claim and every lease.
    assert!(conflicts * 6 <= applies, "{conflicts} of {applies} applies came to nothing");
    let counted: u64 = cluster.nodes.iter().map(|node| node.engine().ledger().conflicts()).sum();
    assert_eq!(counted, conflicts);
    assert_eq!(cluster.mind.requests(), 60);
    cluster.finish().await;
}

/// A clock that was wrong by an hour, until the store says what time it is.
struct Wrong {
    right: JumpClock,
    off_ms: watch::Sender<i64>,
}

impl Wrong {
    fn shift(at: Timestamp, ms: i64) -> Timestamp {
        Timestamp::from_ms(at.as_ms().saturating_add_signed(ms))
    }
}

impl Clock for Wrong {
    fn now(&self) -> Timestamp {
        Self::shift(self.right.now(), *self.off_ms.borrow())
    }

    fn sleep_until(&self, at: Timestamp) -> BoxFuture<'static, ()> {
        let off_ms = *self.off_ms.borrow();
        self.right.sleep_until(Self::shift(at, -off_ms))
    }

    fn agree(&self, now: Timestamp) {
        let off =
            i64::try_from(now.as_ms()).unwrap() - i64::try_from(self.right.now().as_ms()).unwrap();
        self.off_ms.send_replace(off);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_whose_clock_is_an_hour_off_changes_nothing() {
    for off_ms in [3_600_000, -3_600_000] {
        let mut cluster = of(Stores::Memory, 1).await;
        let right = cluster.clock.clone();
        let wrong = Arc::new(Wrong { right, off_ms: watch::Sender::new(off_ms) });
        cluster.add(Arc::<Wrong>::clone(&wrong) as Arc<dyn Clock>).await;
        assert!(wrong.now().since_ms(cluster.clock.now()) < 1_000);
        assert!(cluster.clock.now().since_ms(wrong.now()) < 1_000);
        let boots: Vec<_> = cluster.nodes.iter().map(|node| node.engine().boot()).collect();
        let (one, two) =
            (one_script(&cluster, 0, "one").await, one_script(&cluster, 1, "two").await);
        cluster.pass(4 * LEASE_MS).await;
        let living = cluster.store.members(&Index::Nodes, u64::MAX, None, 10).await.unwrap();
        assert_eq!(living.len(), 2);
        assert!(cluster.nodes.iter().zip(&boots).all(|(node, boot)| node.engine().boot() == *boot));
        for name in [one, two] {
            assert!(!is_over(
                &cluster.execution(name.0.as_str().trim_start_matches("console/"), &name.1).await
            ));
            cluster.nodes[host(&cluster, &name)].rack.end(&name, &printed("green"));
        }
        for chat in ["one", "two"] {
            cluster.until_first("its end", chat, is_over).await;
        }
        cluster.quiet(&["one".into(), "two".into()]).await;
        assert_eq!(cluster.finish().await.fates["acked"], 2);
    }
}
