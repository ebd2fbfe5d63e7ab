//! Words: what `core` must not say, and what no committed file says.

use std::fs;

use super::source::{
    Fault, Source, committed, demand_count, demand_none, has_extension, root, sources,
};
use super::tokens::reading;

/// Words that betray waiting, clocks, chance, shared state or the world.
const OUTSIDE_CORE: &[&str] = &[
    "Instant",
    "Mutex",
    "RwLock",
    "SystemTime",
    "async",
    "await",
    "dbg",
    "eprintln",
    "print",
    "println",
    "rand",
    "spawn",
    "thread_rng",
    "tokio",
    "unsafe",
];

/// Hosts that a committed file may name in a URL. Everything else is either an example that should
/// say so by its name, or somebody's machine.
const HOSTS: &[&str] = &[
    "127.0.0.1",
    "[::1]",
    "localhost",
    "api.openai.com",
    "github.com",
    "json-schema.org",
    "slack.com",
    "www.apache.org",
    // As data: what an address with a secret in it looks like.
    "hooks.slack.com",
];

/// Ends of host names that are kept for examples.
const EXAMPLE_HOSTS: &[&str] =
    &["example.com", "example.org", "example.net", ".test", ".invalid", ".example"];

/// Absolute paths of one machine. Written in two pieces, so that this file may be judged too.
const MACHINE_PATHS: &[(&str, &str)] = &[("/wor", "k/"), ("/tmp/", "wt"), ("/roo", "t/")];

fn core_words(source: &Source) -> Vec<Fault> {
    if source.room() != "core" {
        return vec![];
    }
    reading(source)
        .words
        .iter()
        .filter(|word| !word.test && OUTSIDE_CORE.contains(&word.text.as_str()))
        .map(|word| {
            Fault::new(
                &source.path,
                word.line,
                format!("`{}` in core", word.text),
                "core decides: time, ids and chance come in as data; act in engine or an adapter",
            )
        })
        .collect()
}

fn machine_words(path: &str, text: &str) -> Vec<Fault> {
    let mut faults = vec![];
    for (index, line) in text.lines().enumerate() {
        for (start, end) in MACHINE_PATHS {
            if holds_absolute(line, &format!("{start}{end}")) {
                let what = format!("the path `{start}{end}…` is one machine's");
                let now = "write it relative to the package, or to a temporary directory";
                faults.push(Fault::new(path, index + 1, what, now));
            }
        }
        for host in hosts(line).filter(|host| !is_known(host)) {
            let what = format!("a URL with the host `{host}`");
            let now =
                "use example.com or loopback, or add the host to HOSTS here if readers need it";
            faults.push(Fault::new(path, index + 1, what, now));
        }
    }
    faults
}

/// Does the path stand there as an absolute one, and not as the end of a longer path?
fn holds_absolute(line: &str, path: &str) -> bool {
    line.match_indices(path).any(|(at, _)| {
        let before = line.get(..at).and_then(|text| text.chars().next_back());
        !before.is_some_and(|c| c.is_alphanumeric() || "._-}/*)".contains(c))
    })
}

fn hosts(line: &str) -> impl Iterator<Item = &str> {
    let ends = |c: char| c.is_whitespace() || "/\"'`)>,\\|#?".contains(c);
    line.split("://").skip(1).filter_map(move |rest| {
        let authority = rest.split(ends).next()?;
        let host = authority.rsplit('@').next()?;
        let host = if host.starts_with('[') {
            host.split_inclusive(']').next()?
        } else {
            host.split(':').next()?
        };
        // A placeholder such as `{address}` names nobody.
        (!host.is_empty() && !host.contains(['{', '$', '<', '…'])).then_some(host)
    })
}

fn is_known(host: &str) -> bool {
    let host = host.trim_end_matches(['.', ';']);
    HOSTS.contains(&host)
        || !host.contains('.') && !host.contains("::")
        || EXAMPLE_HOSTS.iter().any(|end| host.ends_with(end))
}

#[test]
fn core_says_nothing_of_the_world() {
    let faults: Vec<Fault> = sources().iter().flat_map(core_words).collect();
    demand_none("core is pure: no waiting, no clock, no chance, no shared state.", &faults);
}

#[test]
fn a_word_of_the_world_in_core_is_caught() {
    let cases = [
        (
            "src/core/a.rs",
            "//! Not async.\n/// No Mutex, \"tokio\" is a word in a doc.\nfn f() {}",
            0,
        ),
        ("src/core/a.rs", "async fn f() { g().await }", 2),
        ("src/core/a.rs", "fn f() { std::time::Instant::now(); }", 1),
        ("src/core/a.rs", "use std::{sync::{Arc, Mutex}, time::SystemTime};", 2),
        ("src/core/a.rs", "macro_rules! m { () => { println!(\"x\") } }", 1),
        ("src/core/a.rs", "#[cfg(test)] mod tests { fn f() { println!(\"x\") } }", 0),
        ("src/engine/a.rs", "async fn f() { g().await }", 0),
    ];
    for (path, text, count) in cases {
        demand_count(&core_words(&Source::new(path, text)), count, text);
    }
}

#[test]
fn no_committed_file_names_a_machine() {
    let mut faults = vec![];
    for path in committed() {
        // The lock file names the one registry that `supply` judges; licences are quoted whole.
        if path == "Cargo.lock" || path.starts_with("LICENSE-") {
            continue;
        }
        match fs::read_to_string(root().join(&path)) {
            Ok(text) => faults.extend(machine_words(&path, &text)),
            Err(_) => assert!(!has_extension(&path, "rs"), "{path} is not text"),
        }
    }
    demand_none("What is committed names no machine and no unknown host.", &faults);
}

#[test]
fn the_name_of_a_machine_is_caught() {
    let path = |pieces: &[&str]| pieces.concat();
    let cases = [
        (path(&["cd /wor", "k/main"]), 1),
        (path(&["see \"/tmp/", "wt/house\""]), 1),
        (path(&["~ is /roo", "t/.cargo"]), 1),
        (path(&["target/wor", "k/x and net", "work/y"]), 0),
        (path(&["https://mirror", ".corp.io/simple"]), 1),
        (path(&["https://user:pw@mirror", ".corp.io:8080/simple"]), 1),
        ("https://github.com/a/b http://127.0.0.1:80/v1 http://[::1]:9/x".into(), 0),
        (
            "https://hooks.example.com/a http://fake.test http://{address}/v1 http://localhost"
                .into(),
            0,
        ),
        ("a plain :// and http:// alone".into(), 0),
    ];
    for (text, count) in cases {
        demand_count(&machine_words("README.md", &text), count, &text);
    }
}
