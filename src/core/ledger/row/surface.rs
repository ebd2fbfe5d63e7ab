//! The message that shows a turn while it runs, as the turn's row has it. Must not know what it
//! says.

use serde::{Deserialize, Serialize};

use crate::core::id::BootId;
use crate::core::time::Timestamp;

/// How a surface shows text that is not whole yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SurfaceForm {
    /// Text is added to it until it is closed; what comes later is refused.
    Stream,
    /// A message that is edited.
    Draft,
}

/// The message that shows a turn while it runs, and becomes its first post. Written before it is
/// asked for, and again once it is known where it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Surface {
    /// Whose process shows it.
    pub boot: BootId,
    /// How it shows text.
    pub form: SurfaceForm,
    /// A hash of what it begins with: by this it is known again where nobody heard where it is.
    pub mark: String,
    /// When it was first written.
    pub opened_at: Timestamp,
    /// Where it is, in its channel's own words; `None` until that was heard.
    pub at: Option<String>,
}
