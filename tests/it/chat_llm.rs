//! The real program against a model's service that misbehaves: each fault is one line for the
//! person, and the same turn is answered once the service is well again. Nobody sees the key.

// So that clippy knows the whole module as a test.
#![cfg(test)]

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::ops::Deref;
use std::thread::{self, ScopedJoinHandle};
use std::time::Duration;

use serde_json::Value;
use tokio::runtime::{Builder, Runtime};

use crate::support::fake_llm::{FakeLlm, Gate, Reply, Seen, chunk};
use crate::support::program::{Home, KEY};

/// Long enough for a busy machine, short enough for a test of silence.
const IDLE_MS: u64 = 2_000;

/// The service in a runtime of its own, so that it can be killed with all its connections.
struct Server {
    llm: FakeLlm,
    runtime: Runtime,
}

impl Server {
    fn start() -> Self {
        Self::start_at("127.0.0.1:0".parse().unwrap())
    }

    fn start_at(address: SocketAddr) -> Self {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let llm = runtime.block_on(FakeLlm::start_at(address));
        Self { llm, runtime }
    }

    /// Ends it at once, in the middle of whatever it says; the address is free again.
    fn kill(self) -> SocketAddr {
        let address = self.llm.address();
        drop(self.llm);
        self.runtime.shutdown_timeout(Duration::from_secs(30));
        address
    }

    fn home(&self) -> Home {
        Home::with_model(&self.llm.base_url(), IDLE_MS)
    }

    fn wait_for_requests(&self, count: usize) -> Vec<Seen> {
        self.runtime.block_on(self.llm.seen(count))
    }
}

impl Deref for Server {
    type Target = FakeLlm;

    fn deref(&self) -> &FakeLlm {
        &self.llm
    }
}

/// How often a person's message stands in a request.
fn asked(seen: &Seen, text: &str) -> usize {
    seen.body["messages"].to_string().matches(text).count()
}

/// What does not depend on the run: ports and spans are left out.
fn plain(shown: &str) -> String {
    let port = regex::Regex::new(r"127\.0\.0\.1:\d+").unwrap();
    let span = regex::Regex::new(r"tried again in \w+").unwrap();
    let shown = port.replace_all(shown, "127.0.0.1:PORT");
    span.replace_all(&shown, "tried again in SPAN").into_owned()
}

/// One message, a fault, then a good answer. All that the person sees, and the requests.
fn told(fault: Reply) -> (String, Vec<Seen>) {
    let server = Server::start();
    server.will(fault);
    server.otherwise(|_| Reply::text("All is well."));
    let home = server.home();
    let mut chat = home.chat(&[]);
    chat.say("how is it?");
    let shown = chat.ends_well();
    home.keeps_the_secret();
    (plain(&shown), server.seen_now())
}

