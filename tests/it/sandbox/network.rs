//! Scripts with a network: they reach what they were allowed and nothing else, in each tier and as
//! each user, and what they do lives through the end of the bot and of the egress process.

use std::fs;
use std::io::{BufRead as _, BufReader, Write};
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use dogwatch::core::egress::{Access, AddressRule, CredentialName, Destination, HostRule};
use dogwatch::core::execution::{Exit, Outcome, Status};
use dogwatch::core::id::ExecutionId;
use dogwatch::ports::{Launch, Launcher};
use dogwatch::watch::{NetworkSettings, Settings, Tier, egress};
use nix::unistd::geteuid;
use rustix::process::Signal;

use super::stand::{Loot, NOBODY, Where, as_user, has_ports, sandboxed, within};
use super::upstream::Upstream;
use crate::watch::bench::{Bench, ends, launch, session, signal};

const ATTACKS: &str = include_str!("network.py");
/// Attacks of the script in each tier.
const COUNT: usize = 31;
const COUNT_CONTAINED: usize = 37;
const LONG_MS: u64 = 120_000;
/// A value that no script may see.
const LENT: &str = "a-lent-secret";
/// Where hosts of these tests are. `localhost` is not listed, so it is this machine's own.
const HERE: &str = "127.0.0.2";

/// As the launcher of a bot would be, with the addresses of the tests' hosts listed.
fn networked(dir: &Path) -> Settings {
    let lent = egress::Lent {
        name: CredentialName::parse("lent").unwrap(),
        host: Destination::parse("lent.example.com").unwrap(),
        header: "Authorization".to_owned(),
        value: format!("Bearer {LENT}").into(),
        requests_per_minute: 60_000,
    };
    let egress = egress::Settings {
        addresses: vec![AddressRule::parse(HERE).unwrap()],
        // No budget: these tests are about who may go where.
        requests_per_minute: 60_000,
        ..egress::Settings::default()
    };
    Settings { network: NetworkSettings { egress, lent: vec![lent] }, ..sandboxed(dir) }
}

fn access(hosts: &[&str]) -> Access {
    let hosts = hosts.iter().map(|host| HostRule::parse(host).unwrap()).collect();
    Access { hosts, credentials: vec![] }
}

/// A bench in this tier; `None` where there is no network in it, which then must be said.
async fn bench(tier: Tier, settings: fn(&Path) -> Settings) -> Option<Bench> {
    let bench = Bench::with(settings);
    assert_eq!(bench.watch().sandbox().unwrap().tier, Some(tier));
    if tier == Tier::Namespaces || has_ports() {
        bench.watch().has_network().unwrap();
        return Some(bench);
    }
    let refused = bench.watch().has_network().unwrap_err();
    let wants = Launch { access: access(&["api.example.com"]), ..launch("w", "1", LONG_MS) };
    assert_eq!(bench.watch().launch(wants).await.unwrap_err(), refused);
    assert!(refused.to_string().contains("Linux 6.7 or newer is needed"), "{refused}");
    assert_eq!(egress_of(&bench), Vec::<i32>::new());
    None
}

async fn start(bench: &Bench, id: &str, python: &str, access: Access) -> ExecutionId {
    let launch = Launch { access, ..launch(id, python, LONG_MS) };
    let id = launch.execution.clone();
    bench.watch().launch(launch).await.unwrap();
    bench.watch().go(&session(), &id).await.unwrap();
    id
}

fn printed(outcome: &Outcome) -> String {
    format!("{}{}", outcome.stdout.head, outcome.stdout.tail)
}

/// The egress process of a bench's spool.
fn egress_of(bench: &Bench) -> Vec<i32> {
    let is_egress = |pid: &i32| {
        let read = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        read.split(|byte| *byte == 0).any(|word| word == b"egress")
    };
    bench.processes().into_iter().filter(is_egress).collect()
}

fn end_egress(bench: &Bench) {
    let all = egress_of(bench);
    assert_eq!(all.len(), 1, "one process for all: {all:?}");
    for pid in all {
        signal(pid, Signal::KILL);
        assert!(ends(pid));
    }
}

