//! An answer from the chunks of a stream, or from one object. Owns what counts as an answer and
//! when it is whole. Must not know the connection.

use serde_json::Value;

use super::calls::{Calls, json_bytes};
use crate::core::limits::MODEL_TEXT_BYTES_MAX;
use crate::core::message::{Answer, Delta, ModelError};
use crate::core::time::span;
use crate::core::transcript::{Finish, Usage};
use crate::model::error::{Scrub, garbled, in_answer, outage};
use crate::model::sse::Event;

/// How the stream ended.
#[derive(Debug)]
pub(super) enum End {
    /// It said `[DONE]`, or it was one whole object.
    Done,
    /// The connection ended in good order.
    Closed,
    /// The connection broke.
    Cut(ModelError),
    /// Nothing came for so many milliseconds.
    Silent(u64),
}

/// An answer that is coming.
pub(super) struct Assembly<'a> {
    scrub: &'a Scrub,
    text: String,
    text_bytes: usize,
    calls: Calls,
    /// The last finish reason that was not empty.
    finish: Option<String>,
    /// The last chunk said so and brought nothing else.
    closed: bool,
    /// More came after a finish reason: this server repeats it in every chunk, so it tells nothing.
    contradicted: bool,
    refused: bool,
    usage: Option<Usage>,
    heard: bool,
}

impl<'a> Assembly<'a> {
    pub(super) fn new(scrub: &'a Scrub) -> Self {
        Self {
            scrub,
            text: String::new(),
            text_bytes: 0,
            calls: Calls::default(),
            finish: None,
            closed: false,
            contradicted: false,
            refused: false,
            usage: None,
            heard: false,
        }
    }

    /// Something of an answer has come.
    pub(super) fn heard(&self) -> bool {
        self.heard
    }

    /// Only the usage can still come.
    pub(super) fn closed(&self) -> bool {
        self.closed && !self.contradicted
    }

    /// Takes one event in. True once it said that it was the last.
    pub(super) fn event(
        &mut self,
        event: &Event,
        progress: &mut (dyn FnMut(Delta) + Send),
    ) -> Result<bool, ModelError> {
        let data = event.data.trim();
        if data == "[DONE]" {
            return Ok(true);
        }
        if data.is_empty() {
            return Ok(false);
        }
        let chunk = serde_json::from_str(data);
        if event.name == "error" {
            let error = chunk.unwrap_or_else(|_| Value::String(data.to_owned()));
            return Err(in_answer(error.get("error").unwrap_or(&error), self.scrub));
        }
        match chunk {
            Ok(chunk @ Value::Object(_)) => self.chunk(&chunk, progress).map(|()| false),
            Ok(_) => Err(garbled("a chunk of the stream is no JSON object")),
            Err(error) => Err(garbled(format!("a chunk of the stream is not JSON: {error}"))),
        }
    }

    /// Takes one chunk in, or a whole answer that was not streamed.
    pub(super) fn chunk(
        &mut self,
        chunk: &Value,
        progress: &mut (dyn FnMut(Delta) + Send),
    ) -> Result<(), ModelError> {
        if let Some(error) = chunk.get("error").filter(|error| !error.is_null()) {
            return Err(in_answer(error, self.scrub));
        }
        self.usage = chunk.get("usage").and_then(read_usage).or(self.usage);
        let choices = chunk.get("choices").and_then(Value::as_array);
        let first = |choice: &&Value| choice.get("index").and_then(Value::as_u64).unwrap_or(0) == 0;
        let Some(choice) = choices.and_then(|choices| choices.iter().find(first)) else {
            return Ok(());
        };
        self.heard = true;
        let nothing = Value::Null;
        let said = choice.get("delta").or_else(|| choice.get("message")).unwrap_or(&nothing);
        let more = self.said(said, progress)?;
        self.contradicted |= more && self.finish.is_some();
        let finish = choice.get("finish_reason").and_then(Value::as_str).unwrap_or_default();
        if finish == "error" {
            return Err(outage("the provider ended the answer with an error"));
        }
        if !finish.is_empty() {
            self.finish = Some(finish.to_owned());
        }
        self.closed = self.finish.is_some() && !more;
        Ok(())
    }

