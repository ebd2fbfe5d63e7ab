//! Reads a file as tokens, so that macros are seen like any other code: paths, with the groups of
//! `use` expanded, single words, attributes and functions. Comments are not seen.

use proc_macro2::{Delimiter, Group, TokenTree};

use super::source::Source;

/// A path as it was written, such as `crate::core::id::TurnNo`.
#[derive(Debug)]
pub(crate) struct Mention {
    /// Its segments; a glob is `*`.
    pub(crate) path: Vec<String>,
    /// Where.
    pub(crate) line: usize,
    /// It stands in a `use`.
    pub(crate) import: bool,
    /// Only tests see it.
    pub(crate) test: bool,
    /// The module that it stands in.
    pub(crate) module: Vec<String>,
}

impl Mention {
    /// The path from the crate's root, if it is one into this crate.
    pub(crate) fn inside(&self) -> Option<Vec<String>> {
        let mut at = match self.path.first()?.as_str() {
            "crate" => vec![],
            "self" | "super" => self.module.clone(),
            _ => return None,
        };
        for segment in &self.path {
            match segment.as_str() {
                "crate" | "self" => {}
                "super" => drop(at.pop()),
                name => at.push(name.into()),
            }
        }
        Some(at)
    }
}

/// One identifier.
#[derive(Debug)]
pub(crate) struct Word {
    /// As written.
    pub(crate) text: String,
    /// Where.
    pub(crate) line: usize,
    /// Only tests see it.
    pub(crate) test: bool,
}

/// One attribute, without white space: `allow(dead_code)`.
#[derive(Debug)]
pub(crate) struct Attribute {
    /// What stands between the brackets.
    pub(crate) text: String,
    /// Where.
    pub(crate) line: usize,
}

/// One function with a body.
#[derive(Debug)]
pub(crate) struct Function {
    /// Its name.
    pub(crate) name: String,
    /// Where its `fn` stands.
    pub(crate) line: usize,
    /// Lines from `fn` to the closing brace.
    pub(crate) lines: usize,
}

/// All that is read from a file.
#[derive(Debug, Default)]
pub(crate) struct Reading {
    pub(crate) mentions: Vec<Mention>,
    pub(crate) words: Vec<Word>,
    pub(crate) attributes: Vec<Attribute>,
    pub(crate) functions: Vec<Function>,
}

#[derive(Clone)]
struct Place {
    module: Vec<String>,
    test: bool,
}

/// Reads a file.
pub(crate) fn reading(source: &Source) -> Reading {
    let mut reading = Reading::default();
    let trees: Vec<TokenTree> = source.tokens.clone().into_iter().collect();
    let place = Place { module: source.module(), test: source.is_test() };
    reading.block(&trees, &place);
    reading
}

impl Reading {
    fn block(&mut self, trees: &[TokenTree], place: &Place) {
        let mut tested_until = 0;
        let mut at = 0;
        while let Some(tree) = trees.get(at) {
            if is_test_attribute(trees, at) {
                tested_until = tested_until.max(end_of_item(trees, at + 2));
            }
            let mut place = place.clone();
            place.test |= at < tested_until;
            match tree {
                TokenTree::Group(group) => {
                    self.attribute(trees, at, group);
                    place.module.extend(inline_module(trees, at));
                    self.block(&inner(group), &place);
                    at += 1;
                }
                TokenTree::Ident(_) if starts_path(trees, at) => {
                    self.function(trees, at);
                    at = self.path(trees, at, (vec![], is_import(trees, at)), &place);
                }
                TokenTree::Ident(_) | TokenTree::Punct(_) | TokenTree::Literal(_) => at += 1,
            }
        }
    }

    /// Reads the path at `at`, after what stands before a group of `use`; answers where it ends.
    fn path(
        &mut self,
        trees: &[TokenTree],
        mut at: usize,
        (mut path, import): (Vec<String>, bool),
        place: &Place,
    ) -> usize {
        let mut line = 0;
        loop {
            match trees.get(at) {
                Some(TokenTree::Ident(ident)) => {
                    let text = ident.to_string();
                    line = ident.span().start().line;
                    self.words.push(Word { text: text.clone(), line, test: place.test });
                    path.push(text);
                }
                Some(TokenTree::Punct(punct)) if punct.as_char() == '*' => path.push("*".into()),
                Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Brace => {
                    self.group_of_use(group, &path, place);
                    return at + 1;
                }
                _ => break,
            }
            at += 1;
            if path.len() == 1 && path.first().is_some_and(|word| word == "use") {
                return if brace_at(trees, at) {
                    self.path(trees, at, (vec![], true), place)
                } else {
                    at
                };
            }
            if !colons_at(trees, at) {
                break;
            }
            at += 2;
        }
        let module = place.module.clone();
        self.mentions.push(Mention { path, line, import, test: place.test, module });
        at
    }

    fn group_of_use(&mut self, group: &Group, before: &[String], place: &Place) {
        let trees = inner(group);
        let mut at = 0;
        while at < trees.len() {
            at = self.path(&trees, at, (before.to_vec(), true), place);
            while at < trees.len() && !is_punct(trees.get(at), ',') {
                at += 1;
            }
            at += 1;
        }
    }

