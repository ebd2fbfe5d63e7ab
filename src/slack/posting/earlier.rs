//! What was said in a thread before the bot was called there. Owns reading it: the pages that Slack
//! gives at once, no waiting for more. Must not know what it is for.

use serde::Deserialize as _;
use serde_json::{Value, json};

use super::Posting;
use super::look::REPLIES;
use super::root::is_root;
use crate::core::earlier::{Earlier, Said};
use crate::core::limits::{SLACK_EARLIER_PAGES_MAX, SLACK_LOOK_MESSAGES_MAX};
use crate::core::time::Timestamp;
use crate::slack::envelope::Event;
use crate::slack::pace::{Pass, Rank};
use crate::slack::place::{self, Thread, instant};
use crate::slack::plain;
use crate::slack::web::CallError;

impl Posting {
    /// The messages of the thread that are older than `before`. Apps that are sold outside of
    /// Slack's own shop get 15 messages of one thread a minute: what is not given at once is said
    /// to be missing.
    pub(super) async fn read_earlier(&self, thread: &Thread, before: Timestamp) -> Earlier {
        let mut earlier = Earlier::default();
        // The call itself began the thread.
        if instant(thread.root()) >= before {
            return earlier;
        }
        let mut cursor: Option<String> = None;
        for _page in 0..SLACK_EARLIER_PAGES_MAX {
            let page = match self.page(thread, cursor.as_deref()).await {
                Ok(page) => page,
                Err(why) => {
                    earlier.unread = Some(why);
                    return earlier;
                }
            };
            let messages = page.get("messages").and_then(Value::as_array);
            let said = messages.into_iter().flatten().filter_map(|raw| said(thread, raw));
            let count = earlier.said.len();
            earlier.said.extend(said);
            let all = earlier.said.len();
            earlier.said.retain(|said| said.at < before);
            let came_to_now = earlier.said.len() < all && all > count;
            let next = page.pointer("/response_metadata/next_cursor").and_then(Value::as_str);
            match next.filter(|next| !next.is_empty() && !came_to_now) {
                Some(next) => cursor = Some(next.to_owned()),
                None => return earlier,
            }
        }
        earlier.more = true;
        earlier
    }

    async fn page(&self, thread: &Thread, cursor: Option<&str>) -> Result<Value, String> {
        let whereto = (REPLIES, thread.channel());
        let limited = |after_ms: u64| format!("Slack limits {REPLIES} for {after_ms} ms");
        let now = self.clock.now();
        if let Pass::Wait(at) = self.pace().ask(now, whereto, Rank::Quiet) {
            return Err(limited(at.since_ms(now)));
        }
        let token = self.keyring.token(thread.installation()).await;
        let token = token.map_err(|error| error.to_string())?;
        let body = json!({
            "channel": thread.channel(),
            "ts": thread.root(),
            "limit": SLACK_LOOK_MESSAGES_MAX,
            "cursor": cursor,
            "include_all_metadata": true,
        });
        self.web.call(&token, REPLIES, &body).await.map_err(|error| {
            if let CallError::Limited { after_ms, .. } = error {
                self.pace().limited(self.clock.now(), whereto, after_ms);
            }
            error.to_string()
        })
    }
}

/// What somebody wrote; `None` for what nobody did.
fn said(thread: &Thread, raw: &Value) -> Option<Said> {
    let event = Event::deserialize(raw).ok()?;
    match event.subtype.as_deref() {
        None | Some("file_share" | "thread_broadcast" | "me_message" | "bot_message") => {}
        Some(_) => return None,
    }
    // The bot began the thread with it, and what it repeats there enters by itself.
    if is_root(raw) {
        return None;
    }
    let text = plain::whole(&event, None);
    if text.is_empty() || event.hidden {
        return None;
    }
    let program = event.bot_id.is_some() || event.app_id.is_some();
    let user = event.user.as_deref().filter(|_| !program);
    let person = user.and_then(|user| place::principal(thread.installation(), user).ok());
    let who = person.map_or_else(|| "a program".to_owned(), |by| by.to_string());
    Some(Said { who, text, at: instant(event.ts.as_deref()?) })
}
