//! Points at which a test may kill this process, by the feature `failpoints` only: without it
//! `failpoint!` is nothing. Owns the list of all points, and dying at one of them. Must not know
//! what happens around a point.
//!
//! A point is armed by `DOGWATCH_FAILPOINT=NAME[:NTH]` and `DOGWATCH_FAILPOINT_LOG=FILE`. Reaching
//! it writes its name to the file, durably, and ends the process with SIGKILL. A point that stands
//! in the file is spent, in every process that is told the same. `DOGWATCH_FAILPOINT=*` writes
//! down all that is reached and kills nobody.

/// Here a test may kill the process. With a type and a side it is the apply of that operation.
#[macro_export]
macro_rules! failpoint {
    ($name:literal) => {{
        #[cfg(feature = "failpoints")]
        $crate::failpoint::reach($name);
    }};
    ($operation:ty, $side:literal) => {{
        #[cfg(feature = "failpoints")]
        $crate::failpoint::reach_apply::<$operation>($side);
    }};
}

#[cfg(feature = "failpoints")]
pub use armed::*;

#[cfg(feature = "failpoints")]
mod armed {
    use std::fs::{File, OpenOptions};
    use std::io::{self, Read, Write};
    use std::path::PathBuf;
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU32, Ordering};

    use nix::sys::signal::{Signal, kill};
    use nix::unistd::Pid;
    use serde::Serialize;

    const POINT: &str = "DOGWATCH_FAILPOINT";
    const LOG: &str = "DOGWATCH_FAILPOINT_LOG";
    const AHEAD: &str = "DOGWATCH_CLOCK_AHEAD_MS";
    /// Arms every point, to be written down only.
    const ALL: &str = "*";

    /// Operations whose apply is a point, before and after.
    pub const OPERATIONS: [&str; 22] = [
        "Accept",
        "Adopt",
        "Append",
        "Beat",
        "Bury",
        "Cancel",
        "Claim",
        "Commit",
        "Complete",
        "DoneItem",
        "FailItem",
        "Forget",
        "ForgetNode",
        "Free",
        "LeaseItem",
        "Overdue",
        "Register",
        "Release",
        "Reserve",
        "Retire",
        "Started",
        "Stop",
    ];

    /// Operations that the stories do not come to, and why.
    pub const RESTING: [(&str, &str); 16] = [
        ("Compact", "no turn asks for a summary yet"),
        ("Confirm", "the stories are not told in Slack"),
        ("Depart", "the stories are not told in Slack"),
        ("HomeLost", "one boot owns the store, so nobody else is buried beside it"),
        ("Install", "the stories are not told in Slack"),
        ("Introduce", "the stories are not told in Slack"),
        ("Invite", "the stories are not told in Slack"),
        ("Keep", "no story lasts as long as a place is left alone"),
        ("LeaseRefresh", "the stories are not told in Slack"),
        ("Redeem", "the stories are not told in Slack"),
        ("Refreshed", "the stories are not told in Slack"),
        ("Open", "only Slack asks for it; its tests kill the bot while the root is posted"),
        ("PutSurface", "only Slack asks for it; its tests kill the bot at each call to Slack"),
        ("Renew", "one boot owns the store, so its lanes need no renewal"),
        ("Void", "no start is refused, so no place is given up"),
        ("Walked", "the stories are not told in Slack"),
    ];

    /// Points around effects, and whose they are.
    pub const EFFECTS: [(&str, Process); 36] = [
        ("adopt.after", Process::Bot),
        ("adopt.before", Process::Bot),
        ("cancel.after", Process::Bot),
        ("cancel.before", Process::Bot),
        ("exit.heard", Process::Bot),
        ("free.after", Process::Bot),
        ("free.before", Process::Bot),
        ("go.after", Process::Bot),
        ("go.before", Process::Bot),
        ("kill.after", Process::Bot),
        ("kill.before", Process::Bot),
        ("launch.after", Process::Bot),
        ("launch.before", Process::Bot),
        ("launch.made", Process::Bot),
        ("lost.after", Process::Bot),
        ("lost.before", Process::Bot),
        ("model.after", Process::Bot),
        ("model.before", Process::Bot),
        ("post.after", Process::Bot),
        ("post.before", Process::Bot),
        ("settle.after", Process::Bot),
        ("settle.before", Process::Bot),
        ("settle.cleared", Process::Bot),
        ("record.after", Process::Shim),
        ("record.before", Process::Shim),
        ("record.synced", Process::Shim),
        ("record.written", Process::Shim),
        ("script.after", Process::Shim),
        ("script.before", Process::Shim),
        ("script.ended", Process::Shim),
        ("shim.begun", Process::Shim),
        ("shim.farewell", Process::Shim),
        ("shim.go", Process::Shim),
        ("shim.ready", Process::Shim),
        ("zygote.asked", Process::Zygote),
        ("zygote.copied", Process::Zygote),
    ];

    /// Which process dies at a point.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
    #[serde(rename_all = "snake_case")]
    pub enum Process {
        /// The bot.
        Bot,
        /// The supervisor of one script.
        Shim,
        /// What supervisors are copies of.
        Zygote,
    }

    /// One point.
    #[derive(Debug, Clone, PartialEq, Eq, Serialize)]
    pub struct Point {
        /// Its name, as it is armed.
        pub name: String,
        /// Who dies there.
        pub process: Process,
    }

    /// All points: those around applies, then those around effects.
    pub fn points() -> Vec<Point> {
        let applies = OPERATIONS.iter().flat_map(|operation| {
            ["before", "after"]
                .map(|side| Point { name: format!("{operation}.{side}"), process: Process::Bot })
        });
        let effects = EFFECTS.iter();
        applies
            .chain(
                effects
                    .map(|(name, process)| Point { name: (*name).to_owned(), process: *process }),
            )
            .collect()
    }

    struct Armed {
        point: String,
        /// Times that it is still to be passed.
        left: AtomicU32,
        log: PathBuf,
        ahead_ms: u64,
    }

    static ARMED: OnceLock<Armed> = OnceLock::new();

    /// Takes what the environment says. Once, before anything else.
    pub fn arm(lookup: &dyn Fn(&str) -> Option<String>) {
        let point = lookup(POINT).unwrap_or_default();
        let (point, nth) = match point.split_once(':') {
            Some((point, nth)) => (point.to_owned(), nth.parse().unwrap_or(1)),
            None => (point, 1),
        };
        let _only_once = ARMED.set(Armed {
            point,
            left: AtomicU32::new(nth),
            log: lookup(LOG).unwrap_or_default().into(),
            ahead_ms: lookup(AHEAD).and_then(|ms| ms.parse().ok()).unwrap_or(0),
        });
    }

    /// What a shim is told, as variables of its environment.
    pub fn variables() -> Vec<(String, String)> {
        let Some(armed) = ARMED.get() else { return vec![] };
        let log = armed.log.display().to_string();
        vec![(POINT.to_owned(), armed.point.clone()), (LOG.to_owned(), log)]
    }

    /// How far the clock of this process is ahead of the machine's, in milliseconds.
    pub fn clock_ahead_ms() -> u64 {
        ARMED.get().map_or(0, |armed| armed.ahead_ms)
    }

    /// The point of an operation's apply.
    pub fn reach_apply<O>(side: &str) {
        let path = std::any::type_name::<O>();
        let operation = path.rsplit("::").next().unwrap_or(path);
        reach(&format!("{operation}.{side}"));
    }

    /// Dies here, if this point is armed and not spent.
    pub fn reach(point: &str) {
        let Some(armed) = ARMED.get() else { return };
        if armed.point == ALL {
            let _unnoted = OpenOptions::new()
                .append(true)
                .create(true)
                .open(&armed.log)
                .and_then(|mut log| log.write_all(format!("{point}\n").as_bytes()));
            return;
        }
        if armed.point != point || armed.left.fetch_sub(1, Ordering::Relaxed) != 1 {
            return;
        }
        if matches!(note_first(&armed.log, point), Ok(true)) {
            let _dead = kill(Pid::this(), Signal::SIGKILL);
        }
    }

    /// Writes the point down. Answers `false` where it stands already.
    fn note_first(log: &PathBuf, point: &str) -> io::Result<bool> {
        let mut file: File = OpenOptions::new().read(true).append(true).create(true).open(log)?;
        file.lock()?;
        let mut noted = String::new();
        file.read_to_string(&mut noted)?;
        if noted.lines().any(|line| line == point) {
            return Ok(false);
        }
        file.write_all(format!("{point}\n").as_bytes())?;
        file.sync_all()?;
        Ok(true)
    }
}
