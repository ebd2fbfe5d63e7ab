//! Lost, late and doubled deliveries.

use dogwatch::core::execution::{Outcome, State, Status};
use dogwatch::core::id::{BootId, ExecutionId};
use dogwatch::core::ledger::Refusal;
use dogwatch::core::ledger::session::Complete;
use dogwatch::core::limits::{FORGET_AGAIN_MS, RETENTION_MS, SETTLE_MS};
use dogwatch::watch::Timing;
use rustix::process::Signal;

use super::waits;
use crate::support::bot::{Bot, Setup, session};
use crate::support::fake_llm::{Gate, Reply};
use crate::support::process::{ends, pids, said, signal};
use crate::support::wire::{envelopes, last, results, trigger, user};

const FIRST: &str = "auto-notify-watc-0001";

/// How a script comes to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ending {
    Exit0,
    Exit1,
    Signal,
    SpawnError,
    Timeout,
    CancelByPerson,
    ShimKilled,
    NodeKilled,
    HostRebooted,
}

impl Ending {
    const ALL: [Self; 9] = [
        Self::Exit0,
        Self::Exit1,
        Self::Signal,
        Self::SpawnError,
        Self::Timeout,
        Self::CancelByPerson,
        Self::ShimKilled,
        Self::NodeKilled,
        Self::HostRebooted,
    ];

    fn script(self, up: &str, on: &str) -> String {
        let then = match self {
            Self::Exit0 | Self::NodeKilled => "print('fine')",
            Self::Exit1 => "raise SystemExit(1)",
            Self::Signal => "os.kill(os.getpid(), 15)",
            Self::SpawnError => "",
            Self::Timeout | Self::CancelByPerson | Self::ShimKilled | Self::HostRebooted => {
                "import time; time.sleep(600)"
            }
        };
        let held = !matches!(self, Self::Timeout);
        let wait = if held { format!("open({on:?}, 'w').close()\n") } else { String::new() };
        format!("import os\nprint(os.getpid(), os.getppid(), file=open({up:?}, 'w'))\n{wait}{then}")
    }

    const fn status(self) -> Status {
        match self {
            Self::Exit0 | Self::NodeKilled => Status::Completed,
            Self::Exit1 | Self::Signal | Self::SpawnError => Status::Failed,
            Self::Timeout => Status::TimedOut,
            Self::CancelByPerson => Status::Cancelled,
            Self::ShimKilled | Self::HostRebooted => Status::Lost,
        }
    }
}

/// Ends it so; gives back when nothing of it is left to be done.
async fn bring_about(bot: &mut Bot, ending: Ending, on: &str, up: &str) {
    if ending == Ending::SpawnError {
        return;
    }
    let shim = pids(up).await[1];
    match ending {
        Ending::Exit0 | Ending::Exit1 | Ending::Signal => {
            said(on).await;
        }
        Ending::SpawnError | Ending::Timeout => {}
        Ending::CancelByPerson => {
            bot.cancel(FIRST).await;
        }
        Ending::ShimKilled => signal(shim, Signal::KILL),
        Ending::NodeKilled => {
            bot.crash().await;
            said(on).await;
            bot.boot().await;
        }
        Ending::HostRebooted => {
            bot.crash().await;
            signal(shim, Signal::KILL);
            assert!(ends(shim));
            let entry = std::fs::read_dir(bot.path().join("spool/e")).unwrap().next().unwrap();
            let spec = entry.unwrap().path().join("spec.json");
            let host = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
            let text = std::fs::read_to_string(&spec).unwrap().replace(host.trim(), "another");
            std::fs::write(&spec, text).unwrap();
            bot.boot().await;
        }
    }
}

