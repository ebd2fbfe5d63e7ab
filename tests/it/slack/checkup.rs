//! What the doctor says of Slack, each lack with its cure.

use std::sync::Arc;

use dogwatch::slack::Ingress;
use dogwatch::slack::checkup::setup::{EVENTS, Setup};
use dogwatch::slack::checkup::{Finding, Kept, SCOPES, look};
use dogwatch::slack::web::Web;
use pretty_assertions::assert_eq;
use serde_json::{Value, json};

use super::patiently;
use crate::support::fake_slack::{FakeSlack, Fault};
use crate::support::manual_clock::ManualClock;

async fn looked_at(slack: &FakeSlack) -> Vec<Finding> {
    set_up(slack, "xapp-1", &Setup::default()).await
}

async fn set_up(slack: &FakeSlack, app_token: &str, setup: &Setup) -> Vec<Finding> {
    let ingress = Ingress::Socket { app_token: app_token.to_owned().into(), connections: 1 };
    set_up_by(slack, ingress, setup).await
}

async fn set_up_by(slack: &FakeSlack, ingress: Ingress, setup: &Setup) -> Vec<Finding> {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut settings = slack.settings();
    settings.ingress = ingress;
    let web = Web::new(&settings.api, Arc::new(ManualClock::new())).unwrap();
    patiently(look(&settings, &web, &Kept::default(), setup)).await
}

fn all_scopes() -> String {
    SCOPES.map(|(scope, _)| scope).join(",")
}

#[tokio::test]
async fn a_bot_that_may_do_all_it_needs_is_well() {
    let slack = FakeSlack::start().await;
    slack.scopes_are(&all_scopes());
    let findings = looked_at(&slack).await;
    assert!(findings.iter().all(|finding| finding.ok), "{findings:#?}");
    assert_eq!(findings.len(), 4);
    assert!(findings[3].what.contains("SLACK_CONFIG_TOKEN"), "{findings:#?}");
    assert_eq!(findings[0].what, "the bot is U0BOT in T1");
}

#[tokio::test]
async fn each_lack_is_named_with_its_cure() {
    let slack = FakeSlack::start().await;
    slack.scopes_are(&all_scopes().replace("im:history,mpim", "mpim"));
    slack.will("apps.connections.open", Fault::Refuse("not_allowed_token_type"));
    let findings = looked_at(&slack).await;
    let lacks: Vec<_> = findings.iter().filter(|finding| !finding.ok).collect();
    assert_eq!(lacks.len(), 2, "{findings:#?}");
    assert!(lacks[0].what.contains("im:history, to hear direct messages"), "{lacks:#?}");
    assert!(lacks[0].cure.unwrap().contains("install the app again"));
    assert!(lacks[1].cure.unwrap().contains("connections:write"), "{lacks:#?}");
    slack.token_is(Some("invalid_auth"));
    let findings = looked_at(&slack).await;
    assert!(findings[0].cure.unwrap().contains("Bot User OAuth Token"), "{findings:#?}");
    assert!(!format!("{findings:?}").contains("xoxb-of"), "{findings:?}");
}

#[test]
fn the_manifest_asks_for_just_these_scopes() {
    let manifest = include_str!("../../../config/slack-manifest.yaml");
    let scopes = manifest.split("    bot:\n").nth(1).unwrap().split("settings:").next().unwrap();
    let asked: Vec<&str> =
        scopes.lines().filter_map(|line| line.trim().strip_prefix("- ")).collect();
    assert_eq!(asked, SCOPES.map(|(scope, _)| scope));
    let events = manifest.split("    bot_events:\n").nth(1).unwrap();
    let events = events.split("  interactivity:").next().unwrap();
    let asked: Vec<&str> =
        events.lines().filter_map(|line| line.trim().strip_prefix("- ")).collect();
    assert_eq!(asked, EVENTS.map(|(event, _)| event));
    assert!(manifest.contains("home_tab_enabled: true"));
}

fn manifest() -> Value {
    json!({
        "features": {
            "app_home": { "home_tab_enabled": true, "messages_tab_enabled": true,
                          "messages_tab_read_only_enabled": false },
            "slash_commands": [{ "command": "/other" }, { "command": "/dogwatch" }],
        },
        "settings": {
            "event_subscriptions": { "bot_events": EVENTS.map(|(event, _)| event) },
            "interactivity": { "is_enabled": true },
            "socket_mode_enabled": true,
        },
    })
}

