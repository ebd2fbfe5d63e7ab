//! Errors that teach the model. Owns their codes and their one JSON shape.
//! Must not know any tool.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// What sort of mistake, for programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Code {
    /// No tool of that name is declared in this request.
    UnknownTool,
    /// The arguments are not JSON.
    InvalidJson,
    /// The arguments are JSON, but not an object.
    NotAnObject,
    /// More text than is read.
    TooLarge,
    /// A field that the tool does not have.
    UnknownField,
    /// A field that is there twice.
    DuplicateField,
    /// A mandatory field is not there.
    MissingField,
    /// A value of another JSON type.
    WrongType,
    /// Nothing but white space.
    Empty,
    /// Longer than allowed.
    TooLong,
    /// A character that is not allowed.
    InvalidText,
    /// A number outside its bounds.
    OutOfRange,
    /// A word that is not one of the allowed ones.
    UnknownWord,
    /// Python cannot compile the script.
    SyntaxError,
    /// There is no such execution in this session.
    UnknownExecution,
    /// The execution belongs to another session.
    OtherSession,
    /// The execution belongs to another person.
    NotOwner,
    /// The execution had ended before.
    AlreadyOver,
    /// As many as may run do run.
    LimitReached,
    /// The session was stopped by a person.
    Stopped,
    /// There is no such file here.
    UnknownFile,
    /// There is no text in it that could be read.
    NotText,
    /// A host that this agent's scripts may not reach.
    HostNotAllowed,
    /// A credential that this agent's scripts may not use.
    CredentialNotAllowed,
    /// It was not done; nothing runs.
    NotStarted,
    /// It was not done or cannot be said; the place where it is kept does not answer.
    Unavailable,
}

/// What was wrong with a call, and what to do about it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct ToolError {
    /// What sort of mistake.
    pub code: Code,
    /// The argument that is meant, where it is one.
    pub field: Option<String>,
    /// One sentence: what is wrong.
    pub message: String,
    /// What to do now.
    pub hint: String,
    /// Arguments that would do, where an example helps.
    pub example: Option<Box<Value>>,
    /// The same call, unchanged, may succeed later.
    pub retryable: bool,
    /// More facts, merged into the error object.
    #[serde(flatten)]
    pub facts: Box<Map<String, Value>>,
}

impl ToolError {
    /// A mistake that repeating the call will not cure.
    pub fn new(code: Code, message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self {
            code,
            field: None,
            message: message.into(),
            hint: hint.into(),
            example: None,
            retryable: false,
            facts: Box::default(),
        }
    }

    /// Names the argument.
    #[must_use]
    pub fn of(mut self, field: &str) -> Self {
        self.field = Some(field.to_owned());
        self
    }

    /// Shows arguments that would do.
    #[must_use]
    pub fn like(mut self, example: Value) -> Self {
        self.example = Some(Box::new(example));
        self
    }

    /// Says that the same call may succeed later.
    #[must_use]
    pub const fn later(mut self) -> Self {
        self.retryable = true;
        self
    }

    /// Adds a fact.
    #[must_use]
    pub fn with(mut self, name: &str, fact: impl Into<Value>) -> Self {
        self.facts.insert(name.to_owned(), fact.into());
        self
    }

    /// The result that the model reads.
    pub fn to_result(&self) -> Value {
        json!({ "error": self })
    }
}