async fn one_completion(ending: Ending) {
    let mut setup = Setup::default();
    if ending == Ending::SpawnError {
        setup.shim = "/no/such/dogwatch".into();
    }
    let mut bot = Bot::with(setup).await;
    let (up, on) = (bot.fifo("up"), bot.fifo("on"));
    let timeout = if ending == Ending::Timeout { 1 } else { 600 };
    bot.llm.will(trigger("Watch it", &ending.script(&up, &on), timeout));
    let gate = Gate::default();
    bot.llm.will(Reply::text("Started.").hold_head(&gate));
    bot.llm.otherwise(|_| Reply::text("Noted."));
    bot.say("watch it").await;
    bot.asked(2).await;
    gate.open();
    bot.posts(1).await;
    bring_about(&mut bot, ending, &on, &up).await;
    bot.until("its end", |view| view.live.is_empty()).await;
    if ending == Ending::CancelByPerson {
        // A person knows of it: it rides with what they say next.
        assert_eq!(bot.view().await.notices, 1);
        bot.say("and now?").await;
    }
    bot.posts(2).await;
    bot.quiet().await;
    let State::Ended(outcome) = bot.execution(FIRST).await.state else {
        panic!("{ending:?} lives")
    };
    assert_eq!(outcome.status, ending.status(), "{ending:?}");
    let notices = bot.notices("main").await;
    assert_eq!(notices.len(), 1, "{ending:?}: {notices:?}");
    assert!(notices[0].contains(&format!("status={}", ending.status().word())), "{notices:?}");
    // A start without a cause, a sweep and a day change nothing.
    bot.crash().await;
    bot.boot().await;
    bot.pass(86_400_000).await;
    assert_eq!(bot.llm.seen_now().len(), 3, "{ending:?}");
    let sum = bot.finish().await;
    assert_eq!((sum.registered, sum.fates["acked"]), (1, 1), "{ending:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn b02_every_ending_of_a_script_is_exactly_one_completion() {
    for ending in Ending::ALL {
        one_completion(ending).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn b06_a_completion_waits_ten_minutes_for_a_busy_chat() {
    let bot = Bot::start().await;
    let on = bot.fifo("on");
    let gate = Gate::default();
    bot.llm.will(trigger("Watch it", &waits(&on, "print('green')"), 7_200));
    bot.llm.will(Reply::call("c2", "watch__list", "{}").hold_head(&gate));
    bot.llm.will(Reply::text("It is green."));
    bot.say("watch it, then think").await;
    bot.asked(2).await;
    bot.started().await;
    bot.pass(60_000).await;
    said(&on).await;
    bot.until("its end", |view| view.notices == 1).await;
    for _ in 0..9 {
        bot.pass(60_000).await;
    }
    assert_eq!(bot.view().await.notices, 1);
    gate.open();
    bot.posts(1).await;
    let seen = bot.asked(3).await;
    assert_eq!(envelopes(&seen[2]), 1);
    let told = results(&seen[2]).pop().unwrap()["system_notifications"][0].to_string();
    // Real time passes too, and more of it on a slow machine.
    let minutes = told.split("delayed (finished ").nth(1).and_then(|rest| rest.split('m').next());
    assert!(minutes.unwrap().parse::<u64>().unwrap() >= 9, "{told}");
    bot.quiet().await;
    assert_eq!(bot.finish().await.fates["acked"], 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn b09_everything_that_wakes_starts_a_turn_of_an_idle_chat() {
    // A person, and the end of work in each way that nobody asked for.
    let bot = Bot::start().await;
    let scripts = [
        "print(1)",
        "raise SystemExit(1)",
        "import os\nos.kill(os.getpid(), 9)",
        "import time\ntime.sleep(60)",
    ];
    bot.llm.otherwise(|_| Reply::text("Noted."));
    for (i, script) in scripts.into_iter().enumerate() {
        bot.llm.will(trigger("Watch it", script, 1));
        bot.say("watch it").await;
        bot.posts(2 * (i + 1)).await;
        bot.quiet().await;
        let seen = bot.asked(3 * (i + 1)).await;
        let text = last(&seen[3 * i + 2])["content"].as_str().unwrap().to_owned();
        assert!(text.starts_with("[AUTO-NOTIFICATION] Agent"), "{text}");
    }
    assert_eq!(bot.finish().await.fates["acked"], 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn b16_a_frozen_reader_is_woken_and_nothing_is_lost() {
    let timing = Timing { check_ms: 50, answer_ms: 150, ..Timing::default() };
    let bot = Bot::with(Setup { timing, ..Setup::default() }).await;
    let (up, on) = (bot.fifo("up"), bot.fifo("on"));
    let script = format!(
        "import os\nprint(os.getppid(), file=open({up:?}, 'w'))\n{}",
        waits(&on, "print('x' * 9000)\nprint('the end')")
    );
    bot.llm.will(trigger("Watch it", &script, 600));
    bot.llm.otherwise(|_| Reply::text("Noted."));
    bot.say("watch it").await;
    let shim = pids(&up).await[0];
    bot.posts(1).await;
    signal(shim, Signal::STOP);
    said(&on).await;
    bot.posts(2).await;
    let seen = bot.asked(3).await;
    let text = user(&seen[2]).concat();
    assert!(text.contains(&"x".repeat(9_000)) && text.contains("the end"), "{text}");
    bot.quiet().await;
    assert_eq!(bot.finish().await.fates["acked"], 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn b17_b26_a_script_outlives_forty_turns_and_is_told_once_at_its_end() {
    let bot = Bot::start().await;
    let (up, on) = (bot.fifo("up"), bot.fifo("on"));
    let script = format!(
        "import os\nprint(os.getpid(), file=open({up:?}, 'w'))\n{}",
        waits(&on, "print('at last')")
    );
    bot.llm.will(trigger("Watch it", &script, 86_400));
    bot.llm.otherwise(|_| Reply::text("Noted."));
    bot.say("watch it").await;
    let pid = pids(&up).await[0];
    bot.posts(1).await;
    for turn in 0..40 {
        bot.say(&format!("question {turn}")).await;
        bot.clock.jump(SETTLE_MS);
        bot.posts(2 + turn).await;
        bot.pass(6 * 3_600_000 / 40).await;
    }
    let seen = bot.asked(42).await;
    assert!(seen.iter().all(|seen| envelopes(seen) == 0));
    assert_eq!(bot.quiet().await.live.len(), 1);
    assert!(crate::support::process::is_alive(pid));
    said(&on).await;
    bot.posts(42).await;
    bot.quiet().await;
    assert_eq!(bot.llm.seen_now().len(), 43);
    assert_eq!(bot.finish().await.fates["acked"], 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn b25_what_was_acked_and_forgotten_never_speaks_again() {
    let bot = Bot::start().await;
    bot.llm.will(trigger("Watch it", "print('green')", 60));
    bot.llm.otherwise(|_| Reply::text("Noted."));
    bot.say("watch it").await;
    bot.posts(2).await;
    bot.quiet().await;
    for _ in 0..60 {
        bot.pass(600_000).await;
    }
    bot.clock.jump(RETENTION_MS);
    let gone = async {
        loop {
            bot.clock.jump(FORGET_AGAIN_MS + 1);
            if bot.rows("main").await.keys().all(|key| !key.as_str().starts_with("x/")) {
                return;
            }
        }
    };
    bot.wait("the forgetting", gone).await;
    let unknown = Complete {
        session: session("main"),
        execution: ExecutionId::new(FIRST).unwrap(),
        outcome: Outcome::bare(Status::Completed, "again"),
        boot: BootId::new("somebody").unwrap(),
    };
    let refused = bot.engine_now().ledger().run(&unknown).await.unwrap_err();
    assert_eq!(refused.refusal(), Some(&Refusal::Unknown));
    for _ in 0..60 {
        bot.pass(600_000).await;
    }
    assert_eq!(bot.llm.seen_now().len(), 3);
    bot.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b35_a_wake_brings_its_result_with_it() {
    let bot = Bot::start().await;
    bot.llm.will(trigger("Watch it", "print('the payload')", 60));
    bot.llm.otherwise(|_| Reply::text("Noted."));
    bot.say("watch it").await;
    bot.posts(2).await;
    let seen = bot.asked(3).await;
    let text = last(&seen[2])["content"].as_str().unwrap().to_owned();
    let (marker, payload) = (text.find("[AUTO-NOTIFICATION]"), text.find("the payload"));
    assert!(marker < payload && payload.is_some(), "{text}");
    bot.quiet().await;
    bot.finish().await;
}
