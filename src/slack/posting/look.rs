//! Looking for what an earlier try has posted. Owns how the bot knows its own posts again in a
//! thread. Must not know how posts are sent.

use serde_json::{Value, json};

use super::calls::Calls;
use super::{ChannelError, DRAFT, EVENT_TYPE, FILE, Posting, Sent, Stop, Try};
use crate::core::limits::{
    POST_MS_MAX, SLACK_LOOK_BACK_MS, SLACK_LOOK_MESSAGES_MAX, SLACK_LOOK_MS_MAX,
    SLACK_LOOK_PAGES_MAX,
};
use crate::core::time::Timestamp;
use crate::slack::hear::Who;
use crate::slack::pace::Rank;
use crate::slack::surface;

pub(super) const REPLIES: &str = "conversations.replies";

/// Who the bot is in its messages.
pub(super) struct Me {
    user: String,
    bot: String,
}

impl From<&Who> for Me {
    fn from(who: &Who) -> Self {
        Self { user: who.user.clone(), bot: who.bot.clone().unwrap_or_default() }
    }
}

impl Me {
    fn of(answer: &Value) -> Option<Self> {
        let word = |key: &str| answer.get(key)?.as_str().map(str::to_owned);
        let (user, bot) = (word("user_id")?, word("bot_id").unwrap_or_default());
        (!user.is_empty()).then_some(Self { user, bot })
    }

    /// Others may write what looks like ours.
    fn wrote(&self, message: &Value) -> bool {
        let is = |key: &str, own: &str| {
            !own.is_empty() && message.get(key).and_then(Value::as_str) == Some(own)
        };
        is("user", &self.user) || is("bot_id", &self.bot)
    }
}

/// What was seen in a thread.
#[derive(Default)]
struct Seen {
    sent: Sent,
    /// Messages of the bot that do not say of which post they are.
    nameless: usize,
}

impl Try<'_> {
    /// Takes over what is found of this post. Answers whether all that may be there was seen.
    pub(super) async fn find_earlier(&mut self) -> bool {
        let clock = &self.posting.clock;
        let until = clock.now().plus_ms(SLACK_LOOK_MS_MAX).min(self.until);
        let mut seen = Seen::default();
        let looked = tokio::select! {
            looked = self.look(&mut seen) => looked.map_err(Stop::over),
            () = clock.sleep_until(until) => {
                let what = "there was no time for more".to_owned();
                Err(ChannelError::Retry { what, after_ms: 0 })
            }
        };
        let Seen { mut sent, nameless } = seen;
        let found = !sent.is_empty();
        let begun = sent.remove(DRAFT);
        if let Some(surface) = &mut self.surface {
            surface.at = surface.at.take().or(begun);
        }
        self.sent.extend(sent);
        if let Err(error) = looked {
            let item = &self.post.item;
            tracing::info!(item.id = %item, error = %error, "the thread cannot be looked at whole");
            return false;
        }
        // Where Slack hides what the bot has written beside its messages, nothing is known.
        found || nameless == 0
    }

    async fn look(&self, seen: &mut Seen) -> Result<(), Stop> {
        let oldest = oldest(self.posting, self.first_at);
        let at = (self.thread.channel(), Some(self.thread.root()), oldest);
        own(&self.calls(), REPLIES, at, |message| self.note(message, seen)).await
    }

    /// A stream says nothing beside its text until it is closed.
    fn is_begun(&self, message: &Value) -> bool {
        let text = message.get("text").and_then(Value::as_str).unwrap_or_default();
        let lost = self.surface.as_ref().filter(|begun| begun.at.is_none());
        lost.is_some_and(|begun| begun.mark == surface::mark(text))
    }

    fn note(&self, message: &Value, seen: &mut Seen) {
        let ts = message.get("ts").and_then(Value::as_str).unwrap_or("?");
        let files = message.get("files").and_then(Value::as_array);
        if let Some(files) = files.filter(|files| !files.is_empty()) {
            let title = self.title();
            let is = |file: &Value| file.get("title").and_then(Value::as_str) == Some(&title);
            if files.iter().any(is) {
                seen.sent.insert(FILE.to_owned(), ts.to_owned());
            }
            return;
        }
        let Some(payload) = payload_of(message) else {
            if self.is_begun(message) {
                seen.sent.insert(DRAFT.to_owned(), ts.to_owned());
            } else {
                seen.nameless += 1;
            }
            return;
        };
        let part = payload.get("part").and_then(Value::as_str).unwrap_or_default();
        if *payload == self.payload(part) {
            seen.sent.insert(part.to_owned(), ts.to_owned());
        }
    }
}

/// Every message that the bot has written in a channel, or in a thread of it, from a time on.
pub(super) async fn own(
    calls: &Calls<'_>,
    method: &'static str,
    at: (&str, Option<&str>, String),
    mut note: impl FnMut(&Value),
) -> Result<(), Stop> {
    let posting = calls.posting;
    let access = posting.keyring.access(calls.at.0).await;
    let kept = access.map_err(|error| Stop::Over(error.for_post()))?.who;
    let me = match &kept {
        Some(who) => &Me::from(who),
        None => posting.me.get_or_try_init(|| who_am_i(calls)).await?,
    };
    let (channel, thread, oldest) = at;
    let mut cursor = None;
    for _page in 0..SLACK_LOOK_PAGES_MAX {
        let body = json!({
            "channel": channel,
            "ts": thread,
            "oldest": oldest,
            "limit": SLACK_LOOK_MESSAGES_MAX,
            "include_all_metadata": true,
            "cursor": cursor,
        });
        let page = calls.call(method, Rank::Quiet, &body).await?;
        let messages = page.get("messages").and_then(Value::as_array);
        let messages = messages.ok_or_else(|| unclear("it shows no messages"))?;
        messages.iter().filter(|message| me.wrote(message)).for_each(&mut note);
        let next = page.pointer("/response_metadata/next_cursor").and_then(Value::as_str);
        match next.filter(|next| !next.is_empty()) {
            Some(next) => cursor = Some(next.to_owned()),
            None if page.get("has_more").and_then(Value::as_bool) == Some(true) => {
                return Err(unclear("it does not say where it goes on"));
            }
            None => return Ok(()),
        }
    }
    Err(unclear("it is too long"))
}

async fn who_am_i(calls: &Calls<'_>) -> Result<Me, Stop> {
    let answer = calls.call("auth.test", Rank::Quiet, &json!({})).await?;
    Me::of(&answer).ok_or_else(|| unclear("the bot cannot find out who it is"))
}

/// From when on an earlier try may have posted, in Slack's words.
pub(super) fn oldest(posting: &Posting, first_at: Option<Timestamp>) -> String {
    let first_at = first_at.unwrap_or_else(|| {
        Timestamp::from_ms(posting.clock.now().as_ms().saturating_sub(POST_MS_MAX))
    });
    format!("{}.000000", first_at.as_ms().saturating_sub(SLACK_LOOK_BACK_MS) / 1_000)
}

/// Of which post of the bot's a message says that it is.
pub(super) fn payload_of(message: &Value) -> Option<&Value> {
    let metadata = message.get("metadata")?;
    let ours = metadata.get("event_type").and_then(Value::as_str) == Some(EVENT_TYPE);
    metadata.get("event_payload").filter(|_| ours)
}

fn unclear(what: &str) -> Stop {
    Stop::Over(ChannelError::Retry { what: what.to_owned(), after_ms: 0 })
}
