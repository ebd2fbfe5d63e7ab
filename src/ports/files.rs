//! Files that people share. Owns what is known of one that was read, and why one was not. Must not
//! know where they are kept.

/// A text file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileText {
    /// What it is called; a stranger's word, as the text is.
    pub name: String,
    /// Its type, in its place's own words.
    pub kind: String,
    /// How large it is.
    pub bytes: u64,
    /// All that stands in it.
    pub text: String,
}

/// Why a file was not read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FileError {
    /// There is none of that id in the conversation. Whether there is one elsewhere is not said.
    #[error("there is no such file in this conversation")]
    Unknown,
    /// It was here, and was deleted.
    #[error("the file was deleted")]
    Gone,
    /// It holds no text.
    #[error("it is no text: {kind}")]
    NotText {
        /// What it is.
        kind: String,
    },
    /// It is kept somewhere else, and only linked here.
    #[error("it is only linked here, and kept elsewhere")]
    Elsewhere,
    /// It is too large.
    #[error("it has {bytes} bytes, at most {max} are read")]
    Large {
        /// Its size, or so much of it as was seen.
        bytes: u64,
        /// The largest that is read.
        max: usize,
    },
    /// The bot may not; an operator can mend it.
    #[error("{what}")]
    Forbidden {
        /// What is missing, and the cure.
        what: String,
    },
    /// It may be read later.
    #[error("it cannot be read now: {what}")]
    Away {
        /// What was seen.
        what: String,
    },
}
