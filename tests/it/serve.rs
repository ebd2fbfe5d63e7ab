//! `dogwatch serve`, the real program: probes, metrics, bad requests, slow ones, its start and its
//! end.

// So that clippy knows the whole module as a test.
#![cfg(test)]

use std::io::{Read, Write};
use std::net::TcpListener;

use nix::sys::signal::Signal;
use pretty_assertions::assert_eq;
use serde_json::{Value, json};

use crate::support::program::Home;
use crate::support::service::{self, SERVED, Service};

const SCRIPTED: &str = "[watch]\nsandbox = \"off\"\n";

fn home() -> Home {
    Home::new(&format!("{SCRIPTED}{SERVED}"))
}

fn check(ready: &Value, name: &str) -> Value {
    let checks = ready["checks"].as_array().unwrap();
    checks.iter().find(|check| check["name"] == name).cloned().unwrap_or(Value::Null)
}

#[test]
fn it_is_alive_ready_and_measured_and_ends_with_0() {
    let home = home();
    let service = Service::ready(&home);
    assert_eq!(service.get("/livez").json(), json!({ "live": true }));
    let ready = service.get("/readyz");
    assert_eq!((ready.status, &ready.json()["ready"]), (200, &json!(true)));
    for name in ["boot", "store", "spool", "terminals"] {
        assert_eq!(check(&ready.json(), name)["ok"], true, "{ready:?}");
    }
    assert_eq!(ready.header("content-type"), Some("application/json"));
    let metrics = service.get("/metrics");
    assert_eq!(metrics.status, 200);
    assert!(metrics.header("content-type").unwrap().starts_with("application/openmetrics-text"));
    for line in ["dogwatch_ready 1", "dogwatch_store_up 1", "# EOF"] {
        assert!(metrics.body.lines().any(|it| it == line), "no {line} in\n{}", metrics.body);
    }
    let (code, log) = service.end();
    assert_eq!(code, Some(0), "{log:#?}");
    assert!(log.iter().any(|line| line.contains(r#""all_handed_over":true"#)), "{log:#?}");
}

#[test]
fn it_says_that_it_ends_before_it_does() {
    let home = home();
    let slow = "[http]\nbind = \"127.0.0.1:0\"\ndrain_ms = 3000\n[log]\nformat = \"json\"\n";
    home.write("dogwatch.toml", &format!("data_dir = \"data\"\n{SCRIPTED}{slow}"));
    let mut service = Service::ready(&home);
    assert_eq!(service.get("/readyz").status, 200);
    service.signal(Signal::SIGTERM);
    service.hear("asked to end");
    let ready = service.get("/readyz");
    assert_eq!((ready.status, &ready.json()["ready"]), (503, &json!(false)));
    let boot = check(&ready.json(), "boot");
    assert_eq!(
        (&boot["ok"], boot["what"].as_str().unwrap().contains("ending")),
        (&json!(false), true)
    );
    assert_eq!(service.get("/livez").status, 200, "what ends is alive: nobody need kill it");
    assert_eq!(service.sample("dogwatch_ready"), 0);
    assert_eq!(service.ended().0, Some(0));
}

#[test]
fn it_is_not_ready_without_its_spool() {
    let home = home();
    let service = Service::ready(&home);
    let lock = home.path("data/spool/lock");
    std::fs::rename(&lock, home.path("data/spool/lock.away")).unwrap();
    let ready = service.get("/readyz");
    assert_eq!(ready.status, 503);
    let spool = check(&ready.json(), "spool");
    assert!(spool["what"].as_str().unwrap().contains("start again"), "{spool}");
    std::fs::rename(home.path("data/spool/lock.away"), &lock).unwrap();
    assert_eq!(service.get("/readyz").status, 200);
}

#[test]
fn each_request_has_an_id_and_a_senders_sane_one_is_kept() {
    let home = home();
    let service = Service::ready(&home);
    let ask = |id: &str| {
        let request = format!(
            "GET /livez HTTP/1.1\r\nhost: x\r\nx-request-id: {id}\r\nconnection: close\r\n\r\n"
        );
        service.ask(&request).header("x-request-id").unwrap().to_owned()
    };
    assert_eq!(ask("deploy-7.a_b"), "deploy-7.a_b");
    let made = ask("x y");
    assert_eq!(made.len(), 26);
    for bad in ["a b", "<script>", &"x".repeat(65), "é"] {
        let id = ask(bad);
        assert!(id != bad && (id.len() == 26 || id.is_empty()), "{bad:?} became {id:?}");
    }
    assert!(ask("x y") != made);
}

#[test]
fn a_bad_request_is_told_as_json_what_to_do() {
    let home = home();
    let service = Service::ready(&home);
    let cases = [
        ("GET /nowhere", 404, "not_found", "/readyz"),
        ("GET /", 404, "not_found", "/metrics"),
        ("POST /readyz", 405, "method_not_allowed", "GET"),
        ("DELETE /metrics", 405, "method_not_allowed", "GET"),
        ("GET /livez/%2e%2e/metrics", 404, "not_found", "/livez"),
    ];
    for (line, status, code, hint) in cases {
        let request = format!("{line} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
        let answer = service.ask(&request);
        assert_eq!(answer.status, status, "{line}: {answer:?}");
        let error = &answer.json()["error"];
        assert_eq!(error["code"], code, "{line}");
        assert!(error["hint"].as_str().unwrap().contains(hint), "{line}: {error}");
        assert_eq!(error["request_id"].as_str(), answer.header("x-request-id"), "{line}");
    }
    let large =
        "POST /nowhere HTTP/1.1\r\nhost: x\r\ncontent-length: 1048577\r\nconnection: close\r\n\r\n";
    let answer = service.ask(large);
    assert_eq!((answer.status, &answer.json()["error"]["code"]), (413, &json!("too_large")));
    // What is no HTTP at all is answered by the connection, and ended.
    for text in ["\r\n\r\n\r\nrubbish\r\n\r\n", "GET / HTTP/9.9\r\n\r\n", "\u{16}\u{3}\u{1}"] {
        let mut stream = service.connect();
        stream.write_all(text.as_bytes()).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let answer = service::answer(&mut stream);
        assert!(answer.status == 400 || answer.status == 0, "{text:?}: {answer:?}");
    }
    let long = format!("GET /{} HTTP/1.1\r\nhost: x\r\n\r\n", "x".repeat(20_000));
    let status = service.ask(&long).status;
    assert!(status == 431 || status == 414 || status == 0, "{status}");
    assert_eq!(service.get("/livez").status, 200);
}

#[test]
fn slow_requests_hold_nobody_up_and_are_ended() {
    let home = home();
    let service = Service::ready(&home);
    // As many as there are seats, and some more that wait for one.
    let slow: Vec<_> = (0..300)
        .map(|number| {
            let mut stream = service.connect();
            let begun: &[u8] = if number % 2 == 0 { b"GET /livez HT" } else { b"" };
            stream.write_all(begun).unwrap();
            stream
        })
        .collect();
    assert_eq!(service.get("/livez").status, 200);
    for mut stream in slow {
        let mut rest = Vec::new();
        // Ended by the server, with an answer or without.
        let _cut = stream.read_to_end(&mut rest);
        assert!(!String::from_utf8_lossy(&rest).contains("200 OK"));
    }
    assert_eq!(service.end().0, Some(0));
}

#[test]
fn a_connection_that_never_ends_is_cut_at_the_end() {
    let home = home();
    let mut service = Service::ready(&home);
    let mut idle = service.connect();
    idle.write_all(b"GET /livez HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
    let mut first = [0; 12];
    idle.read_exact(&mut first).unwrap();
    assert_eq!(&first, b"HTTP/1.1 200");
    let mut begun = service.connect();
    begun.write_all(b"GET /livez HTTP/1.1\r\nhos").unwrap();
    service.signal(Signal::SIGTERM);
    assert_eq!(service.ended().0, Some(0));
}

#[test]
fn a_taken_port_is_one_line_and_nothing_is_begun() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let home = Home::new(&format!("{SCRIPTED}[http]\nbind = \"{address}\"\n"));
    let ran = home.run_here(&["serve"]);
    assert_eq!((ran.code, ran.out.as_str()), (1, ""));
    assert_eq!(
        ran.err,
        format!(
            "dogwatch: {address} is taken: another program or another dogwatch listens there; end \
             that one, or name another address in [http] bind\n"
        )
    );
    assert!(!home.path("data").exists(), "nothing was begun");
}

#[test]
fn a_second_bot_on_the_same_store_or_spool_is_refused_in_words() {
    let home = home();
    let service = Service::ready(&home);
    let second = home.run_here(&["serve"]);
    assert_eq!(second.code, 1);
    assert!(second.err.contains("is in use: process"), "{}", second.err);
    assert_eq!(second.err.lines().count(), 1, "{}", second.err);
    let spool = home.path("data/spool").display().to_string();
    let config = format!(
        "data_dir = \"other\"\n[watch]\nsandbox = \"off\"\nspool_dir = \"{spool}\"\n{SERVED}"
    );
    home.write("other.toml", &config);
    let third = home.run(&["serve", "--config", "other.toml"]);
    assert_eq!(third.code, 1);
    assert!(third.err.lines().last().unwrap().contains("spool"), "{}", third.err);
    assert_eq!(service.get("/readyz").status, 200);
}

#[test]
fn an_address_that_others_can_reach_needs_a_token() {
    let home = Home::new(&format!("{SCRIPTED}[http]\nbind = \"0.0.0.0:0\"\n"));
    for command in ["serve", "check-config"] {
        let ran = home.run_here(&[command]);
        let said = format!("{}{}", ran.out, ran.err);
        assert_eq!(ran.code, 78, "{said}");
        assert!(said.contains("http.bind: 0.0.0.0:0 can be reached from other machines"), "{said}");
        assert!(said.contains("Set [http] token"), "{said}");
    }
    assert!(!home.path("data").exists(), "nothing was begun");
}

#[test]
fn a_token_keeps_metrics_and_reasons_to_those_who_have_it() {
    let token = "token = { env = \"DOGWATCH_TEST_KEY\" }";
    let log = "[log]\nformat = \"json\"\nfilter = \"debug\"\n";
    let home = Home::new(&format!("{SCRIPTED}[http]\nbind = \"127.0.0.1:0\"\n{token}\n{log}"));
    let service = Service::ready(&home);
    let with = |token: &str, path: &str| {
        let request = format!(
            "GET {path} HTTP/1.1\r\nhost: x\r\nauthorization: {token}\r\nconnection: close\r\n\r\n"
        );
        service.ask(&request)
    };
    let key = crate::support::program::KEY;
    let refused = service.get("/metrics");
    assert_eq!((refused.status, refused.header("www-authenticate")), (401, Some("Bearer")));
    assert_eq!(refused.json()["error"]["code"], "unauthorized");
    for wrong in ["Bearer nonsense", "Bearer ", key, &format!("Basic {key}")] {
        assert_eq!(with(wrong, "/metrics").status, 401, "{wrong}");
    }
    assert_eq!(with(&format!("Bearer {key}"), "/metrics").status, 200);
    assert_eq!(service.get("/readyz").json(), json!({ "ready": true }));
    assert!(with(&format!("Bearer {key}"), "/readyz").json()["checks"].is_array());
    assert_eq!(service.get("/livez").status, 200);
    let (code, log) = service.end();
    assert_eq!(code, Some(0));
    assert!(log.iter().any(|line| line.contains("http.status")), "the log tells of requests");
    assert!(!log.concat().contains(key), "the log has no secret");
}
