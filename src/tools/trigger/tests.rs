use std::fmt::Write as _;

use super::*;
use crate::core::egress::{Access, CredentialName, Destination, Grant, HostRule, Policy};
use crate::core::policy::Role;
use crate::core::reach;

const CALL: &str = r#"{"name":"n","python":"pass","timeout_seconds":5"#;

fn wired(sandboxed: bool, networked: bool) -> Tool {
    tool(&Wiring { sandboxed, networked, ..Wiring::all() })
}

fn rules(texts: &[&str]) -> Vec<HostRule> {
    texts.iter().map(|text| HostRule::parse(text).unwrap()).collect()
}

#[test]
fn hosts_and_credentials_are_arguments_where_an_agent_may_ask_for_them() {
    let tool = wired(true, true);
    let call = format!(
        r#"{CALL},"hosts":[" API.github.com. ","*.example.com:8443"],"credentials":["github"]}}"#
    );
    let Ok(Action::StartScript(start)) = tool.parse(&call) else { panic!("{call}") };
    assert_eq!(start.hosts, rules(&["api.github.com", "*.example.com:8443"]));
    assert_eq!(start.credentials, [CredentialName::parse("github").unwrap()]);
    for none in ["", r#","hosts":null,"credentials":null"#, r#","hosts":[],"credentials":[]"#] {
        let call = format!("{CALL}{none}}}");
        let Ok(Action::StartScript(start)) = tool.parse(&call) else { panic!("{call}") };
        assert!(start.hosts.is_empty() && start.credentials.is_empty());
    }
    let many = vec!["a.example.com"; EGRESS_HOSTS_MAX + 1];
    let many = format!(r#"{CALL},"hosts":{}}}"#, serde_json::to_string(&many).unwrap());
    let error = tool.parse(&many).unwrap_err();
    assert_eq!((error.code, error.field.as_deref()), (Code::TooLong, Some("hosts")));
}

#[test]
fn where_there_are_none_the_error_says_why_and_the_schema_has_none() {
    let mut told = String::new();
    for (name, tool) in [("no sandbox", wired(false, true)), ("no hosts", wired(true, false))] {
        let properties = tool.spec().parameters["properties"].as_object().unwrap();
        assert!(!properties.contains_key("hosts") && !properties.contains_key("credentials"));
        for argument in ["hosts", "credentials"] {
            let error = tool.parse(&format!(r#"{CALL},"{argument}":["x"]}}"#)).unwrap_err();
            assert_eq!(error.code, Code::UnknownField);
            writeln!(told, "{name}, {argument}: {} {}", error.message, error.hint).unwrap();
        }
    }
    insta::assert_snapshot!(told);
}

#[test]
fn each_refusal_names_what_is_allowed_and_how_more_is_had() {
    let grant = |name: &str, to: &str, agent: &str| Grant {
        name: CredentialName::parse(name).unwrap(),
        to: Destination::parse(to).unwrap(),
        agents: vec![agent.to_owned()],
        roles: vec![Role::Writable],
    };
    let grants = [
        grant("github", "api.github.com", "ops"),
        grant("github-2", "api.github.com", "ops"),
        grant("payroll", "pay.example.com", "finance"),
    ];
    let policy = reach::policy("ops", Role::Writable, &rules(&["*.example.com"]), &grants);
    let names = |texts: &[&str]| -> Vec<CredentialName> {
        texts.iter().map(|text| CredentialName::parse(text).unwrap()).collect()
    };
    let cases: [(&str, &Policy, Access); 5] = [
        ("another host", &policy, reach::wish(&policy, rules(&["evil.example.net"]), vec![])),
        ("all below more", &policy, reach::wish(&policy, rules(&["*.github.com"]), vec![])),
        ("somebody else's", &policy, reach::wish(&policy, vec![], names(&["payroll"]))),
        ("misspelt", &policy, reach::wish(&policy, vec![], names(&["gihub"]))),
        ("two for one", &policy, reach::wish(&policy, vec![], names(&["github", "github-2"]))),
    ];
    let mut told = String::new();
    for (name, policy, wanted) in cases {
        let refused = policy.judge("ops", Role::Writable, &wanted).unwrap_err();
        let error = not_allowed(&refused);
        assert!(!error.retryable && !error.message.contains("finance"), "{name}");
        writeln!(told, "## {name}\n{}: {}\n{}", error.field.unwrap(), error.message, error.hint)
            .unwrap();
    }
    insta::assert_snapshot!(told);
}
