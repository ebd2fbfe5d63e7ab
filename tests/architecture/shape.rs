//! Sizes and marks: how long, how wide, what every file has and what none has.

use super::source::{Fault, Source, demand_count, demand_none, sources};
use super::tokens::reading;

const FILE_LINES_MAX: usize = 500;
const MAIN_LINES_MAX: usize = 60;
const FUNCTION_LINES_MAX: usize = 70;
const COLUMNS_MAX: usize = 100;
const UNSAFE_FILES_MAX: usize = 3;
const NAMELESS: &[&str] = &["common", "helpers", "misc", "types", "utils"];

fn sizes(source: &Source) -> Vec<Fault> {
    let mut faults = vec![];
    let lines = source.text.lines().count();
    let max = if source.path == "src/main.rs" { MAIN_LINES_MAX } else { FILE_LINES_MAX };
    if lines > max {
        faults.push(Fault::new(
            &source.path,
            lines,
            format!("the file has {lines} lines, at most {max} are allowed"),
            "split it where its doc comment says `and`",
        ));
    }
    for (index, line) in source.text.lines().enumerate() {
        let columns = line.chars().count();
        if columns > COLUMNS_MAX {
            faults.push(Fault::new(
                &source.path,
                index + 1,
                format!("the line has {columns} columns, at most {COLUMNS_MAX} are allowed"),
                "break the line; a long text goes on after a `\\` at the line's end",
            ));
        }
    }
    for function in reading(source).functions {
        if function.lines > FUNCTION_LINES_MAX {
            faults.push(Fault::new(
                &source.path,
                function.line,
                format!(
                    "`fn {}` has {} lines, at most {FUNCTION_LINES_MAX} are allowed",
                    function.name, function.lines
                ),
                "keep the branches in it and move the straight pieces out",
            ));
        }
    }
    faults
}

fn marks(source: &Source) -> Vec<Fault> {
    let mut faults = vec![];
    let path = source.path.as_str();
    let documented = source.text.starts_with("//! ")
        || source.text.starts_with("#![doc = include")
        // Its parent says what it owns.
        || source.is_test();
    if !documented {
        let now = "begin with `//!`: what this module owns, what it must not know";
        faults.push(Fault::new(path, 1, "the file has no module doc", now));
    }
    for part in source.module().iter().filter(|part| NAMELESS.contains(&part.as_str())) {
        let now = "name the module after what it owns";
        faults.push(Fault::new(path, 1, format!("the module name `{part}` says nothing"), now));
    }
    for attribute in reading(source).attributes {
        if attribute.text.starts_with("allow(") || attribute.text.contains(",allow(") {
            let now = "write `#[expect(lint, reason = \"…\")]`, which ends when it is not needed";
            let what = format!("`#[{}]`", attribute.text);
            faults.push(Fault::new(path, attribute.line, what, now));
        }
        if attribute.text.starts_with("path=") {
            let now = "let the file stand where its module path says, or the table is blind";
            faults.push(Fault::new(path, attribute.line, "`#[path]` in src/", now));
        }
    }
    faults
}

fn unsafe_code<'a>(sources: impl Iterator<Item = &'a Source>) -> Vec<Fault> {
    let mut faults = vec![];
    let mut files = 0;
    for source in sources {
        let words = reading(source).words;
        let Some(word) = words.iter().find(|word| word.text == "unsafe") else { continue };
        files += 1;
        if source.room() != "watch" {
            let now = "use nix or std; only watch/ may reach below them";
            faults.push(Fault::new(&source.path, word.line, "`unsafe` outside of watch/", now));
        } else if files > UNSAFE_FILES_MAX {
            let what = format!("`unsafe` in more than {UNSAFE_FILES_MAX} files");
            let now = "keep it where it is: the rings' mmap, the shim's fork, the sandbox's clone";
            faults.push(Fault::new(&source.path, word.line, what, now));
        }
    }
    faults
}

