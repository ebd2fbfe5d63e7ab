//! People install the app, in several places: each is answered with its own token, no token is ever
//! seen, and tokens that end are changed. On the real program.

#![expect(clippy::indexing_slicing, reason = "a test fails by panicking")]

use serde_json::Value;

use crate::support::fake_slack::{FakeSlack, Fault, enterprise, team};
use crate::support::redis_server::RedisServer;
use crate::support::service::{Answer, Service};

use super::gone::{end_of, ready_is};
use super::patiently;
use super::whole::{BY_REQUESTS, Town, deliver, has, home, ts};

const OAUTH: &str =
    "[slack.oauth]\nclient_id = \"client.1\"\nclient_secret = { file = \"secret\" }\n";

/// A bot whose tokens come from whoever installs the app.
async fn town(store: &str) -> Town {
    installing(&[], store).await
}

/// Likewise, whose scripts wait for these pipes.
pub(super) async fn installing(pipes: &[&str], store: &str) -> Town {
    let slack = FakeSlack::start().await;
    let place = home(&slack, pipes, BY_REQUESTS, &format!("{OAUTH}{store}"));
    let config = std::fs::read_to_string(place.path("dogwatch.toml")).unwrap();
    let config = config.replace("bot_token = { file = \"bot-token\" }\n", "");
    place.write("dogwatch.toml", &config);
    place.write("secret", "client-secret");
    Town { slack, place, events: 0 }
}

/// Begins: Slack's page, and the browser's cookie.
fn begin(bot: &Service) -> (String, String) {
    let sent = tokio::task::block_in_place(|| bot.get("/slack/install"));
    assert_eq!(sent.status, 302, "{sent:?}");
    is_guarded(&sent);
    let cookie = sent.header("set-cookie").unwrap();
    for flag in ["HttpOnly", "Secure", "SameSite=Lax", "Max-Age=600", "Path=/slack/oauth"] {
        assert!(cookie.contains(flag), "{cookie}");
    }
    let cookie = cookie.split(';').next().unwrap().to_owned();
    (sent.header("location").unwrap().to_owned(), cookie)
}

fn end(bot: &Service, query: &str, cookie: &str) -> Answer {
    let request = format!(
        "GET /slack/oauth?{query} HTTP/1.1\r\nhost: x\r\ncookie: a=b; {cookie}\r\n\
         connection: close\r\n\r\n"
    );
    let answer = tokio::task::block_in_place(|| bot.ask(&request));
    is_guarded(&answer);
    answer
}

fn is_guarded(answer: &Answer) {
    assert_eq!(answer.header("cache-control"), Some("no-store"), "{answer:?}");
    assert_eq!(answer.header("referrer-policy"), Some("no-referrer"), "{answer:?}");
}

pub(super) fn install(town: &Town, bot: &Service, place: &Value) -> Answer {
    let (page, cookie) = begin(bot);
    let query = town.slack.allows(&page, place);
    let answer = end(bot, &query, &cookie);
    assert_eq!(answer.status, 200, "{answer:?}");
    answer
}

/// A mention, as Slack tells an installation of it.
pub(super) fn says_there(town: &mut Town, place: &Value, text: &str) -> Value {
    let mut event = town.says(None, text);
    let (team, enterprise) = (&place["team"]["id"], &place["enterprise"]["id"]);
    event["team_id"] = team.clone();
    let seen = &mut event["authorizations"][0];
    seen["team_id"] = team.clone();
    seen["enterprise_id"] = enterprise.clone();
    seen["is_enterprise_install"] = place["is_enterprise_install"].clone();
    event
}

/// Says something there and waits for the answer; which token posted it.
async fn answered(town: &mut Town, bot: &Service, place: &Value, text: &str) -> String {
    let event = says_there(town, place, &format!("<@U0BOT> {text}"));
    let root = ts(&event);
    deliver(bot, &event).await;
    let heard = format!("heard {text}");
    patiently(town.slack.until("C1", &root, |all| has(all, &heard))).await;
    let calls = patiently(town.slack.called("chat.postMessage", 1)).await;
    let call = calls.iter().find(|call| call.arguments["thread_ts"] == root.as_str()).unwrap();
    call.token.clone().unwrap()
}

fn doctor(town: &Town) -> String {
    let config = town.place.known_as("dogwatch.toml");
    let program = env!("CARGO_BIN_EXE_dogwatch");
    let told =
        tokio::task::block_in_place(|| town.place.run(&[program, "doctor", "--config", &config]));
    String::from_utf8_lossy(&told.stdout).into_owned()
}

