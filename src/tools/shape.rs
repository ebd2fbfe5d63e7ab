//! Arguments of tools. Owns the one description of a field from which both its JSON Schema and
//! its check are made, so that what is declared is what is accepted.
//! Must not know any tool's meaning.

use std::collections::HashSet;
use std::fmt;

use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value, json};

use super::error::{Code, ToolError};
use crate::core::limits::TOOL_ARGUMENTS_BYTES_MAX;
use crate::core::nearest::{echo, nearest};

/// What a value must be.
pub(super) trait Check {
    /// What it is once checked.
    type Value;
    /// Its JSON Schema, without the description.
    fn schema(&self) -> Value;
    /// The checked value, or what is wrong with it.
    fn check(&self, field: &str, given: &Value) -> Result<Self::Value, ToolError>;
}

/// One argument of a tool.
pub(super) struct Field<C> {
    /// Its name.
    pub(super) name: &'static str,
    /// What it is, for the model.
    pub(super) about: &'static str,
    /// What it must be.
    pub(super) check: C,
}

struct Declared {
    name: &'static str,
    needed: bool,
    schema: Value,
}

/// All arguments of a tool.
pub(super) struct Shape {
    fields: Vec<Declared>,
    example: Value,
    absent: &'static [(&'static str, &'static str)],
}

impl Shape {
    /// Without any argument yet. `example` is a call that would do.
    pub(super) fn new(example: Value) -> Self {
        Self { fields: vec![], example, absent: &[] }
    }

    /// With this mandatory argument.
    pub(super) fn need<C: Check>(self, field: &Field<C>) -> Self {
        self.declare(field, true)
    }

    /// With this optional argument. `null` is the same as leaving it out.
    pub(super) fn may<C: Check>(self, field: &Field<C>) -> Self {
        self.declare(field, false)
    }

    /// Names that people expect and that are not there, each with what to do.
    pub(super) const fn without(mut self, absent: &'static [(&'static str, &'static str)]) -> Self {
        self.absent = absent;
        self
    }

    fn declare<C: Check>(mut self, field: &Field<C>, needed: bool) -> Self {
        let mut schema = field.check.schema();
        if let Some(schema) = schema.as_object_mut() {
            schema.insert("description".into(), field.about.into());
        }
        self.fields.push(Declared { name: field.name, needed, schema });
        self
    }

    /// The JSON Schema of the arguments.
    pub(super) fn schema(&self) -> Value {
        let properties: Map<String, Value> =
            self.fields.iter().map(|f| (f.name.to_owned(), f.schema.clone())).collect();
        let required: Vec<_> = self.fields.iter().filter(|f| f.needed).map(|f| f.name).collect();
        json!({
            "type": "object",
            "properties": properties,
            "required": required,
            "additionalProperties": false,
        })
    }

    /// Reads the model's argument text: one object, no unknown field, none twice, none missing.
    pub(super) fn read(self, arguments: &str) -> Result<Given, ToolError> {
        let example = self.example.clone();
        self.object(arguments).map_err(|error| error.like(example))
    }

    fn object(self, arguments: &str) -> Result<Given, ToolError> {
        if arguments.len() > TOOL_ARGUMENTS_BYTES_MAX {
            return Err(ToolError::new(
                Code::TooLarge,
                format!(
                    "the arguments have {} bytes, at most {TOOL_ARGUMENTS_BYTES_MAX} are read",
                    arguments.len()
                ),
                "Send less.",
            ));
        }
        let values = if arguments.trim().is_empty() {
            // What some servers send for a call without arguments.
            Map::new()
        } else {
            parse_object(arguments)?
        };
        for name in values.keys() {
            self.known(name)?;
        }
        for field in self.fields.iter().filter(|f| f.needed) {
            if !values.contains_key(field.name) {
                let hint = format!("Add it. {}", self.all_names());
                let message = format!("'{}' is missing", field.name);
                return Err(ToolError::new(Code::MissingField, message, hint).of(field.name));
            }
        }
        Ok(Given { values, example: self.example })
    }

    fn known(&self, name: &str) -> Result<(), ToolError> {
        if self.fields.iter().any(|field| field.name == name) {
            return Ok(());
        }
        let message = format!("there is no argument {}", echo(name));
        let hint = if let Some((_, why)) = self.absent.iter().find(|(absent, _)| *absent == name) {
            (*why).to_owned()
        } else if let Some(meant) = nearest(name, self.fields.iter().map(|f| f.name)) {
            format!("Did you mean '{meant}'? {}", self.all_names())
        } else {
            format!("Leave it out. {}", self.all_names())
        };
        Err(ToolError::new(Code::UnknownField, message, hint).of(echo(name).trim_matches('\'')))
    }

