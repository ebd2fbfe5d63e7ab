//! What the doctor says of Slack, each lack with its cure.

use std::sync::Arc;

use dogwatch::slack::checkup::{Finding, Kept, SCOPES, look};
use dogwatch::slack::web::Web;

use super::patiently;
use crate::support::fake_slack::{FakeSlack, Fault};
use crate::support::manual_clock::ManualClock;

async fn looked_at(slack: &FakeSlack) -> Vec<Finding> {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let settings = slack.settings();
    let web = Web::new(&settings.api, Arc::new(ManualClock::new())).unwrap();
    patiently(look(&settings, &web, &Kept::default())).await
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
    assert!(findings[3].what.contains("app_home_opened"), "{findings:#?}");
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
    let heard = ["app_home_opened", "app_mention", "message.channels", "message.groups"];
    for event in heard.into_iter().chain(["message.im"]) {
        assert!(manifest.contains(&format!("- {event}\n")), "{event}");
    }
    assert!(manifest.contains("home_tab_enabled: true"));
}
