//! Terminals attached to a bot that serves: the real program on both sides of the socket. What is
//! said reaches who follows the chat, once, whatever is ended, killed or away in between.
// So that clippy knows the whole module as a test.
#![cfg(test)]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::File;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::support::process;
use crate::support::real_bot::{Bot, Place, let_go};
use crate::support::service::{SERVED, Service};

/// Says what it hears; `watch NAME` starts a script that waits on the pipe NAME.
pub(super) fn place(pipes: &[&str]) -> Place {
    let place = Place::new("");
    let config = "data_dir = \"data\"\n[model]\nkind = \"scripted\"\nplaybook = \"playbook.toml\"\n\
                  [watch]\nsandbox = \"off\"\ngrace_ms = 500\n[console]\nhistory = false\n";
    place.write("dogwatch.toml", &format!("{config}{SERVED}"));
    let mut rules = String::from(
        "name = 'attach'\n[[rule]]\nwhen = { notice = '(?s)(.*)' }\ntext = 'NEWS {1}'\n\
         [[rule]]\nwhen = { tool = 'trigger_and_auto_notify' }\ntext = 'started'\n",
    );
    for pipe in pipes {
        process::fifo(&place.path(""), pipe);
        let python = format!("open({:?}).read()\nprint('{pipe} is done')", place.known_as(pipe));
        let python = Value::from(python);
        let _ = write!(
            rules,
            "[[rule]]\nwhen = {{ person = '^watch {pipe}$' }}\n[[rule.calls]]\n\
             tool = 'trigger_and_auto_notify'\n\
             arguments = {{ name = '{pipe}', timeout_seconds = 100, python = {python} }}\n"
        );
    }
    rules += "[[rule]]\nwhen = { person = '(?s)(.*)' }\ntext = 'heard {1}'\n";
    place.write("playbook.toml", &rules);
    place
}

pub(super) fn serve(place: &Place) -> Service {
    Service::of(place.serve()).works()
}

pub(super) fn link(bot: &mut Bot, up: bool) {
    bot.wait(|event| event["event"] == "link" && event["up"] == up);
}

/// A watcher was seen to run, now or before.
pub(super) fn runs(bot: &mut Bot) {
    let runs = |event: &Value| event["event"] == "watcher";
    if !bot.seen.iter().any(runs) {
        bot.wait(runs);
    }
}

/// How often each post was shown.
pub(super) fn posts(events: &[Value]) -> BTreeMap<String, usize> {
    let mut shown = BTreeMap::new();
    for post in events.iter().filter(|event| event["event"] == "post") {
        *shown.entry(post["text"].as_str().unwrap().to_owned()).or_default() += 1;
    }
    shown
}

pub(super) fn each_once(bot: Bot, wanted: &[&str]) {
    let (code, events) = bot.leave();
    assert_eq!(code, Some(0));
    let shown = posts(&events);
    assert!(shown.values().all(|count| *count == 1), "{shown:#?}");
    assert_eq!(shown.len(), wanted.len(), "{shown:#?}");
    for text in wanted {
        assert!(shown.keys().any(|it| it.contains(text)), "no {text} in {shown:#?}");
    }
}

#[test]
fn a_terminal_talks_with_the_bot_that_serves_and_leaves_it_alone() {
    let place = place(&["one"]);
    let service = serve(&place);
    let mut terminal = place.attached("main").ready();
    terminal.say("hello");
    terminal.post("heard hello");
    terminal.say("watch one");
    terminal.post("started");
    runs(&mut terminal);
    terminal.say("watchers");
    let table = terminal.wait(|event| event["command"] == "watchers");
    assert_eq!(table["live"][0]["name"], "one");
    terminal.say("status");
    terminal.wait(|event| event["command"] == "status" && event["running"] == 1);
    let_go(&place.path("one"));
    let news = terminal.post("NEWS");
    assert!(news.contains("one is done"), "{news}");
    assert_eq!(service.sample("dogwatch_terminals"), 1);
    each_once(terminal, &["heard hello", "started", "one is done"]);
    assert_eq!(service.end().0, Some(0));
    let (even, audit) = place.audit();
    assert!(even, "{audit:#}");
}

#[test]
fn each_terminal_gets_what_is_said_in_its_chats() {
    let place = place(&[]);
    let service = serve(&place);
    let mut first = place.attached("main").ready();
    let mut second = place.attached("main").ready();
    let mut other = place.attached("ops").ready();
    first.say("one");
    first.post("heard one");
    second.post("heard one");
    other.say("two");
    other.post("heard two");
    // Whoever opens a chat follows it from then on.
    first.say("/chat ops");
    first.wait(|event| event["command"] == "chat");
    first.say("three");
    first.post("heard three");
    other.post("heard three");
    assert_eq!(service.sample("dogwatch_terminals"), 3);
    each_once(second, &["heard one"]);
    each_once(other, &["heard two", "heard three"]);
    each_once(first, &["heard one", "heard three"]);
    assert_eq!(service.end().0, Some(0));
}

