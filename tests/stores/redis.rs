//! What only the shared store must do: scripts, connections, hints between processes, words.

use std::collections::BTreeSet;

use dogwatch::core::ledger::{Aggregate, Change, Class, Index, Key};
use dogwatch::core::limits::KEYS_PER_LOAD_MAX;
use dogwatch::ports::{Applied, Hint, Member, Store, StoreError};
use dogwatch::store::Redis;
use dogwatch::store::redis::health::Verdict;
use pretty_assertions::assert_eq;
use tokio::sync::broadcast::error::TryRecvError;

use super::certificates::certificates;
use super::place::{
    ChangeExt, InRedis, Place, change, members, numbered, session, settings_of, within_a_minute,
};
use super::redis_server::{RedisServer, free_port};

#[track_caller]
pub(super) fn assert_words(error: &StoreError, parts: &[&str]) {
    let words = error.to_string();
    for part in parts {
        assert!(words.contains(part), "{part} is missing in: {words}");
    }
}

pub(super) fn open(url: &str) -> Redis {
    Redis::open(&settings_of(url, "t:")).expect("opens")
}

/// Some rows and entries of an aggregate.
pub(super) fn nth(aggregate: &Aggregate, no: u64) -> Change {
    let before = (no - 1).to_string();
    change(aggregate, (no > 1).then_some(&before), &no.to_string())
        .put(&Key::head(), numbered(no))
        .put(&Key::entry(no), numbered(no))
        .score(Index::Ready, &Key::head(), Some(no))
}