    fn all_names(&self) -> String {
        let list = |needed| {
            let names: Vec<_> =
                self.fields.iter().filter(|f| f.needed == needed).map(|f| f.name).collect();
            names.join(", ")
        };
        match (list(true), list(false)) {
            (needed, may) if needed.is_empty() && may.is_empty() => {
                "This tool has no arguments.".to_owned()
            }
            (needed, may) if may.is_empty() => format!("Arguments: {needed}."),
            (needed, may) => format!("Mandatory: {needed}. Optional: {may}."),
        }
    }
}

/// Arguments whose names are right; each value is checked when it is asked for.
pub(super) struct Given {
    values: Map<String, Value>,
    example: Value,
}

impl Given {
    /// A mandatory argument.
    pub(super) fn need<C: Check>(&self, field: &Field<C>) -> Result<C::Value, ToolError> {
        let given = self.values.get(field.name).unwrap_or(&Value::Null);
        field
            .check
            .check(field.name, given)
            .map_err(|error| error.of(field.name).like(self.example.clone()))
    }

    /// An optional argument.
    pub(super) fn may<C: Check>(&self, field: &Field<C>) -> Result<Option<C::Value>, ToolError> {
        match self.values.get(field.name) {
            None | Some(Value::Null) => Ok(None),
            Some(_) => self.need(field).map(Some),
        }
    }
}

/// What a JSON value is, in words.
pub(super) const fn sort_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

/// A value of another type than the field's.
pub(super) fn wrong_type(field: &str, wanted: &str, given: &Value) -> ToolError {
    let message = format!("'{field}' must be {wanted}, not {}", sort_of(given));
    ToolError::new(Code::WrongType, message, format!("Give {wanted}."))
}

/// One of a few words.
pub(super) fn unknown_word(field: &str, given: &str, words: &[&str]) -> ToolError {
    let listed: Vec<_> = words.iter().map(|word| format!("'{word}'")).collect();
    let meant = nearest(given, words.iter().copied())
        .map_or_else(String::new, |word| format!("Did you mean '{word}'? "));
    ToolError::new(
        Code::UnknownWord,
        format!("'{field}' cannot be {}", echo(given)),
        format!("{meant}Allowed: {}.", listed.join(", ")),
    )
}

fn parse_object(arguments: &str) -> Result<Map<String, Value>, ToolError> {
    let value: Value = serde_json::from_str(arguments).map_err(|error| not_json(&error))?;
    let Value::Object(values) = value else {
        let message = format!("the arguments must be one JSON object, not {}", sort_of(&value));
        let hint = if value.is_string() {
            "Send the object itself, not a text that contains it."
        } else {
            "Send the arguments as an object, with the names of the fields as keys."
        };
        return Err(ToolError::new(Code::NotAnObject, message, hint));
    };
    let Names(names) = serde_json::from_str(arguments).map_err(|error| not_json(&error))?;
    let mut seen = HashSet::new();
    match names.iter().find(|name| !seen.insert(name.as_str())) {
        None => Ok(values),
        Some(name) => Err(ToolError::new(
            Code::DuplicateField,
            format!("{} is there more than once", echo(name)),
            "Give each field once.",
        )
        .of(echo(name).trim_matches('\''))),
    }
}

fn not_json(error: &serde_json::Error) -> ToolError {
    let what = error.to_string();
    let hint = if what.contains("recursion limit") {
        "It is nested too deep. All arguments are plain texts and numbers."
    } else if what.contains("surrogate") || what.contains("hex escape") {
        "A \\u escape is not whole; write the character itself, in UTF-8."
    } else if what.contains("number out of range") {
        "A number is too large to be meant."
    } else if error.is_eof() {
        "The arguments end in the middle. Send the whole object; a shorter script may help."
    } else {
        "Send one JSON object. In a text write a line break as \\n and a quote as \\\"."
    };
    ToolError::new(Code::InvalidJson, format!("the arguments are not JSON: {what}"), hint)
}

/// The keys of an object as they stand: `serde_json` keeps the last of two in silence.
struct Names(Vec<String>);

impl<'de> Deserialize<'de> for Names {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Keys;
        impl<'de> Visitor<'de> for Keys {
            type Value = Names;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Names, A::Error> {
                let mut names = Vec::new();
                while let Some((name, IgnoredAny)) = map.next_entry()? {
                    names.push(name);
                }
                Ok(Names(names))
            }
        }
        deserializer.deserialize_map(Keys)
    }
}
