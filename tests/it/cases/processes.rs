//! Processes that outlive, die, or hold on.

use dogwatch::core::execution::{Execution, Notify, State};
use dogwatch::core::id::{ExecutionId, SessionId};
use dogwatch::core::ledger::Key;
use dogwatch::core::ledger::row::{Head, RowType};
use dogwatch::core::ledger::session::{Compact, Token};
use dogwatch::ports::{Launch, Launcher};
use rustix::process::Signal;

use super::waits;
use crate::support::bot::{Bot, session};
use crate::support::fake_llm::{FakeLlm, Gate, Reply};
use crate::support::killable::{Program, audit, configure};
use crate::support::process::{ends, fifo, is_alive, pids, processes_of, said, signal};
use crate::support::tap::At;
use crate::support::wire::{arguments, envelopes, prompt, trigger, user};

const FIRST: &str = "auto-notify-watc-0001";

/// Says its pid and its shim's, then waits until somebody reads the other fifo.
fn patient(up: &str, on: &str, then: &str) -> String {
    format!(
        "import os\nprint(os.getpid(), os.getppid(), file=open({up:?}, 'w'))\n{}",
        waits(on, then)
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn b57_a_deadline_is_told_in_time_though_a_grandchild_holds_the_pipe() {
    for how in ["", ", start_new_session=True"] {
        let bot = Bot::start().await;
        let up = bot.fifo("up");
        let script = format!(
            "import subprocess, time\nprint('before', flush=True)\n\
             p = subprocess.Popen(['sleep', '600']{how})\n\
             print(p.pid, file=open({up:?}, 'w'))\ntime.sleep(600)"
        );
        bot.llm.will(trigger("Watch it", &script, 2));
        bot.llm.otherwise(|_| Reply::text("Noted."));
        bot.say("watch it").await;
        let grandchild = pids(&up).await[0];
        bot.posts(2).await;
        assert!(!is_alive(grandchild));
        let told = bot.notices("main").await.concat();
        assert!(told.contains("status=timed_out") && told.contains("Output: before"), "{told}");
        bot.quiet().await;
        bot.finish().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn b59_b110_a_killed_bot_comes_back_at_once_and_accounts_for_each_script() {
    let dir = tempfile::tempdir().unwrap();
    let llm = FakeLlm::start().await;
    configure(dir.path(), &llm);
    let names = ["a", "b", "c"];
    let fifos = names.map(|name| {
        (fifo(dir.path(), &format!("{name}-up")), fifo(dir.path(), &format!("{name}-on")))
    });
    let made: Vec<String> = fifos
        .iter()
        .zip(names)
        .map(|((up, on), name)| {
            arguments(
                &format!("Work {name}"),
                &patient(up, on, &format!("print('end of {name}')")),
                600,
            )
        })
        .collect();
    let tool = "trigger_and_auto_notify";
    let calls: Vec<_> = names.iter().zip(&made).map(|(id, given)| (*id, tool, &**given)).collect();
    llm.will(Reply::calls(&calls));
    llm.otherwise(|_| Reply::text("Noted."));
    let mut program = Program::start(dir.path(), "UTC").await;
    program.say("start three").await;
    let mut shims = Vec::new();
    for (up, _) in &fifos {
        shims.push(pids(up).await[1]);
    }
    program.post().await;
    program.kill().await;
    signal(shims[2], Signal::KILL);
    said(&fifos[0].1).await;
    assert!(ends(shims[0]) && ends(shims[2]));
    // Nobody touches the chat: the start itself finds what ended, what runs and what is lost.
    let mut program = Program::start(dir.path(), "Asia/Tokyo").await;
    program.post().await;
    said(&fifos[1].1).await;
    program.post().await;
    let told = |name: &str, status: &str| {
        llm.seen_now().last().is_some_and(|seen| {
            let told = user(seen).concat();
            told.contains(&format!("Work {name}")) && told.contains(&format!("status={status}"))
        })
    };
    while !(told("a", "completed") && told("b", "completed") && told("c", "lost")) {
        let count = llm.seen_now().len() + 1;
        tokio::time::timeout(std::time::Duration::from_mins(1), llm.seen(count)).await.unwrap();
    }
    let last = user(llm.seen_now().last().unwrap()).concat();
    for name in names {
        assert_eq!(last.matches(&format!("Work {name}")).count(), 1, "{last}");
    }
    assert!(last.contains("shim-killed"), "{last}");
    program.leave().await;
    let audit = audit(dir.path()).await;
    assert_eq!(
        (&audit["even"], &audit["executions"]["live"]),
        (&true.into(), &0.into()),
        "{audit}"
    );
    assert_eq!(audit["executions"]["fates"]["acked"], 3, "{audit}");
    assert!(processes_of(dir.path()).into_iter().all(ends));
}

#[tokio::test(flavor = "multi_thread")]
async fn b108_b109_a_turn_that_a_kill_cut_is_answered_after_the_start() {
    let dir = tempfile::tempdir().unwrap();
    let llm = FakeLlm::start().await;
    configure(dir.path(), &llm);
    let (up, on) = (fifo(dir.path(), "up"), fifo(dir.path(), "on"));
    llm.will(trigger("Watch it", &patient(&up, &on, "print('green')"), 600));
    // The tool has said "started"; the model says nothing more, and the bot is killed.
    llm.will(Reply::stream().stall());
    let mut program = Program::start(dir.path(), "UTC").await;
    program.say("watch it").await;
    llm.seen(2).await;
    pids(&up).await;
    program.kill().await;
    llm.otherwise(|_| Reply::text("Noted."));
    let mut program = Program::start(dir.path(), "America/New_York").await;
    assert_eq!(program.post().await["sort"], "answer");
    let seen = llm.seen(3).await;
    assert_eq!(
        seen[1].body["messages"].as_array().unwrap()[1..],
        seen[2].body["messages"].as_array().unwrap()[1..]
    );
    said(&on).await;
    assert_eq!(program.post().await["sort"], "woken");
    program.leave().await;
    let audit = audit(dir.path()).await;
    assert_eq!((&audit["even"], &audit["executions"]["registered"]), (&true.into(), &1.into()));
    assert_eq!(llm.seen_now().len(), 4);
    assert!(processes_of(dir.path()).into_iter().all(ends));
}

#[tokio::test(flavor = "multi_thread")]
async fn b63_a_recovery_that_is_cut_twice_ends_like_one() {
    let mut bot = Bot::start().await;
    let (up, on) = (bot.fifo("up"), bot.fifo("on"));
    let given = serde_json::json!({
        "name": "Watch it", "python": patient(&up, &on, ""), "timeout_seconds": 600,
        "notify": "both",
    });
    bot.llm.will(Reply::call("c", "trigger_and_auto_notify", &given.to_string()));
    bot.llm.otherwise(|_| Reply::text("Noted."));
    bot.say("watch it").await;
    let script = pids(&up).await[0];
    bot.posts(1).await;
    bot.quiet().await;
    bot.crash().await;
    for at in [At::Before, At::After] {
        let adoption =
            bot.hand.trap_row(at, |execution: &Execution| execution.started_at.is_some());
        bot.boot_into(adoption).await;
        bot.crash().await;
    }
    let restored = bot.boot().await;
    assert_eq!((restored.adopted, restored.ended), (1, 0));
    let execution = bot.execution(FIRST).await;
    assert_eq!((execution.state, execution.notify), (State::Running, Notify::Both));
    assert!(is_alive(script));
    // A kill is a kill, and the promise to people outlived both cuts.
    bot.cancel(FIRST).await;
    bot.until("its end", |view| view.live.is_empty() && view.unposted == 0).await;
    assert!(!is_alive(script));
    let posts = bot.posts(2).await;
    assert!(posts[1].text.contains("was cancelled"), "{}", posts[1].text);
    bot.say("well?").await;
    bot.posts(3).await;
    bot.quiet().await;
    assert_eq!(bot.notices("main").await.len(), 1);
    bot.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b64_a_graceful_restart_leaves_scripts_running_and_the_chat_is_told() {
    let mut bot = Bot::start().await;
    let (up, on) = (bot.fifo("up"), bot.fifo("on"));
    bot.llm.will(trigger("Watch it", &patient(&up, &on, "print('green')"), 600));
    bot.llm.otherwise(|_| Reply::text("Noted."));
    bot.say("watch it").await;
    let script = pids(&up).await[0];
    bot.posts(1).await;
    bot.quiet().await;
    bot.shut_down().await;
    assert!(is_alive(script));
    said(&on).await;
    assert!(ends(script));
    // Its record is written when its shim is gone.
    assert!(processes_of(bot.path()).into_iter().all(ends));
    assert_eq!(bot.boot().await.ended, 1);
    bot.posts(2).await;
    let seen = bot.asked(3).await;
    assert!(user(&seen[2]).concat().contains("green"));
    bot.quiet().await;
    bot.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b67_only_its_own_deadline_ends_a_script() {
    let bot = Bot::start().await;
    let (up, on) = (bot.fifo("up"), bot.fifo("on"));
    bot.llm.will(trigger("Watch it", &patient(&up, &on, "print('green')"), 7_200));
    bot.llm.otherwise(|_| Reply::text("Noted."));
    bot.say("watch it").await;
    let script = pids(&up).await[0];
    bot.posts(1).await;
    bot.quiet().await;
    for _ in 0..60 {
        bot.pass(60_000).await;
    }
    assert!(is_alive(script));
    assert_eq!(bot.execution(FIRST).await.state, State::Running);
    said(&on).await;
    bot.posts(2).await;
    bot.quiet().await;
    assert!(bot.notices("main").await[0].contains("status=completed"));
    bot.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b68_the_end_of_one_of_six_restarts_no_other() {
    let bot = Bot::start().await;
    let fifos: Vec<String> = (0..6).map(|i| bot.fifo(&format!("on{i}"))).collect();
    let made: Vec<(String, String)> = fifos
        .iter()
        .enumerate()
        .map(|(i, on)| (format!("c{i}"), arguments(&format!("Work {i}"), &waits(on, ""), 600)))
        .collect();
    let tool = "trigger_and_auto_notify";
    let calls: Vec<_> = made.iter().map(|(id, given)| (&**id, tool, &**given)).collect();
    bot.llm.will(Reply::calls(&calls));
    bot.llm.otherwise(|_| Reply::text("Noted."));
    bot.say("start six").await;
    bot.posts(1).await;
    bot.quiet().await;
    said(&fifos[2]).await;
    bot.posts(2).await;
    let seen = bot.asked(3).await;
    let table = prompt(&seen[2]);
    for i in 0..6 {
        let row = format!("'Work {i}': running");
        assert_eq!(table.contains(&row), i != 2, "{table}");
    }
    assert!(table.contains("do not start it again"));
    let view = bot.quiet().await;
    assert_eq!(view.live.len(), 5);
    for (i, on) in fifos.iter().enumerate().filter(|(i, _)| *i != 2) {
        said(on).await;
        bot.until("the others", |view| view.live.len() < 6 && i < 6).await;
    }
    bot.until("all ends", |view| view.live.is_empty()).await;
    bot.quiet().await;
    let sum = bot.finish().await;
    assert_eq!((sum.registered, sum.fates["acked"]), (6, 6));
}

#[tokio::test(flavor = "multi_thread")]
async fn b70_after_a_compaction_what_runs_is_still_listed() {
    let bot = Bot::start().await;
    let on = bot.fifo("on");
    bot.llm.will(trigger("Watch it", &waits(&on, "print('green')"), 600));
    bot.llm.will(Reply::text("Started."));
    bot.say("watch it").await;
    bot.posts(1).await;
    bot.quiet().await;
    let gate = Gate::default();
    bot.llm.will(Reply::text("Compacting.").hold_head(&gate));
    bot.say("go on").await;
    bot.asked(3).await;
    let rows = bot.rows("main").await;
    let head = rows.get(&Key::head()).and_then(Head::of).unwrap().clone();
    let lane = head.lane.unwrap();
    let token =
        Token { session: session("main"), turn: lane.turn, fence: lane.fence, claim: lane.claim };
    let summary = "They said hello.".to_owned();
    let compact = Compact { token, upto: head.tlen, summary };
    bot.engine_now().ledger().run(&compact).await.unwrap();
    gate.open();
    bot.posts(2).await;
    bot.quiet().await;
    bot.llm.will(Reply::text("It runs."));
    bot.say("does it run?").await;
    bot.posts(3).await;
    let seen = bot.asked(4).await;
    let said_in = user(&seen[3]).concat();
    assert!(said_in.contains("They said hello.") && !said_in.contains("watch it"), "{said_in}");
    assert!(prompt(&seen[3]).contains("auto-notify-watc-0001 'Watch it': running"));
    bot.llm.will(Reply::text("It is green."));
    said(&on).await;
    bot.posts(4).await;
    let seen = bot.asked(5).await;
    assert_eq!(envelopes(&seen[4]), 1);
    bot.quiet().await;
    bot.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b72_a_restart_between_all_turns_tells_a_loss_once() {
    let mut bot = Bot::start().await;
    let (up, on) = (bot.fifo("up"), bot.fifo("on"));
    bot.llm.will(trigger("Watch it", &patient(&up, &on, ""), 600));
    bot.llm.otherwise(|_| Reply::text("Noted."));
    bot.say("watch it").await;
    let shim = pids(&up).await[1];
    bot.posts(1).await;
    bot.quiet().await;
    bot.crash().await;
    signal(shim, Signal::KILL);
    assert!(ends(shim));
    bot.boot().await;
    bot.posts(2).await;
    for turn in 0..3 {
        bot.quiet().await;
        bot.shut_down().await;
        bot.boot().await;
        bot.say(&format!("question {turn}")).await;
        bot.posts(3 + turn).await;
    }
    bot.quiet().await;
    let notices = bot.notices("main").await;
    assert_eq!(notices.len(), 1);
    assert!(notices[0].contains("status=lost") && notices[0].contains("shim-killed"));
    assert_eq!(bot.llm.seen_now().len(), 6);
    assert_eq!(bot.finish().await.fates["acked"], 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_spool_entry_that_the_store_does_not_know_is_killed_and_tells_nobody() {
    let mut bot = Bot::start().await;
    let (up, on) = (bot.fifo("up"), bot.fifo("on"));
    let launch = Launch {
        session: SessionId::new("console/main").unwrap(),
        execution: ExecutionId::new("auto-notify-none-0009").unwrap(),
        python: patient(&up, &on, ""),
        timeout_ms: 600_000,
        grace_ms: 300,
        access: dogwatch::core::egress::Access::default(),
    };
    let launcher = std::sync::Arc::clone(bot.launcher_now());
    let (session, id) = (launch.session.clone(), launch.execution.clone());
    launcher.launch(launch).await.unwrap();
    launcher.go(&session, &id).await.unwrap();
    let script = pids(&up).await[0];
    drop(launcher);
    bot.crash().await;
    let restored = bot.boot().await;
    assert_eq!(restored.unknown, ["console/main/auto-notify-none-0009"]);
    assert!(tokio::task::spawn_blocking(move || ends(script)).await.unwrap());
    assert!(bot.stage.posted().is_empty() && bot.llm.seen_now().is_empty());
    assert_eq!(bot.finish().await.registered, 0);
}