#[test]
fn nothing_is_too_long_or_too_wide() {
    let faults: Vec<Fault> = sources().iter().flat_map(sizes).collect();
    demand_none("Files, functions and lines are short enough to be read at once.", &faults);
}

#[test]
fn too_long_and_too_wide_is_caught() {
    let body = |lines: usize| format!("//! Doc.\nfn f() {{\n{}}}\n", "    g();\n".repeat(lines));
    let cases = [
        ("src/a.rs", body(68), 0),
        ("src/a.rs", body(69), 1),
        (
            "src/a.rs",
            format!("macro_rules! m {{ () => {{ {} }} }}", body(69).replace("//!", "//")),
            1,
        ),
        ("src/a.rs", "//\n".repeat(500), 0),
        ("src/a.rs", "//\n".repeat(501), 1),
        ("src/main.rs", "//\n".repeat(60), 0),
        ("src/main.rs", "//\n".repeat(61), 1),
        ("src/a.rs", format!("//{}", "ä".repeat(98)), 0),
        ("src/a.rs", format!("//{}", "ä".repeat(99)), 1),
        ("src/a.rs", "trait T { fn f(); fn g() {} } type F = fn(u8);".into(), 0),
    ];
    for (path, text, count) in cases {
        demand_count(&sizes(&Source::new(path, &text)), count, &text);
    }
}

#[test]
fn every_file_has_its_doc_and_no_forbidden_mark() {
    let faults: Vec<Fault> = sources().iter().flat_map(marks).collect();
    demand_none("Files say what they own; lints are expected, never allowed.", &faults);
}

#[test]
fn a_missing_doc_and_a_forbidden_mark_are_caught() {
    let cases = [
        ("src/core/a.rs", "//! Owns a.\n", 0),
        ("src/lib.rs", "#![doc = include_str!(\"ARCHITECTURE.md\")]", 0),
        ("src/core/a.rs", "use std::fmt;", 1),
        ("src/core/a/tests.rs", "use std::fmt;", 0),
        ("src/core/a.rs", "//! A.\n// #[allow(x)] in a comment is none\n", 0),
        ("src/core/a.rs", "//! A.\n#![allow(dead_code)]", 1),
        ("src/core/a.rs", "//! A.\nmacro_rules! m { () => { #[allow(dead_code)] fn f() {} } }", 1),
        ("src/core/a.rs", "//! A.\n#[cfg_attr(test, allow(dead_code))] fn f() {}", 1),
        ("src/core/a.rs", "//! A.\n#[expect(dead_code, reason = \"shown\")] fn f() {}", 0),
        ("src/core/a.rs", "//! A.\n#[path = \"b.rs\"] mod b;", 1),
        ("src/core/utils.rs", "//! A.\n", 1),
        ("src/model/types/mod.rs", "//! A.\n", 1),
    ];
    for (path, text, count) in cases {
        demand_count(&marks(&Source::new(path, text)), count, text);
    }
}

#[test]
fn unsafe_code_stays_in_three_files_of_watch() {
    demand_none("`unsafe` stays in at most three files of watch/.", &unsafe_code(sources().iter()));
}

#[test]
fn unsafe_code_elsewhere_is_caught() {
    let file = |path: &str| Source::new(path, "fn f() { unsafe { g() } }");
    let clean = Source::new("src/core/a.rs", "// unsafe in a comment\nfn f() { \"unsafe\"; }");
    let three = ["src/watch/a.rs", "src/watch/b.rs", "src/watch/c.rs"].map(file);
    let fourth = file("src/watch/d.rs");
    demand_count(&unsafe_code(three.iter().chain([&clean])), 0, "three files of watch/");
    demand_count(&unsafe_code(three.iter().chain([&fourth])), 1, "four files of watch/");
    demand_count(&unsafe_code([&file("src/core/a.rs")].into_iter()), 1, "unsafe in core");
}
