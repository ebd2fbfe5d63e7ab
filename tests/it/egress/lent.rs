//! Credentials: where they go and where they never go.

use std::io::{Read, Write};
use std::net::TcpListener;

use super::stand::{Stand, Upstream, first_line, lent, reply};

const VALUE: &str = "Bearer the-real-token-0123456789";

#[tokio::test(flavor = "multi_thread")]
async fn a_credential_is_put_in_and_goes_by_tls_only() {
    let stand = Stand::new();
    let upstream = Upstream::secure(stand.dir.path(), |_| reply("200 OK", "", "hello"));
    let plain = Upstream::start(|_| reply("200 OK", "", "plain"));
    let to = format!("localhost:{}", upstream.port);
    let other = format!("localhost:{}", plain.port);
    let elsewhere = format!("127.0.0.1:{}", plain.port);
    let github = lent("github", &to, VALUE, 600);
    let script = stand.script("s/1", &[&to, &other, &elsewhere], &[github]).await;
    // Without a port and with its own: both are meant for it, and what the script sent is replaced.
    for url in ["http://localhost/a?b".to_owned(), format!("http://{to}/a?b")] {
        let mine = "Authorization: Bearer mine\r\nauthorization: Bearer too\r\nX-Mine: 1\r\n";
        let answer = script.get_with(&url, mine);
        assert!(answer.ends_with("hello"), "{url}: {answer}");
        let request = upstream.heard().pop().unwrap();
        assert!(request.starts_with("GET /a?b HTTP/1.1\r\n"), "{request}");
        let fields: Vec<&str> =
            request.lines().filter(|l| l.to_lowercase().starts_with("authorization")).collect();
        assert_eq!(fields.len(), 1, "{request}");
        assert!(fields[0].ends_with(VALUE), "{request}");
        assert!(request.to_lowercase().contains(&format!("\r\nhost: {to}\r\n")), "{request}");
    }
    // To other ports and hosts nothing is added, and nothing of it leaves without TLS.
    for place in [&other, &elsewhere] {
        let answer = script.get_with(&format!("http://{place}/"), "Host: localhost\r\n");
        assert!(answer.ends_with("plain") || answer.starts_with("HTTP/1.1 400"), "{answer}");
        assert!(script.get(&format!("http://{place}/")).ends_with("plain"));
    }
    let all = format!("{:?}{:?}", plain.heard(), stand.log());
    assert!(!all.contains("the-real-token"), "{all}");
    let trace = script.say(&format!("TRACE http://{to}/ HTTP/1.1\r\nConnection: close\r\n\r\n"));
    assert!(trace.starts_with("HTTP/1.1 405 TRACE is not passed on"), "{trace}");
    // Another execution is lent nothing.
    let none = stand.script("s/2", &[&to], &[]).await;
    let answer = none.get(&format!("http://{to}/"));
    assert!(!answer.contains("hello"), "without TLS there is no answer: {answer}");
    assert!(upstream.heard().iter().all(|request| request.contains(VALUE)));
}

#[tokio::test(flavor = "multi_thread")]
async fn attack_a_credential_is_not_sent_to_who_cannot_prove_to_be_its_host() {
    let stand = Stand::new();
    let forged = tempfile::tempdir().unwrap();
    let other = Stand::new();
    for name in ["server.pem", "server.key"] {
        std::fs::copy(other.dir.path().join(name), forged.path().join(name)).unwrap();
    }
    let upstream = Upstream::secure(forged.path(), |_| reply("200 OK", "", "hello"));
    let to = format!("localhost:{}", upstream.port);
    let script = stand.script("s/1", &[&to], &[lent("github", &to, VALUE, 600)]).await;
    let answer = script.get(&format!("http://{to}/"));
    assert_eq!(first_line(&answer), format!("HTTP/1.1 502 {to} is not trusted: TLS failed"));
    // Nor where there is no TLS at all.
    let plain = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = format!("localhost:{}", plain.local_addr().unwrap().port());
    let heard = std::thread::spawn(move || {
        let (mut stream, _) = plain.accept().unwrap();
        let mut first = [0; 512];
        let count = stream.read(&mut first).unwrap();
        stream.write_all(reply("200 OK", "", "hello").as_bytes()).unwrap();
        first[..count].to_vec()
    });
    let script = stand.script("s/2", &[&to], &[lent("ci", &to, VALUE, 600)]).await;
    assert!(script.get(&format!("http://{to}/")).starts_with("HTTP/1.1 502"));
    let heard = heard.join().unwrap();
    assert!(!String::from_utf8_lossy(&heard).contains("token") && !heard.is_empty());
    assert!(upstream.heard().iter().all(|request| !request.contains("token")));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_leads_back_through_the_proxy() {
    let stand = Stand::new();
    let upstream = Upstream::secure(stand.dir.path(), |request| {
        let host = request.to_lowercase();
        let host = host.lines().find_map(|line| line.strip_prefix("host: ")).unwrap().to_owned();
        let (location, link) = match request.split(' ').nth(1).unwrap() {
            "/own" => (format!("https://{host}/next"), format!("<https://{host}/2>; rel=\"next\"")),
            "/other" => ("https://evil.test/".to_owned(), "<https://evil.test/>".to_owned()),
            _ => return reply("200 OK", "", "arrived"),
        };
        reply("302 Found", &format!("Location: {location}\r\nLink: {link}\r\n"), "")
    });
    let to = format!("localhost:{}", upstream.port);
    let script = stand.script("s/1", &[&to], &[lent("github", &to, VALUE, 600)]).await;
    let own = script.get("http://localhost/own").to_lowercase();
    assert!(own.contains(&format!("location: http://{to}/next\r\n")), "{own}");
    assert!(own.contains(&format!("link: <http://{to}/2>; rel=\"next\"\r\n")), "{own}");
    let other = script.get("http://localhost/other").to_lowercase();
    assert!(other.contains("location: https://evil.test/\r\n"), "{other}");
    let said = script.python(
        "import urllib.request as u\n\
         print(u.urlopen('http://localhost/own').read().decode())\n\
         try: u.urlopen('http://localhost/other')\n\
         except OSError as e: print(e)\n",
    );
    assert!(said.starts_with("arrived\n") && said.contains("403 evil.test:443"), "{said}");
    assert!(upstream.heard().iter().all(|request| request.contains(VALUE)));
}
