//! Tool calls from pieces. Owns the rules by which a piece finds its call, under all that
//! compatible servers do to indexes, ids and names. Must not know what a tool is.

use serde_json::Value;

use crate::core::limits::{MODEL_CALLS_BYTES_MAX, TOOL_CALLS_PER_ANSWER_MAX};
use crate::core::message::ModelError;
use crate::core::transcript::Call;
use crate::model::error::garbled;

/// The calls of one answer.
#[derive(Debug, Default)]
pub(super) struct Calls {
    slots: Vec<Slot>,
    /// The call that the last piece belonged to.
    last: Option<usize>,
    bytes: usize,
}

#[derive(Debug, Default)]
struct Slot {
    index: Option<u64>,
    call: Option<Call>,
    announced: bool,
}

/// One piece of a call, as it is in a chunk.
#[derive(Debug, Default)]
struct Piece<'a> {
    index: Option<u64>,
    id: &'a str,
    name: &'a str,
    arguments: String,
}

impl<'a> Piece<'a> {
    fn read(value: &'a Value) -> Self {
        let text = |place: &str| value.pointer(place).and_then(Value::as_str).unwrap_or_default();
        let arguments = match value.pointer("/function/arguments") {
            None | Some(Value::Null) => String::new(),
            Some(Value::String(text)) => text.clone(),
            // Some servers give the object itself.
            Some(other) => other.to_string(),
        };
        Self {
            index: value.get("index").and_then(Value::as_u64),
            id: text("/id"),
            name: text("/function/name"),
            arguments,
        }
    }
}

impl Calls {
    /// Takes one piece in; the name of the call if it has just become known.
    pub(super) fn take(&mut self, value: &Value) -> Result<Option<String>, ModelError> {
        let piece = Piece::read(value);
        let cost = [piece.id, piece.name, &piece.arguments].map(json_bytes);
        self.bytes += cost.iter().sum::<usize>();
        if self.bytes > MODEL_CALLS_BYTES_MAX {
            return Err(garbled(format!(
                "the calls of one answer have more than {MODEL_CALLS_BYTES_MAX} bytes"
            )));
        }
        let place = match self.find(&piece) {
            Some(place) => place,
            None if piece.id.is_empty() && piece.name.is_empty() && piece.arguments.is_empty() => {
                return Ok(None);
            }
            None if self.slots.len() == TOOL_CALLS_PER_ANSWER_MAX => {
                return Err(garbled(format!(
                    "one answer makes more than {TOOL_CALLS_PER_ANSWER_MAX} tool calls"
                )));
            }
            None => {
                self.slots.push(Slot { index: piece.index, ..Slot::default() });
                self.slots.len() - 1
            }
        };
        self.last = Some(place);
        Ok(self.slots.get_mut(place).and_then(|slot| slot.extend(&piece)))
    }

    /// The calls, in the order of their indexes.
    pub(super) fn into_calls(self) -> Vec<Call> {
        let mut slots = self.slots;
        slots.sort_by_key(|slot| slot.index.unwrap_or(u64::MAX));
        slots.into_iter().filter_map(|slot| slot.call).collect()
    }

    /// The call that a piece continues.
    fn find(&self, piece: &Piece<'_>) -> Option<usize> {
        let place = if piece.index.is_some() {
            // The newest one: some servers give all parallel calls the same index.
            self.slots.iter().rposition(|slot| slot.index == piece.index)
        } else if piece.id.is_empty() {
            self.last
        } else {
            return self.slots.iter().rposition(|slot| slot.id() == piece.id);
        };
        place.filter(|place| !self.slots.get(*place).is_some_and(|slot| slot.begins_anew(piece)))
    }
}

impl Slot {
    fn id(&self) -> &str {
        self.call.as_ref().map_or("", |call| call.id.as_str())
    }

    /// Does the piece begin another call, though its index or its place says that it continues this
    /// one? It does if it has a name and this one's arguments are whole; where the ids are known,
    /// they decide whether a repeated name is a new call.
    fn begins_anew(&self, piece: &Piece<'_>) -> bool {
        let Some(call) = &self.call else { return false };
        let blank = call.arguments.trim().is_empty();
        let whole = serde_json::from_str::<serde::de::IgnoredAny>(&call.arguments).is_ok();
        if piece.name.is_empty() || !(blank || whole) {
            return false;
        }
        if piece.id.is_empty() || call.id.is_empty() {
            return piece.index.is_none() && whole;
        }
        piece.id != call.id
    }

    fn extend(&mut self, piece: &Piece<'_>) -> Option<String> {
        let call = self.call.get_or_insert_with(|| Call {
            id: String::new(),
            name: String::new(),
            arguments: String::new(),
        });
        if call.id.is_empty() {
            piece.id.clone_into(&mut call.id);
        }
        // A later piece may repeat the name; one that differs before there are arguments is the
        // rest of it.
        if call.name.is_empty() || (call.name != piece.name && call.arguments.is_empty()) {
            call.name.push_str(piece.name);
        }
        call.arguments.push_str(&piece.arguments);
        let first = !self.announced && !call.name.is_empty();
        self.announced |= first;
        first.then(|| call.name.clone())
    }
}

