//! `src/ARCHITECTURE.md` against the source: the map names every file, and what it names is there.

use std::collections::BTreeMap;

use super::source::{Fault, Source, committed, demand_count, demand_none, has_extension, read};
use super::tokens::reading;

const PAGE: &str = "src/ARCHITECTURE.md";
const MAP: &str = "## Code map";
const INVARIANTS: &str = "## Invariants";
const UNTESTED: &str = "no test yet";
const DEFINERS: &[&str] = &["const", "enum", "fn", "macro_rules", "static", "struct", "trait"];

/// Files, by their name on the page, with what they define.
type Files = BTreeMap<String, Vec<String>>;

/// On the page a file under `src/` stands without `src/`.
fn files() -> Files {
    let rust = |path: &String| has_extension(path, "rs") && !path.starts_with("benches/");
    let paths = committed().into_iter().filter(rust);
    paths.map(|path| (on_page(&path), definitions(&path, &read(&path)))).collect()
}

fn on_page(path: &str) -> String {
    path.strip_prefix("src/").unwrap_or(path).into()
}

fn definitions(path: &str, text: &str) -> Vec<String> {
    let words = reading(&Source::new(path, text)).words;
    let pairs = words.iter().zip(words.iter().skip(1));
    pairs
        .filter(|(first, _)| DEFINERS.contains(&first.text.as_str()))
        .map(|(_, second)| second.text.clone())
        .collect()
}

/// The code spans of a line.
fn spans(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2)
}

fn section<'a>(page: &'a str, heading: &str) -> Vec<(usize, &'a str)> {
    let lines = page.lines().enumerate().map(|(index, line)| (index + 1, line));
    lines
        .skip_while(|(_, line)| *line != heading)
        .skip(1)
        .take_while(|(_, line)| !line.starts_with("## "))
        .collect()
}

fn unmapped(page: &str, files: &Files) -> Vec<Fault> {
    let map = section(page, MAP);
    let named: Vec<&str> = map.iter().flat_map(|(_, line)| spans(line)).collect();
    files
        .keys()
        .filter(|path| !is_test(path) && !named.contains(&path.as_str()))
        .map(|path| {
            let now = format!("add a line with `{path}` to `{MAP}`: what the file owns");
            Fault::new(PAGE, 1, format!("the code map does not name `{path}`"), now)
        })
        .collect()
}

/// Tests stand beside what they test and need no line of their own.
fn is_test(path: &str) -> bool {
    path.split('/').any(|part| part == "tests" || part.ends_with("tests.rs"))
}

fn unfounded(page: &str, files: &Files) -> Vec<Fault> {
    let mut faults = vec![];
    for (index, line) in page.lines().enumerate() {
        for span in spans(line) {
            let (path, name) = match span.split_once("::") {
                Some((path, name)) => (path, Some(name)),
                None => (span, None),
            };
            if !has_extension(path, "rs") || path.contains(['*', '{', ' ']) {
                continue;
            }
            let Some(defined) = files.get(path) else {
                let now = "give the file's path from src/, or from the package for tests/";
                let what = format!("`{path}` is not there");
                faults.push(Fault::new(PAGE, index + 1, what, now));
                continue;
            };
            let Some(name) = name else { continue };
            if !defined.iter().any(|defined| defined == name) {
                let now = "name what the file defines, or follow it to where it went";
                let what = format!("`{path}` does not define `{name}`");
                faults.push(Fault::new(PAGE, index + 1, what, now));
            }
        }
    }
    faults
}

/// Each invariant names the test that fails without it, or says plainly that there is none.
fn unproven(page: &str) -> Vec<Fault> {
    let mut items: Vec<(usize, String)> = vec![];
    for (line, text) in section(page, INVARIANTS) {
        if text.starts_with("- ") {
            items.push((line, text.into()));
        } else if let Some((_, item)) = items.last_mut().filter(|_| text.starts_with("  ")) {
            item.push_str(text);
        }
    }
    let proven = |item: &str| item.contains(UNTESTED) || spans(item).any(|s| s.contains(".rs::"));
    items
        .into_iter()
        .filter(|(_, item)| !proven(item))
        .map(|(line, item)| {
            let what = format!("the invariant names no test: {item}");
            let now = "name the test that fails without it: `tests/stores.rs::name`";
            Fault::new(PAGE, line, what, now)
        })
        .collect()
}

#[test]
fn the_code_map_names_every_file() {
    demand_none("The code map is whole.", &unmapped(&read(PAGE), &files()));
}

#[test]
fn what_the_page_names_is_there() {
    demand_none("The page is true.", &unfounded(&read(PAGE), &files()));
}

#[test]
fn every_invariant_names_its_test() {
    let page = read(PAGE);
    assert!(section(&page, INVARIANTS).len() > 10, "{PAGE} has no `{INVARIANTS}` any more");
    demand_none("Invariants are tested.", &unproven(&page));
}

#[test]
fn an_untrue_page_is_caught() {
    let defined = definitions("src/core/id.rs", "pub fn check() {} pub struct Id;");
    let none = |path: &str| (path.to_owned(), vec![]);
    let tests = ["tests/a.rs", "core/id/tests.rs", "core/turn/tests/bench.rs"].map(none);
    let files: Files = [("core/id.rs".into(), defined)].into_iter().chain(tests).collect();
    let cases = [
        ("## Code map\n- `core/id.rs` — ids", 0, 0),
        ("## Code map\n\n## Rest\n`core/id.rs`", 1, 0),
        ("## Code map\n- `core/id.rs`, `core/gone.rs`", 0, 1),
        ("## Code map\n- `core/id.rs`\n## Way\n`core/id.rs::check`, `core/id.rs::Id`", 0, 0),
        ("## Code map\n- `core/id.rs`\n## Way\n`core/id.rs::gone`", 0, 1),
        ("## Code map\n- `core/id.rs`\n`tests/a.rs` `tests/b.rs` `*.rs` `cargo run`", 0, 1),
    ];
    for (page, unmapped_count, unfounded_count) in cases {
        demand_count(&unmapped(page, &files), unmapped_count, page);
        demand_count(&unfounded(page, &files), unfounded_count, page);
    }
}

#[test]
fn an_unproven_invariant_is_caught() {
    let cases = [
        ("## Invariants\n- **a**: so. `tests/stores.rs::a`", 0),
        ("## Invariants\n- **a**: so\n  and so. `tests/stores.rs::a`\n- **b**: no test yet", 0),
        ("## Invariants\n- **a**: so.\n- **b**: `tests/stores.rs::b`", 1),
        ("## Invariants\nProse.\n## Rest\n- an item elsewhere", 0),
    ];
    for (page, count) in cases {
        demand_count(&unproven(page), count, page);
    }
}