async fn what_it_printed_first(bench: &Bench, id: &ExecutionId) -> String {
    loop {
        let glance = bench.watch().glance(&session(), id).await.unwrap();
        if glance.stdout.head.ends_with('\n') {
            return glance.stdout.head.trim().to_owned();
        }
        crate::support::process::pause().await;
    }
}

async fn every_attack_is_stopped(tier: Tier) {
    let Some(mut bench) = bench(tier, networked).await else { return };
    let loot = Loot::lay(bench.path(), NOBODY);
    let upstream = Upstream::start(HERE);
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let (up, other_at) = (upstream.address.to_string(), other.local_addr().unwrap());
    let shows = "import os, time\nprint(os.environ['http_proxy'])\ntime.sleep(600)";
    let victim = start(&bench, "victim", shows, access(&[&up])).await;
    let proxy = what_it_printed_first(&bench, &victim).await;
    let script = ATTACKS
        .replace("{up}", &up)
        .replace("{other}", &other_at.to_string())
        .replace("{spool}", &bench.path().join("spool").display().to_string())
        .replace("{tier}", &format!("{tier:?}"))
        .replace("{victim}", &proxy)
        .replace("{local}", &loot.local);
    let named =
        [&up, "lent.example.com", "169.254.169.254", &format!("localhost:{}", other_at.port())];
    let mut access = access(&named);
    access.credentials = vec![CredentialName::parse("lent").unwrap()];
    start(&bench, "w", &script, access).await;
    let (_, outcome) = bench.end().await;
    let printed = printed(&outcome);
    let lines: Vec<&str> = printed.lines().filter(|line| line.contains(" | ")).collect();
    let mut table = std::io::stdout().lock();
    let user = if geteuid().is_root() { "root" } else { "user" };
    for line in &lines {
        writeln!(table, "{user} | {tier:?} | network: {line}").unwrap();
    }
    drop(table);
    assert_eq!(outcome.exit, Some(Exit::Code(0)), "{outcome:?}");
    assert!(printed.contains("\nallowed ") || printed.starts_with("allowed "), "{printed}");
    assert!(printed.ends_with("end\n"), "{printed}");
    let through: Vec<_> = lines.iter().filter(|line| !line.contains("| stopped |")).collect();
    assert!(through.is_empty(), "{through:#?}");
    let count = if tier == Tier::Landlock { COUNT_CONTAINED } else { COUNT };
    assert_eq!(lines.len(), count, "{printed}");
    other.set_nonblocking(true).unwrap();
    assert!(other.accept().is_err(), "somebody came through");
    assert!(!printed.contains(LENT), "{printed}");
    let log = std::fs::read_to_string(bench.path().join("spool/egress/log")).unwrap();
    assert!(log.contains("localhost") && !log.contains(LENT), "{log}");
    bench.watch().kill(&session(), &victim).await.unwrap();
    bench.end().await;
    end_egress(&bench);
    bench.nothing_is_left().await;
}

/// A plain loop, as a model writes it.
const POLLS: &str = "import time, urllib.request
polls, errors, body = 0, 0, b''
while body != b'end':
    try:
        body = urllib.request.urlopen('http://{up}/', timeout=100).read()
        polls += 1
    except OSError as error:
        errors += 1
        print('error', error)
    time.sleep(0.01)
print('errors', errors)";

