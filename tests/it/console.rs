//! The terminal over pipes and on a pseudo-terminal, with a desk that has no engine behind it.

// So that clippy knows the whole module as a test.
#![cfg(test)]

#[path = "../support/console.rs"]
mod bench;
#[path = "../support/console_pty.rs"]
mod pty;

use dogwatch::console::{AtEnd, End, Mode};
use dogwatch::core::arrival::What;
use dogwatch::core::execution::{PostSort, Scope, State, Status};
use dogwatch::core::id::PressId;
use dogwatch::core::output::Captured;
use dogwatch::core::time::Timestamp;
use dogwatch::ports::{Channel, ChannelError, Command, DeskError, Done, Glance, Progress};

use bench::{Bench, FakeDesk, Told, chat, execution, idle, over, post, session, settings};

fn accepted(told: Told) -> (String, String, String, String) {
    let Told::Accepted(session, incoming) = told else { panic!("{told:?}") };
    let What::Message { text } = incoming.what else { panic!("not a message") };
    (session.to_string(), text, incoming.address.thread, incoming.keys[0].to_string())
}

#[tokio::test]
async fn a_line_is_handed_in_once_to_the_chat_in_front() {
    let mut bench = Bench::start(settings(Mode::Json));
    assert_eq!(bench.event("ready").await["chat"], "main");
    bench.type_line("deploy \u{1b}[31mabc123\u{1b}[0m, please");
    let (to, text, thread, first) = accepted(bench.heard().await);
    assert_eq!((to.as_str(), text.as_str()), ("console/main", "deploy abc123, please"));
    assert_eq!(thread, "main");
    let event = bench.event("accepted").await;
    assert_eq!((&event["chat"], &event["key"]), (&"main".into(), &first.clone().into()));

    bench.type_line("/chat ops");
    assert_eq!(bench.event("command").await["name"], "ops");
    bench.type_line("deploy abc123, please");
    let (to, _, thread, second) = accepted(bench.heard().await);
    assert_eq!((to.as_str(), thread.as_str()), ("console/ops", "ops"));
    assert_ne!(first, second, "two lines are two messages");
    bench.close();
    let (end, rest) = bench.end().await;
    assert_eq!(end, End::EndOfInput);
    assert!(rest.last().unwrap().contains(r#""event":"bye""#), "{rest:?}");
}

#[tokio::test]
async fn a_store_that_is_away_gets_the_same_message_again() {
    let (desk, told) = FakeDesk::new();
    *desk.refusals.lock().unwrap() = vec![DeskError::Away("no answer".to_owned())];
    let mut bench = Bench::with(settings(Mode::Json), desk, told);
    bench.type_line("hello");
    let (first, second) = (accepted(bench.heard().await), accepted(bench.heard().await));
    assert_eq!(first, second, "the same key");
    bench.event("accepted").await;
}

#[tokio::test]
async fn what_is_not_taken_is_said_with_the_cure() {
    let (desk, told) = FakeDesk::new();
    *desk.refusals.lock().unwrap() = vec![DeskError::Full("256 messages are unread".to_owned())];
    let mut bench = Bench::with(settings(Mode::Json), desk, told);
    bench.type_line("hello");
    let what = bench.event("error").await["what"].to_string();
    assert!(what.contains("256 messages") && what.contains("stop all"), "{what}");
    bench.type_line("/nonsense");
    assert!(bench.event("error").await["what"].to_string().contains("/help"));
    bench.type_line("");
    bench.type_line("still here");
    assert_eq!(accepted(bench.heard().await).1, "hello");
    assert_eq!(accepted(bench.heard().await).1, "still here", "nothing between is a message");
}

#[tokio::test]
async fn commands_reach_the_desk_with_who_gave_them() {
    let mut bench = Bench::start(settings(Mode::Json));
    bench.type_line("cancel auto-notify-depl-0001");
    let Told::Commanded(to, by, command) = bench.heard().await else { panic!() };
    assert_eq!((to, by.as_str()), (session("main"), "local"));
    let Command::Cancel { execution, press } = command else { panic!("{command:?}") };
    assert_eq!(execution.as_str(), "auto-notify-depl-0001");
    assert_eq!(press, PressId::new("id-1").unwrap());
    let event = bench.event("command").await;
    assert_eq!((&event["command"], &event["result"]), (&"cancel".into(), &"cancelling".into()));

    *bench.desk.done.lock().unwrap() = Done::Over(Status::TimedOut);
    bench.type_line("/cancel auto-notify-depl-0001");
    bench.heard().await;
    assert_eq!(bench.event("command").await["result"]["over"], "timed_out");

    *bench.desk.done.lock().unwrap() = Done::Stopped { ended: 2, turn: true };
    bench.type_line("stop all");
    let Told::Commanded(_, _, Command::Stop { scope, .. }) = bench.heard().await else { panic!() };
    assert_eq!(scope, Scope::All);
    let event = bench.event("command").await;
    assert_eq!((&event["all"], &event["ended"]), (&true.into(), &2.into()));
}

#[tokio::test]
async fn watchers_are_shown_with_their_last_line_and_told_when_they_change() {
    let mut bench = Bench::start(settings(Mode::Json));
    bench.event("ready").await;
    let running = execution("auto-notify-depl-0001", "Watch deploy", State::Running);
    bench.desk.show("main", bench_view(vec![running.clone()], vec![]));
    let stdout = Captured { head: "step 1\nstep \u{1b}[1m2\n\n".to_owned(), ..Captured::default() };
    let glance = Glance { stdout, ..Glance::default() };
    bench.desk.glances.lock().unwrap().insert(running.id.clone(), glance);
    bench.progress("main", Progress::Ended);
    let event = bench.event("watcher").await;
    assert_eq!((&event["state"], &event["name"]), (&"running".into(), &"Watch deploy".into()));
    bench.type_line("watchers");
    let event = bench.event("command").await;
    assert_eq!(event["live"][0]["last_line"], "step 2");
    assert_eq!(event["live"][0]["timeout_ms"], 300_000);

    let ended = over("auto-notify-depl-0001", "Watch deploy", Status::Completed);
    bench.desk.show("main", bench_view(vec![], vec![ended]));
    bench.progress("main", Progress::Began { turn: 2, synthetic: true });
    let event = bench.event("watcher").await;
    assert_eq!((&event["state"], &event["elapsed_ms"]), (&"completed".into(), &2300.into()));
    // The same look again says nothing new.
    bench.progress("main", Progress::Ended);
    bench.type_line("status");
    loop {
        let line = bench.line().await;
        assert!(!line.contains(r#""event":"watcher""#), "said twice: {line}");
        if line.contains(r#""command":"status""#) {
            break;
        }
    }
}

fn bench_view(
    live: Vec<dogwatch::core::execution::Execution>,
    ended: Vec<dogwatch::core::execution::Execution>,
) -> dogwatch::ports::SessionView {
    dogwatch::ports::SessionView { live, ended, ..idle() }
}

#[tokio::test]
async fn posts_are_written_once_and_cannot_steer_the_terminal() {
    let mut bench = Bench::start(settings(Mode::Plain));
    let done = post("main", "post/1/0", "done \u{1b}]0;x\u{7}now\u{202e}", PostSort::Answer);
    let reference = bench.post(done.clone()).await;
    assert_eq!(bench.line().await, "dogwatch: done now");
    assert_eq!(bench.post(done).await, reference, "a repeat has the same reference");
    bench.post(post("ops", "post/1/0", "a\nb", PostSort::Woken)).await;
    assert_eq!(
        bench.line().await,
        "[ops] dogwatch (woken): a",
        "the repeat was not shown, this is another"
    );
    assert_eq!(bench.line().await, "[ops] b");
    bench.post(post("main", "dead/2", "the model refuses", PostSort::Failure)).await;
    assert_eq!(bench.line().await, "! failed: the model refuses");
}

#[tokio::test]
async fn a_post_for_somewhere_else_is_refused_for_ever_and_a_closed_terminal_for_now() {
    let mut bench = Bench::start(settings(Mode::Plain));
    let mut wrong = post("main", "post/1/0", "x", PostSort::Answer);
    wrong.address = chat("ops").address();
    let answer = bench.console.post(wrong).await;
    assert!(matches!(answer, Err(ChannelError::Never { .. })), "{answer:?}");
    bench.close();
    let console = bench.console.clone();
    bench.end().await;
    let answer = console.post(post("main", "post/2/0", "x", PostSort::Answer)).await;
    assert!(matches!(answer, Err(ChannelError::Retry { .. })), "{answer:?}");
}

#[tokio::test]
async fn an_answer_that_streamed_stands_there_once() {
    let mut bench = Bench::start(settings(Mode::Interactive));
    assert!(bench.line().await.starts_with("dogwatch chat main"));
    assert_eq!(bench.line().await, "  · the model is a script");
    bench.progress("main", Progress::Began { turn: 1, synthetic: false });
    for piece in ["I look", " at it"] {
        bench.progress("main", Progress::Text(piece.to_owned()));
    }
    // It is called, then it runs.
    bench.progress("main", Progress::Tool { name: "watch__list".to_owned() });
    bench.progress("main", Progress::Discarded);
    bench.progress("main", Progress::Tool { name: "watch__list".to_owned() });
    for piece in ["line on", "e\nline two\nline", " three"] {
        bench.progress("main", Progress::Text(piece.to_owned()));
    }
    bench.progress("main", Progress::Ended);
    bench.post(post("main", "post/1/0", "line one\nline two\nline three", PostSort::Answer)).await;
    bench.post(post("main", "post/2/0", "line one", PostSort::Answer)).await;
    let wanted = [
        "  · runs watch__list",
        "  · I look at it",
        "dogwatch: line one",
        "line two",
        "line three",
        "dogwatch: line one",
    ];
    for line in wanted {
        assert_eq!(bench.line().await, line);
    }
}

#[tokio::test]
async fn a_stream_of_a_chat_behind_waits_for_its_post() {
    let mut bench = Bench::start(settings(Mode::Interactive));
    bench.progress("ops", Progress::Began { turn: 1, synthetic: true });
    bench.progress("ops", Progress::Text("one\ntwo\n".to_owned()));
    bench.post(post("ops", "post/1/0", "one\ntwo", PostSort::Woken)).await;
    let mut lines = vec![bench.line().await];
    while lines.last().unwrap() != "[ops] two" {
        lines.push(bench.line().await);
    }
    let tail = &lines[2..];
    assert_eq!(
        tail,
        ["[ops]   · a result came; dogwatch reads it", "[ops] dogwatch (woken): one", "[ops] two"]
    );
}

#[tokio::test]
async fn a_failed_attempt_is_said_with_what_happens_next() {
    let mut bench = Bench::start(settings(Mode::Plain));
    let again_at = Some(Timestamp::from_ms(1_000_000));
    let what = "the model is away: 429".to_owned();
    bench.progress("main", Progress::Failed { what: what.clone(), again_at });
    let line = bench.line().await;
    assert!(line.starts_with("! no answer yet: the model is away: 429; tried again in 16m"));
    // Who must hear of it gets a post.
    bench.progress("main", Progress::Failed { what, again_at: None });
    bench.post(post("main", "dead/1", "it is over", PostSort::Failure)).await;
    assert_eq!(bench.line().await, "! failed: it is over");
}

#[tokio::test]
async fn the_end_of_a_pipe_waits_for_the_answer_but_not_for_watchers() {
    let (desk, told) = FakeDesk::new();
    let running = execution("auto-notify-depl-0001", "w", State::Running);
    let busy = bench_view(vec![running], vec![]);
    desk.show("main", dogwatch::ports::SessionView { turn: Some((1, 1)), ..busy.clone() });
    let mut bench = Bench::with(settings(Mode::Json), desk, told);
    bench.event("watcher").await;
    bench.close();
    bench.desk.show("main", busy);
    let (end, rest) = bench.end().await;
    assert_eq!(end, End::EndOfInput);
    assert!(rest.last().unwrap().contains("1 watcher runs on"), "{rest:?}");
}

#[tokio::test]
async fn waiting_for_everything_is_bounded() {
    let (desk, told) = FakeDesk::new();
    let running = execution("auto-notify-depl-0001", "w", State::Running);
    desk.show("main", bench_view(vec![running], vec![]));
    let at_end = AtEnd::Quiet { ms_max: 300 };
    let mut bench =
        Bench::with(dogwatch::console::Settings { at_end, ..settings(Mode::Json) }, desk, told);
    bench.event("ready").await;
    bench.close();
    let (end, rest) = bench.end().await;
    assert_eq!(end, End::Unfinished);
    assert!(rest.last().unwrap().contains("nothing is lost"), "{rest:?}");
}

#[tokio::test]
async fn a_stopped_process_ends_the_talk() {
    let mut bench = Bench::start(settings(Mode::Json));
    bench.event("ready").await;
    bench.stopped.cancel();
    assert_eq!(bench.end().await.0, End::Stopped);
}

#[test]
fn a_line_being_typed_survives_what_is_posted_meanwhile() {
    let mut terminal = pty::Terminal::open("console::interactive_child");
    terminal.wait_for("main> ");
    terminal.type_text("half a li");
    terminal.wait_for("half a li");
    terminal.tell("post main The deployment\\nis healthy");
    // The post, then the line again, as far as it was typed.
    terminal.wait_for("dogwatch: The deployment");
    terminal.wait_for("is healthy");
    terminal.wait_for("main> half a li");
    terminal.tell("post ops Elsewhere");
    terminal.wait_for("[ops] dogwatch: Elsewhere");
    terminal.wait_for("main> half a li");
    terminal.type_text("ne\r");
    assert_eq!(terminal.hear(), "main: half a line");
    // A pasted text of two lines is one message.
    terminal.type_text("\x1b[200~first\nsecond\x1b[201~\r");
    assert_eq!(terminal.hear(), "main: first\\nsecond");
    terminal.type_text("/chat ops\r");
    terminal.wait_for("ops> ");
    terminal.type_text("\x03");
    terminal.wait_for("once more ^C leaves");
    terminal.wait_for("ops> ");
    terminal.type_text("\x03");
    terminal.ends_well();
}

#[test]
fn the_prompt_counts_the_watchers_while_a_line_is_typed() {
    let mut terminal = pty::Terminal::open("console::interactive_child");
    terminal.wait_for("main> ");
    terminal.tell("runs");
    terminal.wait_for("watcher runs: Nightly (auto-notify-nigh-0001");
    terminal.wait_for("main> ");
    terminal.type_text("go on\r");
    assert_eq!(terminal.hear(), "main: go on");
    terminal.wait_for("main (1 running)> ");
    terminal.type_text("half a li");
    terminal.wait_for("half a li");
    terminal.tell("over");
    terminal.wait_for("watcher completed after 2.3s");
    terminal.wait_for("main (0 running)> half a li");
    terminal.type_text("ne\r");
    assert_eq!(terminal.hear(), "main: half a line");
    terminal.wait_for("main> ");
    // ^D leaves.
    terminal.type_text("\x04");
    terminal.ends_well();
}

#[test]
fn a_process_asked_to_end_gives_the_terminal_back() {
    let mut terminal = pty::Terminal::open("console::interactive_child");
    terminal.wait_for("main> ");
    terminal.type_text("never sent");
    terminal.wait_for("never sent");
    assert!(!terminal.is_as_before(), "the editor has the terminal");
    terminal.tell("stop");
    terminal.ends_well();
    assert!(terminal.is_as_before());
}

/// Not a test: the other side of the pseudo-terminal, started by the tests above.
#[test]
#[ignore = "started by other tests on a pseudo-terminal"]
fn interactive_child() {
    pty::child();
}
