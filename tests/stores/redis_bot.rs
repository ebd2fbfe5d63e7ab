//! The real program with its store in Redis: checked, started, killed, and audited beside itself.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use pretty_assertions::assert_eq;
use serde_json::Value;

use super::redis_server::RedisServer;

const PASSWORD: &str = "hush-7f3a91";

struct Home(tempfile::TempDir);

impl Home {
    /// A bot whose URL, with the password, is in a file beside its configuration.
    fn new(server: &RedisServer) -> Self {
        let home = Self(tempfile::tempdir().unwrap());
        let config = "data_dir = \"data\"\n[store]\nkind = \"redis\"\nurl = { file = \"url\" }\n\
                      [watch]\nsandbox = \"off\"\n";
        home.write("dogwatch.toml", config);
        home.write("url", &format!("{}?user=bot&pass={PASSWORD}", server.url()));
        home
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.path().join(name), text).unwrap();
    }

    #[expect(clippy::disallowed_methods, reason = "the program under test is a process of its own")]
    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_dogwatch"));
        command.args(words).args(["--config", "dogwatch.toml"]).current_dir(self.path());
        command.env("HOME", self.path()).env_remove("XDG_STATE_HOME").stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Its exit code and all that it wrote, without the password.
    fn run(&self, words: &[&str]) -> (i32, String) {
        let Output { status, stdout, stderr } = self.command(words).output().unwrap();
        let said = [stdout, stderr].map(|text| String::from_utf8(text).unwrap()).concat();
        assert!(!said.contains(PASSWORD), "{said}");
        (status.code().unwrap(), said)
    }

    fn chat(&self) -> Chat {
        let mut child = self.command(&["chat", "--json"]).stdin(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Chat { lines: Box::new(lines.map_while(Result::ok)), child }
    }
}

struct Chat {
    child: Child,
    lines: Box<dyn Iterator<Item = String>>,
}

impl Chat {
    fn say(&mut self, line: &str) {
        writeln!(self.child.stdin.as_mut().unwrap(), "{line}").unwrap();
    }

    /// The first event with this in it.
    fn wait_for(&mut self, text: &str) -> String {
        self.lines.find(|line| line.contains(text)).unwrap_or_else(|| panic!("no {text:?}"))
    }
}

impl Drop for Chat {
    fn drop(&mut self) {
        // Both fail when it has ended by itself.
        let _killed = self.child.kill();
        let _reaped = self.child.wait();
    }
}

fn server() -> RedisServer {
    let server = RedisServer::start(&[]);
    let rights = ["~dogwatch:*", "&dogwatch:*", "+@all", "-@dangerous", "+info"];
    let password = format!(">{PASSWORD}");
    let mut words = vec!["ACL", "SETUSER", "bot", "on", &password];
    words.extend(rights);
    let () = server.ask(&words);
    server
}

#[test]
fn a_watcher_outlives_the_bot_whose_store_is_redis() {
    let server = server();
    let home = Home::new(&server);
    let (code, said) = home.run(&["doctor"]);
    assert_eq!(code, 0, "{said}");
    for check in ["version: Redis", "eviction: ", "persistence: ", "rights: "] {
        assert!(said.contains(check), "{check} is missing in {said}");
    }
    assert_eq!(home.run(&["check-config"]).0, 0);
    let mut chat = home.chat();
    chat.say("watch deployment x1");
    chat.wait_for("\"event\":\"watcher\"");
    let (code, said) = home.run(&["audit", "--json"]);
    assert_eq!(code, 0, "{said}");
    let audit: Value = serde_json::from_str(&said).unwrap();
    assert_eq!((&audit["even"], &audit["executions"]["live"]), (&true.into(), &1.into()));
    // Killed, as a power failure would; the script runs on.
    drop(chat);
    let mut chat = home.chat();
    let told = chat.wait_for("healthy");
    assert!(told.contains("x1"), "{told}");
    drop(chat.child.stdin.take());
    while chat.lines.next().is_some() {}
    assert_eq!(chat.child.wait().unwrap().code(), Some(0));
    let (code, said) = home.run(&["audit", "--json"]);
    assert_eq!(code, 0, "{said}");
    let audit: Value = serde_json::from_str(&said).unwrap();
    assert_eq!((&audit["even"], &audit["executions"]["live"]), (&true.into(), &0.into()));
    assert!(!home.path().join("data/dogwatch.db").exists());
}

#[test]
fn b117_a_bot_does_not_start_on_a_redis_that_would_drop_its_rows() {
    let server = server();
    let home = Home::new(&server);
    let () = server.ask(&["CONFIG", "SET", "maxmemory-policy", "volatile-lru"]);
    for words in [&["chat", "--json"][..], &["doctor"]] {
        let (code, said) = home.run(words);
        assert_eq!(code, 1, "{said}");
        assert!(said.contains("maxmemory-policy volatile-lru"), "{said}");
        assert!(said.contains("CONFIG SET maxmemory-policy noeviction"), "{said}");
    }
    home.write("url", &format!("http://bot:{PASSWORD}@h"));
    let (code, said) = home.run(&["check-config"]);
    assert!(code != 0 && said.contains("store: ") && said.contains("redis://HOST"), "{said}");
}
