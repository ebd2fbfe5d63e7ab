//! What single arguments may be: a line, a script, a whole number, an id, a word.
//! Owns their bounds and their errors. Must not know any tool's meaning.

use serde_json::{Value, json};

use super::error::{Code, ToolError};
use super::shape::{Check, unknown_word, wrong_type};
use crate::core::egress::{CredentialName, HostRule};
use crate::core::execution::Notify;
use crate::core::id::{ID_BYTES_MAX, IdError, SupersessionKey};

/// One line of text, trimmed, not empty.
pub(super) struct Line {
    /// Longest, in characters.
    pub(super) chars_max: usize,
}

impl Check for Line {
    type Value = String;

    fn schema(&self) -> Value {
        json!({ "type": "string", "minLength": 1, "maxLength": self.chars_max })
    }

    fn check(&self, field: &str, given: &Value) -> Result<String, ToolError> {
        let text = text_of(field, given)?.trim();
        if text.is_empty() {
            return Err(empty(field));
        }
        let breaks = |c: char| c.is_control() || matches!(c, '\u{2028}' | '\u{2029}');
        if let Some(found) = text.chars().find(|c| breaks(*c)) {
            return Err(ToolError::new(
                Code::InvalidText,
                format!("'{field}' has the character U+{:04X}", u32::from(found)),
                "Give one line without control characters.",
            ));
        }
        let chars = text.chars().count();
        if chars > self.chars_max {
            return Err(ToolError::new(
                Code::TooLong,
                format!("'{field}' has {chars} characters, at most {} are allowed", self.chars_max),
                "Shorten it.",
            ));
        }
        Ok(text.to_owned())
    }
}

/// The source of a script, not empty.
pub(super) struct Script {
    /// Longest, in bytes of UTF-8.
    pub(super) bytes_max: usize,
}

impl Check for Script {
    type Value = String;

    fn schema(&self) -> Value {
        json!({ "type": "string", "minLength": 1, "maxLength": self.bytes_max })
    }

    fn check(&self, field: &str, given: &Value) -> Result<String, ToolError> {
        let text = text_of(field, given)?;
        if text.trim().is_empty() {
            return Err(empty(field));
        }
        if text.contains('\0') {
            return Err(ToolError::new(
                Code::InvalidText,
                format!("'{field}' has a NUL character, which Python does not compile"),
                "Write it as \\x00 inside a Python string.",
            ));
        }
        if text.len() > self.bytes_max {
            return Err(ToolError::new(
                Code::TooLong,
                format!(
                    "'{field}' has {} bytes in UTF-8, at most {} are allowed",
                    text.len(),
                    self.bytes_max
                ),
                "Shorten the script; let it fetch data instead of carrying it.",
            ));
        }
        Ok(text.to_owned())
    }
}

/// A whole number. Outside its bounds it is refused, never moved.
pub(super) struct Whole {
    /// Smallest.
    pub(super) min: u64,
    /// Largest.
    pub(super) max: u64,
    /// Of what.
    pub(super) unit: &'static str,
}

impl Check for Whole {
    type Value = u64;

    fn schema(&self) -> Value {
        json!({ "type": "integer", "minimum": self.min, "maximum": self.max })
    }

    fn check(&self, field: &str, given: &Value) -> Result<u64, ToolError> {
        let wanted = "a whole number";
        let Value::Number(number) = given else {
            let error = wrong_type(field, wanted, given);
            let hint = if given.is_string() { "Write it without quotes." } else { &error.hint };
            return Err(ToolError { hint: hint.to_owned(), ..error });
        };
        // JSON Schema counts 60.0 as an integer, so it is one here.
        if number.as_f64().is_some_and(|n| n.fract() != 0.0) {
            return Err(ToolError::new(
                Code::WrongType,
                format!("'{field}' must be {wanted}, not {number}"),
                format!("Give {} as a whole number.", self.unit),
            ));
        }
        match whole(number).filter(|n| (self.min..=self.max).contains(n)) {
            Some(whole) => Ok(whole),
            None => Err(ToolError::new(
                Code::OutOfRange,
                format!("'{field}' is {number}, allowed are {} to {}", self.min, self.max),
                format!("Give {} from {} to {}.", self.unit, self.min, self.max),
            )),
        }
    }
}

fn whole(number: &serde_json::Number) -> Option<u64> {
    number.as_u64().or_else(|| {
        let float = number.as_f64()?;
        // 2^53: up to there every whole number is exact.
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "the range is checked"
        )]
        (0.0..=9_007_199_254_740_992.0).contains(&float).then_some(float as u64)
    })
}

/// Who is told of the end.
pub(super) struct Told;

/// Words of [`Notify`], in its order.
const TOLD: [(&str, Notify); 4] = [
    ("agent", Notify::Agent),
    ("human", Notify::Human),
    ("both", Notify::Both),
    ("silent", Notify::Silent),
];

impl Check for Told {
    type Value = Notify;

