//! Playbooks: parsing and checking. Owns the shape of the file and the errors that say what is
//! wrong with one, where, and what to do. Must not know how a rule is matched or played.

use std::ops::Range;

use regex::Regex;
use serde::Deserialize;
use serde_json::Value;
use toml::Spanned;

use super::news::{Captured, When};
use crate::core::limits::{MODEL_IDLE_MS, PLAYBOOK_BYTES_MAX};

/// A checked playbook.
#[derive(Debug, Clone)]
pub struct Playbook {
    pub(super) name: String,
    pub(super) rules: Vec<Rule>,
}

/// What is wrong with a playbook.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("playbook, line {line}: {what}; {cure}")]
pub struct PlaybookError {
    /// From 1.
    pub line: usize,
    /// What is wrong.
    pub what: String,
    /// What to do.
    pub cure: String,
}

#[derive(Debug, Clone)]
pub(super) struct Rule {
    pub(super) name: String,
    pub(super) when: When,
    pub(super) times: Option<u32>,
    pub(super) delay_ms: u64,
    pub(super) act: Act,
}

#[derive(Debug, Clone)]
pub(super) enum Act {
    Answer { text: String, calls: Vec<ToCall> },
    Fail { text: String, failure: Failure, retry_after_ms: Option<u64> },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Failure {
    Outage,
    Refused,
    Garbled,
}

#[derive(Debug, Clone)]
pub(super) struct ToCall {
    tool: String,
    arguments: Arguments,
}

#[derive(Debug, Clone)]
enum Arguments {
    Json(Value),
    /// As it is, so that it may be broken.
    Raw(String),
}

impl ToCall {
    /// The tool's name and the arguments' text.
    pub(super) fn fill(&self, captured: &Captured) -> (String, String) {
        let arguments = match &self.arguments {
            Arguments::Json(value) => fill_strings(value, captured).to_string(),
            Arguments::Raw(text) => captured.fill(text),
        };
        (captured.fill(&self.tool), arguments)
    }
}

fn fill_strings(value: &Value, captured: &Captured) -> Value {
    match value {
        Value::String(text) => Value::String(captured.fill(text)),
        Value::Array(items) => items.iter().map(|item| fill_strings(item, captured)).collect(),
        Value::Object(fields) => {
            fields.iter().map(|(key, field)| (key.clone(), fill_strings(field, captured))).collect()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawPlaybook {
    name: Option<String>,
    #[serde(default)]
    rule: Vec<Spanned<RawRule>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawRule {
    name: Option<String>,
    when: Option<Spanned<RawWhen>>,
    times: Option<Spanned<u32>>,
    text: Option<Spanned<String>>,
    #[serde(default)]
    calls: Vec<RawCall>,
    delay_ms: Option<Spanned<u64>>,
    fail: Option<Spanned<String>>,
    retry_after_ms: Option<Spanned<u64>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawWhen {
    person: Option<Spanned<String>>,
    notice: Option<Spanned<String>>,
    tool: Option<Spanned<String>>,
    result: Option<Spanned<String>>,
    any: Option<Spanned<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawCall {
    tool: Spanned<String>,
    arguments: Option<Spanned<toml::Value>>,
}

/// Says where in the text something is wrong.
struct Reader<'a> {
    text: &'a str,
}

impl Playbook {
    /// Parses and checks. The first fault is reported, with its line and what to do.
    pub fn parse(text: &str) -> Result<Self, PlaybookError> {
        let reader = Reader { text };
        if text.len() > PLAYBOOK_BYTES_MAX {
            let what = format!("the playbook has more than {PLAYBOOK_BYTES_MAX} bytes");
            return Err(reader.fault(&(0..0), what, "make it smaller"));
        }
        let raw: RawPlaybook = toml::from_str(text).map_err(|error| reader.of_toml(&error))?;
        if raw.rule.is_empty() {
            let cure = "add a [[rule]] with `text`, `calls` or `fail`";
            return Err(reader.fault(&(0..0), "there is no rule", cure));
        }
        let mut rules: Vec<Rule> = Vec::new();
        for (place, raw) in raw.rule.into_iter().enumerate() {
            let span = raw.span();
            let always = rules.iter().find(|r| r.when.is_always() && r.times.is_none());
            if let Some(above) = always {
                let what =
                    format!("`{}` matches everything, so this rule never answers", above.name);
                return Err(reader.fault(&span, what, "put the rule without `when` last"));
            }
            rules.push(reader.rule(place, &span, raw.into_inner())?);
        }
        Ok(Self { name: raw.name.unwrap_or_else(|| "unnamed".to_owned()), rules })
    }
}

impl Reader<'_> {
    fn fault(
        &self,
        span: &Range<usize>,
        what: impl Into<String>,
        cure: impl Into<String>,
    ) -> PlaybookError {
        let before = self.text.get(..span.start).unwrap_or(self.text);
        let line = before.matches('\n').count() + 1;
        PlaybookError { line, what: what.into(), cure: cure.into() }
    }

    fn of_toml(&self, error: &toml::de::Error) -> PlaybookError {
        let message = error.message().replace('\n', ", ");
        let span = error.span().unwrap_or(0..0);
        match message.split_once(", expected") {
            Some((what, " u32" | " u64")) => {
                self.fault(&span, what, "expected a whole number, not below 0")
            }
            Some((what, expected)) => self.fault(&span, what, format!("expected{expected}")),
            None if message.starts_with("missing field") => self.fault(&span, message, "add it"),
            None => self.fault(&span, message, "correct it"),
        }
    }

    fn rule(&self, place: usize, span: &Range<usize>, raw: RawRule) -> Result<Rule, PlaybookError> {
        if let Some(times) = raw.times.as_ref().filter(|times| *times.get_ref() == 0) {
            let cure = "give it 1 or more, or leave it out for no bound";
            return Err(self.fault(&times.span(), "`times` is 0", cure));
        }
        let delay = raw.delay_ms.as_ref();
        if let Some(delay) = delay.filter(|delay| *delay.get_ref() > MODEL_IDLE_MS) {
            let what = format!("`delay_ms` is more than {MODEL_IDLE_MS}");
            return Err(self.fault(&delay.span(), what, "make it shorter"));
        }
        let when = self.when(raw.when.as_ref())?;
        if let Some(text) = &raw.text {
            self.numbers(text, when.groups())?;
        }
        Ok(Rule {
            name: raw.name.clone().unwrap_or_else(|| format!("rule {}", place + 1)),
            times: raw.times.as_ref().map(|times| *times.get_ref()),
            delay_ms: raw.delay_ms.as_ref().map_or(0, |delay| *delay.get_ref()),
            when,
            act: self.act(span, raw)?,
        })
    }

    /// A number in the text that no group has is a slip. Arguments may hold code, where `{2}` means
    /// something else.
    fn numbers(&self, text: &Spanned<String>, groups: Option<usize>) -> Result<(), PlaybookError> {
        let pieces = text.get_ref().split('{').skip(1);
        let numbers = pieces.filter_map(|piece| piece.split_once('}')?.0.parse::<usize>().ok());
        match numbers.filter(|number| groups.is_none_or(|groups| *number > groups)).max() {
            None => Ok(()),
            Some(number) => {
                let what = format!("`text` has {{{number}}}, but no condition has such a group");
                let cure = "put the part to be filled in between ( and ) in a condition of `when`";
                Err(self.fault(&text.span(), what, cure))
            }
        }
    }

    fn act(&self, span: &Range<usize>, raw: RawRule) -> Result<Act, PlaybookError> {
        let text = raw.text.map(Spanned::into_inner).unwrap_or_default();
        let failure = raw.fail.as_ref().map(|fail| self.failure(fail)).transpose()?;
        if let Some(wait) = &raw.retry_after_ms
            && failure != Some(Failure::Outage)
        {
            let what = "`retry_after_ms` without an outage";
            return Err(self.fault(&wait.span(), what, "add `fail = \"outage\"` or remove it"));
        }
        let Some(failure) = failure else {
            if text.is_empty() && raw.calls.is_empty() {
                let cure = "give it `text`, `calls` or `fail`";
                return Err(self.fault(span, "the rule says nothing", cure));
            }
            let calls = raw.calls.into_iter().map(|call| self.call(call));
            return Ok(Act::Answer { text, calls: calls.collect::<Result<_, _>>()? });
        };
        if let Some(call) = raw.calls.first() {
            let cure = "a call that fails has no answer to make calls in: remove one of them";
            return Err(self.fault(&call.tool.span(), "`calls` with `fail`", cure));
        }
        let retry_after_ms = raw.retry_after_ms.map(Spanned::into_inner);
        Ok(Act::Fail { text, failure, retry_after_ms })
    }

    fn failure(&self, fail: &Spanned<String>) -> Result<Failure, PlaybookError> {
        match fail.get_ref().as_str() {
            "outage" => Ok(Failure::Outage),
            "refused" => Ok(Failure::Refused),
            "garbled" => Ok(Failure::Garbled),
            other => {
                let what = format!("`fail` is \"{other}\"");
                let cure = "it is one of \"outage\", \"refused\", \"garbled\"";
                Err(self.fault(&fail.span(), what, cure))
            }
        }
    }

    fn when(&self, raw: Option<&Spanned<RawWhen>>) -> Result<When, PlaybookError> {
        let Some(raw) = raw else { return Ok(When::default()) };
        let given = raw.get_ref();
        let when = When {
            person: self.regex("person", given.person.as_ref())?,
            notice: self.regex("notice", given.notice.as_ref())?,
            tool: given.tool.as_ref().map(|tool| tool.get_ref().clone()),
            result: self.regex("result", given.result.as_ref())?,
            any: self.regex("any", given.any.as_ref())?,
        };
        if when.is_always() {
            let cure = "leave it out to match everything, or give it `person`, `notice`, `tool`, \
                        `result` or `any`";
            return Err(self.fault(&raw.span(), "`when` has no condition", cure));
        }
        Ok(when)
    }

    fn regex(
        &self,
        name: &str,
        given: Option<&Spanned<String>>,
    ) -> Result<Option<Regex>, PlaybookError> {
        let Some(given) = given else { return Ok(None) };
        let fault = |error: regex::Error| {
            // The last line says what it is; those above draw where.
            let error = error.to_string();
            let last = error.lines().last().unwrap_or_default().trim_start_matches("error: ");
            let what = format!("`{name}` is no regular expression: {last}");
            let cure = "escape what is meant literally with \\, in 'single quotes'";
            self.fault(&given.span(), what, cure)
        };
        Regex::new(given.get_ref()).map(Some).map_err(fault)
    }

    fn call(&self, raw: RawCall) -> Result<ToCall, PlaybookError> {
        let arguments = match raw.arguments {
            None => Arguments::Json(Value::Object(serde_json::Map::new())),
            Some(given) => match given.get_ref() {
                toml::Value::String(text) => Arguments::Raw(text.clone()),
                toml::Value::Table(_) => Arguments::Json(json(given.get_ref())),
                toml::Value::Integer(_)
                | toml::Value::Float(_)
                | toml::Value::Boolean(_)
                | toml::Value::Datetime(_)
                | toml::Value::Array(_) => {
                    let what = format!("`arguments` is of type {}", given.get_ref().type_str());
                    let cure = "give a table, or a string that is sent as it is";
                    return Err(self.fault(&given.span(), what, cure));
                }
            },
        };
        Ok(ToCall { tool: raw.tool.into_inner(), arguments })
    }
}

fn json(value: &toml::Value) -> Value {
    match value {
        toml::Value::String(text) => Value::String(text.clone()),
        toml::Value::Integer(number) => Value::from(*number),
        toml::Value::Float(number) => Value::from(*number),
        toml::Value::Boolean(truth) => Value::Bool(*truth),
        toml::Value::Datetime(moment) => Value::String(moment.to_string()),
        toml::Value::Array(items) => items.iter().map(json).collect(),
        toml::Value::Table(fields) => {
            fields.iter().map(|(key, field)| (key.clone(), json(field))).collect()
        }
    }
}
