//! `stay_silent`: ends a turn that no person started without a post. Owns its schema and results.
//! Must not know what a turn is:
//! the turn machine refuses it where a person waits for an answer.

use serde_json::{Value, json};

use super::check::Line;
use super::shape::{Field, Shape};
use super::{Action, AfterCrash, Rule, Tool};
use crate::core::limits::REASON_CHARS_MAX;
use crate::core::message::ToolSpec;

/// Its name.
pub const NAME: &str = "stay_silent";

const REASON: Field<Line> = Field {
    name: "reason",
    about: "Why nobody needs to read anything now, in one line. It is kept in the log.",
    check: Line { chars_max: REASON_CHARS_MAX },
};

fn shape() -> Shape {
    Shape::new(json!({ "reason": "The check passed; nothing changed." })).need(&REASON)
}

/// The tool.
pub(super) fn tool() -> Tool {
    Tool {
        spec: ToolSpec {
            name: NAME.to_owned(),
            description: "End a turn that a notification started without posting anything. Only \
                          when nobody needs to know. A person's message is always answered, so \
                          it cannot be used in a turn that a person started."
                .to_owned(),
            parameters: shape().schema(),
        },
        rule: Rule {
            probe: false,
            parallel: false,
            ends_turn: true,
            after_crash: AfterCrash::Rerun,
        },
        writes: false,
        parse: |arguments| {
            Ok(Action::StaySilent { reason: shape().read(arguments)?.need(&REASON)? })
        },
    }
}

/// The turn ends without a post.
pub fn accepted() -> Value {
    json!({ "status": "silent" })
}
