//! What Redis' errors mean for whoever asked the store. Owns those words, and which of them say
//! that a connection is no good any more. Must not know what was asked.

use redis::{ErrorKind, RedisError, ServerErrorKind};

use super::address::Address;
use crate::ports::StoreError;

/// The store's error for an error of Redis while `doing` something with it.
pub(super) fn explain(address: &Address, doing: &str, error: &RedisError) -> StoreError {
    let said = address.scrub(&error.to_string());
    let words = |now: &str| format!("{doing} {address}: {}{now}", said.trim_end_matches('.'));
    if let Some(now) = unusable(error.code().unwrap_or_default()) {
        return StoreError::Data(words(now));
    }
    let lacks_right = said.contains("The user executing the script can't");
    let code = if lacks_right { "NOPERM" } else { error.code().unwrap_or_default() };
    if let Some(now) = refused(code) {
        return StoreError::Away(words(now));
    }
    let kind = error.kind();
    if kind == ErrorKind::UnexpectedReturnType {
        return StoreError::Data(words("; is this really Redis?"));
    }
    if kind == ErrorKind::InvalidClientConfig {
        return StoreError::Data(words("; check the URL"));
    }
    let known = UNREACHED.iter().find(|(known, _)| *known == kind);
    StoreError::Away(words(known.map_or("", |(_, now)| *now)))
}

/// What keeps requests from a server, with what to do.
const UNREACHED: [(ErrorKind, &str); 5] = [
    (
        ErrorKind::Io,
        "; is it running, and reachable from here? What was sent may or may not have happened",
    ),
    (
        ErrorKind::Parse,
        "; its answer is torn, or it is not Redis. What was sent may or may not have happened",
    ),
    (
        ErrorKind::AuthenticationFailed,
        "; it does not take this user and password: check them in the URL against its ACL",
    ),
    (
        ErrorKind::MasterNameNotFoundBySentinel,
        "; the sentinels know no working master of this name: check the name in the URL, and \
         `SENTINEL masters`",
    ),
    (
        ErrorKind::ClusterConnectionNotFound,
        "; no node of the cluster that holds these keys can be reached",
    ),
];

/// Error codes after which a repeat cannot help, each with what to do.
fn unusable(code: &str) -> Option<&'static str> {
    Some(match code {
        "WRONGTYPE" => {
            "; another program wrote under these keys, nothing was changed: give dogwatch a \
             prefix or a database of its own"
        }
        "CROSSSLOT" => "; this is a cluster: write its URL as redis-cluster://",
        _ => return None,
    })
}

/// Error codes of a server that may do it later, each with what to do.
fn refused(code: &str) -> Option<&'static str> {
    Some(match code {
        "OOM" => {
            "; Redis is at its `maxmemory` and takes no new work, while work that it has already \
             goes on: raise `maxmemory`, or free some of it"
        }
        "LOADING" => "; it reads its data after a start, it answers once that is done",
        "READONLY" => "; this is a replica: name the master, or the sentinels that know it",
        "MASTERDOWN" => "; this replica has lost its master",
        "CLUSTERDOWN" => {
            "; not every slot of the cluster has a node: bring the missing node back, or fail it \
             over"
        }
        "MOVED" | "ASK" | "TRYAGAIN" => {
            "; these keys are being moved to another node. If it is always so, the URL names one \
             node of a cluster: write it as redis-cluster://"
        }
        "MISCONF" => {
            "; it could not write its data to disk and takes no writes: free some disk space \
             there, and see its log"
        }
        "NOREPLICAS" => "; fewer replicas are there than `min-replicas-to-write` asks for",
        "BUSY" => "; somebody's script runs there for too long: `SCRIPT KILL` ends it",
        "NOAUTH" | "WRONGPASS" => {
            "; it does not take this user and password: check them in the URL against its ACL"
        }
        "NOPERM" => {
            "; its user may not do all that dogwatch does there: \
             `ACL SETUSER NAME on >PASSWORD ~PREFIX* &PREFIX* +@all -@dangerous +info`"
        }
        _ => return None,
    })
}

/// Does it say that the connection is of no use? Of a cluster the client looks after its own.
pub(super) fn is_of_the_connection(error: &RedisError, cluster: bool) -> bool {
    let kind = error.kind();
    if cluster {
        return kind == ErrorKind::ClusterConnectionNotFound;
    }
    // A replica that was the master: another server is now, and whoever named it knows which.
    let demoted = [ServerErrorKind::ReadOnly, ServerErrorKind::MasterDown].map(ErrorKind::Server);
    kind == ErrorKind::Io || demoted.contains(&kind) || error.is_unrecoverable_error()
}