async fn a_loop_lives_through_every_end(tier: Tier) {
    let Some(mut bench) = bench(tier, networked).await else { return };
    let upstream = Upstream::start(HERE);
    let up = upstream.address.to_string();
    let id = start(&bench, "w", &POLLS.replace("{up}", &up), access(&[&up])).await;
    upstream.asked_again(5);
    // The bot is away, and back.
    bench.crash().await;
    upstream.asked_again(20);
    bench.open().unwrap();
    upstream.asked_again(5);
    let found = bench.adopt().await;
    assert!(found.len() == 1 && found.iter().all(|entry| entry.networked), "{found:?}");
    bench.watch().allow(&session(), &id, &access(&[&up])).await.unwrap();
    upstream.asked_again(5);
    let so_far = bench.watch().glance(&session(), &id).await.unwrap();
    assert_eq!(so_far.stdout.head, "", "not one error by the end of the bot");
    // The egress process ends, and the bot that told it everything tells the next one.
    end_egress(&bench);
    upstream.asked_again(5);
    // It ends while there is no bot: what is asked meanwhile waits.
    bench.crash().await;
    end_egress(&bench);
    upstream.asked_again(0);
    bench.open().unwrap();
    bench.adopt().await;
    bench.watch().allow(&session(), &id, &access(&[&up])).await.unwrap();
    upstream.asked_again(5);
    upstream.ends();
    let (_, outcome) = bench.end().await;
    assert_eq!(outcome.status, Status::Completed, "{outcome:?}");
    let printed = printed(&outcome);
    let errors = printed.lines().last().unwrap().strip_prefix("errors ").unwrap();
    // Each end of the egress process breaks what is open in it: of one loop, one request.
    assert!(errors.parse::<u32>().unwrap() <= 2, "{printed}");
    end_egress(&bench);
    bench.nothing_is_left().await;
}

/// Asks again and again, and prints what it met.
const ASKS: &str = "import http.client, urllib.error, urllib.request
import time
def ask():
    try:
        print(urllib.request.urlopen('http://{up}/', timeout=100).status, flush=True)
    except urllib.error.HTTPError as met:
        print(met.code, met.reason, flush=True)
    except (OSError, http.client.HTTPException) as met:
        # An answer that was on its way when its rule was taken away.
        print('cut', met, flush=True)
while True:
    time.sleep(0.05)
    ask()";

async fn what_is_taken_away_is_refused_by_name(tier: Tier) {
    let Some(mut bench) = bench(tier, networked).await else { return };
    let upstream = Upstream::start(HERE);
    let up = upstream.address.to_string();
    let id = start(&bench, "w", &ASKS.replace("{up}", &up), access(&[&up])).await;
    upstream.asked_again(2);
    bench.watch().allow(&session(), &id, &Access::default()).await.unwrap();
    loop {
        let glance = bench.watch().glance(&session(), &id).await.unwrap();
        let said = format!("{}{}", glance.stdout.head, glance.stdout.tail);
        if said.contains("403") && said.ends_with('\n') {
            assert!(said.contains(&up), "the refusal names the host: {said}");
            break;
        }
        crate::support::process::pause().await;
    }
    while !upstream.is_quiet() {}
    bench.watch().kill(&session(), &id).await.unwrap();
    bench.end().await;
    assert!(upstream.is_quiet(), "nobody asked after it was taken away");
    end_egress(&bench);
    bench.nothing_is_left().await;
}

/// Nothing changes for a script without a network: there is not even an egress process.
async fn without_hosts_there_is_nothing(tier: Tier) {
    let mut bench = Bench::with(networked);
    assert_eq!(bench.watch().sandbox().unwrap().tier, Some(tier));
    let outcome =
        bench.run("import os\nprint([n for n in os.environ if 'proxy' in n.lower()])", LONG_MS);
    assert_eq!(printed(&outcome.await), "[]\n");
    assert_eq!(egress_of(&bench), Vec::<i32>::new());
    bench.nothing_is_left().await;
}

/// Stands where the egress process of a bench would, and answers that all is well. What it is told.
fn witness(bench: &Bench) -> Receiver<String> {
    let dir = bench.path().join("spool/egress");
    fs::create_dir_all(&dir).unwrap();
    let socket = UnixListener::bind(dir.join("ctl")).unwrap();
    let (tell, told) = channel();
    std::thread::spawn(move || {
        for stream in socket.incoming() {
            let (stream, tell) = (stream.unwrap(), tell.clone());
            std::thread::spawn(move || {
                let build = env!("CARGO_PKG_VERSION");
                let hello = format!("{{\"hello\":{{\"version\":1,\"build\":\"{build}\"}}}}\n");
                for line in BufReader::new(&stream).lines().map_while(Result::ok) {
                    let said = if line.contains("\"hello\"") { &hello } else { "{\"done\":{}}\n" };
                    let _gone = (&stream).write_all(said.as_bytes());
                    let _over = tell.send(line);
                }
            });
        }
    });
    told
}