/// Bytes of a text inside a JSON string: the measure of what is stored.
pub(super) fn json_bytes(text: &str) -> usize {
    text.bytes()
        .map(|byte| match byte {
            b'"' | b'\\' | b'\n' | b'\r' | b'\t' | 0x08 | 0x0c => 2,
            0..=0x1f => 6,
            _ => 1,
        })
        .sum()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn assembled(pieces: &[Value]) -> Vec<(String, String, String)> {
        let mut calls = Calls::default();
        for piece in pieces {
            calls.take(piece).unwrap();
        }
        let flat = |call: Call| (call.id, call.name, call.arguments);
        calls.into_calls().into_iter().map(flat).collect()
    }

    fn piece(index: Option<u64>, id: &str, name: &str, arguments: &str) -> Value {
        let function = json!({ "name": name, "arguments": arguments });
        let mut value = json!({ "id": id, "type": "function", "function": function });
        if let Some(index) = index {
            value["index"] = json!(index);
        }
        value
    }

    fn call(id: &str, name: &str, arguments: &str) -> (String, String, String) {
        (id.to_owned(), name.to_owned(), arguments.to_owned())
    }

    #[test]
    fn joins_pieces_by_index() {
        let got = assembled(&[
            piece(Some(1), "b", "two", ""),
            piece(Some(0), "a", "one", "{\"x\""),
            piece(Some(1), "", "", "{}"),
            piece(Some(0), "", "", ":1}"),
        ]);
        assert_eq!(got, [call("a", "one", "{\"x\":1}"), call("b", "two", "{}")]);
    }

    #[test]
    fn a_name_repeated_or_empty_in_later_pieces_changes_nothing() {
        let got = assembled(&[
            piece(Some(0), "a", "one", ""),
            piece(Some(0), "a", "one", "{\"x\":"),
            piece(Some(0), "other", "one", "1"),
            piece(Some(0), "", "", "}"),
        ]);
        assert_eq!(got, [call("a", "one", "{\"x\":1}")]);
    }

    #[test]
    fn a_name_in_pieces_is_joined() {
        let got = assembled(&[
            piece(Some(0), "a", "watch_", ""),
            piece(Some(0), "", "_list", ""),
            piece(Some(0), "", "", "{}"),
        ]);
        assert_eq!(got, [call("a", "watch__list", "{}")]);
    }

    #[test]
    fn parallel_calls_with_the_same_index_are_told_apart_by_their_ids() {
        let got = assembled(&[piece(Some(0), "a", "one", "{}"), piece(Some(0), "b", "one", "{}")]);
        assert_eq!(got, [call("a", "one", "{}"), call("b", "one", "{}")]);
    }

    #[test]
    fn without_indexes_ids_decide_and_without_ids_whole_arguments_do() {
        let got = assembled(&[
            piece(None, "a", "one", "{\"x\":"),
            piece(None, "", "", "1}"),
            piece(None, "b", "two", "{"),
            piece(None, "a", "one", " "),
            piece(None, "b", "", "}"),
        ]);
        assert_eq!(got, [call("a", "one", "{\"x\":1} "), call("b", "two", "{}")]);

        let got = assembled(&[
            piece(None, "", "one", "{\"x\":"),
            piece(None, "", "one", "1}"),
            piece(None, "", "one", "{}"),
        ]);
        assert_eq!(got, [call("", "one", "{\"x\":1}"), call("", "one", "{}")]);
    }

    #[test]
    fn arguments_may_be_an_object_null_or_missing_and_an_empty_piece_is_none() {
        let got = assembled(&[
            json!({ "index": 0, "id": "a", "function": { "name": "one", "arguments": {"x": 1} } }),
            json!({ "index": 1, "id": "b", "function": { "name": "two", "arguments": null } }),
            json!({ "index": 2, "id": "c", "function": { "name": "three" } }),
            json!({ "index": 3 }),
        ]);
        let expected =
            [call("a", "one", "{\"x\":1}"), call("b", "two", ""), call("c", "three", "")];
        assert_eq!(got, expected);
    }

    #[test]
    fn announces_each_call_once() {
        let mut calls = Calls::default();
        let pieces = [
            piece(Some(0), "a", "", ""),
            piece(Some(0), "", "one", ""),
            piece(Some(0), "", "one", "{}"),
        ];
        let heard: Vec<_> = pieces.iter().filter_map(|p| calls.take(p).unwrap()).collect();
        assert_eq!(heard, ["one"]);
    }

    #[test]
    fn too_many_calls_and_too_large_ones_are_refused() {
        let mut calls = Calls::default();
        for index in 0..TOOL_CALLS_PER_ANSWER_MAX as u64 {
            calls.take(&piece(Some(index), "", "one", "{}")).unwrap();
        }
        assert!(matches!(
            calls.take(&piece(Some(99), "", "one", "{}")),
            Err(ModelError::Garbled { what }) if what.contains("tool calls")
        ));

        let mut calls = Calls::default();
        let quarter = "\n".repeat(MODEL_CALLS_BYTES_MAX / 8);
        let refused = (0..5).find_map(|_| calls.take(&piece(Some(0), "", "a", &quarter)).err());
        assert!(matches!(refused, Some(ModelError::Garbled { what }) if what.contains("bytes")));
    }

    #[test]
    fn json_bytes_measures_what_json_writes() {
        for text in ["", "plain é", "\"\\\n\r\t\u{8}\u{c}", "\u{1}\u{1f}\u{7f}"] {
            let written = serde_json::to_string(text).unwrap().len();
            assert_eq!(json_bytes(text), written - 2, "{text:?}");
        }
    }
}