/// Nothing that is secret was written down anywhere.
fn is_discreet(town: &Town, log: &[String]) {
    let mut texts: Vec<(String, Vec<u8>)> =
        log.iter().map(|line| ("log".to_owned(), line.clone().into_bytes())).collect();
    let mut directories = vec![town.place.path("data")];
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
            match std::fs::read(entry.path()) {
                Ok(bytes) => texts.push((entry.path().display().to_string(), bytes)),
                Err(_) => directories.push(entry.path()),
            }
        }
    }
    assert!(texts.len() > log.len(), "the store was looked at");
    for (place, bytes) in texts {
        let text = String::from_utf8_lossy(&bytes);
        for secret in ["xoxe", "code-", "client-secret"] {
            assert!(!text.contains(secret), "{secret} stands in {place}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn slack_32_each_installation_is_answered_with_its_own_token() {
    let mut town = town("").await;
    let bot = town.bot();
    ready_is(&bot, 200, "nobody has installed the app").await;
    let places = [team("T1"), team("T2"), enterprise("E1")];
    for place in &places {
        let page = install(&town, &bot, place);
        assert!(page.body.contains("/invite @dogwatch"), "{page:?}");
        assert!(!page.body.contains("Team <"), "names are escaped: {page:?}");
    }
    ready_is(&bot, 200, "installed in 3 places").await;
    for (place, id) in places.iter().zip(["T1", "T2", "E1"]) {
        let token = answered(&mut town, &bot, place, &format!("hello from {id}")).await;
        assert_eq!(town.slack.place_of(&token), id);
    }
    // Nobody knows this one: it is acknowledged, or Slack would send it for ever.
    let stranger = says_there(&mut town, &team("T9"), "<@U0BOT> hello");
    deliver(&bot, &stranger).await;
    // One of them goes; the others go on, and it can come back.
    town.slack.removes("T1");
    for kind in ["tokens_revoked", "app_uninstalled"] {
        let news = end_of(&mut town, "T1", kind);
        deliver(&bot, &news).await;
    }
    ready_is(&bot, 200, "installed in 2 places").await;
    let late = says_there(&mut town, &places[0], "<@U0BOT> anybody?");
    deliver(&bot, &late).await;
    answered(&mut town, &bot, &places[1], "still here").await;
    let page = install(&town, &bot, &places[0]);
    assert!(page.body.contains("Installed again"), "{page:?}");
    let token = answered(&mut town, &bot, &places[0], "back").await;
    assert_eq!(town.slack.place_of(&token), "T1");
    assert!(town.slack.thread("C1", &ts(&stranger)).is_empty());
    // It is kept.
    tokio::task::block_in_place(|| bot.kill());
    let bot = tokio::task::block_in_place(|| town.bot());
    answered(&mut town, &bot, &places[2], "after a kill").await;
    let (code, log) = bot.end();
    assert_eq!(code, Some(0));
    is_discreet(&town, &log);
    let (even, audit) = town.place.audit();
    assert!(even, "{audit:#}");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_way_that_ends_nowhere_says_so_and_the_cure() {
    let town = town("").await;
    let mut bot = town.bot();
    let wrong = |bot: &Service, (query, cookie): (&str, &str), status: u16, words: &str| {
        let page = end(bot, query, cookie);
        assert_eq!(page.status, status, "{page:?}");
        assert!(page.body.contains(words) && page.body.contains("egin again"), "{words}: {page:?}");
    };
    let (page, cookie) = begin(&bot);
    let state = town.slack.state_of(&page);
    assert!(state.len() >= 32);
    wrong(&bot, ("code=x", &cookie), 400, "does not belong");
    wrong(&bot, (&format!("code=x&state={state}"), "a=b"), 400, "another browser");
    let (_, other) = begin(&bot);
    wrong(&bot, (&format!("code=x&state={state}"), &other), 400, "another browser");
    let denied = format!("error=access_denied&state={state}");
    wrong(&bot, (&denied, &cookie), 400, "did not let the app in (access_denied)");
    wrong(&bot, (&denied, &cookie), 400, "was used before");
    let (page, cookie) = begin(&bot);
    let state = town.slack.state_of(&page);
    wrong(&bot, (&format!("code=x&state={state}"), &cookie), 400, "(invalid_code)");
    let (page, cookie) = begin(&bot);
    let query = town.slack.allows(&page, &team("T1"));
    town.slack.will("oauth.v2.access", Fault::Status(503));
    wrong(&bot, (&query, &cookie), 502, "HTTP 503");
    let (page, cookie) = begin(&bot);
    let query = town.slack.allows(&page, &team("T1"));
    let looks = format!(
        "HEAD /slack/oauth?{query} HTTP/1.1\r\nhost: x\r\ncookie: {cookie}\r\n\
         connection: close\r\n\r\n"
    );
    assert_eq!(tokio::task::block_in_place(|| bot.ask(&looks)).status, 405);
    assert_eq!(end(&bot, &query, &cookie).status, 200);
    wrong(&bot, (&query, &cookie), 400, "was used before");
    ready_is(&bot, 200, "installed in 1 place").await;
    let (_, log) = tokio::task::block_in_place(|| {
        bot.signal(nix::sys::signal::Signal::SIGTERM);
        bot.ended()
    });
    is_discreet(&town, &log);
    // Another secret opens nothing, and it is said.
    town.place.write("secret", "another-secret");
    let bot = tokio::task::block_in_place(|| Service::of(town.place.serve()));
    ready_is(&bot, 503, "sealed with another key").await;
    let said = doctor(&town);
    assert!(said.contains("sealed with another key") && said.contains("seal_key"), "{said}");
    assert_eq!(bot.end().0, Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_that_end_are_changed_before_whatever_is_killed_meanwhile() {
    let mut town = town("").await;
    town.slack.tokens_live(3);
    let bot = town.bot();
    install(&town, &bot, &team("T1"));
    let first = answered(&mut town, &bot, &team("T1"), "with the first").await;
    patiently(town.slack.called("oauth.v2.access", 3)).await;
    let later = answered(&mut town, &bot, &team("T1"), "with a later one").await;
    assert_ne!(first, later);
    // Slack has changed them, and the bot is killed before it hears so.
    let before = town.slack.count("oauth.v2.access");
    town.slack.will("oauth.v2.access", Fault::Mute);
    patiently(town.slack.called("oauth.v2.access", before + 1)).await;
    tokio::task::block_in_place(|| bot.kill());
    let bot = tokio::task::block_in_place(|| town.bot());
    patiently(town.slack.called("oauth.v2.access", before + 2)).await;
    answered(&mut town, &bot, &team("T1"), "all the same").await;
    assert!(town.slack.refreshes().iter().filter(|taken| **taken > 1).count() <= 1);
    // Nothing gets new ones any more: it is said, and installing again mends it.
    town.slack.always("oauth.v2.access", Fault::Refuse("invalid_refresh_token"));
    ready_is(&bot, 503, "install the app again").await;
    let said = doctor(&town);
    assert!(said.contains("invalid_refresh_token") && said.contains("/slack/install"), "{said}");
    town.slack.never_again("oauth.v2.access");
    install(&town, &bot, &team("T1"));
    ready_is(&bot, 200, "installed in 1 place").await;
    let (code, log) = bot.end();
    assert_eq!(code, Some(0));
    is_discreet(&town, &log);
}

#[tokio::test(flavor = "multi_thread")]
async fn two_replicas_change_each_token_once_and_either_ends_what_the_other_began() {
    let redis = RedisServer::start(&[]);
    let store = "[store]\nkind = \"redis\"\nurl = { file = \"redis-url\" }\n";
    let mut town = town(store).await;
    let there = home(&town.slack, &[], BY_REQUESTS, store);
    for name in ["dogwatch.toml", "playbook.toml", "secret"] {
        there.write(name, &std::fs::read_to_string(town.place.path(name)).unwrap());
    }
    for place in [&town.place, &there] {
        place.write("redis-url", &redis.url());
    }
    town.slack.tokens_live(4);
    let one = town.bot();
    let other = Service::of(there.serve()).works();
    let (page, cookie) = begin(&one);
    let query = town.slack.allows(&page, &team("T1"));
    assert_eq!(end(&other, &query, &cookie).status, 200);
    answered(&mut town, &one, &team("T1"), "from one").await;
    patiently(town.slack.called("oauth.v2.access", 4)).await;
    answered(&mut town, &other, &team("T1"), "from the other").await;
    let taken = town.slack.refreshes();
    assert!(taken.len() > 2 && taken.iter().all(|taken| *taken <= 1), "{taken:?}");
    // The end of it reaches both.
    town.slack.removes("T1");
    let news = end_of(&mut town, "T1", "app_uninstalled");
    deliver(&one, &news).await;
    let late = says_there(&mut town, &team("T1"), "<@U0BOT> anybody?");
    deliver(&other, &late).await;
    assert!(town.slack.thread("C1", &ts(&late)).is_empty());
    assert_eq!((one.end().0, other.end().0), (Some(0), Some(0)));
    let (even, audit) = town.place.audit();
    assert!(even, "{audit:#}");
}
