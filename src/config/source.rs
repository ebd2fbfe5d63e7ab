//! One TOML file: its text, its tree, and where each key stands. Owns reading it into a raw
//! struct with every structural mistake named, and finding the place of a key later.
//! Must not know what any key means.

use std::io::Read as _;
use std::ops::Range;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use toml::de::{DeTable, DeValue};

use super::problem::Problem;
use crate::core::limits::{CONFIG_BYTES_MAX, NAMES_IN_ERROR_MAX};
use crate::core::nearest::nearest;

/// Structural mistakes of one file that are listed.
const MISTAKES_MAX: usize = 32;

/// A file that is TOML.
pub(super) struct Source {
    file: PathBuf,
    text: String,
}

impl Source {
    /// Reads it, bounded.
    pub(super) fn open(file: &Path) -> Result<Self, Problem> {
        let text = read_bounded(file, CONFIG_BYTES_MAX)?;
        Ok(Self { file: file.to_owned(), text })
    }

    /// Its path.
    pub(super) fn file(&self) -> &Path {
        &self.file
    }

    /// The raw struct. A key that is wrong is reported, taken out, and the rest is read again,
    /// so that one run names every mistake.
    pub(super) fn read<T: DeserializeOwned + Default>(&self, problems: &mut Vec<Problem>) -> T {
        let (mut tree, errors) = DeTable::parse_recoverable(&self.text);
        if !errors.is_empty() {
            problems.extend(errors.iter().take(MISTAKES_MAX).map(|e| self.not_toml(e)));
            return T::default();
        }
        for _ in 0..MISTAKES_MAX {
            let error = match T::deserialize(toml::Deserializer::from(tree.clone())) {
                Ok(raw) => return raw,
                Err(error) => error,
            };
            let span = error.span().unwrap_or(0..0);
            let key = take_out(tree.get_mut(), &span).unwrap_or_default();
            let found = !key.is_empty();
            problems.push(self.mistake(error.message(), &key, span.start));
            if !found {
                break;
            }
        }
        T::default()
    }

    /// A mistake in the value of a key, at the key or the nearest section that is there.
    pub(super) fn problem(
        &self,
        key: &str,
        what: impl Into<String>,
        cure: impl Into<String>,
    ) -> Problem {
        let place = DeTable::parse(&self.text).ok().and_then(|tree| place_of(tree.get_ref(), key));
        let (line, column) = place.map_or((0, 0), |at| self.line_column(at));
        Problem { line, column, ..Problem::of_file(&self.file, what, cure).about(key) }
    }

    fn not_toml(&self, error: &toml::de::Error) -> Problem {
        let (line, column) = self.line_column(error.span().map_or(0, |span| span.start));
        let what = format!("this is not TOML: {}", error.message());
        Problem { line, column, ..Problem::of_file(&self.file, what, "") }
    }

    fn mistake(&self, message: &str, key: &str, at: usize) -> Problem {
        let (line, column) = self.line_column(at);
        let (what, cure) = reword(message);
        Problem { line, column, ..Problem::of_file(&self.file, what, cure).about(key) }
    }

    fn line_column(&self, at: usize) -> (usize, usize) {
        let before = self.text.get(..at).unwrap_or(&self.text);
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        let column = before.get(line_start..).unwrap_or("").chars().count() + 1;
        (before.matches('\n').count() + 1, column)
    }
}

impl Problem {
    fn about(self, key: &str) -> Self {
        Self { key: key.to_owned(), ..self }
    }
}

/// A file's text, if it is not larger than that.
pub(super) fn read_bounded(file: &Path, bytes_max: usize) -> Result<String, Problem> {
    let unreadable = |error: std::io::Error| {
        Problem::of_file(file, format!("cannot be read: {error}"), "Check the path and its rights.")
    };
    let opened = std::fs::File::open(file).map_err(unreadable)?;
    let limit = u64::try_from(bytes_max).unwrap_or(u64::MAX);
    let mut bytes = Vec::new();
    opened.take(limit.saturating_add(1)).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() > bytes_max {
        let what = format!("is larger than {bytes_max} bytes");
        return Err(Problem::of_file(file, what, "It is probably another file."));
    }
    String::from_utf8(bytes)
        .map_err(|_| Problem::of_file(file, "is not UTF-8 text", "Save it as UTF-8."))
}

