//! Is this Redis fit to hold a ledger? Owns the checks at start and their words. Must not change
//! anything that anybody reads.

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use redis::cluster_routing::{MultipleNodeRoutingInfo, RoutingInfo};
use redis::{Cmd, FromRedisValue, RedisError, RedisResult, Value, cmd};

use super::Redis;
use super::address::Servers;
use super::apply::Call;
use super::keys::SLOTS;
use super::line::Wire;
use crate::core::id::BootId;
use crate::core::ledger::{Aggregate, Change, Class, Revision};
use crate::ports::StoreError;

/// The oldest Redis whose commands and scripts suffice.
const MAJOR_MIN: u32 = 7;

/// How a check went.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// As it should be.
    Ok,
    /// It works, but somebody should know.
    Warn,
    /// It must not be used like this.
    Refuse,
}

/// One check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// What was looked at.
    pub check: &'static str,
    /// How it went.
    pub verdict: Verdict,
    /// What was seen, and on which server where there are several.
    pub what: String,
    /// What to do, where there is something to do.
    pub cure: Option<&'static str>,
}

impl std::fmt::Display for Finding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.check, self.what)?;
        self.cure.map_or(Ok(()), |cure| write!(f, "; {cure}"))
    }
}

impl Finding {
    fn ok(check: &'static str, what: impl Into<String>) -> Self {
        Self { check, verdict: Verdict::Ok, what: what.into(), cure: None }
    }

    fn warn(check: &'static str, what: impl Into<String>, cure: &'static str) -> Self {
        Self { check, verdict: Verdict::Warn, what: what.into(), cure: Some(cure) }
    }

    fn refuse(check: &'static str, what: impl Into<String>, cure: &'static str) -> Self {
        Self { check, verdict: Verdict::Refuse, what: what.into(), cure: Some(cure) }
    }
}

/// What a server says of itself, as `INFO` has it.
struct Info {
    server: String,
    text: String,
}

impl Info {
    fn get(&self, field: &str) -> Option<&str> {
        let of_field = |line: &'_ str| -> Option<(usize, usize)> {
            let value = line.strip_prefix(field)?.strip_prefix(':')?;
            Some((line.len() - value.len(), line.len()))
        };
        self.text.lines().find_map(|line| of_field(line).and_then(|(from, to)| line.get(from..to)))
    }
}

