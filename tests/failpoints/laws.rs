//! What every story promises, whatever dies in it. Owns reading the books of a bot that rests, and
//! comparing them with what was heard. Must not know stories.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use dogwatch::console::event::Event;
use dogwatch::core::arrival::{Arrival, Standing};
use dogwatch::core::execution::{Execution, Fate, ModelReceipt, Outcome, PostSort, State, Status};
use dogwatch::core::id::SessionId;
use dogwatch::core::ledger::row::{Errand, Item, ItemState, RowType};
use dogwatch::core::ledger::{Aggregate, Key, Row};
use dogwatch::ports::Store;
use dogwatch::store::{Settings, Sqlite};

use super::play::{Play, Told, now, processes, tells};

/// Rows read at a time.
const PAGE: usize = 500;
/// Processes that have just ended are gone by then.
const GONE: Duration = Duration::from_secs(10);

/// What stands in a store.
#[derive(Default)]
pub(crate) struct Books {
    pub(crate) sessions: usize,
    pub(crate) nodes: usize,
    pub(crate) executions: Vec<Execution>,
    /// With the chat of its session.
    items: Vec<(String, Item)>,
    arrivals: BTreeMap<(String, u64), Arrival>,
}

impl Books {
    pub(crate) fn read(directory: &Path) -> Told<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let reading = Self::load(directory);
        runtime.map_err(|error| error.to_string())?.block_on(reading)
    }

    async fn load(directory: &Path) -> Told<Self> {
        let path = directory.join("data/dogwatch.db");
        let store = Sqlite::open_read_only(&Settings { path }).map_err(|e| e.to_string())?;
        let mut books = Self::default();
        let aggregates = store.aggregates(None, PAGE).await.map_err(|e| e.to_string())?;
        for aggregate in aggregates {
            let chat = aggregate.session().map(SessionId::as_str);
            let chat = chat.unwrap_or_default().trim_start_matches("console/").to_owned();
            let mut after: Option<Key> = None;
            let mut count = 0;
            loop {
                let page = store.rows(&aggregate, after.as_ref(), PAGE).await;
                let page = page.map_err(|e| e.to_string())?;
                for (_, row) in &page {
                    books.take(&chat, row);
                }
                count += page.len();
                let Some((last, _)) = page.last() else { break };
                after = Some(last.clone());
            }
            // What is forgotten leaves the name of its aggregate.
            match aggregate {
                Aggregate::Session(_) => books.sessions += usize::from(count > 0),
                Aggregate::Installer | Aggregate::Installation(_) | Aggregate::Owner(_) => {}
                Aggregate::Node(_) => books.nodes += usize::from(count > 0),
            }
        }
        Ok(books)
    }

    fn take(&mut self, chat: &str, row: &Row) {
        self.executions.extend(Execution::of(row).cloned());
        self.items.extend(Item::of(row).cloned().map(|item| (chat.to_owned(), item)));
        if let Some(arrival) = Arrival::of(row) {
            self.arrivals.insert((chat.to_owned(), arrival.seq), arrival.clone());
        }
    }

    /// A turn that is over has read the end of a watcher whose name begins so.
    pub(crate) fn has_read(&self, name: &str) -> bool {
        let mut named = self.executions.iter().filter(|it| it.name.starts_with(name));
        named.any(|execution| match &execution.model {
            ModelReceipt::Arrival(seq) => {
                let arrival = self.arrivals.get(&(execution.address.thread.clone(), *seq));
                arrival.is_some_and(|it| matches!(it.standing, Standing::Settled { .. }))
            }
            ModelReceipt::None | ModelReceipt::Fate(_) => false,
        })
    }

    /// Those whose supervisor was killed before it could say how they ended.
    pub(crate) fn lost(&self) -> Vec<&str> {
        let is_lost = |execution: &&Execution| match &execution.state {
            State::Ended(Outcome { status: Status::Lost, reason, .. }) => {
                matches!(reason.as_deref(), Some("shim-killed" | "never-started"))
            }
            State::Ended(_) | State::Registered | State::Running | State::Cancelling => false,
        };
        self.executions.iter().filter(is_lost).map(|execution| execution.name.as_str()).collect()
    }
}

/// All promises that are broken, in words.
pub(crate) fn broken(play: &Play, books: &Books, stops: bool) -> Vec<String> {
    let mut faults = vec![];
    faults.extend(unbalanced(play));
    faults.extend(posts(play, books));
    faults.extend(ends(play, books, stops));
    faults.extend(spool(play));
    faults.extend(left(play));
    faults
}

fn unbalanced(play: &Play) -> Vec<String> {
    let output = play.command("audit").output().unwrap();
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    let Ok(audit) = serde_json::from_str::<serde_json::Value>(&told) else {
        return vec![format!("the audit says {told}{}", String::from_utf8_lossy(&output.stderr))];
    };
    let mut faults = vec![];
    if audit["even"] != true || !output.status.success() {
        faults.push(format!("the audit is not even: {}", audit["faults"]));
    }
    for pointer in [
        "/executions/live",
        "/executions/pending",
        "/executions/offered",
        "/arrivals/unread",
        "/posts/undelivered",
        "/posts/dead_letters",
    ] {
        if audit.pointer(pointer) != Some(&0.into()) {
            faults.push(format!("at rest {pointer} is {:?}", audit.pointer(pointer)));
        }
    }
    faults
}