    fn attribute(&mut self, trees: &[TokenTree], at: usize, group: &Group) {
        let before = at.checked_sub(1).and_then(|at| trees.get(at));
        let inner_mark = is_punct(before, '!')
            && at.checked_sub(2).is_some_and(|at| is_punct(trees.get(at), '#'));
        if group.delimiter() == Delimiter::Bracket && (is_punct(before, '#') || inner_mark) {
            let line = group.span_open().start().line;
            self.attributes.push(Attribute { text: squeezed(group), line });
        }
    }

    fn function(&mut self, trees: &[TokenTree], at: usize) {
        let (Some(TokenTree::Ident(word)), Some(TokenTree::Ident(name))) =
            (trees.get(at), trees.get(at + 1))
        else {
            return;
        };
        if word != "fn" {
            return;
        }
        for tree in trees.iter().skip(at + 2) {
            match tree {
                TokenTree::Punct(punct) if punct.as_char() == ';' => return,
                TokenTree::Group(body) if body.delimiter() == Delimiter::Brace => {
                    let line = word.span().start().line;
                    let lines = body.span_close().end().line + 1 - line;
                    self.functions.push(Function { name: name.to_string(), line, lines });
                    return;
                }
                TokenTree::Group(_)
                | TokenTree::Ident(_)
                | TokenTree::Punct(_)
                | TokenTree::Literal(_) => {}
            }
        }
    }
}

fn inner(group: &Group) -> Vec<TokenTree> {
    group.stream().into_iter().collect()
}

fn squeezed(group: &Group) -> String {
    group.stream().to_string().split_whitespace().collect()
}

fn is_punct(tree: Option<&TokenTree>, sign: char) -> bool {
    matches!(tree, Some(TokenTree::Punct(punct)) if punct.as_char() == sign)
}

fn brace_at(trees: &[TokenTree], at: usize) -> bool {
    matches!(trees.get(at), Some(TokenTree::Group(g)) if g.delimiter() == Delimiter::Brace)
}

fn colons_at(trees: &[TokenTree], at: usize) -> bool {
    is_punct(trees.get(at), ':') && is_punct(trees.get(at + 1), ':')
}

fn colons_before(trees: &[TokenTree], at: usize) -> bool {
    at >= 2 && colons_at(trees, at - 2)
}

/// A path goes on after `::`, unless nothing stands before that.
fn starts_path(trees: &[TokenTree], at: usize) -> bool {
    if !colons_before(trees, at) {
        return true;
    }
    let before = at.checked_sub(3).and_then(|at| trees.get(at));
    match before {
        Some(TokenTree::Ident(word)) => word == "use",
        Some(TokenTree::Punct(punct)) => punct.as_char() != '>',
        Some(TokenTree::Group(_) | TokenTree::Literal(_)) | None => true,
    }
}

fn is_import(trees: &[TokenTree], at: usize) -> bool {
    let start = if colons_before(trees, at) { at - 2 } else { at };
    let before = start.checked_sub(1).and_then(|at| trees.get(at));
    matches!(before, Some(TokenTree::Ident(word)) if word == "use")
}

fn inline_module(trees: &[TokenTree], at: usize) -> Option<String> {
    let (mark, name) = (trees.get(at.checked_sub(2)?)?, trees.get(at - 1)?);
    match (mark, name) {
        (TokenTree::Ident(mark), TokenTree::Ident(name)) if mark == "mod" => Some(name.to_string()),
        _ => None,
    }
}

fn is_test_attribute(trees: &[TokenTree], at: usize) -> bool {
    let Some(TokenTree::Group(group)) = trees.get(at + 1) else { return false };
    is_punct(trees.get(at), '#')
        && ["cfg(test)", "test"].contains(&squeezed(group).as_str().trim_end_matches(','))
}

fn end_of_item(trees: &[TokenTree], start: usize) -> usize {
    let ends = |at: &usize| is_punct(trees.get(*at), ';') || brace_at(trees, *at);
    (start..trees.len()).find(ends).map_or(trees.len(), |at| at + 1)
}

#[test]
fn paths_are_found_in_groups_types_macros_and_attributes() {
    let source = Source::new(
        "src/model/x.rs",
        "use crate::{core::{id::A, time::*}, store::B as C};
         use ::tokio::net; use {regex, serde::Serialize};
         #[derive(schemars::JsonSchema)] struct S(Vec<crate::watch::T>);
         macro_rules! m { () => { $crate::engine::go::<u8>(super::super::config::K) } }
         mod tests { use super::super::inner; }",
    );
    let read = reading(&source);
    let paths: Vec<String> = read.mentions.iter().map(|mention| mention.path.join("::")).collect();
    for path in [
        "crate::core::id::A",
        "crate::core::time::*",
        "crate::store::B",
        "tokio::net",
        "regex",
        "serde::Serialize",
        "schemars::JsonSchema",
        "crate::watch::T",
        "crate::engine::go",
        "super::super::config::K",
    ] {
        assert!(paths.iter().any(|found| found == path), "{path} is not in {paths:#?}");
    }
    let nested = read.mentions.iter().find(|mention| mention.path.contains(&"inner".into()));
    assert_eq!(nested.and_then(Mention::inside), Some(vec!["model".into(), "inner".into()]));
}

#[test]
fn what_only_tests_see_is_told_apart() {
    let read = reading(&Source::new(
        "src/core/x.rs",
        "fn a() { one(); } #[cfg(test)] mod tests { fn b() { two(); } } fn c() { three(); }",
    ));
    let of = |text: &str| read.words.iter().find(|word| word.text == text).map(|word| word.test);
    assert_eq!((of("one"), of("two"), of("three")), (Some(false), Some(true), Some(false)));
}