    fn schema(&self) -> Value {
        json!({ "type": "string", "enum": TOLD.map(|(word, _)| word), "default": "agent" })
    }

    fn check(&self, field: &str, given: &Value) -> Result<Notify, ToolError> {
        let text = text_of(field, given)?;
        TOLD.iter()
            .find(|(word, _)| *word == text)
            .map(|(_, notify)| *notify)
            .ok_or_else(|| unknown_word(field, text, &TOLD.map(|(word, _)| word)))
    }
}

/// Hosts that a script reaches.
pub(super) struct Hosts {
    /// How many at most.
    pub(super) count_max: usize,
}

impl Check for Hosts {
    type Value = Vec<HostRule>;

    fn schema(&self) -> Value {
        let item = json!({ "type": "string", "minLength": 1 });
        json!({ "type": "array", "items": item, "maxItems": self.count_max })
    }

    fn check(&self, field: &str, given: &Value) -> Result<Self::Value, ToolError> {
        let texts = texts_of(field, given, self.count_max)?;
        let rules = texts.into_iter().map(|text| {
            let hint = "Write each as a name, a name:port or *.name, without https:// or a path.";
            HostRule::parse(text)
                .map_err(|error| ToolError::new(Code::InvalidText, error.to_string(), hint))
        });
        rules.collect()
    }
}

/// Names of credentials.
pub(super) struct Credentials {
    /// How many at most.
    pub(super) count_max: usize,
}

impl Check for Credentials {
    type Value = Vec<CredentialName>;

    fn schema(&self) -> Value {
        let item = json!({ "type": "string", "minLength": 1 });
        json!({ "type": "array", "items": item, "maxItems": self.count_max })
    }

    fn check(&self, field: &str, given: &Value) -> Result<Self::Value, ToolError> {
        let texts = texts_of(field, given, self.count_max)?;
        let names = texts.into_iter().map(|text| {
            let hint = "Give the names that you were told, never a secret itself.";
            // What was given may be a secret, so it is not repeated.
            CredentialName::parse(text).map_err(|_said| {
                let message = format!("'{field}' has something that is no name of a credential");
                ToolError::new(Code::InvalidText, message, hint)
            })
        });
        names.collect()
    }
}

/// A supersession key.
pub(super) struct Supersedes;

impl Check for Supersedes {
    type Value = SupersessionKey;

    fn schema(&self) -> Value {
        json!({ "type": "string", "minLength": 1, "maxLength": ID_BYTES_MAX })
    }

    fn check(&self, field: &str, given: &Value) -> Result<SupersessionKey, ToolError> {
        let text = text_of(field, given)?.trim();
        SupersessionKey::new(text).map_err(|error| bad_id(field, &error))
    }
}

/// The id of an execution as somebody wrote it; whether it exists is found out later.
pub(super) struct Id;

impl Check for Id {
    type Value = String;

    fn schema(&self) -> Value {
        json!({ "type": "string", "minLength": 1, "maxLength": ID_BYTES_MAX * 2 + 1 })
    }

    fn check(&self, field: &str, given: &Value) -> Result<String, ToolError> {
        // It may be written as `<session>/<id>`.
        Line { chars_max: ID_BYTES_MAX * 2 + 1 }.check(field, given)
    }
}

pub(super) fn bad_id(field: &str, error: &IdError) -> ToolError {
    match error {
        IdError::Empty { .. } => empty(field),
        IdError::Long { bytes, .. } => ToolError::new(
            Code::TooLong,
            format!("'{field}' has {bytes} bytes, at most {ID_BYTES_MAX} are allowed"),
            "Shorten it.",
        ),
        IdError::Character { .. } => ToolError::new(
            Code::InvalidText,
            format!("'{field}' has a control character"),
            "Give one line without control characters.",
        ),
    }
}

fn text_of<'a>(field: &str, given: &'a Value) -> Result<&'a str, ToolError> {
    given.as_str().ok_or_else(|| wrong_type(field, "a string", given))
}

/// A list of texts, at most so many.
fn texts_of<'a>(
    field: &str,
    given: &'a Value,
    count_max: usize,
) -> Result<Vec<&'a str>, ToolError> {
    let wanted = "a list of strings";
    let items = given.as_array().ok_or_else(|| wrong_type(field, wanted, given))?;
    if items.len() > count_max {
        return Err(ToolError::new(
            Code::TooLong,
            format!("'{field}' has {} items, at most {count_max} are allowed", items.len()),
            "Name only what the script needs.",
        ));
    }
    let texts = items.iter().map(|item| item.as_str().map(str::trim));
    texts.collect::<Option<_>>().ok_or_else(|| {
        let message = format!("'{field}' must be {wanted}, and not all of it are strings");
        ToolError::new(Code::WrongType, message, format!("Give {wanted}."))
    })
}

fn empty(field: &str) -> ToolError {
    ToolError::new(Code::Empty, format!("'{field}' is empty"), "Give it some text.")
}
