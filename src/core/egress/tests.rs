use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use proptest::prelude::*;

use super::*;
use crate::core::policy::Role;
use crate::core::time::Timestamp;

fn rule(text: &str) -> HostRule {
    HostRule::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn host(text: &str) -> Host {
    Host::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn place(text: &str) -> Destination {
    Destination::parse(text).unwrap()
}

#[test]
fn a_rule_has_one_form() {
    for (written, read) in [
        ("api.example.com", "api.example.com"),
        ("API.Example.COM.", "api.example.com"),
        ("api.example.com:8443", "api.example.com:8443"),
        ("*.Example.com", "*.example.com"),
        ("*.example.com:8080", "*.example.com:8080"),
        ("xn--bcher-kva.example", "xn--bcher-kva.example"),
        ("my_host", "my_host"),
        ("192.0.2.1", "192.0.2.1"),
        ("192.0.2.1:81", "192.0.2.1:81"),
        ("[2001:DB8::1]:81", "[2001:db8::1]:81"),
        ("[::ffff:192.0.2.1]", "192.0.2.1"),
    ] {
        assert_eq!(rule(written).to_string(), read, "{written}");
        assert_eq!(rule(read).to_string(), read, "{read}");
    }
}

#[test]
fn what_is_no_rule_is_refused_in_words() {
    for (written, says) in [
        ("", "is empty"),
        ("*", "stands only in front"),
        ("*.com", "stands only in front"),
        ("api.*.com", "stands only in front"),
        ("*.*.com", "stands only in front"),
        ("*api.example.com", "stands only in front"),
        ("*.0.0.1", "odd form"),
        ("https://api.example.com", "more than a host"),
        ("api.example.com/v1", "more than a host"),
        ("api.example.com:443/v1", "more than a host"),
        ("user@api.example.com", "user or password"),
        ("api.example.com:0", "no port"),
        ("api.example.com:65536", "no port"),
        ("api.example.com:+80", "no port"),
        ("api.example.com:", "no port"),
        ("api..example.com", "1 to 63"),
        ("-api.example.com", "no host name"),
        ("büch.example", "no host name"),
        ("a b.example", "no host name"),
        ("a\nb.example", "no host name"),
        ("2130706433", "odd form"),
        ("0x7f000001", "odd form"),
        ("0x7f.1", "odd form"),
        ("0177.0.0.1", "odd form"),
        ("127.1", "odd form"),
        ("1.2.3.4.5", "odd form"),
        ("256.0.0.1", "odd form"),
        ("api.0x", "odd form"),
        ("[::1%25eth0]", "odd form"),
        ("[127.0.0.1]", "odd form"),
        ("[::1", "no port"),
        ("::1", "no port"),
    ] {
        let error = HostRule::parse(written).expect_err(written).to_string();
        assert!(error.contains(says), "{written}: {error}");
    }
    let long = format!("{}.example", "a".repeat(64));
    assert!(HostRule::parse(&long).is_err());
    assert!(HostRule::parse(&"a.".repeat(127)).is_ok_and(|rule| rule.to_string().len() == 253));
    assert!(HostRule::parse(&"a.".repeat(128)).is_err());
}

#[test]
fn a_rule_matches_its_hosts_and_ports_only() {
    for (written, name, port, matches) in [
        ("example.com", "example.com", 80, true),
        ("example.com", "EXAMPLE.com.", 443, true),
        ("example.com", "example.com", 8080, false),
        ("example.com:8080", "example.com", 8080, true),
        ("example.com:8080", "example.com", 443, false),
        ("example.com", "www.example.com", 443, false),
        ("example.com", "example.com.evil.test", 443, false),
        ("*.example.com", "www.example.com", 443, true),
        ("*.example.com", "a.b.example.com", 443, true),
        ("*.example.com", "example.com", 443, false),
        ("*.example.com", "badexample.com", 443, false),
        ("*.example.com", "example.com.evil.test", 443, false),
        ("*.example.com", "[2001:db8::1]", 443, false),
        ("192.0.2.1", "192.0.2.1", 80, true),
        ("192.0.2.1", "[::ffff:192.0.2.1]", 80, true),
        ("[::1]:81", "[0:0::1]", 81, true),
    ] {
        assert_eq!(rule(written).matches(&host(name), port), matches, "{written} {name}:{port}");
    }
}

#[test]
fn a_policy_covers_what_it_contains() {
    for (policy, wanted, covers) in [
        ("*.example.com", "api.example.com", true),
        ("*.example.com", "*.api.example.com", true),
        ("*.example.com", "*.example.com", true),
        ("*.example.com", "example.com", false),
        ("*.api.example.com", "*.example.com", false),
        ("api.example.com", "*.example.com", false),
        ("api.example.com", "api.example.com:443", true),
        ("api.example.com", "api.example.com:8443", false),
        ("api.example.com:443", "api.example.com", false),
        ("api.example.com:443", "api.example.com:443", true),
        ("*.example.com", "192.0.2.1", false),
    ] {
        assert_eq!(rule(policy).covers(&rule(wanted)), covers, "{policy} over {wanted}");
    }
}

fn names() -> impl Strategy<Value = String> {
    "(\\*\\.)?(a\\.){0,2}ex\\.(com|b)(:(80|443))?"
}

proptest! {
    /// What a policy covers it also lets through, whatever is asked for.
    #[test]
    fn who_covers_matches_whatever_the_other_matches(
        one in names(), other in names(), name in "(a\\.){0,3}ex\\.(com|b)",
        port in prop::sample::select(vec![80_u16, 443]),
    ) {
        let (one, other, name) = (rule(&one), rule(&other), host(&name));
        let covered = one.covers(&other) && other.matches(&name, port);
        prop_assert!(!covered || one.matches(&name, port));
    }

    /// Reading what was written changes nothing, and nothing makes it fall over.
    #[test]
    fn a_rule_is_read_back(text in "[a-zA-Z0-9.*:\\[\\]@/_\\- ]{0,24}") {
        if let Ok(read) = HostRule::parse(&text) {
            prop_assert_eq!(HostRule::parse(&read.to_string()), Ok(read));
        }
    }

    /// No form of an address of IPv4 leads where the address itself may not be reached.
    #[test]
    fn attack_no_form_of_a_closed_address_is_open(bits: u32, block in 0_usize..8) {
        let bits = match block {
            0 => 0x7f00_0000 | bits >> 8,
            1 => 0x0a00_0000 | bits >> 8,
            2 => 0xac10_0000 | bits >> 12,
            3 => 0xc0a8_0000 | bits >> 16,
            4 => 0xa9fe_0000 | bits >> 16,
            5 => 0x6440_0000 | bits >> 10,
            _ => bits,
        };
        let v4 = Ipv4Addr::from_bits(bits);
        let judged = judge_address(IpAddr::V4(v4), &[]);
        let [high, low] = [(bits >> 16) as u16, (bits & 0xffff) as u16];
        for v6 in [
            v4.to_ipv6_mapped(),
            Ipv6Addr::new(0, 0, 0, 0, 0xffff, 0, high, low),
            Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, high, low),
            Ipv6Addr::new(0x2002, high, low, 0, 0, 0, 0, 1),
        ] {
            let of_form = judge_address(IpAddr::V6(v6), &[]);
            prop_assert!(judged.is_ok() || of_form.is_err(), "{v6} of {v4}");
        }
    }
}

#[test]
fn only_public_addresses_are_open() {
    for (address, closed) in [
        ("127.0.0.1", Some(Closed::Loopback)),
        ("127.255.255.254", Some(Closed::Loopback)),
        ("10.1.2.3", Some(Closed::Private)),
        ("172.31.255.255", Some(Closed::Private)),
        ("172.32.0.1", None),
        ("192.168.0.1", Some(Closed::Private)),
        ("100.64.0.1", Some(Closed::Private)),
        ("100.100.100.200", Some(Closed::Private)),
        ("100.128.0.1", None),
        ("169.254.169.254", Some(Closed::LinkLocal)),
        ("168.63.129.16", Some(Closed::Metadata)),
        ("0.0.0.0", Some(Closed::NoHost)),
        ("0.1.2.3", Some(Closed::NoHost)),
        ("224.0.0.1", Some(Closed::NoHost)),
        ("255.255.255.255", Some(Closed::NoHost)),
        ("192.0.0.192", Some(Closed::Reserved)),
        ("192.0.2.1", Some(Closed::Reserved)),
        ("198.18.0.1", Some(Closed::Reserved)),
        ("198.51.100.1", Some(Closed::Reserved)),
        ("203.0.113.1", Some(Closed::Reserved)),
        ("240.0.0.1", Some(Closed::Reserved)),
        ("1.1.1.1", None),
        ("::1", Some(Closed::Loopback)),
        ("::", Some(Closed::NoHost)),
        ("::127.0.0.1", Some(Closed::Loopback)),
        ("::ffff:169.254.169.254", Some(Closed::LinkLocal)),
        ("::ffff:0:10.0.0.1", Some(Closed::Private)),
        ("64:ff9b::7f00:1", Some(Closed::Loopback)),
        ("64:ff9b:1::1.1.1.1", Some(Closed::Private)),
        ("2002:7f00:1::", Some(Closed::Loopback)),
        ("2001:0:1::1", Some(Closed::Reserved)),
        ("2001:db8::1", Some(Closed::Reserved)),
        ("3fff::1", Some(Closed::Reserved)),
        ("fd00:ec2::254", Some(Closed::Private)),
        ("fe80::1", Some(Closed::LinkLocal)),
        ("fec0::1", Some(Closed::Private)),
        ("ff02::1", Some(Closed::NoHost)),
        ("100::1", Some(Closed::Reserved)),
        ("2606:4700::1111", None),
    ] {
        let judged = judge_address(address.parse().unwrap(), &[]).err();
        assert_eq!(judged, closed, "{address}");
    }
}

#[test]
fn what_is_listed_is_open_in_every_form() {
    let listed = |texts: &[&str]| -> Vec<AddressRule> {
        texts.iter().map(|text| AddressRule::parse(text).unwrap()).collect()
    };
    for (rules, address, open) in [
        (&["10.0.0.0/8"][..], "10.200.0.1", true),
        (&["10.0.0.0/8"], "::ffff:10.200.0.1", true),
        (&["10.0.0.0/8"], "11.0.0.1", true),
        (&["10.0.0.0/8"], "192.168.0.1", false),
        (&["127.0.0.1"], "127.0.0.2", false),
        (&["127.0.0.1", "::1"], "::1", true),
        (&["fd00::/8"], "fd12::1", true),
        (&["fd00::/8"], "fe80::1", false),
        (&["0.0.0.0/0"], "169.254.169.254", true),
        (&["0.0.0.0/0"], "fd00::1", false),
    ] {
        let judged = judge_address(address.parse().unwrap(), &listed(rules));
        assert_eq!(judged.is_ok(), open, "{address} by {rules:?}");
    }
    for wrong in
        ["", "10.0.0.1/8", "10.0.0.0/33", "10.0.0.0/+8", "10.0.0.0/", "localhost", "::/129"]
    {
        assert!(AddressRule::parse(wrong).is_err(), "{wrong}");
    }
    for text in ["10.0.0.0/8", "127.0.0.1", "fd00::/8", "::1"] {
        assert_eq!(AddressRule::parse(text).unwrap().to_string(), text);
    }
}

fn policy() -> Policy {
    let grant = |name: &str, to: &str, roles: &[Role]| Grant {
        name: CredentialName::parse(name).unwrap(),
        to: place(to),
        agents: vec!["watcher".to_owned()],
        roles: roles.to_vec(),
    };
    Policy {
        hosts: vec![rule("*.example.com"), rule("build.test:8443")],
        grants: vec![
            grant("github", "api.example.com", &Role::ALL),
            grant("github-2", "api.example.com", &Role::ALL),
            grant("deploy", "build.test:8443", &[Role::Writable]),
        ],
    }
}

fn access(hosts: &[&str], credentials: &[&str]) -> Access {
    Access {
        hosts: hosts.iter().map(|text| rule(text)).collect(),
        credentials: credentials.iter().map(|c| CredentialName::parse(c).unwrap()).collect(),
    }
}

#[test]
fn an_agent_gets_what_its_policy_has() {
    let policy = policy();
    let judge = |role, hosts: &[&str], credentials: &[&str]| {
        policy.judge("watcher", role, &access(hosts, credentials)).map_err(|e| e.to_string())
    };
    assert_eq!(judge(Role::ReadOnly, &[], &[]), Ok(()));
    assert_eq!(judge(Role::ReadOnly, &["api.example.com"], &["github"]), Ok(()));
    assert_eq!(judge(Role::Writable, &["build.test:8443"], &["deploy"]), Ok(()));
    for (hosts, credentials, says) in [
        (&["other.test"][..], &[][..], "may not reach other.test; it may reach *.example.com, b"),
        (&["*.com.example"], &[], "may not reach *.com.example"),
        (&["api.example.com"], &["githup"], "did you mean github?"),
        (&["www.example.com"], &["github"], "is for api.example.com; name that in hosts too"),
        (&["build.test:8443"], &["deploy"], "has no credential deploy; it has github, github-2"),
        (&["api.example.com"], &["github", "github-2"], "are both for api.example.com"),
    ] {
        let error = judge(Role::ReadOnly, hosts, credentials).expect_err(says);
        assert!(error.contains(says), "{error}");
    }
    let other = policy.judge("other", Role::Writable, &access(&["a.example.com"], &["github"]));
    assert!(other.unwrap_err().to_string().contains("it has none"));
    let none = Policy::default().judge("watcher", Role::Writable, &access(&["a.test"], &[]));
    assert_eq!(none, Err(AccessError::NoNetwork));
    let many: Vec<String> = (0..33).map(|n| format!("h{n}.example.com")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    assert!(judge(Role::Writable, &many, &[]).unwrap_err().contains("33 hosts are too many"));
}

#[test]
fn a_wish_is_small_and_read_back() {
    let wish = access(&["*.example.com:81"], &["github"]);
    let text = serde_json::to_string(&wish).unwrap();
    assert_eq!(text, r#"{"hosts":["*.example.com:81"],"credentials":["github"]}"#);
    assert_eq!(serde_json::from_str::<Access>(&text).unwrap(), wish);
    assert_eq!(serde_json::to_string(&Access::default()).unwrap(), "{}");
    assert!(serde_json::from_str::<Access>(r#"{"hosts":["*"]}"#).is_err());
    assert!(serde_json::from_str::<Access>(r#"{"credentials":["A"]}"#).is_err());
}

fn asked<'a>(method: &'a str, scheme: Option<&'a str>, authority: &'a str) -> Asked<'a> {
    Asked { method, scheme, authority: Some(authority) }
}

#[test]
fn a_request_has_one_way() {
    let hosts = [rule("api.example.com"), rule("*.corp.test:8443"), rule("plain.test:81")];
    let lent = [place("api.example.com"), place("ci.corp.test:8443")];
    let lent_to = |at: usize| Way::Lent { to: lent[at].clone(), credential: at };
    let plain = |text: &str| Way::Plain(place(text));
    for (asked, way_out) in [
        (asked("GET", Some("http"), "api.example.com"), lent_to(0)),
        (asked("GET", Some("HTTP"), "API.example.com.:80"), lent_to(0)),
        (asked("GET", Some("http"), "api.example.com:443"), lent_to(0)),
        (asked("GET", Some("http"), "ci.corp.test"), lent_to(1)),
        (asked("GET", Some("http"), "ci.corp.test:8443"), lent_to(1)),
        (asked("POST", Some("http"), "x.corp.test:8443"), plain("x.corp.test:8443")),
        (asked("CONNECT", None, "api.example.com:443"), Way::Tunnel(place("api.example.com"))),
        (asked("CONNECT", None, "x.corp.test:8443"), Way::Tunnel(place("x.corp.test:8443"))),
    ] {
        assert_eq!(way(&hosts, &lent, asked), Ok(way_out), "{asked:?}");
    }
    for (asked, says) in [
        (
            asked("GET", Some("http"), "ci.corp.test:81"),
            "ci.corp.test:81 is not in this watcher's hosts",
        ),
        (asked("GET", Some("http"), "evil.example.com"), "evil.example.com:80 is not in"),
        (asked("CONNECT", None, "api.example.com:22"), "api.example.com:22 is not in"),
        (asked("CONNECT", None, "evil.test"), "evil.test:443 is not in"),
        (asked("GET", Some("https"), "api.example.com"), "CONNECT for https"),
        (asked("GET", None, "api.example.com"), "this is a proxy"),
        (asked("GET", Some("http"), "u:p@api.example.com"), "a user or password"),
        (asked("GET", Some("http"), "api.example.com@evil.test"), "a user or password"),
        (asked("TRACE", Some("http"), "api.example.com"), "TRACE is not passed on"),
        (asked("GET", Some("http"), "0x7f.1"), "odd form"),
        (asked("GET", Some("http"), "127.0.0.1"), "127.0.0.1:80 is not in"),
    ] {
        let denial = way(&hosts, &lent, asked).expect_err(says);
        assert!(denial.reason().contains(says), "{}", denial.reason());
    }
    let origin = Asked { method: "GET", scheme: None, authority: None };
    assert_eq!(way(&hosts, &lent, origin), Err(Denial::NoProxyRequest));
}

#[test]
fn an_answer_leads_back_to_its_place_only() {
    let api = place("api.example.com");
    let other = place("ci.test:8443");
    for (address, to, inside) in [
        ("https://api.example.com/a?b#c", &api, Some("http://api.example.com/a?b#c")),
        ("HTTPS://API.example.com:443/a", &api, Some("http://api.example.com/a")),
        ("https://api.example.com", &api, Some("http://api.example.com")),
        ("https://ci.test:8443/a", &other, Some("http://ci.test:8443/a")),
        ("https://ci.test/a", &other, None),
        ("https://api.example.com:8443/a", &api, None),
        ("https://evil.test/", &api, None),
        ("https://api.example.com@evil.test/", &api, None),
        ("https://api.example.com.evil.test/", &api, None),
        ("https://api.example.com\\@evil.test/", &api, None),
        ("http://api.example.com/", &api, None),
        ("/a", &api, None),
        ("//evil.test/", &api, None),
    ] {
        assert_eq!(inward(address, to).as_deref(), inside, "{address}");
    }
    assert_eq!(
        inward_links(
            r#"<https://api.example.com/a?page=2>; rel="next", <https://evil.test/>; rel="x""#,
            &api
        ),
        r#"<http://api.example.com/a?page=2>; rel="next", <https://evil.test/>; rel="x""#
    );
}

#[test]
fn each_refusal_is_one_line_and_says_what_now() {
    let to = place("api.example.com");
    let denials = [
        Denial::NoProxyRequest,
        Denial::Scheme,
        Denial::Host(HostError::Character { text: "'bü\u{1b}\r\n'".into() }),
        Denial::Lengths,
        Denial::Trace,
        Denial::NotAllowed { to: to.clone() },
        Denial::Address { to: to.clone(), closed: Closed::Private },
        Denial::Pass,
        Denial::Over,
        Denial::Cap(Cap::Connections(64)),
        Denial::Cap(Cap::Requests(9)),
        Denial::Cap(Cap::Bytes(9)),
        Denial::RateLimited {
            whose: "the credential github".into(),
            until: Timestamp::from_ms(43_385_000),
            wait_ms: 29_001,
            by_upstream: true,
        },
        Denial::Upstream { to, trouble: Trouble::Late },
    ];
    for denial in &denials {
        let reason = denial.reason();
        assert!(reason.chars().all(|c| c.is_ascii() && !c.is_control()), "{reason:?}");
        assert!(
            (400..600).contains(&denial.status()) && denial.cure().ends_with(['.']),
            "{reason}"
        );
    }
    let limited = &denials[12];
    assert_eq!(
        limited.reason(),
        "rate_limited: the credential github until 12:03:05Z: it asked for a pause"
    );
    assert_eq!(limited.retry_after_s(), Some(30));
    assert!(limited.cure().starts_with("This is no outage."));
}
