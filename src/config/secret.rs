//! Secrets in configuration: only as a reference to a variable or a file, never as text.
//! Owns reading such a reference without ever repeating what it holds. Must not know its use.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use secrecy::SecretString;
use serde::de::{self, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::environment::{Lookup, path};
use super::source::read_bounded;
use crate::core::limits::SECRET_BYTES_MAX;

/// Where a secret is.
#[derive(Clone, PartialEq, Eq)]
pub(super) enum SecretRef {
    /// `{ env = "NAME" }`
    Env(String),
    /// `{ file = "path" }`
    File(String),
}

const FORM: &str = "{ env = \"NAME\" } or { file = \"path\" }";

impl SecretRef {
    /// What it refers to, or why not and what to do; neither repeats the secret.
    pub(super) fn fetch(
        &self,
        base: &std::path::Path,
        lookup: Lookup<'_>,
    ) -> Result<SecretString, (String, String)> {
        match self {
            Self::Env(name) => {
                let letter = |c: char| c.is_ascii_alphanumeric() || c == '_';
                if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) {
                    return Err(not_a_name());
                }
                if !name.chars().all(letter) {
                    return Err(not_a_name());
                }
                lookup(name).map(SecretString::from).ok_or_else(|| {
                    let what = format!("the environment variable {name} is not set, or empty");
                    (what, format!("Set {name} before dogwatch is started."))
                })
            }
            Self::File(written) => {
                let file = path(lookup, base, written);
                let text = read_bounded(&file, SECRET_BYTES_MAX).map_err(|problem| {
                    (format!("{}: {}", file.display(), problem.what), problem.cure)
                })?;
                let secret = text.trim_end_matches(['\n', '\r']);
                if secret.is_empty() {
                    let what = format!("{} is empty", file.display());
                    return Err((what, "Put the secret into it, alone.".to_owned()));
                }
                Ok(SecretString::from(secret.to_owned()))
            }
        }
    }
}

fn not_a_name() -> (String, String) {
    (
        "env must be the name of a variable, not the secret itself".to_owned(),
        "Use letters, digits and '_', for example { env = \"OPENAI_API_KEY\" }.".to_owned(),
    )
}

impl<'de> Deserialize<'de> for SecretRef {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Reference)
    }
}

struct Reference;

impl<'de> Visitor<'de> for Reference {
    type Value = SecretRef;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(FORM)
    }

    fn visit_str<E: de::Error>(self, _: &str) -> Result<SecretRef, E> {
        Err(E::custom(format!(
            "a secret is never written into the configuration; say where it is: {FORM}"
        )))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<SecretRef, A::Error> {
        let wrong = || de::Error::custom(format!("a secret is written as {FORM}"));
        let reference = match map.next_key::<String>()?.as_deref() {
            Some("env") => map.next_value().map(SecretRef::Env).map_err(|_: A::Error| wrong())?,
            Some("file") => map.next_value().map(SecretRef::File).map_err(|_: A::Error| wrong())?,
            _ => return Err(wrong()),
        };
        match map.next_key::<String>()? {
            None => Ok(reference),
            Some(_) => Err(wrong()),
        }
    }
}

impl JsonSchema for SecretRef {
    fn schema_name() -> Cow<'static, str> {
        "SecretRef".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "Where a secret is; never the secret itself.",
            "oneOf": [
                {
                    "type": "object",
                    "properties": { "env": { "type": "string" } },
                    "required": ["env"],
                    "additionalProperties": false
                },
                {
                    "type": "object",
                    "properties": { "file": { "type": "string" } },
                    "required": ["file"],
                    "additionalProperties": false
                }
            ]
        })
    }
}
