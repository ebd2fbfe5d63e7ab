//! How long the model waits for the id of a watcher: from the moment the tool is run to its result,
//! next to a process that is spawned and waited for; and what reached the disk before the id.

use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use dogwatch::core::ledger::Row;
use dogwatch::core::message::{Answer, Delta, ModelError, Request};
use dogwatch::core::transcript::{Body, Call, Finish, Usage};
use dogwatch::ports::{Model, Store};
use dogwatch::store::{Memory, Settings, Sqlite};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde_json::json;

use crate::bot::{self, Bot, Parts, Spy};
use crate::figures::{Line, Pairs};

const ROUNDS: usize = 30;
const WARM_UP: usize = 3;

/// Starts a watcher when a person writes, and then says so.
#[derive(Default)]
struct Starter(AtomicU64);

impl Model for Starter {
    fn call<'a>(
        &'a self,
        _: &'a Request,
        _: &'a mut (dyn FnMut(Delta) + Send),
    ) -> BoxFuture<'a, Result<Answer, ModelError>> {
        let no = self.0.fetch_add(1, Ordering::Relaxed);
        let arguments = json!({
            "name": format!("bench {no}"), "python": "pass\n", "timeout_seconds": 60,
            "notify": "silent",
        });
        let call = Call {
            id: no.to_string(),
            name: "trigger_and_auto_notify".into(),
            arguments: arguments.to_string(),
        };
        let usage = Usage::default();
        let (text, calls, finish) = if no.is_multiple_of(2) {
            (String::new(), vec![call], Finish::ToolCalls)
        } else {
            ("started".into(), vec![], Finish::Stop)
        };
        async move { Ok(Answer { text, calls, finish, usage }) }.boxed()
    }
}

/// When the tool was run and when its result was there, each with the durable commits so far.
#[derive(Default)]
struct Seen {
    run: Mutex<Option<(Instant, u64)>>,
    result: Mutex<Option<(Instant, u64)>>,
}

/// Time from the run of each tool to its result next to that of a spawned process, and the durable
/// commits in between.
async fn measure(store: Arc<dyn Store>, commits: Arc<dyn Fn() -> u64 + Send + Sync>) -> Measured {
    let (place, clock) = (bot::place(), bot::clock());
    let seen = Arc::new(Seen::default());
    let (of_tool, of_store) = (Arc::clone(&seen), Arc::clone(&seen));
    let (at_tool, at_store) = (Arc::clone(&commits), commits);
    let spy = Spy {
        inner: store,
        on_apply: Box::new(move |change| {
            let is_result = change.writes.iter().any(|write| {
                matches!(write.row.as_deref(), Some(Row::Entry(entry)) if matches!(entry.body, Body::Tool { .. }))
            });
            if is_result {
                *of_store.result.lock().unwrap() = Some((Instant::now(), at_store()));
            }
        }),
        on_applied: Box::new(|_| {}),
    };
    let mut bot = Bot::start(Parts {
        store: Arc::new(spy),
        clock,
        model: Arc::new(Starter::default()),
        spool: place.path().join("spool"),
        on_tool: Arc::new(move || {
            *of_tool.run.lock().unwrap() = Some((Instant::now(), at_tool()));
        }),
    })
    .await;
    let session = bot::session("tool");
    let mut measured = Measured::default();
    for round in 0..WARM_UP + ROUNDS {
        let reference = spawned();
        bot.say(&session).await;
        bot.posted().await;
        bot.quiet(&session).await;
        let (run, before) = seen.run.lock().unwrap().take().unwrap();
        let (result, after) = seen.result.lock().unwrap().take().unwrap();
        let took = result.duration_since(run);
        if round == 0 {
            measured.first = took;
        }
        if round >= WARM_UP {
            measured.pairs.push(took, reference);
            measured.commits.push(after - before);
        }
    }
    bot.end().await;
    measured
}

#[derive(Default)]
struct Measured {
    first: Duration,
    pairs: Pairs,
    commits: Vec<u64>,
}

/// Spawned as the standard library does where nothing hinders it: by `posix_spawn`.
fn spawned() -> Duration {
    let begun = Instant::now();
    assert!(Command::new("/bin/true").spawn().unwrap().wait().unwrap().success());
    begun.elapsed()
}

pub(crate) async fn run() -> Vec<Line> {
    let memory = measure(Arc::new(Memory::new(bot::clock())), Arc::new(|| 0)).await;
    let place = bot::place();
    let path = place.path().join("store.db");
    let sqlite = Arc::new(Sqlite::open(&Settings { path }).unwrap());
    let counted = Arc::clone(&sqlite);
    let sqlite = measure(sqlite, Arc::new(move || counted.durable_commits())).await;
    let off = sqlite.commits.iter().filter(|commits| **commits != 1).count();
    let name = "tool_return";
    vec![
        Line::new(name, "memory: to posix_spawn of /bin/true", memory.pairs.ratio())
            .at_most(5.0)
            .note(memory.pairs.note()),
        Line::new(name, "SQLite: to posix_spawn of /bin/true", sqlite.pairs.ratio())
            .note(sqlite.pairs.note()),
        Line::new(name, "SQLite: ids given after other than 1 durable commit", off as f64)
            .at_most(0.0)
            .note(format!("of {ROUNDS}")),
        Line::new(name, "the very first, with the helper's start, ms", ms(memory.first)),
    ]
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
