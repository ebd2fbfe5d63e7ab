//! What outlives what: bots, egress processes and connections.

use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use dogwatch::watch::egress::{Caps, EgressError, Settings, hand_over};
use rustix::process::Signal;
use std::os::fd::AsFd;

use super::stand::{PASS, Script, Stand, Upstream, bot, head, reply, rules, until};
use crate::support::process::{ends, signal};

/// As a shim does: waits for the end of the connection and hands the listener over again.
fn keep(script: &Script, place: &std::path::Path, done: &AtomicBool) {
    while !done.load(Ordering::Relaxed) {
        let mut shim = script.shim.lock().unwrap();
        let gone = match shim.as_mut() {
            None => true,
            Some(stream) => stream.read(&mut [0]).is_ok(),
        };
        if gone {
            *shim = hand_over(place, &script.name, PASS, script.listener.as_fd(), false).ok();
        }
        drop(shim);
        std::thread::park_timeout(Duration::from_millis(10));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_process_breaks_only_what_is_open_in_it() {
    let stand = Stand::new();
    let upstream = Upstream::start(|_| reply("200 OK", "", "hello"));
    let host = format!("localhost:{}", upstream.port);
    let script = stand.script("s/1", &[&host], &[]).await;
    let mut open = script.tunnel(&host).unwrap();
    let first = stand.process();
    let (done, answered) = (AtomicBool::new(false), AtomicUsize::new(0));
    let broken = AtomicUsize::new(0);
    let (url, place) = (format!("http://{host}/"), stand.place());
    std::thread::scope(|scope| {
        scope.spawn(|| keep(&script, &place, &done));
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                // A connection that is made is answered, whoever is there by then.
                let answer = script.get(&url);
                assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 200"), "{answer}");
                let count = if answer.is_empty() { &broken } else { &answered };
                count.fetch_add(1, Ordering::Relaxed);
            }
        });
        let wait = |more: usize| {
            let from = answered.load(Ordering::Relaxed);
            while answered.load(Ordering::Relaxed) < from + more {
                crate::support::process::pause_here();
            }
        };
        wait(5);
        signal(first, Signal::KILL);
        assert!(ends(first));
        // The bot starts the next one unasked, and says the rules again.
        wait(5);
        done.store(true, Ordering::Relaxed);
    });
    assert_ne!(stand.process(), first);
    // The one that was open when it was killed, if one was.
    assert!(broken.load(Ordering::Relaxed) <= 1, "{broken:?} were broken");
    let mut rest = Vec::new();
    let _reset = open.read_to_end(&mut rest);
    assert_eq!(rest, b"");
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_wait_while_nobody_is_there_and_while_there_are_no_rules() {
    let stand = Stand::new();
    let upstream = Upstream::start(|_| reply("200 OK", "", "hello"));
    let host = format!("localhost:{}", upstream.port);
    // Somebody else's rules start the process.
    let other = stand.script("s/other", &[&host], &[]).await;
    let script = Script::new("s/1");
    let mut early = script.connect();
    write!(early, "GET http://{host}/ HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
    script.hand_over(&stand.place(), false);
    // Rules of another pass are not those of this shim.
    let mut wrong = rules("s/1", &[&host], &[]);
    wrong.pass = "another".into();
    stand.egress.rule(wrong).await.unwrap();
    assert!(other.get(&format!("http://{host}/")).starts_with("HTTP/1.1 200"));
    assert_eq!(upstream.heard().len(), 1);
    stand.egress.rule(rules("s/1", &[&host], &[])).await.unwrap();
    assert!(head(&mut early).unwrap().starts_with("HTTP/1.1 200"));
    // Told twice they are the same, and forgotten nothing more is taken.
    stand.egress.rule(rules("s/1", &[&host], &[])).await.unwrap();
    let mut tunnel = script.tunnel(&host).unwrap();
    stand.egress.forget("s/1");
    let mut rest = Vec::new();
    let _reset = tunnel.read_to_end(&mut rest);
    assert_eq!(rest, b"", "what is open ends with it");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bot_that_ends_breaks_nothing_and_the_next_one_finds_the_process() {
    let mut stand = Stand::new();
    let upstream = Upstream::start(|_| reply("200 OK", "", "hello"));
    let host = format!("localhost:{}", upstream.port);
    let script = stand.script("s/1", &[&host], &[]).await;
    let process = stand.process();
    let mut tunnel = script.tunnel(&host).unwrap();
    stand.egress = bot(stand.dir.path(), stand.settings.clone());
    assert!(script.get(&format!("http://{host}/")).starts_with("HTTP/1.1 200"));
    stand.egress.rule(rules("s/1", &[&host], &[])).await.unwrap();
    assert_eq!(stand.process(), process);
    tunnel.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    assert!(head(&mut tunnel).unwrap().starts_with("HTTP/1.1 200"));
    // A shim that goes takes what came by its listener along.
    let mut tunnel = script.tunnel(&host).unwrap();
    *script.shim.lock().unwrap() = None;
    let mut rest = Vec::new();
    let _reset = tunnel.read_to_end(&mut rest);
    assert_eq!(rest, b"");
    // The bot's rules are still there for a shim that only came again.
    script.hand_over(&stand.place(), false);
    assert!(script.get(&format!("http://{host}/")).starts_with("HTTP/1.1 200"));
}

/// What a bot of another version says, in the words that never change.
fn retire(stand: &Stand) {
    let mut line = std::os::unix::net::UnixStream::connect(stand.place().join("ctl")).unwrap();
    line.write_all(b"{\"hello\":{\"version\":2}}\n{\"retire\":{}}\n").unwrap();
    let mut answers = String::new();
    let mut bytes = [0; 256];
    while !answers.contains("done") {
        let count = line.read(&mut bytes).unwrap();
        assert_ne!(count, 0, "{answers}");
        answers.push_str(std::str::from_utf8(bytes.get(..count).unwrap()).unwrap());
    }
    assert!(answers.starts_with("{\"hello\":{\"version\":1,"), "{answers}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_older_process_is_retired_and_ends_what_it_has_open() {
    let stand = Stand::new();
    let (go, gone) = std::sync::mpsc::channel::<()>();
    let gone = std::sync::Mutex::new(gone);
    let slow = Upstream::on(None, move |stream, request| {
        if request.contains("/slow") {
            let _told = gone.lock().unwrap().recv();
        }
        let _gone = stream.write_all(reply("200 OK", "", "hello").as_bytes());
    });
    let host = format!("localhost:{}", slow.port);
    let script = stand.script("s/1", &[&host], &[]).await;
    let old = stand.process();
    let mut open = script.connect();
    write!(open, "GET http://{host}/slow HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        .unwrap();
    until("the request is there", || slow.heard().len() == 1).await;
    retire(&stand);
    let done = AtomicBool::new(false);
    let place = stand.place();
    std::thread::scope(|scope| {
        scope.spawn(|| keep(&script, &place, &done));
        // The first bot of the test hears that its process is gone, and starts the next.
        assert!(script.get(&format!("http://{host}/")).starts_with("HTTP/1.1 200"));
        done.store(true, Ordering::Relaxed);
    });
    let both = stand.processes();
    assert!(both.contains(&old) && both.len() == 2, "{both:?}");
    go.send(()).unwrap();
    assert!(head(&mut open).unwrap().starts_with("HTTP/1.1 200"), "what was open is finished");
    assert!(ends(old), "then it ends");
    assert_eq!(stand.processes().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn attack_a_retired_process_answers_no_further_request() {
    let stand = Stand::new();
    let upstream = Upstream::start(|_| reply("200 OK", "", "hello"));
    let host = format!("localhost:{}", upstream.port);
    let script = stand.script("s/1", &[&host], &[]).await;
    let mut kept = script.connect();
    let ask = format!("GET http://{host}/ HTTP/1.1\r\nHost: x\r\n\r\n");
    kept.write_all(ask.as_bytes()).unwrap();
    assert!(head(&mut kept).unwrap().starts_with("HTTP/1.1 200"));
    kept.read_exact(&mut [0; 5]).unwrap();
    // Nobody tells it any more what is taken away.
    retire(&stand);
    let _closed = kept.write_all(ask.as_bytes());
    let mut rest = Vec::new();
    let _reset = kept.read_to_end(&mut rest);
    assert_eq!(String::from_utf8_lossy(&rest), "");
    assert_eq!(upstream.heard().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_retires_a_process_is_told_so_also_where_nothing_is_open() {
    let stand = Stand::new();
    stand.egress.rule(rules("s/1", &["api.example.com"], &[])).await.unwrap();
    let old = stand.process();
    retire(&stand);
    assert!(ends(old));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bot_retires_a_process_of_another_version() {
    let stand = Stand::new();
    std::fs::create_dir(stand.place()).unwrap();
    let socket = std::os::unix::net::UnixListener::bind(stand.place().join("ctl")).unwrap();
    let old = std::thread::spawn(move || {
        let (mut bot, _) = socket.accept().unwrap();
        let mut socket = Some(socket);
        let mut heard = Vec::new();
        for answer in ["{\"hello\":{\"version\":0,\"more\":1}}\n", "{\"done\":{}}\n"] {
            let mut byte = [0];
            while bot.read(&mut byte).unwrap() == 1 {
                heard.push(byte[0]);
                if byte == *b"\n" {
                    break;
                }
            }
            if answer.contains("done") {
                // By then the next one can take its place.
                socket = None;
            }
            bot.write_all(answer.as_bytes()).unwrap();
        }
        assert!(socket.is_none());
        String::from_utf8(heard).unwrap()
    });
    let upstream = Upstream::start(|_| reply("200 OK", "", "hello"));
    let host = format!("localhost:{}", upstream.port);
    stand.egress.rule(rules("s/1", &[&host], &[])).await.unwrap();
    let heard = old.join().unwrap();
    assert!(
        heard.starts_with("{\"hello\":{\"version\":1,") && heard.ends_with("{\"retire\":{}}\n")
    );
    let script = Script::new("s/1");
    script.hand_over(&stand.place(), false);
    assert!(script.get(&format!("http://{host}/")).starts_with("HTTP/1.1 200"));
    stand.process();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_nobody_needs_ends() {
    let mut stand = Stand::settled(Settings { unused_ms: 50, ..Settings::default() });
    let script = stand.script("s/1", &["api.example.com"], &[]).await;
    let process = stand.process();
    stand.egress = bot(&stand.dir.path().join("elsewhere"), stand.settings.clone());
    drop(script);
    assert!(ends(process));
}

#[tokio::test(flavor = "multi_thread")]
async fn only_one_process_serves_a_directory_and_refuses_what_it_cannot_use() {
    let stand = Stand::new();
    let script = stand.script("s/1", &["api.example.com"], &[]).await;
    let others: Vec<_> = (0..4).map(|_| bot(stand.dir.path(), stand.settings.clone())).collect();
    for (n, other) in others.iter().enumerate() {
        other.rule(rules(&format!("s/other-{n}"), &["api.example.com"], &[])).await.unwrap();
    }
    stand.process();
    // Not a listener.
    let stream = script.connect();
    let refused = hand_over(&stand.place(), "s/1", PASS, stream.as_fd(), false).unwrap_err();
    assert!(refused.to_string().contains("no listener"), "{refused}");
    // A value that makes no header field is refused, and does not stand in the error.
    let mut bad = super::stand::lent("github", "api.example.com", "the-secret\r\nX: y", 60);
    bad.header = "Authorization".to_owned();
    let error = stand.egress.rule(rules("s/2", &["api.example.com"], &[bad])).await.unwrap_err();
    assert!(matches!(error, EgressError::Refused { .. }));
    assert!(error.to_string().contains("github") && !error.to_string().contains("secret"));
    // A program that is none.
    let dir = tempfile::tempdir().unwrap();
    let none = dogwatch::watch::egress::Egress::new(
        dir.path().join("egress"),
        "/nowhere/dogwatch".into(),
        Settings::default(),
    );
    let error = none.rule(rules("s/1", &["api.example.com"], &[])).await.unwrap_err();
    assert!(matches!(error, EgressError::Start { .. }), "{error}");
    // Certificates that are none.
    let settings =
        Settings { extra_ca: Some(stand.dir.path().join("ca.key")), ..Settings::default() };
    let dir = tempfile::tempdir().unwrap();
    let wrong = bot(dir.path(), settings);
    let error = wrong.rule(rules("s/1", &["api.example.com"], &[])).await.unwrap_err();
    assert!(error.to_string().contains("extra_ca has no certificates"), "{error}");
    // It would start the next one.
    drop(wrong);
    for pid in crate::support::process::processes_of(dir.path()) {
        signal(pid, Signal::KILL);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_hundred_listeners_are_served_at_once() {
    let stand = Stand::with(Caps::default(), &["127.0.0.0/8", "::1"]);
    let upstream = Upstream::start(|_| reply("200 OK", "", "hello"));
    let host = format!("localhost:{}", upstream.port);
    let mut scripts = Vec::new();
    for n in 0..200 {
        scripts.push(stand.script(&format!("s/{n}"), &[&host], &[]).await);
    }
    let url = Arc::new(format!("http://{host}/"));
    let mut tunnels: Vec<_> = scripts.iter().map(|script| script.tunnel(&host).unwrap()).collect();
    assert_eq!(stand.process(), stand.process());
    for tunnel in &mut tunnels {
        tunnel.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
        assert!(head(tunnel).unwrap().starts_with("HTTP/1.1 200"));
    }
    assert!(scripts[199].get(&url).starts_with("HTTP/1.1 200"));
    // Its memory is nobody's to read, and where root started it it is not root any more.
    let status = std::fs::read_to_string(format!("/proc/{}/status", stand.process())).unwrap();
    let uid = status.lines().find_map(|line| line.strip_prefix("Uid:")).unwrap().trim();
    assert!(!uid.split_whitespace().any(|uid| uid == "0"), "{uid}");
    let log = std::fs::metadata(stand.place().join("log")).unwrap();
    assert_eq!(std::os::unix::fs::PermissionsExt::mode(&log.permissions()) & 0o777, 0o600);
}
