//! The network of watchers in the real program: a person asks, the model names hosts and credentials,
//! and what comes back stands in the thread; through the end of the bot and a change of its mind.

// So that clippy knows the whole module as a test.
#![cfg(test)]

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use rustix::process::Signal;

use crate::sandbox::upstream::Upstream;
use crate::support::process;
use crate::support::program::{Chat, Home, KEY};

const HERE: &str = "127.0.0.2";

/// Says what a watcher or a tool said.
const PLAYBOOK: &str = r#"
name = "network"
[[rule]]
when = { notice = '(?s)Output: (.*?)\n' }
text = "It said {1}."
[[rule]]
when = { tool = "trigger_and_auto_notify", result = '(?s)"code":"(\w+)".*"message":"([^"]*)"' }
text = "Refused, {1}: {2}."
[[rule]]
when = { tool = "trigger_and_auto_notify" }
text = "It runs."
"#;

/// A plain loop, as a model writes it. It goes on until it is told to end, or refused.
const POLLS: &str = "import time, urllib.error, urllib.request
errors, body = 0, b''
while body != b'end':
    try:
        body = urllib.request.urlopen('http://UP/', timeout=100).read()
    except urllib.error.HTTPError as refused:
        print(refused.code, refused.reason)
        break
    except OSError:
        errors += 1
    time.sleep(0.01)
else:
    print('errors', errors)
";

/// When a person says `word`, this script is started with these further arguments.
fn rule(word: &str, python: &str, more: &str) -> String {
    let python = serde_json::Value::from(python);
    format!(
        "[[rule]]\nwhen = {{ person = '^{word}$' }}\n[[rule.calls]]\n\
         tool = 'trigger_and_auto_notify'\n\
         arguments = {{ name = 'poll', timeout_seconds = 200, python = {python}, {more} }}\n"
    )
}

fn home(config: &str, agent: &str, rules: &[String]) -> Home {
    let home = Home::new(&format!(
        "[model]\nplaybook = \"playbook.toml\"\n[watch.network]\nrequests_per_minute = 60000\n{config}"
    ));
    home.write("playbook.toml", &format!("{PLAYBOOK}{}", rules.concat()));
    fs::create_dir(home.path("agents")).unwrap();
    home.write("agents/dogwatch.toml", &format!("name = \"dogwatch\"\n{agent}"));
    home
}

/// Where one host may be asked, and what is asked of it.
fn polling(upstream: &Upstream) -> Home {
    let up = upstream.address.to_string();
    let polls = POLLS.replace("UP", &up);
    home(
        &format!("addresses = [\"{HERE}\"]\n"),
        &format!("hosts = [\"{up}\"]\n"),
        &[
            rule("poll", &polls, &format!("hosts = ['{up}']")),
            rule("elsewhere", &polls, "hosts = ['evil.example.net']"),
            rule("lend me", &polls, &format!("hosts = ['{up}'], credentials = ['github']")),
        ],
    )
}

/// Ends what would live a minute longer than the test.
fn end_egress(home: &Home) {
    for pid in process::processes_of(&home.path("data/spool/egress")) {
        process::signal(pid, Signal::KILL);
        assert!(process::ends(pid));
    }
}

fn began(home: &Home) -> Chat {
    let mut chat = home.chat(&["--wait"]);
    chat.say("poll");
    chat.wait_for("It runs.");
    chat
}

#[test]
fn a_polling_watcher_does_not_notice_that_the_bot_is_killed_and_started_again() {
    let upstream = Upstream::start(HERE);
    let home = polling(&upstream);
    let chat = began(&home);
    upstream.asked_again(5);
    chat.kill();
    upstream.asked_again(20);
    let mut chat = home.chat(&["--wait"]);
    upstream.asked_again(5);
    upstream.ends();
    chat.wait_for("It said errors 0.");
    chat.ends_well();
    end_egress(&home);
}

#[test]
fn what_is_asked_while_bot_and_egress_are_away_is_answered_by_the_next_ones() {
    let upstream = Upstream::start(HERE);
    let home = polling(&upstream);
    let chat = began(&home);
    upstream.asked_again(5);
    chat.kill();
    end_egress(&home);
    let mut chat = home.chat(&["--wait"]);
    upstream.asked_again(5);
    upstream.ends();
    // Only what was open when the egress process ended is broken.
    let said = chat.wait_for("It said errors ");
    assert!(said.contains("errors 0.") || said.contains("errors 1."), "{said}");
    chat.ends_well();
    end_egress(&home);
}

#[test]
fn a_host_that_was_taken_away_between_two_starts_is_refused_by_name() {
    let upstream = Upstream::start(HERE);
    let home = polling(&upstream);
    let chat = began(&home);
    upstream.asked_again(5);
    chat.kill();
    home.write("agents/dogwatch.toml", "name = \"dogwatch\"\nhosts = [\"other.example.com\"]\n");
    let mut chat = home.chat(&["--wait"]);
    let said = chat.wait_for("It said ");
    assert!(said.contains("403") && said.contains(&upstream.address.to_string()), "{said}");
    chat.ends_well();
    let log = fs::read_to_string(home.path("data/dogwatch.log")).unwrap();
    assert!(log.contains("may reach less than when it was started"), "{log}");
    end_egress(&home);
}

