//! How often the store is asked between a script's end and the model's next request.

use super::{Stores, of, on_each_store, one_script};
use crate::support::cluster::Cluster;
use crate::support::rack::printed;

/// Loads and applies of a chat from the end of its script to the request with the notice.
async fn trips(cluster: &Cluster, chat: &str) -> (u64, u64) {
    let node = &cluster.nodes[0];
    cluster.all_run().await;
    let name = node.rack.running().into_iter().next().unwrap();
    let asked = cluster.mind.requests();
    let wire = node.wire.clone();
    let (seen, at_request) = tokio::sync::watch::channel(None);
    let of = chat.to_owned();
    cluster.mind.thinks(move |_| {
        seen.send_if_modified(|first| {
            let is_first = first.is_none();
            first.get_or_insert(wire.trips(&of));
            is_first
        });
        crate::support::cluster::Says::Text("noted".into())
    });
    let before = node.wire.trips(chat);
    node.rack.end(&name, &printed("green"));
    let seen = cluster.wait("a request", cluster.mind.asked(asked + 1)).await;
    assert_eq!(crate::support::cluster::notices(&seen[asked]), 1);
    cluster.mind.thinks(crate::support::cluster::plain);
    let after = at_request.borrow().unwrap();
    (after.0 - before.0, after.1 - before.1)
}

on_each_store!(from_a_completion_to_the_models_request_are_one_load_and_two_applies);
async fn from_a_completion_to_the_models_request_are_one_load_and_two_applies(stores: Stores) {
    let mut cluster = of(stores, 1).await;
    for text in ["one", "two", "three"] {
        cluster.say(0, "main", text).await;
        cluster.quiet(&["main".into()]).await;
    }
    one_script(&cluster, 0, "main").await;
    assert_eq!(trips(&cluster, "main").await, (1, 2), "the node holds the log");
    cluster.quiet(&["main".into()]).await;
    cluster.say(0, "cold", "one").await;
    cluster.quiet(&["cold".into()]).await;
    one_script(&cluster, 0, "cold").await;
    cluster.crash(0).await;
    cluster.boot(0).await;
    assert_eq!(trips(&cluster, "cold").await, (2, 2), "the node holds nothing");
    cluster.quiet(&["cold".into()]).await;
    cluster.finish().await;
}
