//! What is new in a request, and what a rule finds in it. Owns the search and the filling in of
//! what was found. Must not know rules or how an answer is played.

use std::collections::BTreeMap;

use regex::{Captures, Regex};
use serde_json::Value;

use crate::core::message::Message;

/// How a report begins that is a notice.
const NOTICE: &str = "[AUTO-NOTIFICATION] ";
/// Where notices stand in a tool's result.
const NOTICES_KEY: &str = "system_notifications";

/// All that came after the model's last answer, oldest first.
#[derive(Debug, Default)]
pub(super) struct News {
    people: Vec<String>,
    notices: Vec<String>,
    /// Tools and results.
    results: Vec<(String, String)>,
    all: Vec<String>,
}

impl News {
    pub(super) fn of(messages: &[Message]) -> Self {
        let mut news = Self::default();
        for message in messages {
            match message {
                Message::Instructions(_) => continue,
                Message::Model { .. } => {
                    news = Self::default();
                    continue;
                }
                Message::Person(text) => news.people.push(text.clone()),
                Message::Report(text) if text.starts_with(NOTICE) => {
                    news.notices.push(text.clone());
                }
                Message::Report(_) => {}
                Message::Tool { name, content, .. } => {
                    news.results.push((name.clone(), content.clone()));
                    if let Ok(Value::Object(result)) = serde_json::from_str(content) {
                        texts(result.get(NOTICES_KEY).unwrap_or(&Value::Null), &mut news.notices);
                    }
                }
            }
            news.all.push(match message {
                Message::Instructions(text) | Message::Person(text) | Message::Report(text) => {
                    text.clone()
                }
                Message::Model { text, .. } => text.clone(),
                Message::Tool { content, .. } => content.clone(),
            });
        }
        news
    }
}

fn texts(value: &Value, into: &mut Vec<String>) {
    match value {
        Value::String(text) => into.push(text.clone()),
        Value::Array(items) => items.iter().for_each(|item| texts(item, into)),
        Value::Object(fields) => fields.values().for_each(|field| texts(field, into)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// When a rule answers.
#[derive(Debug, Clone, Default)]
pub(super) struct When {
    pub(super) person: Option<Regex>,
    pub(super) notice: Option<Regex>,
    pub(super) tool: Option<String>,
    pub(super) result: Option<Regex>,
    pub(super) any: Option<Regex>,
}

impl When {
    pub(super) fn is_always(&self) -> bool {
        let Self { person, notice, tool, result, any } = self;
        let searches = [person, notice, result, any];
        searches.into_iter().all(Option::is_none) && tool.is_none()
    }

    /// The highest number that `fill` knows; `None` if nothing is searched.
    pub(super) fn groups(&self) -> Option<usize> {
        let searches = [&self.person, &self.notice, &self.result, &self.any];
        let groups = |regex: &Regex| regex.captures_len() - 1;
        let mut counts = searches.into_iter().flatten().map(groups).peekable();
        let first = *counts.peek()?;
        Some(counts.find(|count| *count > 0).unwrap_or(first))
    }

    /// What it finds; `None` if a condition does not hold.
    pub(super) fn captures(&self, news: &News) -> Option<Captured> {
        let mut captured = Captured::default();
        captured.search(self.person.as_ref(), &news.people)?;
        captured.search(self.notice.as_ref(), &news.notices)?;
        if self.tool.is_some() || self.result.is_some() {
            let fits = |name: &str| self.tool.as_deref().is_none_or(|tool| tool == name);
            let results = news.results.iter().filter(|(name, _)| fits(name));
            let results: Vec<String> = results.map(|(_, content)| content.clone()).collect();
            if results.is_empty() {
                return None;
            }
            captured.search(self.result.as_ref(), &results)?;
        }
        captured.search(self.any.as_ref(), &news.all)?;
        Some(captured)
    }
}

/// What the conditions of a rule found.
#[derive(Debug, Default)]
pub(super) struct Captured {
    numbered: Vec<String>,
    named: BTreeMap<String, String>,
}

impl Captured {
    fn search(&mut self, regex: Option<&Regex>, texts: &[String]) -> Option<()> {
        let Some(regex) = regex else { return Some(()) };
        let found = texts.iter().rev().find_map(|text| regex.captures(text))?;
        let text = |group: Option<regex::Match<'_>>| {
            group.map(|group| group.as_str().to_owned()).unwrap_or_default()
        };
        // One entry is the whole match alone: a condition without groups gives way to a later one.
        if self.numbered.len() <= 1 && (self.numbered.is_empty() || found.len() > 1) {
            self.numbered = found.iter().map(text).collect();
        }
        self.name(regex, &found);
        Some(())
    }

    fn name(&mut self, regex: &Regex, found: &Captures<'_>) {
        for name in regex.capture_names().flatten() {
            let value = found.name(name).map(|group| group.as_str().to_owned());
            self.named.entry(name.to_owned()).or_insert(value.unwrap_or_default());
        }
    }

    /// The text with what was found in the place of its braces.
    pub(super) fn fill(&self, text: &str) -> String {
        let mut out = String::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('{') {
            out.push_str(before);
            let found = after.split_once('}').and_then(|(key, tail)| Some((self.get(key)?, tail)));
            let (filled, tail) = found.unwrap_or(("{", after));
            out.push_str(filled);
            rest = tail;
        }
        out.push_str(rest);
        out
    }

    fn get(&self, key: &str) -> Option<&str> {
        let value = match key.parse::<usize>() {
            Ok(number) => self.numbered.get(number),
            Err(_) => self.named.get(key),
        };
        value.map(String::as_str)
    }
}
