//! Whole cycles of a watcher in the ledger (`Claim`, `Register`, `Append`, `Commit`, `Complete`), next
//! to a loop that writes the very same rows without deciding anything.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use dogwatch::core::execution::{Home, Kind, Notify, Outcome, Status};
use dogwatch::core::id::{BootId, ClaimId, Nonce, SessionId, SpoolId};
use dogwatch::core::ledger::Change;
use dogwatch::core::ledger::session::{
    Accept, Allowance, Append, Claim, Claimed, Commit, Complete, New, Register,
};
use dogwatch::core::transcript::{Body, Finish, Usage};
use dogwatch::engine::Ledger;
use dogwatch::ports::{Clock, Ids, Store};
use dogwatch::store::{Memory, Settings, Sqlite, UlidIds, codec};
use futures_util::future::join_all;
use rusqlite::{Connection, params};

use crate::bot::{self, Spy};
use crate::figures::{Line, Pairs};

const ROUNDS: usize = 7;

struct Lab {
    ledger: Ledger,
    clock: Arc<dyn Clock>,
    boot: BootId,
    changes: Arc<Mutex<Vec<Change>>>,
}

impl Lab {
    fn new(store: Arc<dyn Store>) -> Self {
        let (clock, boot) = (bot::clock(), BootId::new("boot").unwrap());
        let changes = Arc::<Mutex<Vec<Change>>>::default();
        let kept = Arc::clone(&changes);
        let on_apply = Box::new(move |change: &Change| kept.lock().unwrap().push(change.clone()));
        let store = Arc::new(Spy { inner: store, on_apply, on_applied: Box::new(|_| {}) });
        let ids: Arc<dyn Ids> = Arc::new(UlidIds);
        let ledger = Ledger::new(store, Arc::clone(&clock), ids, Some(boot.clone()));
        Self { ledger, clock, boot, changes }
    }

    /// A session with a message, so that it is ready.
    async fn open(&self, name: &str) -> SessionId {
        let session = bot::session(name);
        let mut incoming = bot::message(&session, self.clock.now());
        incoming.source_at = self.clock.now();
        let chain = Allowance { wakes: 1_000_000, tokens: u64::MAX / 2, spawns: 1_000_000 };
        self.ledger.run(&Accept { session: session.clone(), incoming, chain }).await.unwrap();
        // A person's message waits a moment for the next one.
        let ready = self.clock.now().plus_ms(dogwatch::core::limits::SETTLE_MS + 1);
        self.clock.sleep_until(ready).await;
        session
    }

    async fn cycle(&self, session: &SessionId) {
        let claim = Claim {
            alone: false,
            session: session.clone(),
            boot: self.boot.clone(),
            claim: ClaimId::new(UlidIds.fresh()).unwrap(),
            nonce: Nonce::new("kbench").unwrap(),
        };
        let Claimed::Turn(token, turn) = self.ledger.run(&claim).await.unwrap() else {
            panic!("no turn")
        };
        let at = turn.base + turn.len;
        let register = Register {
            token: token.clone(),
            call: (at, 0),
            request: "hash".into(),
            prefix: "auto-notify-benc".into(),
            kind: Kind::Script,
            name: "bench".into(),
            notify: Notify::Agent,
            key: None,
            timeout_ms: 60_000,
            home: Home::Spool(SpoolId::new("spool").unwrap()),
            boot: self.boot.clone(),
            shown: false,
            access: dogwatch::core::egress::Access::default(),
        };
        let execution = self.ledger.run(&register).await.unwrap().id;
        let body = Body::Model {
            text: "It runs; I will tell you.".into(),
            calls: vec![],
            finish: Finish::Stop,
            usage: Usage::default(),
        };
        let append = Append {
            token: token.clone(),
            at,
            chain: turn.chain,
            new: vec![New { body, collect: None }],
            take: false,
            nonce: Nonce::new("kbench").unwrap(),
        };
        self.ledger.run(&append).await.unwrap();
        self.ledger.run(&Commit { token, posts: vec![] }).await.unwrap();
        let outcome = Outcome::bare(Status::Completed, "bench");
        let complete =
            Complete { session: session.clone(), execution, outcome, boot: self.boot.clone() };
        self.ledger.run(&complete).await.unwrap();
    }

    /// Runs `cycles` in each of the sessions at once; the time, and what was written.
    async fn run(&self, sessions: &[SessionId], cycles: usize) -> (Duration, Vec<Change>) {
        self.changes.lock().unwrap().clear();
        let begun = Instant::now();
        join_all(sessions.iter().map(|session| async move {
            for _ in 0..cycles {
                self.cycle(session).await;
            }
        }))
        .await;
        let took = begun.elapsed();
        (took, std::mem::take(&mut self.changes.lock().unwrap()))
    }
}

/// One change as a loop without decisions writes it.
struct Raw {
    aggregate: String,
    revision: String,
    rows: Vec<(String, Option<Vec<u8>>)>,
    members: Vec<(String, String, Option<i64>)>,
    durable: bool,
}

impl Raw {
    fn of(change: Change) -> Self {
        let rows = change.writes.into_iter().map(|write| {
            let value = write.row.map(|row| codec::encode(&row).unwrap());
            (write.key.as_str().to_owned(), value)
        });
        let members = change.index.into_iter().map(|write| {
            let score = write.score.map(|score| (score ^ (1 << 63)).cast_signed());
            (write.index.to_string(), write.key.as_str().to_owned(), score)
        });
        Self {
            rows: rows.collect(),
            members: members.collect(),
            aggregate: change.aggregate.to_string(),
            revision: change.revision.0,
            durable: change.class.durable,
        }
    }
}