/// Waits until it is told a word, and answers it.
fn told(witness: &Receiver<String>, word: &str) -> String {
    let within = Duration::from_millis(LONG_MS);
    loop {
        let line = witness.recv_timeout(within).expect("in vain");
        if line.starts_with(&format!("{{\"{word}\"")) {
            return line;
        }
    }
}

async fn what_may_be_reached_is_forgotten_with_whom_it_was_for(tier: Tier) {
    fn program(dir: &Path) -> PathBuf {
        dir.join("shim-to-go")
    }
    fn moved(dir: &Path) -> Settings {
        let settings = networked(dir);
        fs::copy(&settings.shim, program(dir)).unwrap();
        Settings { shim: program(dir), ..settings }
    }
    let Some(mut bench) = bench(tier, moved).await else { return };
    let witness = witness(&bench);
    let access = access(&["api.example.com"]);
    let id = start(&bench, "w", "print(1)", access.clone()).await;
    bench.end().await;
    assert!(told(&witness, "rules").contains("/w\""));
    assert!(told(&witness, "forget").contains("/w\""));
    // Said again to one that has ended meanwhile, as an adoption may.
    bench.watch().allow(&session(), &id, &access).await.unwrap();
    told(&witness, "rules");
    told(&witness, "forget");
    // And of one that never began.
    fs::remove_file(program(bench.path())).unwrap();
    for zygote in crate::support::process::zygotes_of(bench.path()) {
        signal(zygote, Signal::KILL);
        assert!(ends(zygote));
    }
    let never = Launch { access, ..launch("never", "print(1)", LONG_MS) };
    bench.watch().launch(never).await.unwrap_err();
    assert!(told(&witness, "rules").contains("/never\""));
    assert!(told(&witness, "forget").contains("/never\""));
}

#[test]
fn what_may_be_reached_is_forgotten_with_whom_it_was_for_here() {
    within(Where::Here, what_may_be_reached_is_forgotten_with_whom_it_was_for);
}

async fn all(tier: Tier) {
    every_attack_is_stopped(tier).await;
    a_loop_lives_through_every_end(tier).await;
    what_is_taken_away_is_refused_by_name(tier).await;
    without_hosts_there_is_nothing(tier).await;
}

#[test]
fn attack_b79_a_script_with_a_network_reaches_nothing_else_here() {
    within(Where::Here, every_attack_is_stopped);
}

#[test]
fn attack_b79_a_script_with_a_network_reaches_nothing_else_without_namespaces() {
    within(Where::Contained, every_attack_is_stopped);
}

#[test]
fn a_loop_lives_through_every_end_here() {
    within(Where::Here, a_loop_lives_through_every_end);
}

#[test]
fn a_loop_lives_through_every_end_without_namespaces() {
    within(Where::Contained, a_loop_lives_through_every_end);
}

#[test]
fn what_is_taken_away_is_refused_by_name_here() {
    within(Where::Here, what_is_taken_away_is_refused_by_name);
}

#[test]
fn what_is_taken_away_is_refused_by_name_without_namespaces() {
    within(Where::Contained, what_is_taken_away_is_refused_by_name);
}

#[test]
fn without_hosts_there_is_nothing_in_either_tier() {
    within(Where::Here, without_hosts_there_is_nothing);
}

#[test]
#[ignore = "run as another user by the next one"]
fn user_here() {
    within(Where::Here, all);
}

#[test]
fn attack_b79_an_ordinary_users_script_with_a_network_is_held_as_well() {
    as_user("sandbox::network::user_here");
}

#[test]
#[ignore = "run as another user by the next one"]
fn user_contained() {
    within(Where::Contained, all);
}

#[test]
fn attack_b79_an_ordinary_users_script_with_a_network_is_held_as_well_without_namespaces() {
    as_user("sandbox::network::user_contained");
}
