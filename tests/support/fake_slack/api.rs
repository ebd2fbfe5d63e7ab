//! What the methods do, and what Slack says to what goes beyond its limits.

use std::net::SocketAddr;

use serde_json::{Map, Value, json};

use super::streams;
use super::{Call, File, Message, RESPONSE, Stream, TOKEN, World};

/// The bot in its messages.
pub(super) const USER: &str = "U0BOT";
pub(super) const BOT: &str = "B0BOT";

/// Methods that read: they take a form only.
pub(super) const READS: [&str; 6] = [
    "auth.test",
    "conversations.history",
    "conversations.replies",
    "conversations.info",
    "files.getUploadURLExternal",
    "files.info",
];

const TEXT_CHARS_MAX: usize = 40_000;
const UPDATE_CHARS_MAX: usize = 4_000;
pub(super) const MARKDOWN_CHARS_MAX: usize = 12_000;
const BLOCKS_CHARS_MAX: usize = 13_200;
const BLOCKS_MAX: usize = 50;
const SECTION_CHARS_MAX: usize = 3_000;

pub(super) type Answer = Result<Value, &'static str>;

impl World {
    pub(super) fn tick(&mut self) -> String {
        self.clock += 1;
        format!("1800000000.{:06}", self.clock)
    }

    pub(super) fn answer(&mut self, call: &Call, address: SocketAddr) -> Value {
        if call.method == RESPONSE {
            return json!({ "ok": true });
        }
        let known = call.token.as_deref() == Some(TOKEN)
            || call.method.starts_with("apps.") && call.token.is_some()
            || call.method == "oauth.v2.access"
            || call.token.as_deref().is_some_and(|token| self.uses(token));
        let answer = match self.token_is {
            Some(word) => Err(word),
            None if call.token.is_none() => Err("not_authed"),
            None if !known => Err("invalid_auth"),
            None => self.done(call, address),
        };
        match answer {
            Ok(mut answer) => {
                let ok =
                    answer.as_object_mut().map(|answer| answer.insert("ok".into(), true.into()));
                drop(ok);
                answer
            }
            Err(word) => json!({ "ok": false, "error": word }),
        }
    }

    fn done(&mut self, call: &Call, address: SocketAddr) -> Answer {
        let asked = &call.arguments;
        match call.method.as_str() {
            "auth.test" => Ok(self.who_is(call.token.as_deref().unwrap_or_default())),
            "oauth.v2.access" => self.exchange(call.token.as_deref(), asked),
            "apps.manifest.export" => match &self.manifest {
                Some((app, manifest)) if *app == text(asked, "app_id") => {
                    Ok(json!({ "manifest": manifest }))
                }
                Some(_) | None => Err("app_not_eligible"),
            },
            "apps.connections.open" => Ok(json!({ "url": self.socket_url })),
            "chat.postMessage" => self.post(asked),
            "chat.postEphemeral" => self.ephemeral(asked),
            "chat.update" => self.update(asked),
            "chat.delete" => self.delete(asked),
            "chat.startStream" => self.start_stream(asked),
            "chat.appendStream" => self.append_stream(asked),
            "chat.stopStream" => self.stop_stream(asked),
            "agents.sessions.setStatus" => self.set_session(asked),
            "conversations.replies" => self.replies(asked),
            "conversations.history" => self.history(asked),
            "assistant.threads.setStatus" => self.set_status(asked),
            "files.getUploadURLExternal" => self.upload_url(asked, address),
            "files.completeUploadExternal" => self.complete(asked),
            "views.publish" => self.publish(call.token.as_deref().unwrap_or_default(), asked),
            "files.info" => self.file_info(asked),
            _ => Err("unknown_method"),
        }
    }