#[tokio::test]
async fn how_the_app_is_set_up_is_compared_where_somebody_who_may_see_it_asks() {
    let slack = FakeSlack::start().await;
    slack.scopes_are(&all_scopes());
    let token = || Some("xoxe.xoxp-1-secret".to_owned().into());
    let lacks = async |app_token: &str, app: Option<&str>| {
        let setup = Setup { token: token(), app: app.map(str::to_owned) };
        let findings = set_up(&slack, app_token, &setup).await;
        assert!(!format!("{findings:?}").contains("secret"), "{findings:?}");
        let lacks = findings.into_iter().filter(|finding| !finding.ok);
        lacks.map(|lack| format!("{}: {}", lack.what, lack.cure.unwrap())).collect::<Vec<_>>()
    };
    slack.manifest_is("A1", manifest());
    // The app-level token says which app it is; else somebody has to.
    for (app_token, app) in [("xapp-1-A1-2-3", None), ("xapp-1", Some("A1"))] {
        assert_eq!(lacks(app_token, app).await, Vec::<String>::new());
    }
    let [unknown] = &lacks("xapp-1", None).await[..] else { panic!("not one lack") };
    assert!(unknown.contains("SLACK_APP_ID"), "{unknown}");
    // Another app than the token is for: it is said which was asked for, and where that is said.
    for (app_token, app) in [("xapp-1-A2-2-3", None), ("xapp-1", Some("A2"))] {
        let [other] = &lacks(app_token, app).await[..] else { panic!("not one lack") };
        assert!(other.contains("the app A2 ") && other.contains("app_not_eligible"), "{other}");
        assert!(other.contains("SLACK_APP_ID") && other.contains("12 hours"), "{other}");
    }
    slack.will("apps.manifest.export", Fault::Refuse("token_expired"));
    let [ended] = &lacks("xapp-1-A1-2-3", None).await[..] else { panic!("not one lack") };
    assert!(ended.contains("token_expired") && !ended.contains("SLACK_APP_ID"), "{ended}");
    for (pointer, value, said) in [
        ("/features/app_home/home_tab_enabled", json!(false), "\"Home Tab\""),
        ("/features/app_home/messages_tab_enabled", json!(false), "\"Messages Tab\""),
        ("/features/app_home/messages_tab_read_only_enabled", json!(true), "\"Messages Tab\""),
        ("/features/slash_commands/1/command", json!("/dog"), "\"Slash Commands\""),
        ("/settings/event_subscriptions/bot_events/5", json!("im"), "message.im, to hear direct"),
        ("/settings/interactivity", Value::Null, "\"Interactivity & Shortcuts\""),
        ("/settings/socket_mode_enabled", json!(false), "switch \"Socket Mode\" on"),
    ] {
        let mut given = manifest();
        *given.pointer_mut(pointer).unwrap() = value;
        slack.manifest_is("A1", given);
        let [lack] = &lacks("xapp-1-A1-2-3", None).await[..] else { panic!("{pointer}") };
        assert!(lack.contains(said), "{lack}");
    }
    slack.manifest_is("A1", Value::Null);
    assert_eq!(lacks("xapp-1-A1-2-3", None).await.len(), EVENTS.len() + 5);
}

#[tokio::test]
async fn where_events_come_by_requests_socket_mode_must_be_off() {
    let slack = FakeSlack::start().await;
    slack.scopes_are(&all_scopes());
    let setup = Setup { token: Some("xoxe.1".to_owned().into()), app: Some("A1".to_owned()) };
    let by_http = || Ingress::Http { signing_secret: "x".to_owned().into() };
    let mut given = manifest();
    slack.manifest_is("A1", given.clone());
    let findings = set_up_by(&slack, by_http(), &setup).await;
    let lacks: Vec<_> = findings.iter().filter(|finding| !finding.ok).collect();
    let [lack] = &lacks[..] else { panic!("{findings:#?}") };
    assert_eq!(lack.what, "Socket Mode is on, so no requests come");
    assert!(lack.cure.unwrap().contains("switch \"Socket Mode\" off"), "{lack:?}");
    given["settings"]["socket_mode_enabled"] = json!(false);
    slack.manifest_is("A1", given);
    let findings = set_up_by(&slack, by_http(), &setup).await;
    assert!(findings.iter().all(|finding| finding.ok), "{findings:#?}");
}
