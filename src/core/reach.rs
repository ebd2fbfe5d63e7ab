//! What a script gets of the network, from the wish in a call to what is left of it after a change
//! of the configuration. Owns what a credential implies, and the words for what an agent may ask.
//! Must not know where any of it is written down, nor a secret.

use std::fmt::Write as _;

use super::egress::{Access, CredentialName, Destination, Grant, HostRule, Policy};
use super::policy::Role;

/// What an agent may ask for in this role: the hosts written for it and those of its credentials.
pub fn policy(agent: &str, role: Role, hosts: &[HostRule], grants: &[Grant]) -> Policy {
    let mut policy = Policy { hosts: hosts.to_vec(), grants: grants.to_vec() };
    let implied: Vec<HostRule> = policy.granted(agent, role).filter_map(rule_of).collect();
    for rule in implied {
        if !policy.hosts.iter().any(|own| own.covers(&rule)) {
            policy.hosts.push(rule);
        }
    }
    policy
}

/// The wish of a call: each thing once, and with a credential the host that it is for.
pub fn wish(policy: &Policy, hosts: Vec<HostRule>, credentials: Vec<CredentialName>) -> Access {
    let mut access = Access::default();
    for host in hosts {
        if !access.hosts.contains(&host) {
            access.hosts.push(host);
        }
    }
    for name in credentials {
        if access.credentials.contains(&name) {
            continue;
        }
        let grant = policy.grants.iter().find(|grant| grant.name == name);
        if let Some(grant) = grant.filter(|grant| !reaches(&access.hosts, &grant.to)) {
            access.hosts.extend(rule_of(grant));
        }
        access.credentials.push(name);
    }
    access
}

/// What an execution may still have of what it was allowed once, and what it may not, by name.
pub fn left(policy: &Policy, agent: &str, role: Role, once: &Access) -> (Access, Vec<String>) {
    let mut taken = Vec::new();
    let mut access = Access::default();
    for host in &once.hosts {
        if policy.hosts.iter().any(|own| own.covers(host)) {
            access.hosts.push(host.clone());
        } else {
            taken.push(host.to_string());
        }
    }
    for name in &once.credentials {
        let grant = policy.granted(agent, role).find(|grant| grant.name == *name);
        if grant.is_some_and(|grant| reaches(&access.hosts, &grant.to)) {
            access.credentials.push(name.clone());
        } else {
            taken.push(format!("credential {name}"));
        }
    }
    (access, taken)
}

/// What the model is told that it may ask for.
pub fn told(policy: &Policy, agent: &str, role: Role) -> String {
    let hosts: Vec<String> = policy.hosts.iter().map(|host| format!("`{host}`")).collect();
    let mut text = format!("Hosts that you may name: {}.", hosts.join(", "));
    let own = policy.granted(agent, role);
    let own: Vec<String> = own.map(|one| format!("`{}` (for `{}`)", one.name, one.to)).collect();
    if !own.is_empty() {
        let _ = write!(text, "\nCredentials that you may name: {}.", own.join(", "));
    }
    text
}

fn reaches(hosts: &[HostRule], to: &Destination) -> bool {
    hosts.iter().any(|rule| rule.matches(&to.host, to.port))
}

fn rule_of(grant: &Grant) -> Option<HostRule> {
    HostRule::parse(&grant.to.to_string()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const AGENT: &str = "ops";

    fn rules(texts: &[&str]) -> Vec<HostRule> {
        texts.iter().map(|text| HostRule::parse(text).unwrap()).collect()
    }

    fn name(text: &str) -> CredentialName {
        CredentialName::parse(text).unwrap()
    }

    fn grant(text: &str, to: &str, roles: &[Role]) -> Grant {
        Grant {
            name: name(text),
            to: Destination::parse(to).unwrap(),
            agents: vec![AGENT.to_owned()],
            roles: roles.to_vec(),
        }
    }

    fn all() -> Policy {
        let grants = [
            grant("github", "api.github.com", &[Role::Writable]),
            grant("ci", "ci.example.com:8443", &[Role::Writable]),
            grant("other", "other.example.net", &[Role::ReadOnly]),
        ];
        policy(AGENT, Role::Writable, &rules(&["*.example.com"]), &grants)
    }

    #[test]
    fn a_credential_brings_its_host_and_only_to_whom_it_is_granted() {
        let policy = all();
        assert_eq!(
            policy.hosts,
            rules(&["*.example.com", "api.github.com", "ci.example.com:8443"])
        );
        let access =
            wish(&policy, rules(&["a.example.com", "a.example.com"]), vec![name("github")]);
        assert_eq!(access.hosts, rules(&["a.example.com", "api.github.com"]));
        assert_eq!(policy.judge(AGENT, Role::Writable, &access), Ok(()));
        // One that is there for others alone.
        let access = wish(&policy, vec![], vec![name("other")]);
        assert!(policy.judge(AGENT, Role::Writable, &access).is_err());
        // What is named already is not named again.
        let access =
            wish(&policy, rules(&["api.github.com"]), vec![name("github"), name("github")]);
        assert_eq!((access.hosts.len(), access.credentials.len()), (1, 1));
    }

    #[test]
    fn what_was_taken_away_is_left_out_by_name_and_with_a_host_its_credential() {
        let once = wish(&all(), rules(&["a.example.com"]), vec![name("github"), name("ci")]);
        assert_eq!(left(&all(), AGENT, Role::Writable, &once), (once.clone(), vec![]));
        // In a narrower role, and as another agent.
        for (agent, role) in [(AGENT, Role::ReadOnly), ("else", Role::Writable)] {
            let (access, taken) = left(&all(), agent, role, &once);
            assert_eq!(access.credentials, []);
            assert_eq!(taken, ["credential github", "credential ci"]);
        }
        let narrow = policy(AGENT, Role::Writable, &rules(&["b.example.com"]), &[]);
        let (access, taken) = left(&narrow, AGENT, Role::Writable, &once);
        assert!(access.is_none());
        assert_eq!(taken.len(), 5, "{taken:?}");
    }

    #[test]
    fn the_model_is_told_its_own_and_nothing_else() {
        let text = told(&all(), AGENT, Role::Writable);
        assert!(text.contains("`github` (for `api.github.com`)") && !text.contains("other"));
        let nobody = told(&all(), "else", Role::Writable);
        assert!(!nobody.contains("Credentials"));
    }
}