    /// May the bot write there?
    pub(super) fn writable(&self, channel: &str, thread: Option<&str>) -> Result<(), &'static str> {
        let room = self.rooms.get(channel).ok_or("channel_not_found")?;
        if room.is_archived {
            return Err("is_archived");
        }
        if !room.is_member {
            return Err("not_in_channel");
        }
        let Some(thread) = thread else { return Ok(()) };
        if room.locked.iter().any(|root| root == thread) {
            return Err("restricted_action_thread_locked");
        }
        match self.messages.iter().find(|one| one.channel == channel && one.ts == thread) {
            None => Err("thread_not_found"),
            Some(one) if one.thread_ts.is_some() => Err("cannot_reply_to_message"),
            Some(_) => Ok(()),
        }
    }

    fn post(&mut self, asked: &Map<String, Value>) -> Answer {
        let (channel, thread) = (text(asked, "channel"), optional(asked, "thread_ts"));
        self.writable(&channel, thread.as_deref())?;
        let blocks = inner(asked, "blocks");
        sizes(&text(asked, "text"), &blocks)?;
        let ts = self.tick();
        let message = Message {
            channel: channel.clone(),
            ts: ts.clone(),
            thread_ts: thread.clone(),
            user: USER.to_owned(),
            bot_id: BOT.to_owned(),
            text: text(asked, "text").chars().take(TEXT_CHARS_MAX).collect(),
            blocks,
            metadata: inner(asked, "metadata"),
            arguments: asked.clone(),
            ..Message::default()
        };
        self.messages.push(message);
        // A post of the bot's takes its status away.
        self.statuses.remove(&(channel.clone(), thread.unwrap_or_default()));
        Ok(json!({ "channel": channel, "ts": ts, "message": { "ts": ts, "bot_id": BOT } }))
    }

    fn ephemeral(&mut self, asked: &Map<String, Value>) -> Answer {
        self.writable(&text(asked, "channel"), None)?;
        sizes(&text(asked, "text"), &inner(asked, "blocks"))?;
        Ok(json!({ "message_ts": self.tick() }))
    }

    fn update(&mut self, asked: &Map<String, Value>) -> Answer {
        let blocks = inner(asked, "blocks");
        if text(asked, "text").chars().count() > UPDATE_CHARS_MAX {
            return Err("msg_too_long");
        }
        sizes(&text(asked, "text"), &blocks)?;
        let (channel, ts) = (text(asked, "channel"), text(asked, "ts"));
        let own = |one: &&mut Message| one.channel == channel && one.ts == ts;
        let message = self.messages.iter_mut().find(own).ok_or("message_not_found")?;
        if message.user != USER {
            return Err("cant_update_message");
        }
        if message.stream == Stream::Open {
            return Err("streaming_state_conflict");
        }
        // What is left out stays.
        if asked.contains_key("metadata") {
            message.metadata = inner(asked, "metadata");
        }
        message.text = text(asked, "text");
        if !blocks.is_null() {
            message.blocks = blocks;
        }
        Ok(json!({ "channel": channel, "ts": ts }))
    }

    fn delete(&mut self, asked: &Map<String, Value>) -> Answer {
        let (channel, ts) = (text(asked, "channel"), text(asked, "ts"));
        let before = self.messages.len();
        self.messages.retain(|one| one.channel != channel || one.ts != ts || one.user != USER);
        if self.messages.len() == before {
            return Err("message_not_found");
        }
        Ok(json!({ "channel": channel, "ts": ts }))
    }

    fn replies(&mut self, asked: &Map<String, Value>) -> Answer {
        let (channel, root) = (text(asked, "channel"), text(asked, "ts"));
        if !self.rooms.contains_key(&channel) {
            return Err("channel_not_found");
        }
        let of_it = |one: &&Message| {
            one.channel == channel && (one.ts == root || one.thread_ts.as_deref() == Some(&root))
        };
        let oldest = text(asked, "oldest");
        // The root comes whatever is asked.
        let young = |one: &&Message| one.ts == root || seconds(&one.ts) > seconds(&oldest);
        let all: Vec<&Message> = self.messages.iter().filter(of_it).filter(young).collect();
        if all.is_empty() {
            return Err("thread_not_found");
        }
        Ok(self.page(asked, &all))
    }

    /// Newest first, without what is inside of threads.
    fn history(&mut self, asked: &Map<String, Value>) -> Answer {
        let (channel, oldest) = (text(asked, "channel"), text(asked, "oldest"));
        let room = self.rooms.get(&channel).ok_or("channel_not_found")?;
        if !room.is_member {
            return Err("not_in_channel");
        }
        let of_it = |one: &&Message| one.channel == channel && one.thread_ts.is_none();
        let young = |one: &&Message| seconds(&one.ts) > seconds(&oldest);
        let all = self.messages.iter().rev().filter(of_it).filter(young);
        Ok(self.page(asked, &all.collect::<Vec<_>>()))
    }

    fn page(&self, asked: &Map<String, Value>, all: &[&Message]) -> Value {
        let limit = text(asked, "limit").parse().unwrap_or(100_usize).min(self.page_max).max(1);
        let from = text(asked, "cursor").strip_prefix("at-").and_then(|at| at.parse().ok());
        let from: usize = from.unwrap_or_default();
        // Slack's own clients write it as a number.
        let wanted = ["true", "1"].contains(&text(asked, "include_all_metadata").as_str());
        let metadata = wanted && !self.hides_metadata;
        let page = all.iter().skip(from).take(limit).map(|one| shown(one, metadata));
        let page: Vec<Value> = page.collect();
        let next = from + page.len();
        let more = next < all.len();
        let cursor = if more { format!("at-{next}") } else { String::new() };
        json!({
            "messages": page,
            "has_more": more,
            "response_metadata": { "next_cursor": cursor },
        })
    }

    fn set_status(&mut self, asked: &Map<String, Value>) -> Answer {
        let (channel, thread) = (text(asked, "channel_id"), text(asked, "thread_ts"));
        self.writable(&channel, Some(&thread))?;
        match text(asked, "status") {
            status if status.is_empty() => drop(self.statuses.remove(&(channel, thread))),
            status => drop(self.statuses.insert((channel, thread), status)),
        }
        Ok(json!({}))
    }

    fn upload_url(&mut self, asked: &Map<String, Value>, address: SocketAddr) -> Answer {
        let length = text(asked, "length").parse().map_err(|_| "invalid_arguments")?;
        let id = format!("F{}", self.files.len() + 1);
        let (name, url) = (text(asked, "filename"), format!("http://{address}/upload/{id}"));
        self.files.insert(id.clone(), File { id: id.clone(), name, length, ..File::default() });
        Ok(json!({ "upload_url": url, "file_id": id }))
    }

    fn complete(&mut self, asked: &Map<String, Value>) -> Answer {
        let (channel, thread) = (text(asked, "channel_id"), optional(asked, "thread_ts"));
        self.writable(&channel, thread.as_deref())?;
        let mut files = Vec::new();
        for one in inner(asked, "files").as_array().ok_or("invalid_arguments")? {
            let id = one.get("id").and_then(Value::as_str).unwrap_or_default();
            let file = self.files.get_mut(id).filter(|file| file.bytes.is_some());
            let file = file.ok_or("file_not_found")?;
            one.get("title")
                .and_then(Value::as_str)
                .unwrap_or_default()
                .clone_into(&mut file.title);
            files.push(file.clone());
        }
        let ts = self.tick();
        let message = Message {
            channel,
            ts,
            thread_ts: thread,
            user: USER.to_owned(),
            bot_id: BOT.to_owned(),
            files,
            arguments: asked.clone(),
            ..Message::default()
        };
        self.messages.push(message);
        Ok(json!({ "files": inner(asked, "files") }))
    }
}

