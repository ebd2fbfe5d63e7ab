//! `[credentials]`, from raw to checked. Owns what its keys may say. Must not know who asks for a
//! credential.

use std::collections::BTreeMap;

use reqwest::header::HeaderName;
use secrecy::ExposeSecret as _;

use super::checked::Checking;
use super::raw::{RawCredential, RawRole};
use super::{Agent, Credential, Sandbox, agents};
use crate::core::egress::{CredentialName, Destination};
use crate::core::limits::{
    CREDENTIAL_VALUE_BYTES_MAX, CREDENTIALS_MAX, EGRESS_REQUESTS_PER_MINUTE,
    EGRESS_REQUESTS_PER_MINUTE_RANGE,
};
use crate::core::nearest::echo;

const HEADER: &str = "Authorization";
/// What a token of that header has before it, unless it is written otherwise.
const PREFIX: &str = "Bearer ";
/// What a proxy or the connection itself says with them.
const HEADERS_REFUSED: [&str; 9] = [
    "host",
    "connection",
    "content-length",
    "expect",
    "keep-alive",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Every credential, by name. One that cannot be used as it is written is left out.
pub(super) fn read(
    raw: &BTreeMap<String, RawCredential>,
    (agents, sandbox): (&[Agent], Sandbox),
    checking: &mut Checking<'_>,
) -> Vec<Credential> {
    if raw.len() > CREDENTIALS_MAX {
        let what = format!("there are {} of them", raw.len());
        checking.wrong("credentials", what, format!("At most {CREDENTIALS_MAX} are allowed."));
    }
    if sandbox == Sandbox::Off && !raw.is_empty() {
        checking.wrong(
            "credentials",
            "scripts run without a sandbox, so nothing would keep a secret from them",
            "Take `sandbox = \"off\"` out of [watch], or take [credentials] out.",
        );
        return vec![];
    }
    raw.iter().filter_map(|(name, raw)| credential(name, raw, agents, checking)).collect()
}

fn credential(
    name: &str,
    raw: &RawCredential,
    agents: &[Agent],
    checking: &mut Checking<'_>,
) -> Option<Credential> {
    let key = |part: &str| format!("credentials.{name}{part}");
    let checked = CredentialName::parse(name);
    if let Err(error) = &checked {
        checking.wrong(&key(""), error.to_string(), "Use lower case letters, digits, '-' and '_'.");
    }
    let to = host(&key(".host"), raw.host.as_deref(), checking);
    let (header, prefix) = header(&key, raw, checking);
    if raw.secret.is_none() {
        let cure = "Write for example secret = { env = \"GITHUB_TOKEN\" }.";
        checking.wrong(&key(".secret"), "it is missing", cure);
    }
    let secret = raw.secret.as_ref();
    let secret = secret.and_then(|reference| checking.secret(&key(".secret"), reference));
    let secret = secret.filter(|secret| {
        let fits = prefix.len() + secret.expose_secret().len() <= CREDENTIAL_VALUE_BYTES_MAX;
        if !fits {
            let cure = format!("At most {CREDENTIAL_VALUE_BYTES_MAX} bytes are sent.");
            checking.wrong(&key(".secret"), "the secret is too long", cure);
        }
        fits
    });
    if raw.agents.is_empty() {
        let cure = "Name the agents whose scripts may use it: agents = [\"dogwatch\"].";
        checking.wrong(&key(".agents"), "it is missing, so nobody could use it", cure);
    }
    let named = raw.agents.iter();
    let agents =
        named.filter_map(|one| agents::named(&key(".agents"), Some(one), agents, checking));
    let agents = agents.collect();
    let roles = raw.roles.clone().unwrap_or_else(|| vec![RawRole::Writable]);
    Some(Credential {
        name: checked.ok()?,
        to: to?,
        header,
        prefix,
        secret: secret?,
        agents,
        roles: roles.into_iter().map(agents::role_of).collect(),
        requests_per_minute: checking.whole32(
            &key(".requests_per_minute"),
            raw.requests_per_minute,
            EGRESS_REQUESTS_PER_MINUTE,
            EGRESS_REQUESTS_PER_MINUTE_RANGE,
        ),
    })
}

fn host(key: &str, written: Option<&str>, checking: &mut Checking<'_>) -> Option<Destination> {
    let Some(written) = written else {
        checking.wrong(key, "it is missing", "Name the one host that gets it.");
        return None;
    };
    if written.contains('*') {
        let cure = "Name one: a secret for many is as safe as the weakest of them.";
        checking.wrong(key, format!("{} is more than one host", echo(written)), cure);
        return None;
    }
    match Destination::parse(written) {
        Ok(to) => Some(to),
        Err(error) => {
            let cure = "Write a name, or a name and its port where that is not 443.";
            checking.wrong(key, error.to_string(), cure);
            None
        }
    }
}

fn header(
    key: &dyn Fn(&str) -> String,
    raw: &RawCredential,
    checking: &mut Checking<'_>,
) -> (String, String) {
    let header = checking.line(&key(".header"), raw.header.as_deref());
    let header = header.unwrap_or_else(|| HEADER.to_owned());
    let lower = header.to_ascii_lowercase();
    if HeaderName::from_bytes(header.as_bytes()).is_err() {
        let what = format!("{} is not a name of a header", echo(&header));
        checking.wrong(&key(".header"), what, "Use letters, digits and '-'.");
    } else if HEADERS_REFUSED.contains(&lower.as_str()) || lower.starts_with("proxy-") {
        let what = format!("{} belongs to the connection", echo(&header));
        checking.wrong(&key(".header"), what, "Name the header that the host reads the secret in.");
    }
    let usual = if header.eq_ignore_ascii_case(HEADER) { PREFIX } else { "" };
    let prefix = raw.prefix.as_deref().unwrap_or(usual);
    // As much a part of the header as the secret is.
    if !prefix.chars().all(|c| c == ' ' || c.is_ascii_graphic()) {
        let what = "it has a character that no header may have";
        checking.wrong(&key(".prefix"), what, "Use visible ASCII characters and spaces.");
    }
    (header, prefix.to_owned())
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use secrecy::ExposeSecret as _;

    use crate::config::{Config, ConfigError, check_with, load_with};
    use crate::core::policy::Role;

    const WHOLE: &str = "[credentials.github]\nhost = \"api.github.com\"\n\
        secret = { env = \"TOKEN\" }\nagents = [\"dogwatch\"]\n";

    fn environment(name: &str) -> Option<String> {
        match name {
            "HOME" => Some("/home/ada".into()),
            "TOKEN" => Some("hush-hush-1".into()),
            _ => None,
        }
    }

    fn load(config: &str) -> (tempfile::TempDir, Result<Config, ConfigError>) {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("dogwatch.toml");
        std::fs::write(&file, config).unwrap();
        let loaded = load_with(Some(&file), &environment);
        (dir, loaded)
    }

    #[test]
    fn a_credential_has_its_host_its_header_and_its_agents() {
        let (_dir, config) = load(WHOLE);
        let config = config.unwrap();
        let one = config.credentials.first().unwrap();
        assert_eq!((one.name.as_str(), one.to.to_string().as_str()), ("github", "api.github.com"));
        assert_eq!((one.header.as_str(), one.prefix.as_str()), ("Authorization", "Bearer "));
        assert_eq!(one.roles, [Role::Writable]);
        assert!(config.secrets().iter().any(|secret| secret.expose_secret() == "hush-hush-1"));
        assert!(!format!("{config:?}").contains("hush"));
        let (_dir, config) = load(&format!("{WHOLE}header = \"X-Api-Key\"\n"));
        assert_eq!(config.unwrap().credentials.first().unwrap().prefix, "");
    }

    #[test]
    fn every_mistake_is_named_with_its_cure() {
        let cases = [
            ("nothing", "[credentials.x]\n".to_owned()),
            ("bad name", WHOLE.replace("github]", "GitHub]")),
            ("many hosts", WHOLE.replace("api.github.com", "*.github.com")),
            ("a path", WHOLE.replace("api.github.com", "https://example.com/x")),
            ("no secret there", WHOLE.replace("TOKEN", "NO_TOKEN")),
            ("unknown agent", WHOLE.replace("\"dogwatch\"", "\"dogwach\"")),
            ("nobody", WHOLE.replace("\"dogwatch\"", "")),
            ("the connection's own", format!("{WHOLE}header = \"Proxy-Authorization\"\n")),
            ("no header at all", format!("{WHOLE}header = \"a b\"\n")),
            ("two lines", format!("{WHOLE}prefix = \"a\\nb\"\n")),
            ("no budget", format!("{WHOLE}requests_per_minute = 0\n")),
            ("no sandbox", format!("{WHOLE}[watch]\nsandbox = \"off\"\n")),
            ("addresses", "[watch.network]\naddresses = [\"10.0.0.0/99\", \"x\"]\n".to_owned()),
            ("certificates", "[watch.network]\nca_file = \"none.pem\"\n".to_owned()),
        ];
        let mut told = String::new();
        for (name, config) in cases {
            let (dir, loaded) = load(&config);
            let error = loaded.expect_err(name).to_string();
            let error = error.replace(&format!("{}/", dir.path().display()), "");
            assert!(!error.contains("hush"), "{name}");
            writeln!(told, "## {name}\n{error}").unwrap();
        }
        insta::assert_snapshot!(told);
    }

    #[test]
    fn hosts_of_an_agent_are_rules_and_without_a_sandbox_somebody_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("dogwatch.toml");
        std::fs::create_dir(dir.path().join("agents")).unwrap();
        let agent = |hosts: &str| {
            let text = format!("name = \"dogwatch\"\nhosts = [{hosts}]\n");
            std::fs::write(dir.path().join("agents/dogwatch.toml"), text).unwrap();
        };
        std::fs::write(&file, "").unwrap();
        agent("\"API.github.com\", \"*.example.com:8443\"");
        let config = load_with(Some(&file), &environment).unwrap();
        let hosts: Vec<String> =
            config.default_agent().unwrap().hosts.iter().map(ToString::to_string).collect();
        assert_eq!(hosts, ["api.github.com", "*.example.com:8443"]);
        std::fs::write(&file, "[watch]\nsandbox = \"off\"\n").unwrap();
        let report = check_with(Some(&file), &environment);
        assert!(report.ok && report.to_text().contains("nothing holds a script to them"));
        agent("\"http://x/\", \"*.com\"");
        let error = load_with(Some(&file), &environment).unwrap_err();
        assert_eq!(error.problems.len(), 2, "{error}");
    }
}
