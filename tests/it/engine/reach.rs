//! What a script may reach is asked again of the agent that answers today: a call that runs again
//! after a crash, and a script that had not begun, get nothing that was taken away meanwhile.

use dogwatch::core::egress::{AddressRule, CredentialName, Destination, Grant, HostRule, Policy};
use dogwatch::core::execution::{Execution, State};
use dogwatch::core::policy::Role;
use dogwatch::core::reach;
use dogwatch::watch::{Limits, NetworkSettings, Sandbox, egress};
use serde_json::{Value, json};

use crate::sandbox::upstream::Upstream;
use crate::support::bot::{Bot, Setup};
use crate::support::fake_llm::Reply;
use crate::support::tap::{At, Trap};
use crate::support::wire::results;

const HERE: &str = "127.0.0.2";
/// A credential, and where it is for.
const KEY: (&str, &str) = ("github", "api.github.com");

const ASKS: &str = "import urllib.error, urllib.request
try:
    print(urllib.request.urlopen('http://UP/', timeout=100).read())
except urllib.error.HTTPError as refused:
    print(refused.code, refused.reason)";

/// What an agent may ask for, with the key or without.
fn may(hosts: &[&str], with_key: bool) -> Policy {
    let hosts: Vec<_> = hosts.iter().map(|host| HostRule::parse(host).unwrap()).collect();
    let key = [Grant {
        name: CredentialName::parse(KEY.0).unwrap(),
        to: Destination::parse(KEY.1).unwrap(),
        agents: vec!["main".to_owned()],
        roles: vec![Role::Writable],
    }];
    reach::policy("main", Role::Writable, &hosts, if with_key { &key } else { &[] })
}

/// A bot whose agent may ask for this host and the key.
async fn bot(up: &str) -> Bot {
    let egress = egress::Settings {
        addresses: vec![AddressRule::parse(HERE).unwrap()],
        // It ends with its test.
        unused_ms: 200,
        ..egress::Settings::default()
    };
    let setup = Setup {
        sandbox: Sandbox::Required(Limits::default()),
        network: NetworkSettings { egress, lent: vec![] },
        reach: may(&[up], true),
        ..Setup::default()
    };
    Bot::with(setup).await
}

/// The model asks for that host, and for these credentials. Whatever comes later, it says so.
fn will_ask(bot: &Bot, up: &str, credentials: &[&str]) {
    let mut arguments = json!({
        "name": "Ask it", "python": ASKS.replace("UP", up), "timeout_seconds": 60, "hosts": [up],
    });
    if !credentials.is_empty() {
        arguments["credentials"] = credentials.into();
    }
    bot.llm.will(Reply::call("c1", "trigger_and_auto_notify", &arguments.to_string()));
    bot.llm.otherwise(|body| {
        let last = body["messages"].as_array().unwrap().last().unwrap();
        Reply::text(&format!("It says {}", last["content"]))
    });
}

/// The bot is killed there, and something is taken away before the next one starts.
async fn killed(bot: &mut Bot, trap: Trap, left: Policy) {
    bot.say("ask it").await;
    bot.wait("the write", trap.caught()).await;
    bot.crash().await;
    bot.setup.reach = left;
    bot.boot().await;
}

/// What the model was told of its call, last.
async fn told(bot: &Bot) -> Value {
    bot.posts(1).await;
    bot.quiet().await;
    results(bot.llm.seen_now().last().unwrap()).remove(0)
}

fn registered(execution: &Execution) -> bool {
    execution.state == State::Registered
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_runs_again_after_a_crash_starts_nothing_that_is_not_allowed_any_more() {
    let upstream = Upstream::start(HERE);
    let up = upstream.address.to_string();
    let elsewhere = may(&["other.example.com"], true);
    let cases: [(&[&str], Policy, &str, &str); 3] = [
        (&[], elsewhere, "host_not_allowed", &up),
        (&[], may(&[], false), "unknown_field", "hosts"),
        (&[KEY.0], may(&[&up], false), "credential_not_allowed", KEY.0),
    ];
    for (credentials, left, code, name) in cases {
        let mut bot = bot(&up).await;
        will_ask(&bot, &up, credentials);
        let trap = bot.hand.trap_row(At::Before, registered);
        killed(&mut bot, trap, left).await;
        let told = told(&bot).await;
        assert_eq!(told["error"]["code"], code, "{told}");
        assert!(told.to_string().contains(name), "{told}");
        let posts = bot.stage.posted();
        assert!(posts.len() == 1 && posts[0].text.contains(code), "{posts:?}");
        assert_eq!(bot.finish().await.registered, 0);
    }
    assert!(upstream.is_quiet());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_was_recorded_is_answered_with_its_id_whatever_was_taken_away_since() {
    let upstream = Upstream::start(HERE);
    let up = upstream.address.to_string();
    for left in [may(&["other.example.com"], true), may(&[], false)] {
        let mut bot = bot(&up).await;
        will_ask(&bot, &up, &[]);
        let trap = bot.hand.trap_row(At::After, registered);
        killed(&mut bot, trap, left).await;
        let told = told(&bot).await;
        assert_eq!(told["execution_id"], "auto-notify-aski-0001", "{told}");
        // Nobody had launched it.
        bot.until("its end", |view| view.live.is_empty()).await;
        bot.quiet().await;
        let sum = bot.finish().await;
        assert_eq!((sum.registered, sum.fates["acked"]), (1, 1));
    }
    assert!(upstream.is_quiet());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_script_that_had_not_begun_does_not_begin_with_what_was_taken_away() {
    let upstream = Upstream::start(HERE);
    let up = upstream.address.to_string();
    for left in [may(&["other.example.com"], true), may(&[], false)] {
        let mut bot = bot(&up).await;
        will_ask(&bot, &up, &[]);
        let trap = bot
            .hand
            .trap_row(At::Before, |execution: &Execution| execution.state == State::Running);
        killed(&mut bot, trap, left).await;
        bot.until("its end", |view| view.live.is_empty() && view.notices == 0).await;
        bot.quiet().await;
        let notices = bot.notices("main").await;
        assert_eq!(notices.len(), 1);
        assert!(notices[0].contains("403") && notices[0].contains(&up), "{notices:?}");
        let posts = bot.stage.posted();
        assert!(posts.iter().any(|post| post.text.contains("403")), "{posts:?}");
        assert_eq!(bot.finish().await.registered, 1);
    }
    assert!(upstream.is_quiet());
}
