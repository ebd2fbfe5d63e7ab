//! From a script's last instruction to the request that tells the model of it, on the wire: a real
//! shim, the embedded store, a real HTTP client. Next to the least that any such way must do: a
//! record brought safely to the disk, and a request over the loopback interface.

use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use dogwatch::model::{self, Chosen};
use dogwatch::store::{Settings, Sqlite};
use serde_json::json;
use tokio::sync::mpsc;

use crate::bot::{self, Bot, Parts};
use crate::fake_llm::{FakeLlm, Reply};
use crate::figures::{Line, Pairs, median};

const ROUNDS: usize = 20;
const WARM_UP: usize = 2;

fn wall() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap()
}

/// Waits for a word on a fifo, says when it ends, and ends at once.
fn script(on: &Path, said: &Path) -> String {
    let (on, said) = (on.display(), said.display());
    format!(
        "import os, time\nopen('{on}').read()\nwith open('{said}', 'w') as f:\n    \
         f.write(str(time.time_ns()))\nos._exit(0)\n"
    )
}

pub(crate) async fn run() -> Vec<Line> {
    let (place, clock) = (bot::place(), bot::clock());
    let (on, said) = (place.path().join("on"), place.path().join("said"));
    nix::unistd::mkfifo(&on, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let llm = FakeLlm::start().await;
    let (tell, mut told) = mpsc::unbounded_channel();
    let requests = AtomicU64::new(0);
    let python = script(&on, &said);
    // A message starts a watcher; its result is the third request.
    llm.otherwise(move |_| match requests.fetch_add(1, Ordering::Relaxed) % 3 {
        0 => {
            let arguments = json!({ "name": "w", "python": python, "timeout_seconds": 60 });
            Reply::call("c", "trigger_and_auto_notify", &arguments.to_string())
        }
        1 => Reply::text("it runs"),
        _ => {
            tell.send(wall()).unwrap();
            Reply::text("it has ended")
        }
    });
    let settings = model::openai::Settings::new(llm.base_url(), "m");
    let settings = model::Settings::OpenAi(settings);
    let path = place.path().join("store.db");
    let mut bot = Bot::start(Parts {
        store: Arc::new(Sqlite::open(&Settings { path }).unwrap()),
        model: Arc::new(Chosen::new(settings, Arc::clone(&clock)).unwrap()),
        clock,
        spool: place.path().join("spool"),
        on_tool: Arc::new(|| {}),
    })
    .await;
    let other = FakeLlm::start().await;
    other.otherwise(|_| Reply::text("pong"));
    let client = reqwest::Client::new();
    let (mut pairs, mut to_record) = (Pairs::default(), vec![]);
    for round in 0..WARM_UP + ROUNDS {
        let reference = least(place.path(), &client, &other.base_url()).await;
        // A session of its own: logs do not grow.
        let session = bot::session(&format!("wake-{round}"));
        bot.say(&session).await;
        bot.posted().await;
        fs::write(&on, "go").unwrap();
        let requested = told.recv().await.unwrap();
        bot.posted().await;
        let ended: u64 = fs::read_to_string(&said).unwrap().parse().unwrap();
        if round >= WARM_UP {
            let ended = Duration::from_nanos(ended);
            pairs.push(requested.saturating_sub(ended), reference);
            to_record.push(recorded(place.path()).saturating_sub(ended).as_secs_f64() * 1e3);
        }
    }
    bot.end().await;
    let what = "script's end to request, to a safe record and a request";
    let note = format!("{}; {:.3} ms to the record", pairs.note(), median(to_record));
    vec![Line::new("wake", what, pairs.ratio()).note(note)]
}

/// When the newest exit record got its name.
fn recorded(place: &Path) -> Duration {
    let below =
        |path: PathBuf| fs::read_dir(path).into_iter().flatten().flatten().map(|item| item.path());
    let spool = place.join("spool");
    let settled = below(spool.join("s")).flat_map(below);
    let records = settled.chain(below(spool.join("e"))).map(|entry| entry.join("exit.json"));
    let named = records.filter_map(|record| {
        let is = record.metadata().ok()?;
        Some(Duration::new(is.ctime().try_into().ok()?, is.ctime_nsec().try_into().ok()?))
    });
    named.max().unwrap()
}

async fn least(directory: &Path, client: &reqwest::Client, url: &str) -> Duration {
    let begun = Instant::now();
    let draft = directory.join("record.tmp");
    let mut file = File::create(&draft).unwrap();
    file.write_all(&[7; 400]).unwrap();
    file.sync_all().unwrap();
    fs::rename(&draft, directory.join("record")).unwrap();
    File::open(directory).unwrap().sync_all().unwrap();
    client.post(url).body("{}").send().await.unwrap().bytes().await.unwrap();
    begun.elapsed()
}
