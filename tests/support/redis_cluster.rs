//! A Redis Cluster of a test's own: three masters on loopback, and the moving of slots.

use std::sync::Arc;

use super::redis_server::{RedisServer, free_port};

/// The slots of a cluster.
const SLOTS: u16 = 16_384;

/// From, to, and the node that has them: host, port, id, more about it.
type Range = (u16, u16, (String, u16, String, redis::Value));

pub(crate) struct Node {
    pub(crate) server: Arc<RedisServer>,
    pub(crate) port: u16,
    bus: u16,
    id: String,
}

/// Three masters that share all slots.
pub(crate) struct RedisCluster {
    pub(crate) nodes: Vec<Node>,
}

impl RedisCluster {
    /// Returns once each of them says that all is well.
    pub(crate) fn start() -> Self {
        let nodes: Vec<Node> = (0..3).map(|_| node()).collect();
        for (no, node) in (0_u16..).zip(&nodes) {
            let (from, to) = (SLOTS / 3 * no, if no == 2 { SLOTS } else { SLOTS / 3 * (no + 1) });
            let words = ["CLUSTER", "ADDSLOTSRANGE", &from.to_string(), &(to - 1).to_string()];
            let () = node.server.ask(&words);
            for other in &nodes {
                let (port, bus) = (other.port.to_string(), other.bus.to_string());
                let () = node.server.ask(&["CLUSTER", "MEET", "127.0.0.1", &port, &bus]);
            }
        }
        let cluster = Self { nodes };
        for node in &cluster.nodes {
            while !node.is_well() {
                node.pause();
            }
        }
        cluster
    }

    pub(crate) fn url(&self) -> String {
        let nodes: Vec<String> =
            self.nodes.iter().map(|node| format!("127.0.0.1:{}", node.port)).collect();
        format!("redis-cluster://{}", nodes.join(","))
    }

    /// How often the nodes answered with this error.
    pub(crate) fn errors(&self, code: &str) -> u64 {
        let start = format!("errorstat_{code}:count=");
        let count = |node: &Node| {
            let stats: String = node.server.ask(&["INFO", "errorstats"]);
            let line = stats.lines().find_map(|line| line.strip_prefix(&start)?.parse().ok());
            line.unwrap_or(0)
        };
        self.nodes.iter().map(count).sum()
    }

    /// The node that has the slot.
    pub(crate) fn holder(&self, slot: u16) -> usize {
        let ranges: Vec<Range> = self
            .nodes
            .first()
            .map(|node| node.server.ask::<Vec<redis::Value>>(&["CLUSTER", "SLOTS"]))
            .unwrap_or_default()
            .into_iter()
            .map(|range| redis::from_redis_value(range).expect("a range of slots"))
            .collect();
        let (_, _, (_, port, _, _)) = ranges
            .into_iter()
            .find(|(from, to, _)| (*from..=*to).contains(&slot))
            .expect("somebody has it");
        self.nodes.iter().position(|node| node.port == port).expect("one of ours")
    }

    /// Moves a slot with its keys to another node, a few keys at a time; `between` is called after
    /// each few.
    pub(crate) fn move_slot(&self, slot: u16, to: usize, mut between: impl FnMut()) {
        let from = self.holder(slot);
        if from == to {
            return;
        }
        let (source, target, number) = (&self.nodes[from], &self.nodes[to], slot.to_string());
        let set = |node: &Node, how: &[&str]| {
            let mut words = vec!["CLUSTER", "SETSLOT", &number];
            words.extend(how);
            node.server.ask::<()>(&words);
        };
        set(target, &["IMPORTING", &source.id]);
        set(source, &["MIGRATING", &target.id]);
        loop {
            between();
            let keys: Vec<String> = source.server.ask(&["CLUSTER", "GETKEYSINSLOT", &number, "1"]);
            if keys.is_empty() {
                break;
            }
            let port = target.port.to_string();
            let mut words = vec!["MIGRATE", "127.0.0.1", &port, "", "0", "5000", "KEYS"];
            words.extend(keys.iter().map(String::as_str));
            let _ok_or_gone: String = source.server.ask(&words);
        }
        for node in [target, source] {
            set(node, &["NODE", &target.id]);
        }
        for node in &self.nodes {
            set(node, &["NODE", &target.id]);
        }
    }
}

impl Node {
    fn is_well(&self) -> bool {
        let info: String = self.server.ask(&["CLUSTER", "INFO"]);
        ["cluster_state:ok", "cluster_slots_ok:16384", "cluster_known_nodes:3"]
            .iter()
            .all(|line| info.contains(line))
    }

    /// Lets the server answer a little later: it waits for a replica that does not exist.
    pub(crate) fn pause(&self) {
        let _none: u64 = self.server.ask(&["WAIT", "1", "20"]);
    }
}

fn node() -> Node {
    let (port, bus) = (free_port(), free_port());
    let (port_text, bus_text) = (port.to_string(), bus.to_string());
    let server = Arc::new(RedisServer::start(&[
        "--port",
        &port_text,
        "--cluster-enabled",
        "yes",
        "--cluster-port",
        &bus_text,
        "--cluster-node-timeout",
        "5000",
    ]));
    let id = server.ask(&["CLUSTER", "MYID"]);
    Node { server, port, bus, id }
}