impl Redis {
    /// Looks at everything that must be right before the ledger is kept here. Writes one field and
    /// one member under names that nobody reads, and removes them.
    ///
    /// Where Redis is not reached the answer is that one finding.
    pub fn health(&self) -> BoxFuture<'_, Vec<Finding>> {
        // Boxed: it is the deepest there is, and is asked once.
        self.all_checks().boxed()
    }

    async fn all_checks(&self) -> Vec<Finding> {
        let infos = match self.infos(cmd("INFO")).await {
            Ok(infos) => infos,
            Err(error) => {
                let cure = "see that it runs and that the URL is right: host, port, `rediss` for \
                            TLS, user and password, database";
                let what = self.explain("asking", &error).to_string();
                return vec![Finding::refuse("connection", what, cure)];
            }
        };
        let mut findings = vec![Finding::ok("connection", format!("{}", self.line.address))];
        for info in &infos {
            findings.extend([version(info), role(info), eviction(info), persistence(info)]);
        }
        findings.extend(self.cluster(&infos).await);
        findings.push(self.rights().await);
        findings
    }

    /// What each server that takes writes says.
    async fn infos(&self, question: Cmd) -> RedisResult<Vec<Info>> {
        let (wire, _) = self.line.wire().await?;
        let Wire::Cluster(mut cluster) = wire else {
            let text = self.line.ask(question).await?;
            return Ok(vec![Info { server: self.line.address.to_string(), text }]);
        };
        let masters = RoutingInfo::MultiNode((MultipleNodeRoutingInfo::AllMasters, None));
        let answers = cluster.route_command(question, masters).await?;
        let Value::Map(answers) = answers else { return Err(no_answer()) };
        let info = |(server, text): (Value, Value)| {
            Ok(Info { server: String::from_redis_value(server)?, text: text_of(text)? })
        };
        answers.into_iter().map(info).collect()
    }

    async fn cluster(&self, infos: &[Info]) -> Vec<Finding> {
        const CHECK: &str = "cluster";
        let is_one = infos.iter().any(|info| info.get("cluster_enabled") == Some("1"));
        match (&self.line.address.servers, is_one) {
            (Servers::One(_) | Servers::Sentinel { .. }, false) => {
                vec![Finding::ok(CHECK, "none")]
            }
            (Servers::One(_) | Servers::Sentinel { .. }, true) => vec![Finding::refuse(
                CHECK,
                "this server is a node of a cluster",
                "write the URL as redis-cluster://HOST,HOST",
            )],
            (Servers::Cluster(_), _) => {
                let mut question = cmd("CLUSTER");
                question.arg("INFO");
                match self.infos(question).await {
                    Ok(infos) => infos.iter().map(slots).collect(),
                    Err(error) => {
                        let what = self.explain("asking", &error).to_string();
                        vec![Finding::warn(CHECK, what, "let its user run CLUSTER INFO")]
                    }
                }
            }
        }
    }

    /// Does everything that an apply does, where it leaves nothing.
    async fn rights(&self) -> Finding {
        const CHECK: &str = "rights";
        let Some(error) = self.try_rights().await.err() else {
            return Finding::ok(CHECK, "scripts and writes are allowed");
        };
        let what = error.to_string();
        if what.contains("OOM") {
            let cure = "raise `maxmemory`: until then work that was accepted goes on, new work is \
                        refused";
            return Finding::warn(CHECK, what, cure);
        }
        let cure = "the user needs its keys, its channel and the commands of a store: \
                    `ACL SETUSER NAME on >PASSWORD ~PREFIX* &PREFIX* +@all -@dangerous +info`";
        Finding::refuse(CHECK, what, cure)
    }

    async fn try_rights(&self) -> Result<(), StoreError> {
        let hash = self.keys.probe("hash");
        let set = self.keys.probe("set");
        let one = self.voice.origin.as_str();
        let command = |words: &[&str]| {
            let (name, rest) = words.split_first().unwrap_or((&"PING", &[]));
            let mut command = Cmd::new();
            command.arg(*name).arg(rest);
            command
        };
        let mut commands = vec![
            command(&["HSET", &hash, one, ""]),
            command(&["HGET", &hash, one]),
            command(&["HMGET", &hash, one]),
            command(&["HKEYS", &hash]),
            command(&["HDEL", &hash, one]),
            command(&["ZADD", &set, "0", one]),
            command(&["ZCARD", &set]),
            command(&["ZRANGEBYSCORE", &set, "0", "0"]),
            command(&["ZRANGEBYLEX", &set, "-", "+"]),
            command(&["ZREM", &set, one]),
            // Heard by everybody, and no hint.
            command(&["PUBLISH", &self.keys.wakes(), one]),
        ];
        if !self.voice.own.is_empty() {
            commands.push(command(&["PUBSUB", "NUMSUB", &self.voice.own]));
        }
        for command in commands {
            self.line.ask::<Value>(command).await.map_err(|e| self.explain("trying", &e))?;
        }
        // A change of what nobody has is a conflict before it writes.
        for class in [Class::ADMITS, Class::FINISHES] {
            let change = Change {
                aggregate: Aggregate::Node(
                    BootId::new(one).map_err(|e| StoreError::Data(e.to_string()))?,
                ),
                expected: Some(Revision("none".into())),
                revision: Revision(one.into()),
                writes: vec![],
                index: vec![],
                class,
            };
            let call = Call::of(&self.keys, &self.voice, &change)?;
            self.call(&call).await.map_err(|e| self.explain("trying", &e))?;
        }
        self.line
            .ask_first::<Value>(cmd("TIME"))
            .await
            .map(drop)
            .map_err(|e| self.explain("trying", &e))
    }
}

fn no_answer() -> RedisError {
    (redis::ErrorKind::UnexpectedReturnType, "no answer of each server").into()
}

fn text_of(value: Value) -> RedisResult<String> {
    Ok(String::from_redis_value(value.extract_error()?)?)
}

fn version(info: &Info) -> Finding {
    const CHECK: &str = "version";
    const CURE: &str = "use Redis 7.0 or newer, or Valkey";
    let name = if info.get("valkey_version").is_some() { "Valkey" } else { "Redis" };
    let said = info.get("valkey_version").or_else(|| info.get("redis_version"));
    let Some(said) = said else {
        return Finding::warn(CHECK, format!("{} does not say its version", info.server), CURE);
    };
    let what = format!("{name} {said} on {}", info.server);
    match said.split('.').next().and_then(|major| major.parse::<u32>().ok()) {
        Some(major) if major >= MAJOR_MIN => Finding::ok(CHECK, what),
        Some(_) => Finding::refuse(CHECK, what, CURE),
        None => Finding::warn(CHECK, what, CURE),
    }
}

