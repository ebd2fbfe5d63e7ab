//! What a script may try to get out of its rules.

use std::io::{Read, Write};
use std::sync::atomic::{AtomicUsize, Ordering};

use dogwatch::watch::egress::Caps;

use super::stand::{Stand, Upstream, first_line, head, reply};

#[tokio::test(flavor = "multi_thread")]
async fn attack_addresses_that_are_not_listed_are_never_reached() {
    let stand = Stand::with(Caps::default(), &[]);
    let upstream = Upstream::start(|_| reply("200 OK", "", "inside"));
    let port = upstream.port;
    let own = format!("localhost:{port}");
    let [v4, v6] = [format!("127.0.0.1:{port}"), format!("[::1]:{port}")];
    let hosts = [own.as_str(), &v4, &v6, "169.254.169.254", "[fd00:ec2::254]"];
    let script = stand.script("s/1", &hosts, &[]).await;
    for (to, what) in [
        (own.clone(), "this machine itself"),
        (own.to_uppercase(), "this machine itself"),
        (format!("localhost.:{port}"), "this machine itself"),
        (v4, "this machine itself"),
        (v6, "this machine itself"),
        (format!("[::ffff:127.0.0.1]:{port}"), "this machine itself"),
        ("169.254.169.254".to_owned(), "the link of this machine"),
        ("[::ffff:169.254.169.254]".to_owned(), "the link of this machine"),
        ("[fd00:ec2::254]".to_owned(), "a private network"),
    ] {
        let answer = script.get(&format!("http://{to}/"));
        let first = first_line(&answer);
        assert!(first.starts_with("HTTP/1.1 403 ") && first.contains(what), "{to}: {first}");
        let to = if to.contains(&port.to_string()) { to } else { format!("{to}:80") };
        let tunnel = script.tunnel(&to).unwrap_err();
        assert!(tunnel.contains(what), "{to}: {tunnel}");
    }
    assert_eq!(upstream.heard().len(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn attack_odd_forms_of_an_address_are_no_hosts() {
    let stand = Stand::new();
    let upstream = Upstream::start(|_| reply("200 OK", "", "inside"));
    let port = upstream.port;
    let script = stand.script("s/1", &[&format!("localhost:{port}")], &[]).await;
    for (odd, status) in [
        ("2130706433", "400"),
        ("0x7f000001", "400"),
        ("0x7f.0.0.1", "400"),
        ("0177.0.0.1", "400"),
        ("127.1", "400"),
        ("127.0.0.1.", "400"),
        ("127.0.0.1", "403"),
        ("[::1]", "403"),
        ("[::127.0.0.1]", "403"),
        ("[::ffff:127.0.0.1]", "403"),
        ("[::ffff:7f00:1]", "403"),
        ("user@localhost", "400"),
        ("localhost@127.0.0.1", "400"),
        ("localhost.evil.test", "403"),
        ("xn--lcalhost-54a", "403"),
    ] {
        let answer = script.get(&format!("http://{odd}:{port}/"));
        let said = first_line(&answer).to_owned();
        assert!(said.starts_with(&format!("HTTP/1.1 {status} ")), "{odd}: {said}");
        let tunnel = script.tunnel(&format!("{odd}:{port}")).unwrap_err();
        assert!(tunnel.starts_with(&format!("HTTP/1.1 {status} ")), "{odd}: {tunnel}");
    }
    for odd in ["löcalhost", "localhost%00", "local host", "localhost\\@evil.test", ""] {
        let answer = script.get(&format!("http://{odd}:{port}/"));
        assert!(answer.starts_with("HTTP/1.1 4"), "{odd}: {answer}");
    }
    assert_eq!(upstream.heard().len(), 0);
    let allowed = script.get(&format!("http://LOCALHOST.:{port}/"));
    assert!(allowed.starts_with("HTTP/1.1 200"), "{allowed}");
}

#[tokio::test(flavor = "multi_thread")]
async fn attack_a_redirect_is_the_next_request() {
    let stand = Stand::new();
    let inside = Upstream::start(|_| reply("200 OK", "", "inside"));
    let to = format!("Location: http://127.0.0.1:{}/x\r\n", inside.port);
    let upstream = Upstream::start(move |_| reply("302 Found", &to, ""));
    let host = format!("localhost:{}", upstream.port);
    let script = stand.script("s/1", &[&host], &[]).await;
    let answer = script.get(&format!("http://{host}/"));
    assert!(answer.starts_with("HTTP/1.1 302 Found"), "it is not followed here: {answer}");
    let said = script.python(&format!(
        "import urllib.request as u\n\
         try: u.urlopen('http://{host}/')\n\
         except OSError as e: print(e.code, e.reason)\n"
    ));
    assert!(said.starts_with("403 127.0.0.1:"), "{said}");
    assert_eq!(inside.heard().len(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn attack_one_request_is_never_two() {
    let stand = Stand::new();
    let upstream = Upstream::start(|_| reply("200 OK", "", "hello"));
    let host = format!("localhost:{}", upstream.port);
    let script = stand.script("s/1", &[&host], &[]).await;
    let hidden = "GET /hidden HTTP/1.1\r\nHost: x\r\n\r\n";
    let two = |lengths: &str| {
        format!("POST http://{host}/ HTTP/1.1\r\nHost: x\r\n{lengths}\r\n0\r\n\r\n{hidden}")
    };
    for lengths in [
        format!("Content-Length: 0\r\nContent-Length: {}\r\n", hidden.len()),
        format!("Content-Length: 5\r\nContent-Length: 5, {}\r\n", hidden.len()),
        "Transfer-Encoding: chunked, identity\r\n".to_owned(),
        "Transfer-Encoding: xchunked\r\n".to_owned(),
        "Transfer-Encoding\u{b}: chunked\r\n".to_owned(),
        "Content-Length: +5\r\n".to_owned(),
        "Content-Length : 5\r\n".to_owned(),
        " Content-Length: 5\r\n".to_owned(),
    ] {
        let answer = script.say(&two(&lengths));
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 400 "), "{lengths}: {answer}");
        assert!(answer.matches("HTTP/1.1").count() < 2, "{lengths}: {answer}");
    }
    assert_eq!(upstream.heard(), [""; 0]);
    // Of a length and chunks the chunks count (RFC 9112, 6.3), and only they go on.
    for lengths in [
        format!("Content-Length: {}\r\nTransfer-Encoding: chunked\r\n", hidden.len()),
        format!("Transfer-Encoding: chunked\r\nContent-Length: {}\r\n", hidden.len()),
    ] {
        let before = upstream.heard().len();
        let answer = script.say(&two(&lengths));
        let heard = upstream.heard().split_off(before);
        let [request] = &heard[..] else { panic!("{lengths}: {answer} {heard:?}") };
        let request = request.to_lowercase();
        assert!(!request.contains("hidden") && !request.contains("content-length"), "{request}");
        // What was hidden is a request to us, if it is heard at all.
        let rest = answer.strip_prefix("HTTP/1.1 200").expect("the first is answered");
        assert!(rest.matches("HTTP/1.1 4").count() == rest.matches("HTTP/1.1").count());
    }
    // What follows a whole request is a request of its own, and is judged.
    let both = format!(
        "GET http://{host}/ HTTP/1.1\r\nHost: x\r\n\r\n\
         GET http://evil.test/ HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    );
    let answer = script.say(&both);
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("HTTP/1.1 403 evil"), "{answer}");
    assert_eq!(upstream.heard().len(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn each_cap_is_named_where_it_is_met() {
    let caps = Caps { connections: 2, requests: 4, ..Caps::default() };
    let stand = Stand::with(caps, &["127.0.0.0/8", "::1"]);
    let upstream = Upstream::start(|_| reply("200 OK", "", "hello"));
    let host = format!("localhost:{}", upstream.port);
    let url = format!("http://{host}/");
    let script = stand.script("s/1", &[&host], &[]).await;
    let mut open = Vec::new();
    for _ in 0..2 {
        let mut stream = script.connect();
        write!(stream, "GET {url} HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        assert!(head(&mut stream).unwrap().starts_with("HTTP/1.1 200"));
        open.push(stream);
    }
    let third = script.get(&url);
    assert_eq!(
        first_line(&third),
        "HTTP/1.1 429 this watcher has 2 connections open, which is its limit"
    );
    // Another execution has its own.
    let other = stand.script("s/2", &[&host], &[]).await;
    assert!(other.get(&url).starts_with("HTTP/1.1 200"));
    drop(open);
    super::stand::until("room", || script.get(&url).starts_with("HTTP/1.1 200")).await;
    script.get(&url);
    let fifth = script.get(&url);
    assert_eq!(
        first_line(&fifth),
        "HTTP/1.1 403 this watcher has made 4 requests, which is its limit"
    );
    assert!(other.get(&url).starts_with("HTTP/1.1 200"));
}

#[tokio::test(flavor = "multi_thread")]
async fn attack_bytes_without_end_are_cut_at_the_cap() {
    const MOST: u64 = 1 << 20;
    let caps = Caps { bytes: MOST, ..Caps::default() };
    let stand = Stand::with(caps, &["127.0.0.0/8", "::1"]);
    let sent = std::sync::Arc::new(AtomicUsize::new(0));
    let count = std::sync::Arc::clone(&sent);
    let endless = Upstream::on(None, move |stream, request| {
        let headers = request.contains("/headers");
        let begin = if headers { "HTTP/1.1 200 OK\r\n" } else { "HTTP/1.1 200 OK\r\n\r\n" };
        let more =
            if headers { "X-More: 0123456789abcdef\r\n".repeat(64) } else { "x".repeat(4096) };
        let mut written = stream.write_all(begin.as_bytes());
        while written.is_ok() {
            written = stream.write_all(more.as_bytes());
            count.fetch_add(more.len(), Ordering::Relaxed);
        }
    });
    let host = format!("localhost:{}", endless.port);
    let script = stand.script("s/1", &[&host], &[]).await;
    let headers = script.get(&format!("http://{host}/headers"));
    assert_eq!(first_line(&headers), format!("HTTP/1.1 502 {host} broke off"));
    let body = script.get(&format!("http://{host}/body"));
    let length = body.len() as u64;
    assert!((MOST..MOST * 2).contains(&length), "{length} bytes came");
    let next = script.get(&format!("http://{host}/"));
    assert_eq!(
        first_line(&next),
        format!("HTTP/1.1 403 this watcher has moved {MOST} bytes one way, which is its limit")
    );
    // The same through a tunnel, upwards.
    let other = stand.script("s/2", &[&host], &[]).await;
    let mut tunnel = other.tunnel(&host).unwrap();
    tunnel.write_all(b"GET /body HTTP/1.1\r\n\r\n").unwrap();
    let mut all = Vec::new();
    let _cut = tunnel.read_to_end(&mut all);
    assert!((MOST..MOST * 2).contains(&(all.len() as u64)), "{} bytes came", all.len());
    let cut = |line: &serde_json::Value| line["verdict"] == "cut";
    super::stand::until("both in the log", || stand.log().iter().filter(|l| cut(l)).count() == 2)
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn attack_who_stands_still_is_let_go_and_holds_nobody_up() {
    let caps = Caps { head_ms: 200, idle_ms: 400, ..Caps::default() };
    let stand = Stand::with(caps, &["127.0.0.0/8", "::1"]);
    let (go, stays) = std::sync::mpsc::channel::<()>();
    let stays = std::sync::Mutex::new(stays);
    let stalled = Upstream::on(None, move |stream, request| {
        if request.contains("/half") {
            let _gone = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf");
        }
        let _until_the_test_ends = stays.lock().unwrap().recv();
    });
    let quick = Upstream::start(|_| reply("200 OK", "", "quick"));
    let hosts = [stalled.port, quick.port].map(|port| format!("localhost:{port}"));
    let script = stand.script("s/1", &[&hosts[0], &hosts[1]], &[]).await;
    // Half a head, nothing at all, and a tunnel in which nothing moves.
    let mut slow = script.connect();
    write!(slow, "GET http://{}/ HTTP/1.1\r\nHost:", hosts[1]).unwrap();
    let mut silent = script.connect();
    let mut tunnel = script.tunnel(&hosts[1]).unwrap();
    let answer = script.get(&format!("http://{}/", hosts[1]));
    assert!(answer.ends_with("quick"), "{answer}");
    let late = script.get(&format!("http://{}/", hosts[0]));
    assert_eq!(first_line(&late), format!("HTTP/1.1 504 {} did not answer in time", hosts[0]));
    for stream in [&mut slow, &mut silent, &mut tunnel] {
        let mut rest = Vec::new();
        let _reset = stream.read_to_end(&mut rest);
        assert_eq!(rest, b"", "it is closed without a word");
    }
    let other = stand.script("s/2", &[&hosts[0]], &[]).await;
    drop(go);
    let half = other.get(&format!("http://{}/half", hosts[0]));
    assert!(half.ends_with("half"), "{half}");
}