#[test]
fn what_an_agent_may_not_have_is_an_error_of_the_tool_and_nothing_is_started() {
    let upstream = Upstream::start(HERE);
    let home = polling(&upstream);
    let mut chat = home.chat(&["--wait"]);
    chat.say("elsewhere");
    let said = chat.wait_for("Refused, ");
    assert!(said.contains("host_not_allowed") && said.contains("evil.example.net"), "{said}");
    assert!(said.contains(&upstream.address.to_string()), "it says what is allowed: {said}");
    chat.say("lend me");
    let said = chat.wait_for("Refused, ");
    assert!(said.contains("credential_not_allowed") && said.contains("github"), "{said}");
    chat.ends_well();
    assert!(upstream.is_quiet());
    assert_eq!(fs::read_dir(home.path("data/spool/e")).unwrap().count(), 0);
    assert!(!home.path("data/spool/egress").exists(), "nobody needed the egress process");
}

/// A host that speaks TLS and says `known` to whoever brings the key.
struct Vault {
    server: Child,
    port: u16,
}

const VAULT: &str = "
import http.server, ssl, sys
class Vault(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        known = self.headers.get_all('Authorization') == ['Bearer ' + sys.argv[1]]
        body = b'known' if known else b'stranger'
        self.send_response(200)
        self.send_header('Content-Length', str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *_):
        pass
server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), Vault)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain('cert.pem', 'key.pem')
server.socket = context.wrap_socket(server.socket, server_side=True)
print(server.server_address[1], flush=True)
server.serve_forever()
";

#[expect(clippy::disallowed_methods, reason = "a host is a process of its own")]
fn vault(dir: &std::path::Path) -> Vault {
    let made = Command::new("openssl")
        .args([
            "req",
            "-x509",
            "-newkey",
            "rsa:2048",
            "-nodes",
            "-days",
            "2",
            "-subj",
            "/CN=localhost",
        ])
        .args(["-addext", "subjectAltName=DNS:localhost"])
        .args(["-addext", "basicConstraints=critical,CA:FALSE"])
        .args(["-keyout", "key.pem", "-out", "cert.pem"])
        .current_dir(dir)
        .stderr(Stdio::null())
        .status()
        .expect("openssl starts: tests/run.sh installs it");
    assert!(made.success());
    let mut server = Command::new("python3")
        .args(["-c", VAULT, KEY])
        .current_dir(dir)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(server.stdout.take().unwrap()).read_line(&mut line).unwrap();
    Vault { server, port: line.trim().parse().expect("a port") }
}

impl Drop for Vault {
    fn drop(&mut self) {
        let _gone = self.server.kill().and_then(|()| self.server.wait());
    }
}

/// Tries its luck in every way that a script has, and prints what it was called.
const ASKS: &str = "import os, urllib.error, urllib.request
def ask(headers={}):
    request = urllib.request.Request('http://localhost:PORT/', headers=headers)
    try:
        return urllib.request.urlopen(request, timeout=60).read().decode()
    except urllib.error.HTTPError as met:
        return f'{met.code} {met.reason} {met.read().decode()}'
print(ask(), ask({'Authorization': 'Bearer guessed'}), 'hush' in repr(os.environ))
";

#[test]
fn a_credential_is_used_for_a_script_that_never_sees_it() {
    let place = tempfile::tempdir().unwrap();
    let vault = vault(place.path());
    let port = vault.port;
    let asks = ASKS.replace("PORT", &port.to_string());
    let ca = place.path().join("cert.pem");
    let config = format!(
        "addresses = [\"127.0.0.1\"]\nca_file = {:?}\n[credentials.vault]\n\
         host = \"localhost:{port}\"\nsecret = {{ env = \"DOGWATCH_TEST_KEY\" }}\n\
         agents = [\"dogwatch\"]\n",
        ca.display().to_string()
    );
    let home = home(&config, "", &[rule("ask", &asks, "credentials = ['vault']")]);
    let mut chat = home.chat(&["--wait"]);
    chat.say("ask");
    chat.wait_for("It said known known False.");
    chat.ends_well();
    home.keeps_the_secret();
    // Another agent's credential does not even say that it is there.
    let other = config_for_another(&home, &config);
    let mut chat = other.chat(&["--wait"]);
    chat.say("ask");
    let said = chat.wait_for("Refused, ");
    assert!(said.contains("credential_not_allowed") || said.contains("unknown_field"), "{said}");
    chat.ends_well();
    end_egress(&home);
}

/// The same place, where the credential is somebody else's.
fn config_for_another<'a>(home: &'a Home, config: &str) -> &'a Home {
    let text = fs::read_to_string(home.path("dogwatch.toml")).unwrap();
    assert!(text.contains(config));
    home.write("agents/other.toml", "name = \"other\"\n");
    home.write("dogwatch.toml", &text.replace("agents = [\"dogwatch\"]", "agents = [\"other\"]"));
    home
}

#[test]
fn doctor_says_who_may_reach_what_by_name_and_shows_no_secret() {
    let config = "[credentials.github]\nhost = \"api.github.com\"\nagents = [\"dogwatch\"]\n\
                  secret = { env = \"DOGWATCH_TEST_KEY\" }\n";
    let home = home(config, "hosts = [\"*.example.com\"]\n", &[]);
    let ran = home.run_here(&["doctor", "--json"]);
    let checked: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
    let checks = checked["checks"].as_array().unwrap();
    let network = checks.iter().find(|check| check["name"] == "network").unwrap();
    let what = network["what"].as_str().unwrap();
    assert!(what.contains("scripts of dogwatch may name *.example.com"), "{what}");
    assert!(what.contains("credential github for api.github.com: dogwatch (writable)"), "{what}");
    assert!(!ran.out.contains(KEY), "{}", ran.out);
}
