//! `dogwatch audit`: the balance of a live store. Owns reading it page by page, beside a bot that
//! runs or without one. Must not know what is right; the ledger's audit does.

mod indexes;

use std::fmt::Write as _;

use anyhow::{Result, ensure};
use serde_json::json;

use self::indexes::Indexes;
use crate::app;
use crate::config::Config;
use crate::core::ledger::audit::{Balance, Snapshot, audit};
use crate::core::ledger::owner;
use crate::core::ledger::{Aggregate, Key};
use crate::ports::Store;
use crate::store::Chosen;
use crate::watch;

/// Rows or aggregates read at a time.
const PAGE: usize = 500;
/// Reads of a session that was changed between two pages.
const TRIES_MAX: u32 = 5;

/// What an audit found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Audit {
    /// Sessions in the store.
    pub sessions: usize,
    /// All of them together.
    pub balance: Balance,
    /// Entries of the spool that the store does not know. They are ended at the next start and
    /// kept for a day; nothing waits for them.
    pub strangers: Vec<String>,
}

impl Audit {
    /// Does everything add up?
    pub fn is_even(&self) -> bool {
        self.balance.is_even()
    }

    /// For programs.
    pub fn to_json(&self) -> String {
        let balance = &self.balance;
        let report = json!({
            "even": self.is_even(),
            "sessions": self.sessions,
            "executions": {
                "registered": balance.registered,
                "live": balance.live,
                "unattended": balance.unattended,
                "pending": balance.pending,
                "offered": balance.offered,
                "fates": balance.fates,
            },
            "arrivals": { "accepted": balance.arrivals, "unread": balance.unread },
            "posts": { "undelivered": balance.unposted, "dead_letters": balance.dead_letters },
            "spool": { "unknown": self.strangers },
            "faults": balance.faults,
        });
        format!("{report:#}")
    }

    /// For people.
    pub fn to_text(&self) -> String {
        let balance = &self.balance;
        let fates: Vec<String> =
            balance.fates.iter().map(|(fate, count)| format!("{count} {fate}")).collect();
        let fates = if fates.is_empty() { "none settled".to_owned() } else { fates.join(", ") };
        let mut text = format!(
            "{}\n{} executions = {} live + {} unread + {} before the model + {}\n\
             {} messages accepted, {} unread\n{} posts undelivered, {} given up\n",
            sessions(self.sessions),
            balance.registered,
            balance.live,
            balance.pending,
            balance.offered,
            fates,
            balance.arrivals,
            balance.unread,
            balance.unposted,
            balance.dead_letters,
        );
        if balance.unattended > 0 {
            let _ = writeln!(
                text,
                "{} of the live ones are unattended: their host is away, they may run on",
                balance.unattended
            );
        }
        for stranger in &self.strangers {
            let _ = writeln!(text, "in the spool, but not in the store: {stranger}");
        }
        for fault in &balance.faults {
            let _ = writeln!(text, "does not balance: {fault}");
        }
        text.push_str(if self.is_even() {
            "Everything balances."
        } else {
            "It does NOT balance: this is a fault of dogwatch. Keep the data and report it."
        });
        text
    }
}

fn sessions(count: usize) -> String {
    if count == 1 { "1 session".to_owned() } else { format!("{count} sessions") }
}

/// What the spool has and the store has not, in words.
pub async fn strangers(config: &Config, store: &dyn Store) -> Result<Vec<String>> {
    let mut strangers = vec![];
    // Before the store: what is launched meanwhile stands in the store first.
    for seen in watch::look_at(&config.watch.spool_dir)? {
        let Some((session, execution)) = seen.execution else {
            strangers.push(format!("{} (it cannot be read)", seen.dir.display()));
            continue;
        };
        let key = Key::execution(&execution);
        let rows = store.load(&Aggregate::Session(session.clone()), &[key]).await?.rows;
        if rows.iter().all(Option::is_none) {
            let name = execution.within(&session);
            strangers.push(format!("{name} ({})", seen.dir.display()));
        }
    }
    Ok(strangers)
}

/// Audits the store of this configuration.
pub async fn run(config: &Config) -> Result<Audit> {
    let choice = app::store_choice(config)?;
    if let Some(file) = choice.file() {
        ensure!(
            file.exists(),
            "there is no store at {}; start dogwatch once, or name the configuration that it runs \
             with",
            file.display()
        );
    }
    let store = Chosen::look(&choice)?.rows();
    let mut found = Audit { strangers: strangers(config, &*store).await?, ..Audit::default() };
    let mut indexes = Indexes::default();
    let mut after: Option<Aggregate> = None;
    loop {
        let page = store.aggregates(after.as_ref(), PAGE).await?;
        for aggregate in &page {
            let rows = read(&*store, aggregate).await?;
            indexes.add(aggregate, &rows);
            if let Aggregate::Owner(owner) = aggregate {
                let faults = owner::audit(&rows).into_iter();
                found.balance.faults.extend(faults.map(|fault| format!("{owner}: {fault}")));
            }
            if let Some(session) = aggregate.session() {
                let mut balance = audit(&rows);
                for fault in &mut balance.faults {
                    *fault = format!("{session}: {fault}");
                }
                found.sessions += 1;
                found.balance.add(&balance);
            }
        }
        let last = page.len() < PAGE;
        after = page.into_iter().next_back();
        if last {
            found.balance.faults.extend(indexes.compare(&*store).await?);
            return Ok(found);
        }
    }
}

/// All rows of an aggregate, as of one revision where the bot lets it.
async fn read(store: &dyn Store, aggregate: &Aggregate) -> Result<Snapshot> {
    let mut rows = Snapshot::new();
    for _ in 0..TRIES_MAX {
        let before = store.load(aggregate, &[Key::head()]).await?.revision;
        rows.clear();
        let mut after: Option<Key> = None;
        loop {
            let page = store.rows(aggregate, after.as_ref(), PAGE).await?;
            let last = page.len() < PAGE;
            after = page.last().map(|(key, _)| key.clone());
            rows.extend(page);
            if last {
                break;
            }
        }
        if store.load(aggregate, &[Key::head()]).await?.revision == before {
            break;
        }
    }
    Ok(rows)
}
