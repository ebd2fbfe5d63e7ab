//! Several Redis servers: a cluster whose slots move under load, a replica that takes over.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use dogwatch::core::ledger::{Aggregate, Index, Key};
use dogwatch::ports::{Applied, Hint, Member, Store, StoreError};
use dogwatch::store::Redis;
use dogwatch::store::redis::health::Verdict;
use pretty_assertions::assert_eq;
use tokio::task::{JoinSet, block_in_place};

use super::crash::{nth as stream, prefix};
use super::ledger::{beside_a_runtime, schedules_at};
use super::model::run_at;
use super::place::{InRedis, numbered, session, within_a_minute};
use super::redis::{assert_words, complaints, listeners, nth, open};
use super::redis_cluster::{Node, RedisCluster};
use super::redis_server::{RedisServer, Sentinel, free_port};

fn place(cluster: &RedisCluster) -> InRedis {
    InRedis::at(cluster.nodes[0].server.clone(), None, cluster.url())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_holds_what_the_model_holds() {
    let cluster = RedisCluster::start();
    run_at(0..2, 40, || place(&cluster)).await;
}

#[test]
fn worlds_of_several_nodes_over_a_cluster() {
    let cluster = RedisCluster::start();
    beside_a_runtime(|| schedules_at(50_000..50_006, false, |_| place(&cluster)));
}

/// The slot of an aggregate's keys, as the cluster says it.
fn slot(cluster: &RedisCluster, aggregate: &Aggregate) -> u16 {
    let pattern = format!("t:*rows:{aggregate}");
    let find = |node: &Node| -> Vec<String> { node.server.ask(&["KEYS", &pattern]) };
    let keys: Vec<String> = cluster.nodes.iter().flat_map(find).collect();
    let [key] = keys.as_slice() else { panic!("{keys:?}") };
    cluster.nodes[0].server.ask(&["CLUSTER", "KEYSLOT", key])
}

struct Load {
    stop: AtomicBool,
    applied: AtomicU64,
}

/// Applies one after the other; one whose outcome is unknown is sent again. Answers how many.
async fn work(store: Arc<Redis>, aggregate: Aggregate, load: Arc<Load>) -> u64 {
    let mut no = 2;
    while !load.stop.load(Ordering::SeqCst) {
        match store.apply(nth(&aggregate, no)).await {
            Ok(Applied::Applied | Applied::Already) => {
                no += 1;
                load.applied.fetch_add(1, Ordering::SeqCst);
            }
            Err(StoreError::Away(_)) => {}
            answer => panic!("{aggregate} {no}: {answer:?}"),
        }
    }
    no - 1
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slots_that_move_under_load_lose_and_double_nothing() {
    within_a_minute(async {
        let cluster = RedisCluster::start();
        let store = Arc::new(open(&cluster.url()));
        let aggregates: Vec<Aggregate> = (0..6).map(|no| session(&format!("s{no}"))).collect();
        for aggregate in &aggregates {
            assert_eq!(store.apply(nth(aggregate, 1)).await, Ok(Applied::Applied));
        }
        let load = Arc::new(Load { stop: false.into(), applied: 0.into() });
        let mut workers = JoinSet::new();
        for aggregate in &aggregates {
            let (store, aggregate, load) = (store.clone(), aggregate.clone(), load.clone());
            workers.spawn(async move {
                let count = work(store, aggregate.clone(), load).await;
                (aggregate, count)
            });
        }
        block_in_place(|| {
            for aggregate in &aggregates {
                let slot = slot(&cluster, aggregate);
                let from = cluster.holder(slot);
                for to in [(from + 1) % 3, (from + 2) % 3, from] {
                    cluster.move_slot(slot, to, || cluster.nodes[from].pause());
                    // Each move ends among the work of all.
                    let now = load.applied.load(Ordering::SeqCst);
                    while load.applied.load(Ordering::SeqCst) < now + 20 {
                        cluster.nodes[from].pause();
                    }
                }
            }
        });
        load.stop.store(true, Ordering::SeqCst);
        for error in ["MOVED", "ASK"] {
            assert!(cluster.errors(error) > 0, "nobody was in the way of a move: no {error}");
        }
        let counts = workers.join_all().await;
        for (aggregate, count) in &counts {
            let entries: Vec<_> = (1..=*count).map(|no| (Key::entry(no), numbered(no))).collect();
            let mut rows = store.rows(aggregate, None, usize::MAX).await.unwrap();
            assert_eq!(rows.remove(0), (Key::head(), numbered(*count)));
            assert_eq!(rows, entries);
        }
        let mut ready = store.members(&Index::Ready, u64::MAX, None, 100).await.unwrap();
        ready.sort_by(|one, other| one.aggregate.cmp(&other.aggregate));
        let mut expected: Vec<Member> = counts
            .into_iter()
            .map(|(aggregate, score)| Member { score, aggregate, key: Key::head() })
            .collect();
        expected.sort_by(|one, other| one.aggregate.cmp(&other.aggregate));
        assert_eq!(ready, expected);
        let mut all = store.aggregates(None, 100).await.unwrap();
        all.sort();
        assert_eq!(all, aggregates);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_is_checked_and_its_nodes_pass_hints_on() {
    within_a_minute(async {
        let cluster = RedisCluster::start();
        let (one, other) = (open(&cluster.url()), open(&cluster.url()));
        assert_eq!(complaints(&one).await, []);
        let mut wakes = other.wakes();
        loop {
            let count = |node: &Node| -> u64 {
                node.server.ask::<(String, u64)>(&["PUBSUB", "NUMSUB", "t:wakes"]).1
            };
            if cluster.nodes.iter().map(count).sum::<u64>() == 2 {
                break;
            }
            cluster.nodes[0].pause();
        }
        let names = (0..12).map(|no| session(&format!("s{no}")));
        for aggregate in names {
            one.apply(nth(&aggregate, 1)).await.unwrap();
            let member = Member { score: 1, aggregate, key: Key::head() };
            assert_eq!(wakes.recv().await, Ok(Hint { index: Index::Ready, member }));
        }
        let node = &cluster.nodes[1];
        let plain = open(&format!("redis://127.0.0.1:{}", node.port));
        assert_eq!(complaints(&plain).await[0], ("cluster", Verdict::Refuse));
        let error = plain.members(&Index::Ready, 9, None, 9).await.unwrap_err();
        assert_words(&error, &["redis-cluster://"]);
        let () = node.server.ask(&["CLUSTER", "DELSLOTSRANGE", "5461", "5470"]);
        let found = complaints(&one).await;
        assert!(found.contains(&("cluster", Verdict::Refuse)), "{found:?}");
    })
    .await;
}

/// A master with a replica, and a sentinel that promotes it.
struct Watched {
    master: RedisServer,
    replica: RedisServer,
    sentinel: Sentinel,
}

impl Watched {
    fn start() -> Self {
        let at = |port: u16| RedisServer::start(&["--port", &port.to_string()]);
        let port = free_port();
        let (master, replica) = (at(port), at(free_port()));
        let () = replica.ask(&["REPLICAOF", "127.0.0.1", &port.to_string()]);
        Self::wait_for(&master, 1);
        let sentinel = Sentinel::start(port);
        let watched = Self { master, replica, sentinel };
        while !watched.knows_the_replica() {
            let _a_moment: u64 = watched.master.ask(&["WAIT", "2", "20"]);
        }
        watched
    }

    /// Until the replica has all: WAIT counts what its own connection wrote, and what came before.
    fn wait_for(master: &RedisServer, replicas: u64) {
        let mut admin = master.admin();
        loop {
            let _ok: () = redis::cmd("SET").arg("last").arg(1).query(&mut admin).unwrap();
            let reached: u64 = redis::cmd("WAIT").arg(1).arg(100).query(&mut admin).unwrap();
            if reached >= replicas {
                return;
            }
        }
    }

    fn knows_the_replica(&self) -> bool {
        let replicas: Vec<redis::Value> = self.sentinel.ask(&["SENTINEL", "REPLICAS", "main"]);
        let of = |replica: redis::Value| -> HashMap<String, String> {
            redis::from_redis_value(replica).expect("fields of a replica")
        };
        replicas.into_iter().map(of).any(|replica| replica["flags"] == "slave")
    }
}

/// Waits until something is answered, whoever answers by then.
async fn until_answered(store: &Redis) {
    while store.load(&session("lane"), &[]).await.is_err() {
        tokio::task::yield_now().await;
    }
}

/// Applies 21 to 40; what has no answer is sent again.
async fn go_on(store: &Redis) {
    let mut no = 21;
    while no <= 40 {
        match store.apply(stream(no)).await {
            Ok(Applied::Applied | Applied::Already) => no += 1,
            Err(StoreError::Away(_)) => {}
            answer => panic!("{no}: {answer:?}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_that_lagged_and_takes_over_has_a_beginning_and_goes_on_from_there() {
    within_a_minute(async {
        let mut watched = Watched::start();
        let store = open(&watched.sentinel.url());
        for no in 1..=20 {
            store.apply(stream(no)).await.unwrap();
        }
        Watched::wait_for(&watched.master, 1);
        // What is said from here on does not reach the replica.
        watched.replica.stand_still(true);
        let _killed: u64 = watched.master.ask(&["CLIENT", "KILL", "TYPE", "replica"]);
        for no in 21..=30 {
            assert_eq!(store.apply(stream(no)).await, Ok(Applied::Applied));
        }
        watched.master.kill();
        watched.replica.stand_still(false);
        until_answered(&store).await;
        assert_eq!(prefix(&store).await, 20);
        // What rests on something that was lost is refused; what is acknowledged now is kept.
        assert_eq!(store.apply(stream(31)).await, Ok(Applied::Conflict));
        go_on(&store).await;
        assert_eq!(prefix(&store).await, 40);
        listeners(&watched.replica, "t:", 1).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_master_that_steps_down_is_asked_for_no_longer() {
    let server = RedisServer::start(&[]);
    let store = open(&server.url());
    store.apply(stream(1)).await.unwrap();
    let clients = |server: &RedisServer| -> HashSet<String> {
        let list: String = server.ask(&["CLIENT", "LIST", "TYPE", "normal"]);
        let id = |line: &str| line.split(' ').next().map(ToOwned::to_owned);
        list.lines().filter_map(id).collect()
    };
    let before = clients(&server);
    let () = server.ask(&["REPLICAOF", "127.0.0.1", "1"]);
    let error = store.apply(stream(2)).await.unwrap_err();
    assert!(matches!(error, StoreError::Away(_)), "{error:?}");
    assert_words(&error, &["read only replica; this is a replica", "sentinels"]);
    let () = server.ask(&["REPLICAOF", "NO", "ONE"]);
    // Over another connection, so that whoever knows the master by then is asked.
    assert_eq!(store.apply(stream(2)).await, Ok(Applied::Applied));
    within_a_minute(async {
        while !clients(&server).is_disjoint(&before) {
            tokio::task::yield_now().await;
        }
    })
    .await;
}
