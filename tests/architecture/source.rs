//! Files to be judged, and faults found in them.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use proc_macro2::TokenStream;

/// The package's directory.
pub(crate) fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// A text file of the package.
pub(crate) fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// One Rust file.
pub(crate) struct Source {
    /// From the package's directory, such as `src/core/id.rs`.
    pub(crate) path: String,
    /// As it stands.
    pub(crate) text: String,
    /// Without comments.
    pub(crate) tokens: TokenStream,
}

impl Source {
    /// A file, or a text that a rule is tried on.
    pub(crate) fn new(path: &str, text: &str) -> Self {
        let tokens = TokenStream::from_str(text)
            .unwrap_or_else(|error| panic!("{path} is not Rust: {error}; run `cargo check`"));
        Self { path: path.into(), text: text.into(), tokens }
    }

    /// Its module path: `core`, `ledger`, `key` for `src/core/ledger/key.rs`.
    pub(crate) fn module(&self) -> Vec<String> {
        let inner = self.path.strip_prefix("src/").unwrap_or(&self.path);
        let inner = inner.strip_suffix(".rs").unwrap_or(inner);
        let mut parts: Vec<String> = inner.split('/').map(String::from).collect();
        if parts.last().is_some_and(|last| last == "mod" || last == "lib" || last == "main") {
            parts.pop();
        }
        parts
    }

    /// The room it stands in; the two crate roots are rooms of their own.
    pub(crate) fn room(&self) -> String {
        let root = if self.path == "src/main.rs" { "main" } else { "lib" };
        self.module().first().cloned().unwrap_or_else(|| root.into())
    }

    /// A module that only tests see.
    pub(crate) fn is_test(&self) -> bool {
        self.module().iter().any(|part| part == "tests" || part.ends_with("_tests"))
    }
}

/// Every Rust file under `src/`.
pub(crate) fn sources() -> Vec<Source> {
    let found: Vec<Source> = walk(&root().join("src"))
        .iter()
        .filter(|path| has_extension(path, "rs"))
        .map(|path| Source::new(path, &read(path)))
        .collect();
    assert!(found.len() > 10, "only {} files found under src/", found.len());
    found
}

/// Does a path end so?
pub(crate) fn has_extension(path: &str, extension: &str) -> bool {
    Path::new(path).extension().is_some_and(|found| found == extension)
}

/// Every file of the package that may be committed: all but what `.gitignore` names.
pub(crate) fn committed() -> Vec<String> {
    walk(&root())
}

fn walk(directory: &Path) -> Vec<String> {
    let ignored = read(".gitignore");
    let ignored: Vec<&str> = ignored.lines().map(|line| line.trim_matches('/')).collect();
    let mut found = vec![];
    let mut open = vec![directory.to_path_buf()];
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(&directory).expect("the package can be read") {
            let path = entry.expect("the package can be read").path();
            let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
            let name = name.unwrap_or_default();
            if name == ".git" || ignored.iter().any(|pattern| matches(pattern, &name)) {
                continue;
            }
            if path.is_dir() {
                open.push(path);
            } else {
                let inner = path.strip_prefix(root()).expect("it was found there");
                found.push(inner.to_string_lossy().into_owned());
            }
        }
    }
    found.sort();
    found
}

fn matches(pattern: &str, name: &str) -> bool {
    pattern.strip_prefix('*').map_or(pattern == name, |end| name.ends_with(end))
}

/// Something against the rules.
#[derive(Debug)]
pub(crate) struct Fault {
    path: String,
    line: usize,
    what: String,
    now: String,
}

impl Fault {
    /// Where, what, and what to do now.
    pub(crate) fn new(
        path: &str,
        line: usize,
        what: impl Into<String>,
        now: impl Into<String>,
    ) -> Self {
        Self { path: path.into(), line, what: what.into(), now: now.into() }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}\n    now: {}", self.path, self.line, self.what, self.now)
    }
}

/// Fails with all faults at once.
pub(crate) fn demand_none(rule: &str, faults: &[Fault]) {
    let list: Vec<String> = faults.iter().map(ToString::to_string).collect();
    assert!(faults.is_empty(), "{rule}\n{} fault(s):\n{}", faults.len(), list.join("\n"));
}

/// A rule that is tried on a text: it must find exactly so many faults.
pub(crate) fn demand_count(faults: &[Fault], count: usize, tried: &str) {
    let list: Vec<String> = faults.iter().map(ToString::to_string).collect();
    let list = list.join("\n");
    assert_eq!(faults.len(), count, "tried on:\n{tried}\nfound:\n{list}");
}

#[test]
fn a_file_knows_its_module_and_room() {
    let of = |path: &str| (Source::new(path, "").module().join("::"), Source::new(path, "").room());
    assert_eq!(of("src/core/ledger/key.rs"), ("core::ledger::key".into(), "core".into()));
    assert_eq!(of("src/core/mod.rs"), ("core".into(), "core".into()));
    assert_eq!(of("src/ports.rs"), ("ports".into(), "ports".into()));
    assert_eq!(of("src/main.rs"), (String::new(), "main".into()));
    assert_eq!(of("src/lib.rs"), (String::new(), "lib".into()));
}

#[test]
fn ignored_files_are_not_judged() {
    let files = committed();
    assert!(files.iter().any(|path| path == "Cargo.toml"));
    assert!(!files.iter().any(|path| path.starts_with("target/") || path.starts_with(".git/")));
}