/// Takes the entry out that stands at `span`, the innermost one, and answers its key.
fn take_out(table: &mut DeTable<'_>, span: &Range<usize>) -> Option<String> {
    let mut here = None;
    let names: Vec<String> = table.keys().map(|key| key.get_ref().to_string()).collect();
    for name in names {
        let Some((key, _)) = table.get_key_value(name.as_str()) else { continue };
        let at_key = key.span() == *span;
        let Some(value) = table.get_mut(name.as_str()) else { continue };
        let inside = value.span();
        if let DeValue::Table(below) = value.get_mut()
            && !at_key
            && let Some(rest) = take_out(below, span)
        {
            return Some(format!("{name}.{rest}"));
        }
        if at_key || (inside.start <= span.start && span.end <= inside.end) {
            here = Some(name);
        }
    }
    let name = here?;
    table.remove(name.as_str());
    Some(name)
}

/// Where a key stands; of a key that is not there, where its section begins.
fn place_of(table: &DeTable<'_>, key: &str) -> Option<usize> {
    let (first, rest) =
        key.split_once('.').map_or((key, None), |(first, rest)| (first, Some(rest)));
    let (found, value) = table.get_key_value(first)?;
    let at = found.span().start;
    match (rest, value.get_ref()) {
        (Some(rest), DeValue::Table(below)) => Some(place_of(below, rest).unwrap_or(at)),
        (Some(_) | None, _) => Some(at),
    }
}

/// Serde's words in ours. Values are left out: one of them may be a secret in a wrong place.
fn reword(message: &str) -> (String, String) {
    for (start, noun) in [("unknown field ", "key"), ("unknown variant ", "value")] {
        if let Some(rest) = message.strip_prefix(start) {
            let mut quoted = rest.split('`').skip(1).step_by(2);
            let given = quoted.next().unwrap_or("");
            let allowed: Vec<&str> = quoted.collect();
            let meant = nearest(given, allowed.iter().copied())
                .map_or_else(String::new, |word| format!("Did you mean '{word}'? "));
            let shown: Vec<_> = allowed.iter().take(NAMES_IN_ERROR_MAX).copied().collect();
            let more = if allowed.len() > NAMES_IN_ERROR_MAX { ", …" } else { "" };
            let cure = format!("{meant}Allowed: {}{more}.", shown.join(", "));
            return (format!("there is no such {noun}"), cure);
        }
    }
    for start in ["invalid type: ", "invalid value: ", "invalid length "] {
        if let Some((given, wanted)) =
            message.strip_prefix(start).and_then(|rest| rest.rsplit_once(", expected "))
        {
            let sort = match given.split(['`', '"']).next().unwrap_or("").trim() {
                "sequence" => "array",
                "map" => "table",
                "floating point" => "number with a point",
                sort => sort,
            };
            let wanted = match wanted {
                "i64" | "u64" | "u32" => "a whole number",
                "f64" => "a number",
                "a map" => "a table of keys",
                "a sequence" => "an array",
                _ if wanted.starts_with("struct ") => "a table of keys",
                _ => wanted,
            };
            return (format!("the value is of a wrong type: {sort}"), format!("Give {wanted}."));
        }
    }
    // The parser's own words, where a choice is written as something else than a text.
    if message.starts_with("wanted ") {
        let cure = "Give one of its words, in quotes; `dogwatch schema` prints them.";
        return ("the value is of a wrong type".to_owned(), cure.to_owned());
    }
    (message.to_owned(), String::new())
}