#[test]
fn what_is_said_while_nobody_is_there_is_shown_to_the_first_who_comes() {
    let place = place(&["one"]);
    let service = serve(&place);
    let mut terminal = place.attached("main").ready();
    terminal.say("watch one");
    terminal.post("started");
    runs(&mut terminal);
    assert_eq!(terminal.leave().0, Some(0));
    let_go(&place.path("one"));
    // The result is there, and nobody is: it waits, untried.
    let waits = || service.sample("dogwatch_outbox_depth") == 1;
    while !waits() {
        crate::support::process::pause_here();
    }
    assert_eq!(service.sample(r#"dogwatch_posts_total{sort="woken",outcome="retried"}"#), 0);
    // In another chat it is not shown.
    let mut other = place.attached("ops").ready();
    other.say("anybody");
    other.post("heard anybody");
    each_once(other, &["heard anybody"]);
    let mut first = place.attached("main").ready();
    first.post("one is done");
    let mut second = place.attached("main").ready();
    second.say("again");
    second.post("heard again");
    first.post("heard again");
    each_once(second, &["heard again"]);
    each_once(first, &["one is done", "heard again"]);
    assert_eq!(service.end().0, Some(0));
}

#[test]
fn terminals_outlive_a_bot_that_is_killed_and_hear_of_what_came_meanwhile_once() {
    let place = place(&["one"]);
    let service = serve(&place);
    let mut first = place.attached("main").ready();
    let mut second = place.attached("main").ready();
    first.say("watch one");
    first.post("started");
    second.post("started");
    // The script has begun, and goes on until this is closed.
    let gate = File::options().write(true).open(place.path("one")).unwrap();
    service.kill();
    link(&mut first, false);
    link(&mut second, false);
    let shims = place.shims();
    assert_eq!(shims.len(), 1, "the watcher runs on");
    drop(gate);
    assert!(process::ends(shims[0]));
    // What is typed while the bot is away waits for it.
    first.say("are you there");
    let service = serve(&place);
    for terminal in [&mut first, &mut second] {
        link(terminal, true);
    }
    let wanted = ["one is done", "heard are you there"];
    for terminal in [&mut first, &mut second] {
        let mut missing = wanted.to_vec();
        while !missing.is_empty() {
            let post = terminal.wait(|event| event["event"] == "post");
            missing.retain(|text| !post["text"].as_str().unwrap().contains(text));
        }
    }
    each_once(first, &["started", "one is done", "heard are you there"]);
    each_once(second, &["started", "one is done", "heard are you there"]);
    assert_eq!(service.end().0, Some(0));
    let (even, audit) = place.audit();
    assert!(even, "{audit:#}");
}

#[test]
fn a_terminal_that_comes_back_later_than_others_misses_nothing() {
    let place = place(&[]);
    let service = serve(&place);
    let mut first = place.attached("main").ready();
    let mut late = place.attached("main").ready();
    first.say("before");
    first.post("heard before");
    late.post("heard before");
    // It does not read, nor look for its bot.
    late.signal(Signal::SIGSTOP);
    assert_eq!(service.end().0, Some(0));
    link(&mut first, false);
    let service = serve(&place);
    link(&mut first, true);
    first.say("meanwhile");
    first.post("heard meanwhile");
    late.signal(Signal::SIGCONT);
    late.post("heard meanwhile");
    each_once(late, &["heard before", "heard meanwhile"]);
    each_once(first, &["heard before", "heard meanwhile"]);
    assert_eq!(service.end().0, Some(0));
}

#[test]
fn what_a_store_that_was_emptied_says_is_no_repeat_of_what_it_said_before() {
    let place = place(&[]);
    let service = serve(&place);
    let mut terminal = place.attached("main").ready();
    terminal.say("before");
    terminal.post("heard before");
    assert_eq!(service.end().0, Some(0));
    link(&mut terminal, false);
    for name in ["dogwatch.db", "dogwatch.db-wal", "dogwatch.db-shm"] {
        let _not_there = std::fs::remove_file(place.path("data").join(name));
    }
    // Its items are counted anew: the first post has the name of the one above.
    let service = serve(&place);
    link(&mut terminal, true);
    terminal.say("after");
    terminal.post("heard after");
    each_once(terminal, &["heard before", "heard after"]);
    assert_eq!(service.end().0, Some(0));
}

#[test]
fn a_terminal_that_does_not_read_holds_nobody_up() {
    let place = place(&[]);
    let service = serve(&place);
    let mut first = place.attached("main").ready();
    let mut stuck = place.attached("main").ready();
    stuck.signal(Signal::SIGSTOP);
    for number in 0..5 {
        first.say(format!("line {number}"));
        first.post(&format!("heard line {number}"));
    }
    stuck.signal(Signal::SIGCONT);
    stuck.post("heard line 4");
    let wanted = ["line 0", "line 1", "line 2", "line 3", "line 4"];
    each_once(stuck, &wanted);
    each_once(first, &wanted);
    assert_eq!(service.end().0, Some(0));
}

#[test]
fn nobody_there_is_one_line_that_says_what_to_start() {
    let place = place(&[]);
    for served_before in [false, true] {
        if served_before {
            serve(&place).kill();
            assert!(place.path("data/chat.sock").exists(), "what a dead bot leaves is no bot");
        }
        let (code, words) = place.attached("main").refusal();
        assert_eq!(code, Some(1), "{words}");
        assert!(words.contains("no bot serves") && words.contains("`dogwatch serve`"), "{words}");
        assert_eq!(words.lines().count(), 1, "{words}");
    }
    // And a socket that was left over stops nobody.
    let service = serve(&place);
    place.attached("main").ready().leave();
    // Whoever would start a second bot is told of the way in.
    let (code, words) = place.bot().refusal();
    assert_eq!(code, Some(1), "{words}");
    assert!(words.contains("`dogwatch chat --attach`") && words.contains("in use"), "{words}");
    assert_eq!(service.end().0, Some(0));
    assert!(!place.path("data/chat.sock").exists());
}

#[test]
fn a_bot_that_stands_still_is_one_line_too() {
    let place = place(&[]);
    let service = serve(&place);
    service.signal(Signal::SIGSTOP);
    let (code, words) = place.attached("main").refusal();
    assert_eq!(code, Some(1), "{words}");
    assert!(words.contains("does not answer") && words.lines().count() == 1, "{words}");
    service.signal(Signal::SIGCONT);
    place.attached("main").ready().leave();
    assert_eq!(service.end().0, Some(0));
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the program under test is a process of its own")]
fn another_user_is_refused_even_where_the_files_let_everybody_in() {
    assert!(nix::unistd::geteuid().is_root(), "only root can play two users: run this as root");
    let place = place(&[]);
    let service = serve(&place);
    let socket = place.path("data/chat.sock");
    assert_eq!(socket.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    for (path, mode) in [("", 0o755), ("data", 0o755), ("data/chat.sock", 0o666)] {
        std::fs::set_permissions(place.path(path), PermissionsExt::from_mode(mode)).unwrap();
    }
    let python = "import socket, sys\ns = socket.socket(socket.AF_UNIX)\ns.connect(sys.argv[1])\n\
                  try: s.sendall(b'{\"say\":\"hello\",\"version\":1,\"chats\":[\"main\"],\"seen\":null}\\n')\n\
                  except OSError: pass\nprint(s.makefile().read())";
    let output = std::process::Command::new("python3")
        .args(["-I", "-c", python])
        .arg(&socket)
        .uid(65_534)
        .gid(65_534)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.contains("another user"), "{said} {output:?}");
    assert!(!said.contains("welcome"), "{said}");
    assert_eq!(service.sample("dogwatch_terminals"), 0);
    assert_eq!(service.end().0, Some(0));
}

#[test]
fn a_stranger_on_the_socket_gets_nothing_and_harms_nobody() {
    use std::io::{Read, Write as _};
    let place = place(&[]);
    let service = serve(&place);
    let mut terminal = place.attached("main").ready();
    let hello = json!({ "say": "hello", "version": 1, "chats": ["main"], "seen": null });
    let bad = [
        "rubbish\n".to_owned(),
        "{\"say\":\"shown\",\"no\":1}\n".to_owned(),
        format!("{}\n", json!({ "say": "hello", "version": 99, "chats": [], "seen": null })),
        format!("{}\n", json!({ "say": "hello", "version": 1, "chats": ["../x"], "seen": null })),
        format!("{hello}\n{hello}\n"),
        format!("{hello}\n{}\n", "x".repeat(2 << 20)),
    ];
    for text in &bad {
        let path = place.path("data/chat.sock");
        let mut stream = std::os::unix::net::UnixStream::connect(path).unwrap();
        stream.set_read_timeout(Some(Duration::from_mins(1))).unwrap();
        let _cut = stream.write_all(text.as_bytes());
        let mut said = Vec::new();
        // It ends, whatever it was told.
        match stream.read_to_end(&mut said) {
            Ok(_) => {}
            Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset),
        }
    }
    // A session that is no chat, and authority that is not its to claim.
    let path = place.path("data/chat.sock");
    let mut stream = std::os::unix::net::UnixStream::connect(path).unwrap();
    let incoming = json!({ "keys": ["k"], "what": { "message": { "text": "as root" } },
        "principal": "root", "address": { "surface": "console", "thread": "ops" }, "source_at": 0 });
    for (no, session) in [(1, "slack/T1/C1"), (2, "console/main")] {
        let accept = json!({ "accept": { "session": session, "incoming": incoming } });
        let call = json!({ "say": "call", "no": no, "call": accept });
        let lines = if no == 1 { format!("{hello}\n{call}\n") } else { format!("{call}\n") };
        stream.write_all(lines.as_bytes()).unwrap();
    }
    // Its own address was not taken: it is the chat's, and that terminal sees it.
    terminal.post("heard as root");
    drop(stream);
    terminal.say("still here");
    terminal.post("heard still here");
    each_once(terminal, &["heard as root", "heard still here"]);
    assert_eq!(service.end().0, Some(0));
}
