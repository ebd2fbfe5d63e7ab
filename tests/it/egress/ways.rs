//! What goes through, and how what does not is told.

use std::io::{Read, Write};
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use super::stand::{PASS, Script, Stand, Upstream, first_line, reply, rules};

#[tokio::test(flavor = "multi_thread")]
async fn an_allowed_request_goes_through_as_it_is() {
    let stand = Stand::new();
    let upstream = Upstream::start(|_| reply("200 OK", "X-Kind: own\r\n", "hello"));
    let host = format!("localhost:{}", upstream.port);
    let script = stand.script("s/1", &[&host], &[]).await;
    let answer = script.say(&format!(
        "POST http://{host}/a/../b?c=%20d HTTP/1.1\r\nHost: evil.test\r\nX-Mine: yes\r\n\
         Proxy-Authorization: Basic eDp5\r\nProxy-Connection: close\r\nKeep-Alive: 5\r\n\
         Connection: close, X-Hop\r\nX-Hop: 1\r\nTE: trailers\r\nUpgrade: x\r\n\
         Content-Length: 4\r\n\r\nbody"
    ));
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("\r\n\r\nhello"));
    assert!(answer.to_lowercase().contains("x-kind: own\r\n"), "{answer}");
    let heard = upstream.heard();
    let [request] = &heard[..] else { panic!("{heard:?}") };
    let request = request.to_lowercase();
    assert!(request.starts_with("post /a/../b?c=%20d http/1.1\r\n"), "{request}");
    assert!(
        request.contains(&format!("\r\nhost: {host}\r\n")) && request.ends_with("\r\n\r\nbody")
    );
    assert!(request.contains("\r\nx-mine: yes\r\n"));
    for gone in ["proxy-", "keep-alive", "x-hop", "\r\nte:", "upgrade", "evil", "connection"] {
        assert!(!request.contains(gone), "{gone}: {request}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_says_what_and_what_now() {
    let stand = Stand::new();
    let script = stand.script("s/1", &["api.example.com"], &[]).await;
    let denied = script.get("http://evil.test/secret?q=1");
    assert_eq!(first_line(&denied), "HTTP/1.1 403 evil.test:80 is not in this watcher's hosts");
    assert!(denied.contains("Start the watcher again with this host in `hosts`"), "{denied}");
    let error = script.tunnel("evil.test:443").unwrap_err();
    assert!(error.starts_with("HTTP/1.1 403 evil.test:443 is not in"), "{error}");
    let origin = script.say("GET /secret HTTP/1.1\r\nHost: evil.test\r\nConnection: close\r\n\r\n");
    assert!(origin.starts_with("HTTP/1.1 400 this is a proxy and not a server"), "{origin}");
    assert!(origin.contains("http_proxy"));
    let whole = script.get("https://api.example.com/");
    assert!(whole.starts_with("HTTP/1.1 400 the proxy takes http:// here and CONNECT"), "{whole}");
    let log = stand.log();
    assert_eq!(log.len(), 4, "{log:?}");
    assert_eq!((&log[0]["host"], &log[0]["port"]), (&"evil.test".into(), &80.into()));
    assert_eq!((&log[1]["method"], &log[1]["verdict"]), (&"CONNECT".into(), &"denied".into()));
    let text = format!("{log:?}");
    assert!(!text.contains("secret"), "a path is in the log: {text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn python_sees_the_words_of_a_refusal() {
    let stand = Stand::new();
    let upstream = Upstream::secure(stand.dir.path(), |_| reply("200 OK", "", "by tls"));
    let plain = Upstream::start(|_| reply("200 OK", "", "plain"));
    let (tls, http) = (upstream.port, plain.port);
    let hosts = [format!("localhost:{tls}"), format!("localhost:{http}")];
    let script = stand.script("s/1", &[&hosts[0], &hosts[1]], &[]).await;
    let ca = stand.dir.path().join("ca.pem");
    let said = script.python(&format!(
        "import ssl, urllib.request as u\n\
         c = ssl.create_default_context(cafile={ca:?})\n\
         print(u.urlopen('http://localhost:{http}/').read().decode())\n\
         print(u.urlopen('https://localhost:{tls}/', context=c).read().decode())\n\
         for url in ['http://evil.test/', 'https://evil.test/', 'http://127.0.0.1:{http}/']:\n\
         \x20   try: u.urlopen(url, context=c)\n\
         \x20   except OSError as e: print(e)\n"
    ));
    assert_eq!(
        said,
        format!(
            "plain\nby tls\nHTTP Error 403: evil.test:80 is not in this watcher's hosts\n\
             <urlopen error Tunnel connection failed: 403 evil.test:443 is not in this watcher's \
             hosts>\n\
             HTTP Error 403: 127.0.0.1:{http} is not in this watcher's hosts\n"
        )
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tunnel_is_tls_from_end_to_end() {
    let stand = Stand::new();
    let upstream = Upstream::secure(stand.dir.path(), |_| reply("200 OK", "", "by tls"));
    let host = format!("localhost:{}", upstream.port);
    let script = stand.script("s/1", &[&host], &[]).await;
    let tunnel = script.tunnel(&host).unwrap();
    let mut roots = RootCertStore::empty();
    let pem = std::fs::read(stand.dir.path().join("ca.pem")).unwrap();
    roots.add(CertificateDer::from_pem_slice(&pem).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from("localhost").unwrap();
    let connection = ClientConnection::new(Arc::new(config), name).unwrap();
    let mut tls = StreamOwned::new(connection, tunnel);
    write!(tls, "GET /secret HTTP/1.1\r\nHost: {host}\r\n\r\n").unwrap();
    let mut answer = String::new();
    let _no_farewell = tls.read_to_string(&mut answer);
    assert!(answer.ends_with("by tls"), "{answer}");
    drop(tls);
    super::stand::until("the tunnel's line in the log", || !stand.log().is_empty()).await;
    let log = stand.log();
    assert_eq!((&log[0]["method"], &log[0]["verdict"]), (&"CONNECT".into(), &"passed".into()));
    assert!(log[0]["up"].as_u64().unwrap() > 100 && log[0]["down"].as_u64().unwrap() > 100);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guarded_listener_wants_the_pass() {
    let stand = Stand::new();
    let upstream = Upstream::start(|_| reply("200 OK", "", "hello"));
    let host = format!("localhost:{}", upstream.port);
    stand.egress.rule(rules("s/1", &[&host], &[])).await.unwrap();
    let script = Script::new("s/1");
    script.hand_over(&stand.place(), true);
    let url = format!("http://{host}/");
    let without = script.get(&url);
    assert!(without.starts_with("HTTP/1.1 407 the proxy needs the pass"), "{without}");
    assert!(without.to_lowercase().contains("proxy-authenticate: basic"));
    assert!(script.tunnel(&host).unwrap_err().starts_with("HTTP/1.1 407"));
    for wrong in ["Basic dzp3cm9uZw==", "Basic !", "Bearer x", "Basic", "Basic dw=="] {
        let answer = script.get_with(&url, &format!("Proxy-Authorization: {wrong}\r\n"));
        assert!(answer.starts_with("HTTP/1.1 407"), "{wrong}: {answer}");
    }
    assert_eq!(upstream.heard().len(), 0);
    // As urllib makes it of the address in http_proxy.
    let said = script
        .python(&format!("import urllib.request as u; print(u.urlopen('{url}').read().decode())"));
    assert_eq!(said, "hello\n");
    assert!(!format!("{:?}", upstream.heard()).contains("roxy-"), "the pass goes on");
    assert!(!format!("{:?}", stand.log()).contains(PASS));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_upstream_does_wrong_is_told_in_words() {
    let stand = Stand::new();
    let gone = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let broken = Upstream::start(|_| "no HTTP at all\r\n\r\n".to_owned());
    let closes = Upstream::start(|_| String::new());
    let hosts = [gone, broken.port, closes.port].map(|port| format!("localhost:{port}"));
    let hosts: Vec<&str> = hosts.iter().map(String::as_str).collect();
    let all: Vec<&str> = hosts.iter().copied().chain(["nowhere.invalid"]).collect();
    let script = stand.script("s/1", &all, &[]).await;
    let first = |url: &str| first_line(&script.get(&format!("http://{url}/"))).to_owned();
    let says = |host: &str, what: &str| format!("HTTP/1.1 502 {host} {what}");
    assert_eq!(first(hosts[0]), says(hosts[0], "takes no connection"));
    assert_eq!(first(hosts[1]), says(hosts[1], "broke off"));
    assert_eq!(first(hosts[2]), says(hosts[2], "broke off"));
    assert_eq!(first("nowhere.invalid"), says("nowhere.invalid:80", "has no address"));
    assert!(stand.log().iter().all(|line| line["verdict"] == "failed"));
}