#[test]
fn each_outage_is_one_line_and_the_same_turn_is_answered_once() {
    let half = || Reply::stream().data(&chunk::text("half an answer\nand"));
    let error = |status, said: &str| Reply::status(status).error(said);
    let cases = [
        ("an error of the server", error(500, "oops")),
        ("a connection that is cut", half().cut()),
        ("a stream without an end", half()),
        ("a stream that falls silent", half().stall()),
        ("an error inside the stream", half().raw("data: {\"error\": \"overloaded\"}\n\n")),
        ("a chunk that is no JSON", half().raw("data: {\"choices\n\n")),
        ("a page of a proxy", Reply::status(200).header("content-type", "text/html").raw("<p>")),
    ];
    let mut all = String::new();
    // Each waits for its second try.
    let all_told = thread::scope(|scope| {
        let tell = |(name, fault)| (name, scope.spawn(move || told(fault)));
        let threads: Vec<_> = cases.into_iter().map(tell).collect();
        let join = |(name, thread): (_, ScopedJoinHandle<'_, _>)| (name, thread.join().unwrap());
        threads.into_iter().map(join).collect::<Vec<_>>()
    });
    for (name, (shown, seen)) in all_told {
        assert_eq!(seen.len(), 2, "{name}: {shown}");
        for request in &seen {
            assert_eq!(asked(request, "how is it?"), 1, "{name}");
        }
        let lines: Vec<&str> = shown.lines().collect();
        assert_eq!(lines.len(), 2, "{name}: {shown}");
        assert!(lines[0].starts_with("! no answer yet: "), "{name}: {shown}");
        assert_eq!(lines[1], "dogwatch: All is well.", "{name}");
        write!(all, "{name}\n    {}\n", lines[0]).unwrap();
    }
    insta::assert_snapshot!(all);
}

#[test]
fn a_refusal_is_one_line_that_says_what_to_do_and_the_chat_goes_on() {
    let refused = |status: u16| Reply::status(status).error(&format!("no: your key {KEY} is bad"));
    let mut all = String::new();
    for status in [400, 401, 403, 404] {
        let server = Server::start();
        server.will(refused(status));
        server.will(Reply::text("All is well."));
        let home = server.home();
        let mut chat = home.chat(&[]);
        chat.say("first");
        chat.wait_for("! failed:");
        chat.say("second");
        let shown = chat.ends_well();
        home.keeps_the_secret();
        // Nothing is tried again by itself.
        let seen = server.seen_now();
        assert_eq!(seen.len(), 2, "{shown}");
        assert_eq!((asked(&seen[1], "first"), asked(&seen[1], "second")), (1, 1));
        assert!(!shown.contains("tried again in"), "{shown}");
        all.push_str(&shown);
    }
    insta::assert_snapshot!(all);
}

#[test]
fn a_429_is_waited_for_as_long_as_it_says_and_asked_once() {
    let server = Server::start();
    server.will(Reply::status(429).header("retry-after", "7").error("slow down"));
    server.will(Reply::text("All is well."));
    let home = server.home();
    let mut chat = home.chat(&["--json"]);
    chat.say("how is it?");
    let failed: Value = serde_json::from_str(&chat.wait_for("\"failed\"")).unwrap();
    let again_at = failed["again_at"].as_u64().unwrap();
    assert!(failed["what"].as_str().unwrap().contains("429 Too Many Requests: slow down"));
    assert!(again_at >= failed["at"].as_u64().unwrap() + 6_500, "{failed}");
    let began: Value = serde_json::from_str(&chat.wait_for("\"began\"")).unwrap();
    assert!(began["at"].as_u64().unwrap() >= again_at, "{began}");
    assert_eq!(began["turn"], 1, "the same turn goes on");
    chat.wait_for("\"post\"");
    let shown = chat.ends_well();
    assert_eq!(server.seen_now().len(), 2, "{shown}");
    home.keeps_the_secret();
}

#[test]
fn a_server_that_is_killed_in_the_middle_of_an_answer_answers_when_it_is_back() {
    let server = Server::start();
    let gate = Gate::default();
    server.will(Reply::stream().data(&chunk::text("half\nan answer")).hold(&gate));
    let home = server.home();
    let mut chat = home.chat(&["--json"]);
    chat.say("how is it?");
    chat.wait_for("\"kind\":\"text\"");
    let address = server.kill();
    let failed: Value = serde_json::from_str(&chat.wait_for("\"failed\"")).unwrap();
    let what = failed["what"].as_str().unwrap();
    assert!(what.starts_with("the model is away: the connection"), "{what}");
    // It is still away at the next try.
    let failed: Value = serde_json::from_str(&chat.wait_for("\"failed\"")).unwrap();
    let what = plain(failed["what"].as_str().unwrap());
    insta::assert_snapshot!(what);
    let server = Server::start_at(address);
    server.will(Reply::text("All is well."));
    let post: Value = serde_json::from_str(&chat.wait_for("\"post\"")).unwrap();
    assert_eq!(post["text"], "All is well.");
    let shown = chat.ends_well();
    assert_eq!(shown.matches("\"event\":\"post\"").count(), 1, "{shown}");
    assert_eq!(asked(&server.seen_now()[0], "how is it?"), 1);
    home.keeps_the_secret();
}

#[test]
fn a_bot_that_is_killed_in_the_middle_of_an_answer_answers_at_its_next_start() {
    let server = Server::start();
    let gate = Gate::default();
    server.will(Reply::stream().data(&chunk::text("half\nan answer")).hold(&gate));
    server.will(Reply::text("All is well."));
    let home = server.home();
    let mut chat = home.chat(&["--json"]);
    chat.say("how is it?");
    chat.wait_for("\"kind\":\"text\"");
    chat.kill();
    let mut chat = home.chat(&[]);
    chat.wait_for("dogwatch: All is well.");
    assert_eq!(chat.ends_well(), "dogwatch: All is well.\n");
    let seen = server.seen_now();
    assert_eq!((seen.len(), asked(&seen[1], "how is it?")), (2, 1));
    assert!(!seen[1].body["messages"].to_string().contains("half"));
    home.keeps_the_secret();
}

#[test]
fn calls_that_cannot_be_run_teach_the_model_and_the_turn_goes_on() {
    let cases = [
        ("trigger_and_auto_notify", "{\"name\": \"x\", ", "invalid_json"),
        ("trigger_and_auto_notify", "{\"name\": \"x\"}", "missing_field"),
        ("run_shell", "{}", "unknown_tool"),
    ];
    for (name, arguments, code) in cases {
        let server = Server::start();
        server.will(Reply::call("c1", name, arguments));
        server.will(Reply::text("I cannot do that."));
        let home = server.home();
        let mut chat = home.chat(&[]);
        chat.say("do it");
        assert_eq!(chat.ends_well(), "dogwatch: I cannot do that.\n");
        let seen = server.seen_now();
        assert_eq!(seen.len(), 2, "{name}");
        let messages = seen[1].body["messages"].as_array().unwrap();
        let result = messages.last().unwrap();
        assert_eq!((&result["role"], &result["tool_call_id"]), (&"tool".into(), &"c1".into()));
        let result: Value = serde_json::from_str(result["content"].as_str().unwrap()).unwrap();
        assert_eq!(result["error"]["code"], code, "{result}");
        assert!(result["error"]["hint"].is_string(), "{result}");
        home.keeps_the_secret();
    }
}

#[test]
fn an_answer_streams_to_programs_as_it_comes_and_to_a_pipe_when_it_is_whole() {
    let server = Server::start();
    let gate = Gate::default();
    let slow = |gate: &Gate| {
        let begun = Reply::stream().data(&chunk::text("one\n")).hold(gate);
        begun.data(&chunk::text("two")).data(&chunk::finish("stop")).done()
    };
    server.will(slow(&gate));
    server.otherwise(|_| Reply::text("one\ntwo"));
    let home = server.home();
    let mut chat = home.chat(&["--json"]);
    chat.say("count");
    assert!(chat.wait_for("\"kind\":\"text\"").contains("one"));
    assert!(!chat.shown.contains("\"post\""), "{}", chat.shown);
    gate.open();
    assert!(chat.wait_for("\"event\":\"post\"").contains("one\\ntwo"));
    chat.ends_well();
    let mut chat = home.chat(&[]);
    chat.say("count");
    assert_eq!(chat.ends_well(), "dogwatch: one\ntwo\n");
    home.keeps_the_secret();
}

#[test]
fn an_answer_streams_into_the_terminal_and_stands_there_once() {
    let server = Server::start();
    let (first, second) = (Gate::default(), Gate::default());
    let begun = Reply::stream().data(&chunk::text("one\ntw")).hold(&first);
    server.will(begun.data(&chunk::text("o\nthree")).data(&chunk::finish("stop")).done());
    let cut = Reply::stream().data(&chunk::text("half\nof it")).hold(&second).cut();
    server.will(cut);
    server.will(Reply::text("whole"));
    let home = server.home();
    let mut terminal = home.terminal(80);
    terminal.wait_for("main> ");
    terminal.type_text("count\r");
    terminal.wait_for("one");
    // A command works meanwhile, and the rest of the answer comes after its answer.
    terminal.type_text("status\r");
    terminal.wait_for("chat main: turn 1 is running");
    first.open();
    terminal.wait_for("two");
    terminal.wait_for("three");
    terminal.type_text("again\r");
    terminal.wait_for("half");
    second.open();
    terminal.wait_for("(the text above was not the whole answer)");
    terminal.wait_for("! no answer yet:");
    terminal.wait_for("the connection broke before the answer was whole; tried again in ");
    terminal.wait_for("whole");
    terminal.leave();
    assert_eq!(server.wait_for_requests(3).len(), 3);
    home.keeps_the_secret();
}

#[test]
fn what_is_left_unanswered_is_said_and_answered_at_the_next_start() {
    let server = Server::start();
    let gate = Gate::default();
    server.will(Reply::text("late").hold_head(&gate));
    server.will(Reply::text("All is well."));
    let home = server.home();
    let mut chat = home.chat(&[]);
    chat.say("how is it?");
    server.wait_for_requests(1);
    chat.say("/quit");
    let shown = chat.ends_well();
    assert_eq!(shown, "what is not answered yet will be when dogwatch starts again\n");
    assert_eq!(home.chat(&[]).ends_well(), "dogwatch: All is well.\n");
}
