//! Messages to which text is added: who may begin one, what may be added, and when they are over.
//! And the sessions of agents.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use dogwatch::slack::Streaming;
use serde_json::{Map, Value, json};

use super::api::{Answer, BOT, MARKDOWN_CHARS_MAX, USER, inner, optional, text};
use super::{FakeSlack, Message, Stream, World};

impl FakeSlack {
    /// How bots are set up from now on.
    pub(crate) fn streaming_is(&self, streaming: Streaming) {
        self.world().streaming = streaming;
    }

    /// Slack gives up on every stream, as it does after some minutes.
    pub(crate) fn expire_streams(&self) {
        self.turn_streams(Stream::Closed);
    }

    /// A person stops every stream.
    pub(crate) fn press_stop(&self) {
        self.turn_streams(Stream::Stopped);
    }

    /// An admin takes a message away.
    pub(crate) fn takes_away(&self, ts: &str) {
        self.world().messages.retain(|one| one.ts != ts);
    }

    fn turn_streams(&self, into: Stream) {
        let mut world = self.world();
        let open = world.messages.iter_mut().filter(|one| one.stream == Stream::Open);
        open.for_each(|message| message.stream = into);
    }

    /// Waits until the status of the agent's session in a thread is this.
    pub(crate) async fn session_is(&self, channel: &str, root: String, status: Option<&str>) {
        let mut changes = self.shared.changes.subscribe();
        let is = |_: &u64| self.session(channel, &root).as_deref() == status;
        changes.wait_for(is).await.unwrap();
    }

    /// The status of the agent's session in a thread.
    pub(crate) fn session(&self, channel: &str, root: &str) -> Option<String> {
        self.world().sessions.get(&(channel.to_owned(), root.to_owned())).cloned()
    }
}

/// What a person reads of a message.
pub(crate) fn reads(message: &Message) -> String {
    let markdown = message.blocks.pointer("/0/text").and_then(Value::as_str);
    markdown.map_or_else(|| message.text.clone(), str::to_owned)
}

/// The text of a message as Slack gives it back: what was streamed it has written its own way.
pub(super) fn written(message: &Message) -> String {
    if message.stream == Stream::None || !message.blocks.is_null() {
        return message.text.clone();
    }
    let escaped = message.text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    escaped.replace("**", "*")
}

/// However it was sent: alone or in pieces, as Slack's own client does.
fn piece(asked: &Map<String, Value>) -> Result<String, &'static str> {
    let pieces = inner(asked, "chunks");
    let pieces = pieces.as_array().into_iter().flatten();
    let pieces = pieces.filter_map(|chunk| chunk.get("text")?.as_str());
    let piece: String = [text(asked, "markdown_text").as_str()].into_iter().chain(pieces).collect();
    if piece.chars().count() > MARKDOWN_CHARS_MAX { Err("msg_too_long") } else { Ok(piece) }
}

impl World {
    pub(super) fn start_stream(&mut self, asked: &Map<String, Value>) -> Answer {
        let (channel, thread) = (text(asked, "channel"), optional(asked, "thread_ts"));
        let thread = thread.ok_or("invalid_thread_ts")?;
        self.writable(&channel, Some(&thread))?;
        if !channel.starts_with('D') {
            optional(asked, "recipient_user_id").ok_or("missing_recipient_user_id")?;
            optional(asked, "recipient_team_id").ok_or("missing_recipient_team_id")?;
        }
        let (text, ts) = (piece(asked)?, self.tick());
        let message = Message {
            channel: channel.clone(),
            ts: ts.clone(),
            thread_ts: Some(thread.clone()),
            user: USER.to_owned(),
            bot_id: BOT.to_owned(),
            text,
            stream: Stream::Open,
            arguments: asked.clone(),
            ..Message::default()
        };
        self.messages.push(message);
        self.statuses.remove(&(channel.clone(), thread));
        Ok(json!({ "channel": channel, "ts": ts }))
    }

    fn stream(&mut self, asked: &Map<String, Value>) -> Result<&mut Message, &'static str> {
        let (channel, ts) = (text(asked, "channel"), text(asked, "ts"));
        let own = |one: &&mut Message| one.channel == channel && one.ts == ts;
        let message = self.messages.iter_mut().find(own).ok_or("message_not_found")?;
        match message.stream {
            Stream::Open => Ok(message),
            Stream::Stopped => Err("stopped_by_user"),
            Stream::None | Stream::Closed => Err("message_not_in_streaming_state"),
        }
    }

    pub(super) fn append_stream(&mut self, asked: &Map<String, Value>) -> Answer {
        let piece = piece(asked)?;
        if piece.is_empty() {
            return Err("no_text");
        }
        let message = self.stream(asked)?;
        message.text.push_str(&piece);
        Ok(json!({ "channel": message.channel, "ts": message.ts }))
    }

    pub(super) fn stop_stream(&mut self, asked: &Map<String, Value>) -> Answer {
        let piece = piece(asked)?;
        let message = self.stream(asked)?;
        message.text.push_str(&piece);
        message.metadata = inner(asked, "metadata");
        message.stream = Stream::Closed;
        Ok(json!({ "channel": message.channel, "ts": message.ts }))
    }

    pub(super) fn set_session(&mut self, asked: &Map<String, Value>) -> Answer {
        let (channel, thread) = (text(asked, "channel_id"), text(asked, "thread_ts"));
        self.writable(&channel, Some(&thread))?;
        let status = text(asked, "status");
        if !["processing", "active", "suspended", "closed"].contains(&status.as_str()) {
            return Err("invalid_arguments");
        }
        self.sessions.insert((channel, thread), status);
        Ok(json!({}))
    }
}
