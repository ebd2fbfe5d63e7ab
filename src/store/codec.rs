//! The envelope of a stored row. Owns how a row becomes bytes and back: a version number, a space,
//! the row as JSON with its kind as the only key. Must not know which store keeps the bytes.
//!
//! Any change of a row's shape raises [`VERSION`] and teaches [`decode`] the older shape; the
//! golden samples under `tests/golden/` hold it to that. Within a version the shape never changes,
//! so a field that this program does not know is ignored: it can only be somebody's own addition.
//! Data of a newer version is refused, never guessed at: writing it back would lose what is new.

use crate::core::ledger::Row;
use crate::core::limits::{ROW_BYTES_MAX, ROW_DEPTH_MAX};
use crate::ports::StoreError;

/// The version that this program writes.
pub const VERSION: u32 = 1;
/// What stands before the JSON.
const PREFIX: &[u8] = b"1 ";
/// Most rows are smaller.
const ROW_BYTES: usize = 1_024;

/// Why a row does not become bytes, or bytes a row.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CodecError {
    /// Larger than a row may be.
    #[error("it has {bytes} bytes, at most {ROW_BYTES_MAX} are allowed; shorten what goes into it")]
    Large {
        /// Its size.
        bytes: usize,
    },
    /// Nested deeper than a reader follows.
    #[error("it is nested {depth} deep, at most {ROW_DEPTH_MAX} are allowed; flatten it")]
    Deep {
        /// Its depth.
        depth: usize,
    },
    /// Written by a later program.
    #[error(
        "it was written in version {found}, this program reads up to {VERSION}: \
         use the dogwatch that wrote it, or a newer one"
    )]
    Newer {
        /// The version it says.
        found: u32,
    },
    /// Not a row at all.
    #[error("it is damaged ({what}): restore the store from a backup")]
    Damaged {
        /// What was seen.
        what: String,
    },
}

impl CodecError {
    /// As the store's error, with the name of the row.
    pub fn of_row(&self, aggregate: &str, key: &str) -> StoreError {
        StoreError::Data(format!("row {key} of {aggregate}: {self}"))
    }
}

/// The bytes of a row, at most [`ROW_BYTES_MAX`].
pub fn encode(row: &Row) -> Result<Vec<u8>, CodecError> {
    let mut bytes = Vec::with_capacity(ROW_BYTES);
    encode_into(&mut bytes, row)?;
    Ok(bytes)
}

/// The same in place of what `bytes` held: whoever writes many rows needs the allocator once.
pub fn encode_into(bytes: &mut Vec<u8>, row: &Row) -> Result<(), CodecError> {
    bytes.clear();
    bytes.extend_from_slice(PREFIX);
    serde_json::to_writer(&mut *bytes, row)
        .map_err(|e| CodecError::Damaged { what: e.to_string() })?;
    if bytes.len() > ROW_BYTES_MAX {
        return Err(CodecError::Large { bytes: bytes.len() });
    }
    // What has few brackets is not deep; counting them is much quicker than following them.
    if bytes.iter().filter(|byte| matches!(byte, b'{' | b'[')).count() > ROW_DEPTH_MAX {
        let depth = depth(bytes);
        if depth > ROW_DEPTH_MAX {
            return Err(CodecError::Deep { depth });
        }
    }
    Ok(())
}

/// The row of bytes that this or an older version of [`encode`] made.
pub fn decode(bytes: &[u8]) -> Result<Row, CodecError> {
    let damaged = |what: &str| CodecError::Damaged { what: what.to_owned() };
    let space = bytes.iter().position(|b| *b == b' ').ok_or_else(|| damaged("no version"))?;
    let (version, json) = bytes.split_at(space);
    let version = std::str::from_utf8(version)
        .ok()
        .and_then(|text| text.parse().ok())
        .ok_or_else(|| damaged("no version"))?;
    match version {
        VERSION => serde_json::from_slice(json).map_err(|e| damaged(&e.to_string())),
        0 => Err(damaged("version 0")),
        found => Err(CodecError::Newer { found }),
    }
}

/// How deep the brackets of a JSON text are nested.
fn depth(json: &[u8]) -> usize {
    let (mut now, mut most, mut in_text, mut escaped) = (0_usize, 0, false, false);
    for byte in json {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_text => escaped = true,
            b'"' => in_text = !in_text,
            b'{' | b'[' if !in_text => {
                now += 1;
                most = most.max(now);
            }
            b'}' | b']' if !in_text => now = now.saturating_sub(1),
            _ => {}
        }
    }
    most
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_prefix_is_the_version() {
        assert_eq!(PREFIX, format!("{VERSION} ").as_bytes());
    }

    #[test]
    fn depth_counts_brackets_outside_of_texts() {
        assert_eq!(depth(br#"1 {"a":[1,{"b":"[[[[\"[["}],"c":[]}"#), 3);
        assert_eq!(depth(b"1 7"), 0);
    }

    #[test]
    fn data_of_a_newer_version_is_refused_in_words_that_name_both() {
        let error = decode(br#"2 {"head":{}}"#).unwrap_err();
        assert_eq!(error, CodecError::Newer { found: 2 });
        let words = error.of_row("session/a", "h").to_string();
        for part in ["session/a", "row h", "version 2", "up to 1", "newer one"] {
            assert!(words.contains(part), "{part} is missing in: {words}");
        }
    }

    #[test]
    fn what_is_no_row_is_damaged() {
        for bytes in [&b""[..], b"1", b"x {}", b"0 {}", b"1 {\"head\":", b"1 {\"no_kind\":{}}"] {
            assert!(matches!(decode(bytes), Err(CodecError::Damaged { .. })), "{bytes:?}");
        }
    }
}
