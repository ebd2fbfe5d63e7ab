//! A bot's way to the network, upstreams of the test's own, and scripts that speak to the proxy.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dogwatch::core::egress::{AddressRule, CredentialName, Destination, HostRule};
use dogwatch::watch::egress::{Caps, Egress, Lent, Rules, Settings, hand_over};
use rustix::process::Signal;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use secrecy::SecretString;

use crate::support::certificates::certificates;
use crate::support::process::{ends, processes_of, signal};

/// Fails a test that hangs; nothing waits for it.
const TOO_LONG: Duration = Duration::from_mins(1);
/// What all scripts of these tests are given.
pub(super) const PASS: &str = "pass-of-the-script";

/// A directory with a bot's side of the network, and processes that end with it.
pub(super) struct Stand {
    pub(super) dir: tempfile::TempDir,
    pub(super) settings: Settings,
    pub(super) egress: Egress,
}

impl Stand {
    /// Where loopback may be reached.
    pub(super) fn new() -> Self {
        Self::with(Caps::default(), &["127.0.0.0/8", "::1"])
    }

    pub(super) fn with(caps: Caps, addresses: &[&str]) -> Self {
        let addresses = addresses.iter().map(|text| AddressRule::parse(text).unwrap()).collect();
        Self::settled(Settings { caps, addresses, ..Settings::default() })
    }

    pub(super) fn settled(settings: Settings) -> Self {
        let dir = tempfile::tempdir().unwrap();
        certificates(dir.path(), "DNS:localhost");
        let settings = Settings { extra_ca: Some(dir.path().join("ca.pem")), ..settings };
        let egress = bot(dir.path(), settings.clone());
        Self { dir, settings, egress }
    }

    /// The directory of the process.
    pub(super) fn place(&self) -> PathBuf {
        self.dir.path().join("egress")
    }

    /// The processes that serve it.
    pub(super) fn processes(&self) -> Vec<i32> {
        let mut all = processes_of(&self.place());
        all.sort_unstable();
        all
    }

    /// The one process that serves it.
    pub(super) fn process(&self) -> i32 {
        let all = self.processes();
        assert_eq!(all.len(), 1, "{all:?}");
        *all.first().unwrap()
    }

    /// A script with these rules, its listener handed over.
    pub(super) async fn script(&self, name: &str, hosts: &[&str], lent: &[Lent]) -> Script {
        self.egress.rule(rules(name, hosts, lent)).await.unwrap();
        let script = Script::new(name);
        script.hand_over(&self.place(), false);
        script
    }

    pub(super) fn log(&self) -> Vec<serde_json::Value> {
        let text = std::fs::read_to_string(self.place().join("log")).unwrap_or_default();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

impl Drop for Stand {
    fn drop(&mut self) {
        for pid in self.processes() {
            signal(pid, Signal::KILL);
            ends(pid);
        }
    }
}

/// A bot's side of the network of a directory.
pub(super) fn bot(dir: &Path, settings: Settings) -> Egress {
    Egress::new(dir.join("egress"), env!("CARGO_BIN_EXE_dogwatch").into(), settings)
}

pub(super) fn rules(name: &str, hosts: &[&str], lent: &[Lent]) -> Rules {
    Rules {
        execution: name.to_owned(),
        pass: SecretString::from(PASS),
        hosts: hosts.iter().map(|text| HostRule::parse(text).unwrap()).collect(),
        lent: lent.to_vec(),
    }
}

pub(super) fn lent(name: &str, host: &str, value: &str, requests_per_minute: u32) -> Lent {
    Lent {
        name: CredentialName::parse(name).unwrap(),
        host: Destination::parse(host).unwrap(),
        header: "Authorization".to_owned(),
        value: SecretString::from(value),
        requests_per_minute,
    }
}

/// Waits for something that no event of the test's own tells.
pub(super) async fn until(what: &str, mut is: impl FnMut() -> bool) {
    let waited = tokio::time::timeout(TOO_LONG, async {
        while !is() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    assert!(waited.await.is_ok(), "in vain: {what}");
}

/// A script's side: the listener that its shim keeps, and a client that connects to it.
pub(super) struct Script {
    pub(super) name: String,
    pub(super) listener: TcpListener,
    pub(super) shim: Mutex<Option<UnixStream>>,
}

impl Script {
    pub(super) fn new(name: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        Self { name: name.to_owned(), listener, shim: Mutex::default() }
    }

    pub(super) fn hand_over(&self, place: &Path, guarded: bool) {
        let shim = hand_over(place, &self.name, PASS, self.listener.as_fd(), guarded);
        *self.shim.lock().unwrap() = Some(shim.unwrap());
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.listener.local_addr().unwrap()
    }

    pub(super) fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address()).unwrap();
        stream.set_read_timeout(Some(TOO_LONG)).unwrap();
        stream
    }

    /// What comes back for these bytes, to the end of the connection.
    pub(super) fn say(&self, bytes: &str) -> String {
        let mut stream = self.connect();
        stream.write_all(bytes.as_bytes()).unwrap();
        let mut answer = Vec::new();
        let _reset_at_the_end = stream.read_to_end(&mut answer);
        String::from_utf8_lossy(&answer).into_owned()
    }

    /// The answer to a plain GET.
    pub(super) fn get(&self, url: &str) -> String {
        self.get_with(url, "")
    }

    /// The same with header lines, each ended by CRLF.
    pub(super) fn get_with(&self, url: &str, headers: &str) -> String {
        let host = url.split("://").nth(1).unwrap().split('/').next().unwrap();
        self.say(&format!(
            "GET {url} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{headers}\r\n"
        ))
    }

    /// A tunnel, or the answer instead of one.
    pub(super) fn tunnel(&self, to: &str) -> Result<TcpStream, String> {
        let mut stream = self.connect();
        write!(stream, "CONNECT {to} HTTP/1.1\r\nHost: {to}\r\n\r\n").unwrap();
        let head = head(&mut stream).unwrap_or_default();
        if head.starts_with("HTTP/1.1 200") {
            return Ok(stream);
        }
        let _no_more_to_say = stream.shutdown(Shutdown::Write);
        let mut rest = String::new();
        let _reset_at_the_end = stream.read_to_string(&mut rest);
        Err(head + &rest)
    }

    /// What Python's own client says, with the environment of a script.
    #[expect(clippy::disallowed_methods, reason = "a script is a process")]
    pub(super) fn python(&self, program: &str) -> String {
        let proxy = format!("http://w:{PASS}@{}", self.address());
        let output = std::process::Command::new("python3")
            .args(["-I", "-B", "-c", program])
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .envs(["http_proxy", "https_proxy"].map(|name| (name, &proxy)))
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }
}

/// The first line of an answer.
pub(super) fn first_line(answer: &str) -> &str {
    answer.lines().next().unwrap_or_default()
}

/// Reads up to the end of a head; `None` where there is none.
pub(super) fn head(stream: &mut impl Read) -> Option<String> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read(&mut byte) {
            Ok(1) => head.push(byte[0]),
            Ok(_) | Err(_) => return None,
        }
    }
    Some(String::from_utf8_lossy(&head).into_owned())
}