fn calls(server: &RedisServer) -> Vec<(String, u64)> {
    let stats: String = server.ask(&["INFO", "commandstats"]);
    let line = |line: &str| {
        let (name, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
        Some((name.to_owned(), rest.split(',').next()?.parse().ok()?))
    };
    stats.lines().filter_map(line).filter(|(name, _)| name != "info").collect()
}

#[tokio::test]
async fn a_load_is_one_command_and_an_apply_one_more_that_the_script_makes() {
    let server = RedisServer::start(&[]);
    let store = open(&server.url());
    let a = session("a");
    store.apply(nth(&a, 1)).await.unwrap();
    listeners(&server, "t:", 1).await;
    let counted = async |no| {
        let () = server.ask(&["CONFIG", "RESETSTAT"]);
        store.load(&a, &[Key::head(), Key::inbox()]).await.unwrap();
        store.apply(nth(&a, no)).await.unwrap();
        let mut found = calls(&server);
        found.retain(|(name, _)| name != "config|resetstat");
        found.sort();
        found
    };
    let once = |names: &[&str]| -> Vec<_> { names.iter().map(|n| ((*n).to_owned(), 1)).collect() };
    let alone = ["evalsha", "hget", "hmget", "hset", "pubsub|numsub", "zadd", "zcard"];
    assert_eq!(counted(2).await, once(&alone), "nobody else would hear a hint");
    let _other = open(&server.url());
    listeners(&server, "t:", 2).await;
    let heard = ["evalsha", "hget", "hmget", "hset", "publish", "pubsub|numsub", "zadd", "zcard"];
    assert_eq!(counted(3).await, once(&heard));
}

#[tokio::test]
async fn the_pages_of_a_walk_read_the_names_of_rows_once_while_nobody_writes() {
    let server = RedisServer::start(&[]);
    let store = open(&server.url());
    let a = session("a");
    let mut first = change(&a, None, "1");
    for no in 0..300 {
        first = first.put(&Key::entry(no), numbered(no));
    }
    store.apply(first).await.unwrap();
    let walk = async |writes_at: Option<u64>| {
        let (mut seen, mut after) = (vec![], None);
        loop {
            let page = store.rows(&a, after.as_ref(), 50).await.unwrap();
            let Some((last, _)) = page.last() else { return seen };
            if writes_at == Some(seen.len() as u64) {
                let write = change(&a, Some("1"), "2").put(&Key::head(), numbered(0));
                store
                    .apply(write.put(&Key::entry(298), numbered(7)).delete(&Key::entry(299)))
                    .await
                    .unwrap();
            }
            after = Some(last.clone());
            seen.extend(page);
        }
    };
    let () = server.ask(&["CONFIG", "RESETSTAT"]);
    assert!(walk(None).await.into_iter().eq((0..300).map(|no| (Key::entry(no), numbered(no)))));
    assert!(calls(&server).contains(&("hkeys".to_owned(), 1)));
    let seen = walk(Some(100)).await;
    assert!(calls(&server).contains(&("hkeys".to_owned(), 3)));
    assert_eq!(seen.len(), 299, "the new one sorts before what was seen already");
    assert_eq!(seen.last(), Some(&(Key::entry(298), numbered(7))));
}

#[tokio::test]
async fn a_server_that_forgot_the_script_learns_it_again() {
    let place = InRedis::new();
    let a = session("a");
    for (no, class) in [(1, Class::ADMITS), (2, Class::FINISHES), (3, Class::HINT)] {
        let () = place.server.ask(&["SCRIPT", "FLUSH"]);
        assert_eq!(place.redis().apply(nth(&a, no).class(class)).await, Ok(Applied::Applied));
        assert_eq!(place.redis().apply(nth(&a, no).class(class)).await, Ok(Applied::Already));
    }
}

#[tokio::test]
async fn a_change_of_thousands_of_rows_and_entries_is_one_apply() {
    let place = InRedis::new();
    let (store, a) = (place.store(), session("a"));
    let (mut first, mut second) = (change(&a, None, "1"), change(&a, Some("1"), "2"));
    let keys: Vec<Key> = (0..9_001).map(Key::entry).collect();
    for (no, key) in keys.iter().enumerate() {
        let no = no as u64;
        first = first.put(key, numbered(no)).score(Index::Due, key, Some(no));
        second = second.delete(key).score(Index::Due, key, None);
    }
    assert_eq!(store.apply(first).await, Ok(Applied::Applied));
    let rows = store.rows(&a, None, usize::MAX).await.unwrap();
    assert!(rows.iter().map(|(key, _)| key).eq(&keys));
    let found = store.members(&Index::Due, u64::MAX, None, usize::MAX).await.unwrap();
    assert!(found.iter().map(|member| &member.key).eq(&keys));
    assert_eq!(store.load(&a, &keys[..KEYS_PER_LOAD_MAX]).await.unwrap().rows.len(), 2_048);
    assert_eq!(store.apply(second).await, Ok(Applied::Applied));
    assert_eq!(store.rows(&a, None, 10).await.unwrap(), vec![]);
    assert_eq!(members(&*store, &Index::Due, u64::MAX).await, vec![]);
}

/// Nothing is found by walking all keys, nothing ends by itself, and nothing else is written.
#[tokio::test]
async fn every_key_is_one_that_is_written_down_and_none_has_a_time_to_live() {
    let place = InRedis::new();
    let store = place.store();
    for no in 0..100_u64 {
        let aggregate = session(&format!("{{{no}}} \\ * ?"));
        store.apply(nth(&aggregate, 1)).await.unwrap();
    }
    let prefix = place.settings().prefix;
    let keys: Vec<String> = place.server.ask(&["KEYS", &format!("{prefix}*")]);
    let mut kinds = BTreeSet::new();
    for key in &keys {
        let (shard, rest) = key[prefix.len()..].split_once('}').expect("a shard");
        let shard: u16 = shard.strip_prefix("{s").expect("a shard").parse().unwrap();
        assert!(shard < 64, "{key}");
        let kind = rest.split(':').next().unwrap();
        let of: String = place.server.ask(&["TYPE", key]);
        let time: i64 = place.server.ask(&["TTL", key]);
        assert_eq!(time, -1, "{key}");
        kinds.insert((kind.to_owned(), of));
    }
    let expected = [("aggregates", "zset"), ("index", "zset"), ("rows", "hash")];
    assert!(kinds.iter().map(|(kind, of)| (kind.as_str(), of.as_str())).eq(expected));
}

#[tokio::test]
async fn a_key_of_another_type_is_refused_before_anything_is_written() {
    let place = InRedis::new();
    let (store, a) = (place.store(), session("a"));
    store.apply(nth(&a, 1)).await.unwrap();
    let prefix = place.settings().prefix;
    let keys: Vec<String> = place.server.ask(&["KEYS", &format!("{prefix}*")]);
    let whole = store.rows(&a, None, 10).await.unwrap();
    assert_eq!(keys.len(), 3, "{keys:?}");
    for key in keys {
        let () = place.server.ask(&["RENAME", &key, "aside"]);
        let () = place.server.ask(&["SET", &key, "foreign"]);
        let error = store.apply(nth(&a, 2)).await.unwrap_err();
        assert!(matches!(error, StoreError::Data(_)), "{error:?}");
        assert_words(&error, &["WRONGTYPE", "nothing was changed", "prefix"]);
        let () = place.server.ask(&["RENAME", "aside", &key]);
        assert_eq!(store.rows(&a, None, 10).await.unwrap(), whole);
    }
    assert_eq!(store.apply(nth(&a, 2)).await, Ok(Applied::Applied));
}

#[tokio::test]
async fn a_row_of_a_newer_version_is_refused_by_name() {
    let place = InRedis::new();
    let (store, a) = (place.store(), session("a"));
    store.apply(nth(&a, 1)).await.unwrap();
    let prefix = place.settings().prefix;
    let keys: Vec<String> = place.server.ask(&["KEYS", &format!("{prefix}*rows:*")]);
    let () = place.server.ask(&["HSET", &keys[0], "h", "2 {\"head\":{}}"]);
    for error in [
        store.load(&a, &[Key::head()]).await.unwrap_err(),
        store.rows(&a, None, 9).await.unwrap_err(),
    ] {
        assert_words(&error, &["row h of session/a", "version 2", "up to 1"]);
    }
}

/// Waits until so many listen to the hints of a place.
pub(super) async fn listeners(server: &RedisServer, prefix: &str, count: u64) {
    loop {
        let found: (String, u64) = server.ask(&["PUBSUB", "NUMSUB", &format!("{prefix}wakes")]);
        if found.1 == count {
            return;
        }
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hints_reach_other_processes_once_also_after_the_connection_broke() {
    within_a_minute(async {
        let server = RedisServer::start(&[]);
        let (one, other) = (open(&server.url()), open(&server.url()));
        let (mut own, mut foreign) = (one.wakes(), other.wakes());
        let (a, b) = (session("a"), session("b"));
        let hint = |aggregate: &Aggregate, score| {
            let member = Member { score, aggregate: aggregate.clone(), key: Key::head() };
            Hint { index: Index::Ready, member }
        };
        for no in 1..=3 {
            listeners(&server, "t:", 2).await;
            one.apply(nth(&a, no)).await.unwrap();
            assert_eq!(own.try_recv(), Ok(hint(&a, no)), "before the answer");
            assert_eq!(foreign.recv().await, Ok(hint(&a, no)));
            // What the other says then would come after one's own, should one hear that again.
            other.apply(nth(&b, no)).await.unwrap();
            assert_eq!(own.recv().await, Ok(hint(&b, no)));
            assert_eq!(foreign.recv().await, Ok(hint(&b, no)));
            assert_eq!(own.try_recv(), Err(TryRecvError::Empty));
            let killed: u64 = server.ask(&["CLIENT", "KILL", "TYPE", "pubsub"]);
            assert_eq!(killed, 2);
        }
    })
    .await;
}

#[tokio::test]
async fn b117_at_the_memory_limit_new_work_is_refused_whole_and_accepted_work_goes_on() {
    let server = RedisServer::start(&[]);
    let store = open(&server.url());
    let a = session("a");
    store.apply(nth(&a, 1)).await.unwrap();
    let () = server.ask(&["CONFIG", "SET", "maxmemory", "1"]);
    let error = store.apply(nth(&a, 2).class(Class::ADMITS)).await.unwrap_err();
    assert!(matches!(error, StoreError::Away(_)), "{error:?}");
    assert_words(&error, &["maxmemory", "takes no new work", "raise"]);
    assert_eq!(store.load(&a, &[]).await.unwrap().revision.map(|r| r.0).as_deref(), Some("1"));
    assert_eq!(members(&store, &Index::Ready, 9).await.len(), 1);
    for (no, class) in [(2, Class::FINISHES), (3, Class::HINT)] {
        assert_eq!(store.apply(nth(&a, no).class(class)).await, Ok(Applied::Applied));
    }
    let () = server.ask(&["CONFIG", "SET", "maxmemory", "0"]);
    assert_eq!(store.apply(nth(&a, 4).class(Class::ADMITS)).await, Ok(Applied::Applied));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_away_is_told_at_once_and_found_again_by_itself() {
    within_a_minute(async {
        let mut server = RedisServer::start(&[]);
        let store = open(&server.url());
        let a = session("a");
        store.apply(nth(&a, 1)).await.unwrap();
        server.kill();
        for _ in 0..50 {
            let error = store.load(&a, &[]).await.unwrap_err();
            assert!(matches!(error, StoreError::Away(_)), "{error:?}");
            assert_words(&error, &["reading redis at", "socket", "is it running"]);
        }
        server.start_again();
        // It does not try at once; each of these asks again.
        while store.load(&a, &[]).await.is_err() {
            tokio::task::yield_now().await;
        }
        assert_eq!(store.apply(nth(&a, 1)).await, Ok(Applied::Already));
        assert_eq!(store.apply(nth(&a, 2)).await, Ok(Applied::Applied));
    })
    .await;
}

#[tokio::test]
async fn a_password_is_in_no_error_and_a_user_with_too_few_rights_is_told_which() {
    let server = RedisServer::start(&[]);
    let all = ["+@all", "-@dangerous", "+info"];
    let users = [("well", &all[..]), ("poor", &["+@read", "+evalsha", "+eval"])];
    for (name, rights) in users {
        let mut words = vec!["ACL", "SETUSER", name, "on", ">s3cret", "~t:*", "&t:*"];
        words.extend(rights);
        let () = server.ask(&words);
    }
    let a = session("a");
    let of =
        |user: &str, password: &str| open(&format!("{}?user={user}&pass={password}", server.url()));
    let well = of("well", "s3cret");
    assert_eq!(well.apply(nth(&a, 1)).await, Ok(Applied::Applied));
    assert_eq!(members(&well, &Index::Ready, 9).await.len(), 1);
    assert_eq!(well.rows(&a, None, 9).await.unwrap().len(), 2);
    assert_eq!(well.aggregates(None, 9).await.unwrap(), vec![a.clone()]);
    well.now().await.unwrap();
    let poor = of("poor", "s3cret").apply(nth(&a, 2)).await.unwrap_err();
    assert_words(&poor, &["may not do all", "ACL SETUSER NAME"]);
    let wrong = of("well", "wr0ng").load(&a, &[]).await.unwrap_err();
    assert_words(&wrong, &["user and password", "ACL"]);
    for error in [poor, wrong] {
        assert!(matches!(error, StoreError::Away(_)), "{error:?}");
        assert!(!error.to_string().contains("s3cret") && !error.to_string().contains("wr0ng"));
    }
    assert!(!format!("{well:?} {:?}", settings_of("redis://:s3cret@h", "")).contains("s3cret"));
    assert_eq!(well.load(&a, &[]).await.unwrap().revision.map(|r| r.0).as_deref(), Some("1"));
}

/// What is not as it should be.
pub(super) async fn complaints(store: &Redis) -> Vec<(&'static str, Verdict)> {
    let findings = store.health().await;
    assert!(findings.iter().all(|f| f.cure.is_none() == (f.verdict == Verdict::Ok)));
    let bad = findings.into_iter().filter(|finding| finding.verdict != Verdict::Ok);
    bad.map(|finding| (finding.check, finding.verdict)).collect()
}

#[tokio::test]
async fn b117_a_redis_that_drops_or_forgets_what_it_is_told_is_named_at_the_start() {
    let mut server = RedisServer::start(&[]);
    let store = open(&server.url());
    assert_eq!(complaints(&store).await, []);
    let left: Vec<String> = server.ask(&["KEYS", "*"]);
    assert_eq!(left, [""; 0], "the checks leave something behind");
    let setting = |name: &str, value: &str| -> () { server.ask(&["CONFIG", "SET", name, value]) };
    setting("maxmemory-policy", "allkeys-lru");
    assert_eq!(complaints(&store).await, [("eviction", Verdict::Refuse)]);
    setting("maxmemory-policy", "noeviction");
    setting("appendonly", "no");
    assert_eq!(complaints(&store).await, [("persistence", Verdict::Warn)]);
    setting("appendonly", "yes");
    setting("maxmemory", "1");
    assert_eq!(complaints(&store).await, [("rights", Verdict::Warn)]);
    setting("maxmemory", "0");
    let () = server.ask(&["REPLICAOF", "127.0.0.1", "1"]);
    assert_eq!(complaints(&store).await, [("role", Verdict::Refuse), ("rights", Verdict::Refuse)]);
    let users = [("no_script", "-eval"), ("no_index", "-zadd"), ("no_row", "-hdel")];
    let () = server.ask(&["REPLICAOF", "NO", "ONE"]);
    for (name, lacks) in users {
        let words = ["ACL", "SETUSER", name, "on", ">pw", "~*", "&*", "+@all", lacks];
        let () = server.ask(&words);
        let () = server.ask(&["SCRIPT", "FLUSH"]);
        let store = open(&format!("{}?user={name}&pass=pw", server.url()));
        assert_eq!(complaints(&store).await, [("rights", Verdict::Refuse)], "{lacks}");
    }
    server.kill();
    assert_eq!(complaints(&store).await, [("connection", Verdict::Refuse)]);
}

#[tokio::test]
async fn over_tls_only_a_server_of_the_named_authority_is_spoken_to() {
    let _installed_before = rustls::crypto::ring::default_provider().install_default();
    let directory = tempfile::tempdir().unwrap();
    certificates(directory.path(), "IP:127.0.0.1");
    let path = |name: &str| directory.path().join(name).display().to_string();
    let port = free_port();
    let _server = RedisServer::start(&[
        "--tls-port",
        &port.to_string(),
        "--tls-cert-file",
        &path("server.pem"),
        "--tls-key-file",
        &path("server.key"),
        "--tls-ca-cert-file",
        &path("ca.pem"),
        "--tls-auth-clients",
        "no",
    ]);
    let mut settings = settings_of(&format!("rediss://127.0.0.1:{port}"), "t:");
    let stranger = Redis::open(&settings).unwrap();
    let error = stranger.load(&session("a"), &[]).await.unwrap_err();
    assert!(matches!(error, StoreError::Away(_)), "{error:?}");
    assert_words(&error, &["certificate"]);
    settings.ca = Some(std::fs::read(path("ca.pem")).unwrap());
    let store = Redis::open(&settings).unwrap();
    assert_eq!(store.apply(nth(&session("a"), 1)).await, Ok(Applied::Applied));
    assert_eq!(complaints(&store).await, []);
    let plain = open(&format!("redis://127.0.0.1:{port}"));
    assert!(matches!(plain.load(&session("a"), &[]).await, Err(StoreError::Away(_))));
}

#[tokio::test]
async fn settings_that_cannot_be_used_are_refused_in_words() {
    for (url, prefix, part) in
        [("redis://h", "a{b", "brace"), ("http://h", "", "redis://HOST"), ("", "", "redis://HOST")]
    {
        let error = Redis::open(&settings_of(url, prefix)).unwrap_err();
        assert!(matches!(error, StoreError::Data(_)), "{error:?}");
        assert_words(&error, &[part]);
    }
}
