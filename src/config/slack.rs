//! `[slack]`, from raw to checked. Owns what its keys may say. Must not know what Slack is asked.

use std::collections::BTreeMap;

use secrecy::{ExposeSecret as _, SecretString};

use super::checked::Checking;
use super::raw::{RawSlack, RawSlackIngress, RawSlackMode, RawSlackStreaming};
use super::secret::SecretRef;
use super::{SlackConfig, SlackIngress, SlackMode, SlackStreaming};
use crate::core::nearest::echo;

const API: &str = "https://slack.com/api/";

/// `None` where Slack is not asked for, or cannot be used as it is written.
pub(super) fn slack(raw: Option<&RawSlack>, checking: &mut Checking<'_>) -> Option<SlackConfig> {
    let raw = raw?;
    let bot_token = token(checking, ("bot_token", "xoxb-"), raw.bot_token.as_ref());
    let connections = checking.whole("slack.connections", raw.connections, 2, 1..=10);
    let ingress = match raw.ingress.unwrap_or(RawSlackIngress::Socket) {
        RawSlackIngress::Socket => token(checking, ("app_token", "xapp-"), raw.app_token.as_ref())
            .map(|app_token| {
                let connections = u8::try_from(connections).unwrap_or(1);
                SlackIngress::Socket { app_token, connections }
            }),
        RawSlackIngress::Http => {
            token(checking, ("signing_secret", ""), raw.signing_secret.as_ref())
                .map(|signing_secret| SlackIngress::Http { signing_secret })
        }
    };
    let channels = channels(raw, checking);
    let bots = ids(checking, "bots", &raw.bots, &['B', 'U']);
    let guests = ids(checking, "guests", &raw.guests, &['U', 'W']);
    let api = api(raw.api.as_deref(), checking);
    let mode = raw.mode.map_or(SlackMode::Thread, mode);
    let streaming = raw.streaming.map_or(SlackStreaming::Auto, streaming);
    Some(SlackConfig {
        api,
        bot_token: bot_token?,
        ingress: ingress?,
        mode,
        channels,
        streaming,
        bots,
        guests,
    })
}

const fn mode(raw: RawSlackMode) -> SlackMode {
    match raw {
        RawSlackMode::Mention => SlackMode::Mention,
        RawSlackMode::Thread => SlackMode::Thread,
        RawSlackMode::All => SlackMode::All,
    }
}

const fn streaming(raw: RawSlackStreaming) -> SlackStreaming {
    match raw {
        RawSlackStreaming::Auto => SlackStreaming::Auto,
        RawSlackStreaming::Edit => SlackStreaming::Edit,
        RawSlackStreaming::Off => SlackStreaming::Off,
    }
}

/// A secret that must be there, and begins as Slack's secrets of its sort do.
fn token(
    checking: &mut Checking<'_>,
    (name, prefix): (&str, &str),
    given: Option<&SecretRef>,
) -> Option<SecretString> {
    let key = format!("slack.{name}");
    let Some(given) = given else {
        let variable = format!("SLACK_{}", name.to_uppercase());
        let cure = format!("Write {name} = {{ env = \"{variable}\" }}, for example.");
        checking.wrong(&key, "it is missing, and Slack needs it", cure);
        return None;
    };
    let secret = checking.secret(&key, given)?;
    if secret.expose_secret().starts_with(prefix) {
        return Some(secret);
    }
    let what = format!("it does not begin with {prefix}, so it is another of Slack's secrets");
    let cure = match prefix {
        "xoxb-" => "Take the Bot User OAuth Token from the page \"OAuth & Permissions\".",
        _ => "Take an App-Level Token with connections:write from the page \"Basic Information\".",
    };
    checking.wrong(&key, what, cure);
    None
}

fn is_id(id: &str, first: &[char]) -> bool {
    let letters = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit();
    id.starts_with(first) && id.len() > 1 && id.len() <= 32 && id.chars().all(letters)
}

fn channels(raw: &RawSlack, checking: &mut Checking<'_>) -> BTreeMap<String, SlackMode> {
    for id in raw.channels.keys().filter(|id| !is_id(id, &['C', 'G'])) {
        let what = format!("{} is not the id of a channel", echo(id));
        let cure = "Names change, ids stay: open the channel's details, the id is at the bottom.";
        checking.wrong("slack.channels", what, cure);
    }
    raw.channels.iter().map(|(id, raw)| (id.clone(), mode(*raw))).collect()
}

fn ids(checking: &mut Checking<'_>, name: &str, given: &[String], first: &[char]) -> Vec<String> {
    for id in given.iter().filter(|id| !is_id(id, first)) {
        let what = format!("{} is not an id of Slack's", echo(id));
        let cure = "Open the profile, choose \"Copy member ID\".";
        checking.wrong(&format!("slack.{name}"), what, cure);
    }
    given.to_vec()
}

/// Tokens are sent there, so it is https, or this machine.
fn api(given: Option<&str>, checking: &mut Checking<'_>) -> String {
    let Some(written) = checking.line("slack.api", given) else { return API.to_owned() };
    let fine = reqwest::Url::parse(&written).is_ok_and(|url| {
        let host = url.host_str().unwrap_or_default();
        let here = host == "localhost"
            || host
                .trim_matches(['[', ']'])
                .parse()
                .is_ok_and(|ip: std::net::IpAddr| ip.is_loopback());
        let plain = url.username().is_empty() && url.password().is_none() && url.query().is_none();
        plain && url.path().ends_with('/') && (url.scheme() == "https" || here)
    });
    if !fine {
        let cure = "Write an https URL that ends in /, or leave the key out: it is for tests.";
        checking.wrong("slack.api", "Slack's Web API cannot be there", cure);
        return API.to_owned();
    }
    written
}