/// Reads and writes.
pub(super) trait Talk: Read + Write + Send {}
impl<T: Read + Write + Send> Talk for T {}

/// A server of the test's own, with what it was asked: each head and body.
pub(super) struct Upstream {
    pub(super) port: u16,
    heard: Arc<Mutex<Vec<String>>>,
}

impl Upstream {
    /// Answers each request, on a connection of its own, by what the function makes of it.
    pub(super) fn start(answer: impl Fn(&str) -> String + Send + Sync + 'static) -> Self {
        Self::on(None, move |stream, request| {
            let _gone = stream.write_all(answer(request).as_bytes());
        })
    }

    /// The same behind TLS, with the certificate of `localhost` that the directory has.
    pub(super) fn secure(
        dir: &Path,
        answer: impl Fn(&str) -> String + Send + Sync + 'static,
    ) -> Self {
        let pem = |name: &str| std::fs::read(dir.join(name)).unwrap();
        let chain = pem("server.pem");
        let chain = CertificateDer::pem_slice_iter(&chain).map(Result::unwrap);
        let key = PrivateKeyDer::from_pem_slice(&pem("server.key")).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(chain.collect(), key)
            .unwrap();
        Self::on(Some(Arc::new(config)), move |stream, request| {
            let _gone = stream.write_all(answer(request).as_bytes());
        })
    }

    pub(super) fn on(
        tls: Option<Arc<ServerConfig>>,
        answer: impl Fn(&mut dyn Talk, &str) + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let heard = Arc::new(Mutex::new(Vec::new()));
        let (all, answer) = (Arc::clone(&heard), Arc::new(answer));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (stream, tls) = (stream.unwrap(), tls.clone());
                let (all, answer) = (Arc::clone(&all), Arc::clone(&answer));
                std::thread::spawn(move || match tls {
                    None => serve(stream, &all, &*answer),
                    Some(config) => {
                        let connection = ServerConnection::new(config).unwrap();
                        serve(StreamOwned::new(connection, stream), &all, &*answer);
                    }
                });
            }
        });
        Self { port, heard }
    }

    /// What it was asked so far.
    pub(super) fn heard(&self) -> Vec<String> {
        self.heard.lock().unwrap().clone()
    }
}

fn serve(mut stream: impl Talk, heard: &Mutex<Vec<String>>, answer: &dyn Fn(&mut dyn Talk, &str)) {
    let Some(begin) = head(&mut stream) else { return };
    let length = begin.to_lowercase().lines().find_map(|line| {
        line.strip_prefix("content-length:").and_then(|length| length.trim().parse().ok())
    });
    let mut body = vec![0; length.unwrap_or(0)];
    let whole = stream.read_exact(&mut body).is_ok();
    let request = begin + &String::from_utf8_lossy(&body);
    heard.lock().unwrap().push(request.clone());
    if whole {
        answer(&mut stream, &request);
        let _gone = stream.flush();
    }
}

/// An answer with a body and header lines, each ended by CRLF.
pub(super) fn reply(status: &str, headers: &str, body: &str) -> String {
    let length = body.len();
    format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\n{headers}\r\n{body}")
}
