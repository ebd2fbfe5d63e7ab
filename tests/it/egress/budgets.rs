//! Too many requests: how the budgets are held and how it is told (B119). When whose turn it is,
//! with times that are given, is tested beside the decision.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use dogwatch::watch::egress::{Caps, Settings};

use super::stand::{Stand, Upstream, first_line, lent, reply};

const VALUE: &str = "Bearer the-real-token-0123456789";

/// Pollers of the case.
const POLLERS: usize = 18;

#[tokio::test(flavor = "multi_thread")]
async fn b119_an_upstream_that_asks_for_a_pause_is_left_alone_by_all() {
    let stand = Stand::new();
    let upstream = Upstream::secure(stand.dir.path(), |_| {
        reply("429 Too Many Requests", "Retry-After: 60\r\n", "slow down")
    });
    let to = format!("localhost:{}", upstream.port);
    let url = format!("http://{to}/");
    let mut pollers = Vec::new();
    for n in 0..POLLERS {
        let github = lent("github", &to, VALUE, 60);
        pollers.push(stand.script(&format!("s/{n}"), &[&to], &[github]).await);
    }
    // The one that met it gets the upstream's answer, and the words.
    let first = pollers[0].get(&url);
    assert_eq!(
        first_line(&first),
        "HTTP/1.1 429 rate_limited: the credential github asks for a pause of 60 s"
    );
    assert!(first.ends_with("slow down") && first.to_lowercase().contains("retry-after: 60\r\n"));
    // All others are answered here.
    let answers: Vec<String> = std::thread::scope(|scope| {
        let all = pollers.iter().map(|poller| scope.spawn(|| poller.get(&url)));
        let all: Vec<_> = all.collect();
        all.into_iter().map(|one| one.join().unwrap()).collect()
    });
    for answer in &answers {
        let first = first_line(answer);
        assert!(first.starts_with("HTTP/1.1 429 rate_limited: the credential github until "));
        assert!(first.ends_with(": it asked for a pause"), "{first}");
        assert!(answer.contains("This is no outage."), "{answer}");
        let lower = answer.to_lowercase();
        assert!(lower.contains("x-dogwatch: rate_limited\r\n"), "{answer}");
        let after = lower.lines().find_map(|line| line.strip_prefix("retry-after: "));
        let after: u64 = after.unwrap().parse().unwrap();
        assert!((50..=62).contains(&after), "{after}");
    }
    assert_eq!(upstream.heard().len(), 1, "it was not left alone");
    // Who does not use it is not held back.
    let other = stand.script("s/other", &[&to], &[lent("other", &to, VALUE, 60)]).await;
    assert!(first_line(&other.get(&url)).ends_with("asks for a pause of 60 s"));
    let limited = |line: &serde_json::Value| line["verdict"] == "rate_limited";
    assert_eq!(stand.log().iter().filter(|line| limited(line)).count(), POLLERS);
}

#[tokio::test(flavor = "multi_thread")]
async fn b119_the_upstream_sees_no_more_than_the_budget() {
    // Nobody waits, so that no time passes: a sixth of a minute's budget goes at once.
    let caps = Caps { wait_ms: 1, ..Caps::default() };
    let stand = Stand::with(caps, &["127.0.0.0/8", "::1"]);
    let upstream = Upstream::secure(stand.dir.path(), |_| reply("200 OK", "", "hello"));
    let to = format!("localhost:{}", upstream.port);
    let url = format!("http://{to}/");
    let mut pollers = Vec::new();
    for n in 0..POLLERS {
        let github = lent("github", &to, VALUE, 60);
        pollers.push(stand.script(&format!("s/{n}"), &[&to], &[github]).await);
    }
    let began = tokio::time::Instant::now();
    let limited = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for poller in &pollers {
            scope.spawn(|| {
                for _ in 0..5 {
                    let answer = poller.get(&url);
                    let words = "HTTP/1.1 429 rate_limited: the credential github until ";
                    if answer.starts_with(words) {
                        assert!(answer.contains(": its budget is spent"), "{answer}");
                        limited.fetch_add(1, Ordering::Relaxed);
                    } else {
                        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
                    }
                }
            });
        }
    });
    // One more comes back each 1.2 s, and this machine may be slow.
    let came_back = usize::try_from(began.elapsed().as_secs()).unwrap() + 1;
    let seen = upstream.heard().len();
    assert!((10..=10 + came_back).contains(&seen), "{seen} were seen");
    assert_eq!(seen + limited.load(Ordering::Relaxed), POLLERS * 5);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_waits_for_its_turn() {
    let settings = Settings { requests_per_minute: 240, ..Settings::default() };
    let addresses = ["127.0.0.0/8", "::1"].map(|text| text.parse().unwrap()).to_vec();
    let stand = Stand::settled(Settings { addresses, ..settings });
    let upstream = Upstream::start(|_| reply("200 OK", "", "hello"));
    let host = format!("localhost:{}", upstream.port);
    let script = stand.script("s/1", &[&host], &[]).await;
    // 40 at once, then one each 0.3 s: those that are above it wait and are answered.
    let script = Arc::new(script);
    let url = format!("http://{host}/");
    std::thread::scope(|scope| {
        for _ in 0..43 {
            scope.spawn(|| assert!(script.get(&url).starts_with("HTTP/1.1 200")));
        }
    });
    assert_eq!(upstream.heard().len(), 43);
}