/// What was to be posted was heard: once, or marked.
fn posts(play: &Play, books: &Books) -> Vec<String> {
    // A session that is forgotten counts its items anew, so the text is of the name.
    let mut heard: BTreeMap<(&str, &str, &str), u32> = BTreeMap::new();
    for event in &play.events {
        if let Event::Post { chat, item, text, may_repeat, .. } = event {
            let plain = heard.entry((chat.as_str(), item.as_str(), text)).or_default();
            *plain += u32::from(!may_repeat);
        }
    }
    let mut faults = vec![];
    for ((chat, item, text), plain) in &heard {
        if *plain > 1 {
            faults.push(format!("{item} of {chat} was posted {plain} times, unmarked: {text}"));
        }
    }
    for (chat, item) in &books.items {
        let was_heard = heard.keys().any(|(at, id, _)| at == chat && *id == item.id.as_str());
        if matches!(item.errand, Errand::Post { .. }) && !was_heard {
            faults.push(format!("{} of {chat} was never heard", item.id));
        }
        if !matches!(item.state, ItemState::Done(_)) {
            faults.push(format!("{} of {chat} is {:?}", item.id, item.state));
        }
    }
    faults
}

/// Each result is told once, by what its fate says.
fn ends(play: &Play, books: &Books, stops: bool) -> Vec<String> {
    let mut faults = vec![];
    let mut names: Vec<&str> = vec![];
    for execution in &books.executions {
        if names.contains(&execution.name.as_str()) {
            faults.push(format!("{} was started twice", execution.name));
        }
        names.push(&execution.name);
        faults.extend(end(play, books, execution, stops));
    }
    faults
}

fn end(play: &Play, books: &Books, execution: &Execution, stops: bool) -> Option<String> {
    let name = &execution.name;
    if !execution.state.is_ended() {
        return Some(format!("{name} is {:?}", execution.state));
    }
    let mut items: Vec<&str> = vec![];
    for event in play.events.iter().filter(|event| tells(event, name)) {
        if let Event::Post { item, .. } = event
            && !items.contains(&item.as_str())
        {
            items.push(item.as_str());
        }
    }
    let chat = &execution.address.thread;
    let (fate, turn) = match &execution.model {
        ModelReceipt::Fate(fate) => (fate.clone(), 0),
        ModelReceipt::Arrival(seq) => match books.arrivals.get(&(chat.clone(), *seq))?.standing {
            Standing::Settled { ref fate, turn } => (fate.clone(), turn),
            ref other @ (Standing::Pending | Standing::Offered(_) | Standing::Withdrawn) => {
                return Some(format!("the end of {name} is {other:?}"));
            }
        },
        ModelReceipt::None => return Some(format!("{name} has ended and no receipt")),
    };
    let prefix = format!("post/{turn}/");
    let answered = play.events.iter().any(
        |event| matches!(event, Event::Post { item, .. } if item.as_str().starts_with(&prefix)),
    );
    let right = match &fate {
        // What a stopped turn had read is not answered any more.
        Fate::Acked | Fate::Collected if stops => items.len() <= 1,
        // The script speaks of one notice at a time; the turn that read two has answered.
        Fate::Acked | Fate::Collected if answered => items.len() <= 1,
        Fate::Acked | Fate::Collected | Fate::Waived => items.len() == 1,
        Fate::Stopped => stops && items.is_empty(),
        Fate::Superseded => false,
        Fate::Dead(_) => play.events.iter().any(|event| {
            let dead = format!("dead/{turn}");
            matches!(event, Event::Post { item, sort: PostSort::Failure, .. }
                if item.as_str() == dead)
        }),
    };
    (!right).then(|| format!("{name} is {fate:?} in turn {turn}, told in {items:?}"))
}

/// Every entry is settled, no script's directory is left.
fn spool(play: &Play) -> Vec<String> {
    let root = play.directory().join("data/spool");
    let list = |name: &str| fs::read_dir(root.join(name)).into_iter().flatten().flatten();
    let unsettled = list("e").map(|entry| entry.path());
    let work = list("w").map(|entry| entry.path());
    unsettled
        .map(|dir| format!("{} is not settled", dir.display()))
        .chain(work.map(|dir| format!("{} is left", dir.display())))
        .collect()
}

fn left(play: &Play) -> Vec<String> {
    let until = now() + GONE;
    loop {
        let left = processes(play.directory(), "");
        if left.is_empty() {
            return vec![];
        }
        if now() > until {
            return left
                .iter()
                .map(|pid| format!("the process {pid} is left: {}", arguments(pid.as_raw())))
                .collect();
        }
        std::thread::park_timeout(Duration::from_millis(20));
    }
}

fn arguments(pid: i32) -> String {
    let bytes = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&bytes).replace('\0', " ")
}
