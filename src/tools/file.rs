//! `read_file`: what stands in a text file that somebody shared in the conversation. Owns its
//! schema and results. Must not know where files are kept, or which of them may be read here.

use serde_json::{Map, Value, json};

use super::check::{Line, Whole, bad_id};
use super::error::{Code, ToolError};
use super::shape::{Field, Shape};
use super::{Action, Rule, Tool};
use crate::core::id::FileId;
use crate::core::limits::{
    FILE_BYTES_MAX, FILE_ID_CHARS_MAX, FILE_LINES_MAX, FILE_SHOWN_BYTES_MAX,
};
use crate::core::message::ToolSpec;
use crate::core::nearest::echo;
use crate::core::output::lines;
use crate::ports::{FileError, FileText};

/// Its name.
pub const NAME: &str = "read_file";

const FILE: Field<Line> = Field {
    name: "file",
    about: "The file's id, as the message names it, for example 'F0123ABCD'.",
    check: Line { chars_max: FILE_ID_CHARS_MAX },
};
const FROM: Field<Whole> = Field {
    name: "from_line",
    about: "Optional. The first line to show, from 1.",
    check: Whole { min: 1, max: FILE_LINES_MAX, unit: "lines" },
};

/// What a message says beside the id.
const NAMED: &[(&str, &str)] = &[
    ("name", "A file is named by its id: the argument is called 'file'."),
    ("id", "The argument is called 'file'."),
    ("file_id", "The argument is called 'file'."),
];

fn shape() -> Shape {
    Shape::new(json!({ "file": "F0123ABCD", "from_line": 1 })).need(&FILE).may(&FROM).without(NAMED)
}

/// The tool.
pub(super) fn tool() -> Tool {
    Tool {
        spec: ToolSpec {
            name: NAME.to_owned(),
            description: format!(
                "Show the text of a file that somebody shared in this conversation, of at most {} \
                 KiB. Of a long one the first and the last lines come; from_line shows the rest. \
                 It only looks.",
                FILE_BYTES_MAX / 1024
            ),
            parameters: shape().schema(),
        },
        rule: Rule::PROBE,
        writes: false,
        parse: |arguments| {
            let given = shape().read(arguments)?;
            let file = FileId::new(given.need(&FILE)?);
            let file = file.map_err(|error| bad_id(FILE.name, &error).of(FILE.name))?;
            Ok(Action::ReadFile { file, from_line: given.may(&FROM)?.unwrap_or(1) })
        },
    }
}

/// What stands in it, from a line on. The texts are clean and without secrets.
pub fn shown(file: &FileId, found: &FileText, from_line: u64) -> Result<Value, ToolError> {
    let part = lines(&found.text, from_line, FILE_SHOWN_BYTES_MAX);
    if from_line > part.lines.max(1) {
        return Err(ToolError::new(
            Code::OutOfRange,
            format!("'{}' has {} lines", found.name, part.lines),
            "Give a from_line within them.",
        )
        .of(FROM.name));
    }
    let mut row = Map::new();
    row.insert("file".into(), file.as_str().into());
    row.insert("name".into(), found.name.as_str().into());
    row.insert("type".into(), found.kind.as_str().into());
    row.insert("bytes".into(), found.bytes.into());
    row.insert("lines".into(), part.lines.into());
    if from_line > 1 {
        row.insert("from_line".into(), from_line.into());
    }
    if let Some((first, last)) = part.not_shown {
        let next = format!("lines {first} to {last}; from_line {first} shows what follows");
        row.insert("not_shown".into(), next.into());
    }
    row.insert("text".into(), part.text.into());
    Ok(Value::Object(row))
}

/// It was not read.
pub fn unread(file: &FileId, error: &FileError) -> ToolError {
    let (code, hint) = match error {
        FileError::Unknown => (
            Code::UnknownFile,
            "Only files of this conversation can be read, by the id that a message names: \
             [file F0123ABCD: …]. Ask the person to share it here.",
        ),
        FileError::Gone => (Code::UnknownFile, "Ask the person to share it again, if need be."),
        FileError::NotText { .. } => (
            Code::NotText,
            "Only text in UTF-8 can be read. Say so, and ask for what matters of it as text.",
        ),
        FileError::Elsewhere => (
            Code::NotText,
            "Say so, and ask the person to share the text itself, as a file or a message.",
        ),
        FileError::Large { .. } => {
            (Code::TooLarge, "Ask the person for the part that matters, as a smaller file.")
        }
        FileError::Forbidden { .. } => (
            Code::Unavailable,
            "Tell the person; an operator can mend it. Trying again does not help.",
        ),
        FileError::Away { .. } => (Code::Unavailable, "Try once more, or tell the person."),
    };
    let message = format!("{} was not read: {error}", echo(file.as_str()));
    let told = ToolError::new(code, message, hint);
    match error {
        FileError::Unknown => told.of(FILE.name),
        FileError::Away { .. } => told.later(),
        FileError::Gone
        | FileError::NotText { .. }
        | FileError::Elsewhere
        | FileError::Large { .. }
        | FileError::Forbidden { .. } => told,
    }
}
