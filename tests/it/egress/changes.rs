//! What was allowed and is not any more, while it is used.

use std::io::{Read, Write};
use std::sync::Mutex;
use std::sync::mpsc::channel;

use super::stand::{Stand, Upstream, first_line, head, lent, reply, rules, until};

const VALUE: &str = "Bearer the-real-token-0123456789";

/// An upstream's answer that has no end: its head and a word, or, of `/wait`, nothing.
fn begin(stream: &mut dyn Write, request: &str) {
    if !request.contains("/wait") {
        let _gone = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\nhalf");
        let _gone = stream.flush();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn attack_what_is_open_ends_when_its_host_is_taken_away() {
    let stand = Stand::new();
    let (go, stays) = channel::<()>();
    let stays = Mutex::new(stays);
    let upstream = Upstream::on(None, move |stream, request| {
        begin(stream, request);
        let _until_the_test_ends = stays.lock().unwrap().recv();
    });
    let host = format!("localhost:{}", upstream.port);
    let script = stand.script("s/1", &[&host], &[]).await;
    let mut tunnel = script.tunnel(&host).unwrap();
    let asks = |path: &str| {
        let mut stream = script.connect();
        write!(stream, "GET http://{host}{path} HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        stream
    };
    let (mut half, mut waits) = (asks("/half"), asks("/wait"));
    assert!(head(&mut half).unwrap().starts_with("HTTP/1.1 200"));
    half.read_exact(&mut [0; 4]).unwrap();
    until("both are there", || upstream.heard().len() == 2).await;
    // Said again, with more than before, everything stays.
    stand.egress.rule(rules("s/1", &[&host, "other.example.com"], &[])).await.unwrap();
    assert_eq!(first_line(&script.get("http://evil.test/")).get(9..12), Some("403"));
    for stream in [&mut tunnel, &mut half, &mut waits] {
        stream.set_nonblocking(true).unwrap();
        let still = stream.read(&mut [0]).unwrap_err();
        assert_eq!(still.kind(), std::io::ErrorKind::WouldBlock);
        stream.set_nonblocking(false).unwrap();
    }
    stand.egress.rule(rules("s/1", &["other.example.com"], &[])).await.unwrap();
    for stream in [&mut tunnel, &mut half] {
        let mut rest = Vec::new();
        let _reset = stream.read_to_end(&mut rest);
        assert_eq!(rest, b"");
    }
    let said = head(&mut waits).unwrap();
    assert!(first_line(&said).ends_with("is not in this watcher's hosts"), "{said}");
    let cut = |line: &serde_json::Value| {
        line["verdict"] == "cut" && line["reason"] == "the execution may not go there any more"
    };
    until("both in the log", || stand.log().iter().filter(|line| cut(line)).count() == 2).await;
    drop(go);
}

#[tokio::test(flavor = "multi_thread")]
async fn attack_what_is_open_ends_when_its_credential_is_taken_away() {
    let stand = Stand::new();
    let (go, stays) = channel::<()>();
    let stays = Mutex::new(stays);
    let upstream = {
        let begun = move |request: &str| {
            if request.contains("/wait") {
                let _until_the_test_ends = stays.lock().unwrap().recv();
            }
            reply("200 OK", "", "hello")
        };
        Upstream::secure(stand.dir.path(), begun)
    };
    let to = format!("localhost:{}", upstream.port);
    let github = lent("github", &to, VALUE, 600);
    let script = stand.script("s/1", &[&to], std::slice::from_ref(&github)).await;
    let mut waits = script.connect();
    write!(waits, "GET http://{to}/wait HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    until("it is there", || upstream.heard().len() == 1).await;
    stand.egress.rule(rules("s/1", &[&to], &[github])).await.unwrap();
    assert!(script.get(&format!("http://{to}/")).ends_with("hello"));
    stand.egress.rule(rules("s/1", &[&to], &[])).await.unwrap();
    let said = head(&mut waits).unwrap();
    assert!(first_line(&said).starts_with("HTTP/1.1 403 "), "{said}");
    drop(go);
}