pub(super) fn text(asked: &Map<String, Value>, key: &str) -> String {
    match asked.get(key) {
        Some(Value::String(text)) => text.clone(),
        None | Some(Value::Null) => String::new(),
        Some(other) => other.to_string(),
    }
}

pub(super) fn optional(asked: &Map<String, Value>, key: &str) -> Option<String> {
    Some(text(asked, key)).filter(|text| !text.is_empty())
}

/// What is JSON inside of a form.
pub(super) fn inner(asked: &Map<String, Value>, key: &str) -> Value {
    match asked.get(key) {
        Some(Value::String(text)) => serde_json::from_str(text).unwrap_or_default(),
        other => other.cloned().unwrap_or_default(),
    }
}

fn seconds(ts: &str) -> f64 {
    ts.parse().unwrap_or_default()
}

fn shown(message: &Message, metadata: bool) -> Value {
    let files: Vec<Value> = message
        .files
        .iter()
        .map(|file| json!({ "id": file.id, "name": file.name, "title": file.title }))
        .collect();
    let mut shown = json!({
        "type": "message", "ts": message.ts, "thread_ts": message.thread_ts,
        "user": message.user, "text": streams::written(message),
    });
    let fields = shown.as_object_mut().into_iter();
    for fields in fields {
        if !message.bot_id.is_empty() {
            fields.insert("bot_id".into(), message.bot_id.clone().into());
        }
        if let Some(subtype) = message.subtype {
            fields.insert("subtype".into(), subtype.into());
        }
        if !files.is_empty() {
            fields.insert("files".into(), files.clone().into());
        }
        if metadata && !message.metadata.is_null() {
            fields.insert("metadata".into(), message.metadata.clone());
        }
    }
    shown
}

fn sizes(text: &str, blocks: &Value) -> Result<(), &'static str> {
    let blocks = blocks.as_array().map(Vec::as_slice).unwrap_or_default();
    if text.trim().is_empty() && blocks.is_empty() {
        return Err("no_text");
    }
    if blocks.len() > BLOCKS_MAX {
        return Err("msg_blocks_too_many");
    }
    let mut all = 0;
    for block in blocks {
        let kind = block.get("type").and_then(Value::as_str);
        let (pointer, max, error) = match kind {
            Some("markdown") => ("/text", MARKDOWN_CHARS_MAX, "msg_too_long"),
            Some("section") => ("/text/text", SECTION_CHARS_MAX, "invalid_blocks"),
            Some(_) => continue,
            None => return Err("invalid_blocks"),
        };
        let text = block.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let count = text.chars().count();
        all += count;
        if text.trim().is_empty() {
            return Err("invalid_blocks");
        }
        if count > max {
            return Err(error);
        }
    }
    if all > BLOCKS_CHARS_MAX { Err("msg_blocks_too_long") } else { Ok(()) }
}