type Lots = Mutex<BTreeMap<(String, String), Vec<u8>>>;

fn raw_memory(changes: Vec<Change>) -> Duration {
    let lots = Lots::default();
    let begun = Instant::now();
    for change in changes {
        // Encoding is part of what any store has to do.
        let raw = Raw::of(change);
        let mut lots = lots.lock().unwrap();
        for (key, value) in raw.rows {
            let place = (raw.aggregate.clone(), key);
            match value {
                Some(value) => lots.insert(place, value),
                None => lots.remove(&place),
            };
        }
        for (index, key, score) in raw.members {
            let place = (index, key);
            match score {
                Some(score) => lots.insert(place, score.to_le_bytes().to_vec()),
                None => lots.remove(&place),
            };
        }
    }
    begun.elapsed()
}

const TABLES: &str = "PRAGMA journal_mode = wal;
    CREATE TABLE aggregates (name TEXT PRIMARY KEY, revision TEXT NOT NULL) WITHOUT ROWID;
    CREATE TABLE rows (aggregate TEXT, key TEXT, value BLOB, PRIMARY KEY (aggregate, key))
        WITHOUT ROWID;
    CREATE TABLE members (member_of TEXT, aggregate TEXT, key TEXT, score INTEGER,
        PRIMARY KEY (member_of, aggregate, key)) WITHOUT ROWID;
    CREATE INDEX members_by_score ON members (member_of, score, aggregate, key);";

fn raw_sqlite(path: &Path, changes: Vec<Change>) -> Duration {
    let connection = Connection::open(path).unwrap();
    connection.execute_batch(TABLES).unwrap();
    let run = |sql: &str, values: &[&dyn rusqlite::ToSql]| {
        connection.prepare_cached(sql).unwrap().execute(values).unwrap();
    };
    let begun = Instant::now();
    for change in changes {
        let raw = Raw::of(change);
        let level = if raw.durable { "full" } else { "normal" };
        connection.pragma_update(None, "synchronous", level).unwrap();
        run("BEGIN IMMEDIATE", &[]);
        run("REPLACE INTO aggregates VALUES (?1, ?2)", params![raw.aggregate, raw.revision]);
        for (key, value) in &raw.rows {
            match value {
                Some(value) => {
                    run(
                        "REPLACE INTO rows VALUES (?1, ?2, ?3)",
                        params![raw.aggregate, key, value],
                    );
                }
                None => run(
                    "DELETE FROM rows WHERE aggregate = ?1 AND key = ?2",
                    params![raw.aggregate, key],
                ),
            }
        }
        for (index, key, score) in &raw.members {
            match score {
                Some(score) => run(
                    "REPLACE INTO members VALUES (?1, ?2, ?3, ?4)",
                    params![index, raw.aggregate, key, score],
                ),
                None => run(
                    "DELETE FROM members WHERE member_of = ?1 AND aggregate = ?2 AND key = ?3",
                    params![index, raw.aggregate, key],
                ),
            }
        }
        run("COMMIT", &[]);
    }
    begun.elapsed()
}

async fn sessions(lab: &Lab, count: usize) -> Vec<SessionId> {
    let names: Vec<String> = (0..count).map(|no| format!("s{no}")).collect();
    join_all(names.iter().map(|name| lab.open(name))).await
}

async fn compare(
    lab: &Lab,
    count: usize,
    cycles: usize,
    raw: impl Fn(Vec<Change>) -> Duration,
) -> (f64, Pairs) {
    let sessions = sessions(lab, count).await;
    let mut pairs = Pairs::default();
    let mut total = Duration::ZERO;
    for _ in 0..ROUNDS {
        let (took, changes) = lab.run(&sessions, cycles).await;
        total += took;
        pairs.push(took, raw(changes));
    }
    ((ROUNDS * cycles * count) as f64 / total.as_secs_f64(), pairs)
}

pub(crate) async fn run() -> Vec<Line> {
    let mut lines = vec![];
    for (count, in_memory, in_sqlite) in [(1, 400, 40), (32, 20, 5)] {
        let lab = Lab::new(Arc::new(Memory::new(bot::clock())));
        let (rate, pairs) = compare(&lab, count, in_memory, raw_memory).await;
        let what = format!("memory, sessions at once: {count}; to a raw loop of the same rows");
        let note = format!("{rate:.0} cycles/s; {}", pairs.note());
        lines.push(Line::new("cycles", what, pairs.ratio()).note(note));

        let place = bot::place();
        let path = place.path().join("store.db");
        let sqlite = Arc::new(Sqlite::open(&Settings { path }).unwrap());
        let lab = Lab::new(Arc::<Sqlite>::clone(&sqlite));
        let before = sqlite.durable_commits();
        let raw = |changes| {
            let place = bot::place();
            raw_sqlite(&place.path().join("raw.db"), changes)
        };
        let (rate, pairs) = compare(&lab, count, in_sqlite, raw).await;
        let cycles = (ROUNDS * in_sqlite * count) as f64;
        let commits = (sqlite.durable_commits() - before) as f64 / cycles;
        let what = format!("SQLite, sessions at once: {count}; to a raw loop of the same rows");
        let note =
            format!("{rate:.0} cycles/s, {commits:.2} durable commits each; {}", pairs.note());
        lines.push(Line::new("cycles", what, pairs.ratio()).note(note));
    }
    lines
}
