//! Server-sent events from bytes. Owns the framing: lines, fields, events and their bounds. Does no
//! I/O and must not know what an event means.

use std::mem;

use crate::core::limits::MODEL_EVENT_BYTES_MAX;

/// One event of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// The `event` field, empty when there was none.
    pub name: String,
    /// The `data` fields, joined by line feeds. Bytes that are not UTF-8 are replaced.
    pub data: String,
}

/// Why a stream cannot be read on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SseError {
    /// A line or an event without an end in sight.
    #[error("an event of the stream is larger than {MODEL_EVENT_BYTES_MAX} bytes")]
    Long,
}

/// Decodes a stream that comes in pieces, cut anywhere.
#[derive(Debug, Default)]
pub struct Decoder {
    /// The first line is behind us: a byte order mark is only looked for there.
    begun: bool,
    /// The last byte was CR, so an LF belongs to it.
    after_cr: bool,
    line: Vec<u8>,
    name: String,
    data: Option<String>,
}

impl Decoder {
    /// The events that `bytes` completes. Nothing can be read after an error.
    pub fn push(&mut self, bytes: &[u8]) -> Result<Vec<Event>, SseError> {
        let mut events = Vec::new();
        let mut rest = bytes;
        while let Some((&first, behind)) = rest.split_first() {
            if mem::take(&mut self.after_cr) && first == b'\n' {
                rest = behind;
                continue;
            }
            let Some(end) = rest.iter().position(|byte| matches!(byte, b'\r' | b'\n')) else {
                self.extend(rest)?;
                break;
            };
            let (line, tail) = rest.split_at(end);
            self.extend(line)?;
            if let Some((&byte, behind)) = tail.split_first() {
                self.after_cr = byte == b'\r';
                rest = behind;
            }
            events.extend(self.end_line()?);
        }
        Ok(events)
    }

    /// The event that the end of the stream left open. The standard drops it; some servers end
    /// their last event without the empty line.
    pub fn finish(mut self) -> Option<Event> {
        if !self.line.is_empty() {
            self.end_line().ok()?;
        }
        self.dispatch()
    }

    fn extend(&mut self, bytes: &[u8]) -> Result<(), SseError> {
        if self.line.len() + bytes.len() > MODEL_EVENT_BYTES_MAX {
            return Err(SseError::Long);
        }
        self.line.extend_from_slice(bytes);
        Ok(())
    }

    fn end_line(&mut self) -> Result<Option<Event>, SseError> {
        let line = mem::take(&mut self.line);
        let mut line = line.as_slice();
        if !mem::replace(&mut self.begun, true) {
            line = line.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(line);
        }
        if line.is_empty() {
            return Ok(self.dispatch());
        }
        let text = String::from_utf8_lossy(line);
        let (field, value) = text.split_once(':').unwrap_or((&text, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "data" => {
                let had = self.data.as_ref().map_or(0, String::len);
                if had + value.len() > MODEL_EVENT_BYTES_MAX {
                    return Err(SseError::Long);
                }
                match &mut self.data {
                    Some(data) => {
                        data.push('\n');
                        data.push_str(value);
                    }
                    None => self.data = Some(value.to_owned()),
                }
            }
            "event" => value.clone_into(&mut self.name),
            // A comment has an empty field name; `id` and `retry` are for reconnecting, which a
            // model call never does.
            _ => {}
        }
        Ok(None)
    }

    fn dispatch(&mut self) -> Option<Event> {
        let name = mem::take(&mut self.name);
        self.data.take().map(|data| Event { name, data })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn event(name: &str, data: &str) -> Event {
        Event { name: name.to_owned(), data: data.to_owned() }
    }

    fn decode(bytes: &[u8]) -> Vec<Event> {
        Decoder::default().push(bytes).unwrap()
    }

    #[test]
    fn reads_every_kind_of_line_end() {
        for end in ["\n", "\r", "\r\n"] {
            let stream = ["data: one", "", "event: error", "data:two", "data: three", "", ""];
            let got = decode(stream.join(end).as_bytes());
            assert_eq!(got, [event("", "one"), event("error", "two\nthree")], "{end:?}");
        }
    }

    #[test]
    fn skips_comments_unknown_fields_and_a_byte_order_mark() {
        let got = decode(b"\xEF\xBB\xBF: hello\n\ndata: a\nid: 1\nretry: 5\nwhat\n\n:\n\n");
        assert_eq!(got, [event("", "a")]);
    }

    #[test]
    fn a_data_field_keeps_all_but_one_leading_space_and_may_be_empty() {
        assert_eq!(decode(b"data:  a: b\n\ndata\n\n"), [event("", " a: b"), event("", "")]);
    }

    #[test]
    fn an_event_name_without_data_is_no_event_and_does_not_leak_into_the_next() {
        assert_eq!(decode(b"event: error\n\ndata: x\n\n"), [event("", "x")]);
    }

    #[test]
    fn the_end_of_the_stream_completes_what_it_left_open() {
        let mut decoder = Decoder::default();
        assert_eq!(decoder.push(b"data: a\n\ndata: [DONE]").unwrap(), [event("", "a")]);
        assert_eq!(decoder.finish(), Some(event("", "[DONE]")));
        assert_eq!(Decoder::default().finish(), None);
    }

    #[test]
    fn a_line_or_an_event_without_end_is_refused() {
        let mut decoder = Decoder::default();
        let piece = vec![b'x'; MODEL_EVENT_BYTES_MAX / 4];
        for _ in 0..4 {
            decoder.push(&piece).unwrap();
        }
        assert_eq!(decoder.push(b"x"), Err(SseError::Long));

        let line = [b"data: ".as_slice(), &piece, b"\n"].concat();
        let mut decoder = Decoder::default();
        let refused = (0..5).find_map(|_| decoder.push(&line).err());
        assert_eq!(refused, Some(SseError::Long));
    }

    proptest! {
        #[test]
        fn any_cutting_gives_the_same_events(
            lines in prop::collection::vec(
                prop_oneof![
                    Just(String::new()),
                    "data: ?[a-zé€😀 :]{0,12}",
                    "event: [a-z]{0,5}",
                    ":[a-z]{0,5}",
                ],
                0..24,
            ),
            ends in prop::collection::vec(0..3_usize, 24),
            cuts in prop::collection::vec(1..9_usize, 1..64),
        ) {
            let mut stream = String::new();
            for (line, end) in lines.iter().zip(&ends) {
                stream.push_str(line);
                stream.push_str(["\n", "\r", "\r\n"][*end]);
            }
            let bytes = stream.as_bytes();
            let mut whole = Decoder::default();
            let mut expected = whole.push(bytes).unwrap();
            expected.extend(whole.finish());

            let mut pieces = Decoder::default();
            let mut got = Vec::new();
            let mut rest = bytes;
            for cut in cuts.iter().cycle() {
                if rest.is_empty() {
                    break;
                }
                let (piece, tail) = rest.split_at((*cut).min(rest.len()));
                got.extend(pieces.push(piece).unwrap());
                rest = tail;
            }
            got.extend(pieces.finish());
            prop_assert_eq!(got, expected);
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..512)) {
            let mut decoder = Decoder::default();
            let _ = decoder.push(&bytes);
            let _ = decoder.finish();
        }
    }
}