    /// True if it said anything.
    fn said(
        &mut self,
        said: &Value,
        progress: &mut (dyn FnMut(Delta) + Send),
    ) -> Result<bool, ModelError> {
        let mut more = false;
        let refusal = text_of(said.get("refusal"));
        self.refused |= !refusal.is_empty();
        for text in [text_of(said.get("content")), refusal] {
            if text.is_empty() {
                continue;
            }
            more = true;
            self.text_bytes += json_bytes(&text);
            if self.text_bytes > MODEL_TEXT_BYTES_MAX {
                return Err(garbled(format!(
                    "its text has more than {MODEL_TEXT_BYTES_MAX} bytes; max_tokens bounds it"
                )));
            }
            self.text.push_str(&text);
            progress(Delta::Text(text));
        }
        let pieces = said.get("tool_calls").and_then(Value::as_array);
        for piece in pieces.into_iter().flatten() {
            more = true;
            if let Some(name) = self.calls.take(piece)? {
                progress(Delta::Call { name });
            }
        }
        Ok(more)
    }

    /// The answer, if what came is one. `asked_bytes` is the size of what was asked, for the
    /// estimate of a server that does not count.
    pub(super) fn finish(self, end: End, asked_bytes: usize) -> Result<Answer, ModelError> {
        let finished = self.finish.is_some();
        match end {
            End::Done if self.heard => {}
            End::Done => return Err(garbled("there is no answer in it")),
            End::Closed if finished => {}
            End::Closed => return Err(outage("the stream ended without a finish reason")),
            End::Cut(_) | End::Silent(_) if self.closed() => {}
            // Some servers say the finish with the last word and leave the connection open.
            End::Silent(_) if finished && !self.contradicted => {}
            End::Cut(error) => return Err(error),
            End::Silent(ms) => {
                return Err(outage(format!("the stream was silent for {}", span(ms))));
            }
        }
        let calls = self.calls.into_calls();
        let finish = match self.finish.as_deref() {
            Some("length" | "max_tokens") => Finish::Length,
            Some("content_filter" | "content_filtered" | "safety") => Finish::Filtered,
            // What it did is a better witness than what it says: servers say `stop` with calls and
            // `tool_calls` without.
            _ if !calls.is_empty() => Finish::ToolCalls,
            _ if self.refused => Finish::Filtered,
            _ => Finish::Stop,
        };
        let written = || {
            let of_calls = calls.iter().map(|call| call.name.len() + call.arguments.len());
            self.text.len() + of_calls.sum::<usize>()
        };
        let usage = self.usage.unwrap_or_else(|| estimate(asked_bytes, written()));
        Ok(Answer { text: self.text, calls, finish, usage })
    }
}

/// About four bytes make a token, in most languages and tokenizers.
pub(crate) fn estimate(read_bytes: usize, written_bytes: usize) -> Usage {
    let tokens = |bytes: usize| u64::try_from(bytes.div_ceil(4)).unwrap_or(u64::MAX);
    Usage {
        input_tokens: tokens(read_bytes),
        output_tokens: tokens(written_bytes),
        reported: false,
    }
}

/// Text, or the text of a list of parts.
fn text_of(content: Option<&Value>) -> String {
    let part = |part: &Value| part.get("text").and_then(Value::as_str).map(str::to_owned);
    match content {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(parts)) => parts.iter().filter_map(part).collect(),
        _ => String::new(),
    }
}

fn read_usage(usage: &Value) -> Option<Usage> {
    let count = |name: &str| usage.get(name).and_then(Value::as_u64);
    let (input, output) = (count("prompt_tokens"), count("completion_tokens"));
    if input.is_none() && output.is_none() {
        return None;
    }
    Some(Usage {
        input_tokens: input.unwrap_or(0),
        output_tokens: output.unwrap_or(0),
        reported: true,
    })
}