fn role(info: &Info) -> Finding {
    const CHECK: &str = "role";
    match info.get("role") {
        Some("slave") => Finding::refuse(
            CHECK,
            format!("{} is a replica and takes no writes", info.server),
            "name its master, or the sentinels that know it (redis-sentinel://HOST,HOST/MASTER)",
        ),
        _ => Finding::ok(CHECK, format!("{} takes writes", info.server)),
    }
}

fn eviction(info: &Info) -> Finding {
    const CHECK: &str = "eviction";
    const CURE: &str = "`CONFIG SET maxmemory-policy noeviction`, and in redis.conf: any other \
                        policy drops what is needed";
    let server = &info.server;
    match info.get("maxmemory_policy") {
        Some("noeviction") => Finding::ok(CHECK, format!("{server} drops nothing")),
        Some(policy) => {
            Finding::refuse(CHECK, format!("{server} has maxmemory-policy {policy}"), CURE)
        }
        None => Finding::warn(CHECK, format!("{server} does not say its maxmemory-policy"), CURE),
    }
}

fn persistence(info: &Info) -> Finding {
    const CHECK: &str = "persistence";
    let server = &info.server;
    let failed = |field: &str| info.get(field).is_some_and(|status| status != "ok");
    if info.get("aof_enabled") != Some("1") {
        let what = format!(
            "{server} keeps no append-only file: what it was told since its last \
                            snapshot is lost when it stops"
        );
        let cure = "`CONFIG SET appendonly yes`, and in redis.conf; then `appendfsync everysec` \
                    (a failing machine loses the last second) or `always` (nothing, slower)";
        return Finding::warn(CHECK, what, cure);
    }
    if failed("aof_last_write_status") || failed("aof_last_bgrewrite_status") {
        let what = format!("{server} could not write its append-only file");
        return Finding::warn(CHECK, what, "free some disk space there, and see the log of Redis");
    }
    Finding::ok(CHECK, format!("{server} keeps an append-only file"))
}

fn slots(info: &Info) -> Finding {
    const CHECK: &str = "cluster";
    let state = info.get("cluster_state").unwrap_or("unknown");
    let ok = info.get("cluster_slots_ok").and_then(|slots| slots.parse::<u16>().ok());
    let ok_count = ok.unwrap_or(0);
    let what = format!("{} sees state {state}, {ok_count} of {SLOTS} slots served", info.server);
    if state == "ok" && ok == Some(SLOTS) {
        return Finding::ok(CHECK, what);
    }
    Finding::refuse(CHECK, what, "`redis-cli --cluster check HOST:PORT` names what is missing")
}

#[cfg(test)]
mod tests {
    use super::*;

    type Judge = fn(&Info) -> Finding;

    fn judge(check: Judge, text: &str) -> Verdict {
        let finding = check(&Info { server: "s".into(), text: text.replace('\n', "\r\n") });
        assert_eq!(finding.cure.is_none(), finding.verdict == Verdict::Ok, "{finding:?}");
        finding.verdict
    }

    #[test]
    fn each_kind_of_server_is_judged() {
        use Verdict::{Ok, Refuse, Warn};
        let cases: &[(Judge, &str, Verdict)] = &[
            (version, "redis_version:7.0.15\n", Ok),
            (version, "redis_version:6.2.14\n", Refuse),
            (version, "redis_version:8.2.1\n", Ok),
            (version, "redis_version:7.2.4\nserver_name:valkey\nvalkey_version:8.1.0\n", Ok),
            (version, "redis_version:255.255.255\n", Ok),
            (version, "redis_version:unstable\n", Warn),
            (version, "", Warn),
            (role, "role:master\n", Ok),
            (role, "role:slave\n", Refuse),
            (eviction, "maxmemory:0\nmaxmemory_policy:noeviction\n", Ok),
            (eviction, "maxmemory_policy:allkeys-lru\n", Refuse),
            (eviction, "maxmemory_policy:volatile-ttl\n", Refuse),
            (eviction, "", Warn),
            (persistence, "aof_enabled:1\naof_last_write_status:ok\n", Ok),
            (persistence, "aof_enabled:1\naof_last_write_status:err\n", Warn),
            (persistence, "aof_enabled:0\n", Warn),
            (slots, "cluster_state:ok\ncluster_slots_ok:16384\n", Ok),
            (slots, "cluster_state:ok\ncluster_slots_ok:16383\n", Refuse),
            (slots, "cluster_state:fail\ncluster_slots_ok:16384\n", Refuse),
        ];
        for (check, text, verdict) in cases {
            assert_eq!(judge(*check, text), *verdict, "{text}");
        }
    }
}
