//! The first message of a conversation that a person asks for where there is none. Owns how it
//! reads and how it is found again. Must not know who asked for it, or how.

use serde_json::{Value, json};

use super::calls::{Calls, Stop};
use super::look::{oldest, own, payload_of};
use super::{MARK, POST, Posting, metadata, payload};
use crate::core::execution::Address;
use crate::core::limits::{SLACK_LOOK_MS_MAX, SLACK_POST_MS_MAX};
use crate::ports::{ChannelError, Root};
use crate::slack::pace::Rank;
use crate::slack::place::{Spot, Thread, user_of};
use crate::slack::text;
use crate::slack::verdict::Verdict;

const HISTORY: &str = "conversations.history";
/// It has one part.
const LABEL: &str = "root";

impl Posting {
    /// Posts it, or finds that it is there. Answers the thread, as addresses have it.
    pub(super) async fn begin(&self, root: Root) -> Result<String, ChannelError> {
        let never = |what: String| ChannelError::Never { what };
        let spot = Spot::of(&root.address).map_err(|error| never(error.to_string()))?;
        let until = self.clock.now().plus_ms(SLACK_POST_MS_MAX);
        let at = (spot.installation(), spot.channel());
        let calls = Calls { posting: self, at, until };
        let (found, sure) =
            if root.may_repeat { self.find_root(&calls, &root).await } else { (None, true) };
        let ts = match found {
            Some(ts) => ts,
            None => self.post_root(&calls, &root, !sure).await.map_err(Stop::over)?,
        };
        let thread = Thread::new(at.0, at.1, &ts).map_err(|error| never(error.to_string()))?;
        let Address { thread, .. } = thread.address();
        Ok(thread)
    }

    async fn post_root(
        &self,
        calls: &Calls<'_>,
        root: &Root,
        marked: bool,
    ) -> Result<String, Stop> {
        let by = match user_of(&root.opening.principal) {
            Some(user) => format!("<@{user}> asks:"),
            None => "Somebody asks:".to_owned(),
        };
        let by = if marked { format!("_{MARK}_ {by}") } else { by };
        let said = text::quoted(&root.opening.text);
        let mut body = json!({
            "channel": calls.at.1,
            "text": format!("{by}\n{}", said.text),
            "blocks": [
                { "type": "context", "elements": [{ "type": "mrkdwn", "text": by }] },
                { "type": "markdown", "text": said.markdown },
            ],
            "unfurl_links": false,
            "unfurl_media": false,
            "metadata": metadata(&root.session, root.item.as_str(), LABEL),
        });
        let answer = match calls.call(POST, Rank::Answer, &body).await {
            Err(Stop::Refused(Verdict::Smaller(what))) => {
                let item = &root.item;
                tracing::warn!(item.id = %item, what = %what, "posted as plain text instead");
                if let Some(fields) = body.as_object_mut() {
                    fields.remove("blocks");
                }
                calls.call(POST, Rank::Answer, &body).await?
            }
            answered => answered?,
        };
        // It is there also when Slack does not say where; then it is looked for.
        let ts = answer.get("ts").and_then(Value::as_str).map(str::to_owned);
        ts.ok_or_else(|| {
            let what = "Slack does not say where it is".to_owned();
            Stop::Over(ChannelError::Unknown { what, after_ms: 0 })
        })
    }

    /// Where it is, if it is there, and whether all that may be there was seen.
    async fn find_root(&self, calls: &Calls<'_>, root: &Root) -> (Option<String>, bool) {
        // It is not older than the wish, and a channel may have many messages.
        let at = (calls.at.1, None, oldest(self, Some(root.opening.said_at)));
        let ours = payload(&root.session, root.item.as_str(), LABEL);
        let (mut found, mut nameless) = (None, 0);
        let until = self.clock.now().plus_ms(SLACK_LOOK_MS_MAX).min(calls.until);
        let calls = Calls { until, ..*calls };
        let looked = own(&calls, HISTORY, at, |message| match payload_of(message) {
            Some(payload) if *payload == ours => {
                found = message.get("ts").and_then(Value::as_str).map(str::to_owned);
            }
            None if is_written(message) => nameless += 1,
            Some(_) | None => {}
        });
        let looked = looked.await.map_err(Stop::over);
        if let Err(error) = &looked {
            let item = &root.item;
            tracing::info!(item.id = %item, %error, "the channel cannot be looked at whole");
        }
        (found, looked.is_ok() && nameless == 0)
    }
}

/// Says a message that it began its thread?
pub(super) fn is_root(message: &Value) -> bool {
    let part = payload_of(message).and_then(|payload| payload.get("part"));
    part.and_then(Value::as_str) == Some(LABEL)
}

/// Slack tells in the bot's own name that it was invited, and the like.
fn is_written(message: &Value) -> bool {
    let subtype = message.get("subtype").and_then(Value::as_str);
    subtype.is_none_or(|subtype| subtype == "bot_message")
}
