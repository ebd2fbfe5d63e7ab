//! Tests of the row stores: one binary, everything about `ports::Store` in it.

// The attribute tells the lints that all of it is test code, helpers too.
#[cfg(test)]
mod stores {
    #[path = "../support/certificates.rs"]
    mod certificates;
    mod codec;
    mod conformance;
    mod crash;
    mod dice;
    mod ledger;
    mod model;
    mod pages;
    mod place;
    mod redis;
    #[path = "../support/redis_cluster.rs"]
    mod redis_cluster;
    mod redis_crash;
    mod redis_faults;
    mod redis_many;
    #[path = "../support/redis_proxy.rs"]
    mod redis_proxy;
    #[path = "../support/redis_server.rs"]
    mod redis_server;
    mod samples;
    #[path = "../sim/mod.rs"]
    mod sim;
    mod sqlite;
}
