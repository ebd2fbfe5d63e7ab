//! A message that lives: put up once, as a post is, then drawn anew where it is. Owns what an
//! edit's error says of it. Must not know when one is due.

use serde_json::{Value, json};

use super::{MARK, Posting, Stop, Try, stop};
use crate::core::execution::{Address, PostSort};
use crate::core::limits::{SLACK_CALL_MS, SLACK_MENDED_MS, SLACK_POST_MS_MAX};
use crate::ports::{Card, ChannelError, Post};
use crate::slack::card::{self, Rendered};
use crate::slack::pace::{Pass, Rank};
use crate::slack::place::Thread;
use crate::slack::surface::UPDATE;
use crate::slack::verdict::Verdict;

/// The label of the one message.
const LABEL: &str = "0";

impl Posting {
    pub(super) async fn draw(&self, card: Card) -> Result<String, ChannelError> {
        let Card { item, session, execution, posted, may_repeat } = card;
        let drawn = card::render(&execution, None);
        let address = execution.address;
        let Some(at) = posted else {
            let text = drawn.text.clone();
            let sort = PostSort::Human;
            let surface = None;
            let post = Post { item, session, address, text, sort, may_repeat, surface };
            return self.deliver(post, Some(drawn)).await;
        };
        // With the last call it is over in time.
        let until = self.clock.now().plus_ms(SLACK_POST_MS_MAX - SLACK_CALL_MS);
        loop {
            let redrawn = self.redraw_as(&address, &at, &drawn, Rank::Answer).await;
            match redrawn {
                Err(Late::Wait(ms)) if self.clock.now().plus_ms(ms) < until => {
                    self.clock.sleep_until(self.clock.now().plus_ms(ms)).await;
                }
                Err(Late::Wait(after_ms)) => {
                    let what = format!("Slack limits {UPDATE} in this channel");
                    return Err(ChannelError::Retry { what, after_ms });
                }
                Err(Late::Failed(error)) => return Err(error),
                Ok(()) => return Ok(at),
            }
        }
    }

    /// Draws what runs, where that may be done now: nothing waits for it.
    pub(in crate::slack) async fn redraw(
        &self,
        address: &Address,
        at: &str,
        drawn: &Rendered,
    ) -> Result<(), ChannelError> {
        match self.redraw_as(address, at, drawn, Rank::Status).await {
            Ok(()) => Ok(()),
            Err(Late::Wait(after_ms)) => {
                let what = "others are posting in this channel".to_owned();
                Err(ChannelError::Retry { what, after_ms })
            }
            Err(Late::Failed(error)) => Err(error),
        }
    }

    /// An edit may be repeated: whatever came of it, the next one says the same.
    async fn redraw_as(
        &self,
        address: &Address,
        at: &str,
        drawn: &Rendered,
        rank: Rank,
    ) -> Result<(), Late> {
        let never = |what: String| Late::Failed(ChannelError::Never { what });
        let thread = Thread::of(address).map_err(|error| never(error.to_string()))?;
        let channel = thread.channel();
        // Slack did not say where the message is; then nobody can change it.
        let ts = at.rsplit_once('/').map(|(_, ts)| ts).filter(|ts| *ts != "?");
        let ts = ts.ok_or_else(|| never(format!("{at} names no message")))?;
        let now = self.clock.now();
        let passed = self.pace().ask(now, (UPDATE, channel), rank);
        if let Pass::Wait(until) = passed {
            return Err(Late::Wait(until.since_ms(now)));
        }
        let body =
            json!({ "channel": channel, "ts": ts, "text": drawn.text, "blocks": drawn.blocks });
        let token = self.keyring.token(thread.installation()).await;
        let token = token.map_err(|error| Late::Failed(error.for_post()))?;
        let answered = self.web.call(&token, UPDATE, &body).await;
        match answered.map_err(stop) {
            Ok(_) => Ok(()),
            // Somebody deleted it: there is nothing to keep true.
            Err(Stop::Refused(Verdict::Never(what))) if what.contains("message_not_found") => {
                tracing::info!(slack.message = at, "a watcher's message was deleted");
                Ok(())
            }
            Err(Stop::Refused(Verdict::Never(what) | Verdict::Smaller(what))) => Err(never(what)),
            Err(Stop::Refused(Verdict::Mend(what))) => {
                Err(Late::Failed(ChannelError::Retry { what, after_ms: SLACK_MENDED_MS }))
            }
            Err(Stop::Over(ChannelError::Retry { what, after_ms })) if after_ms > 0 => {
                self.pace().limited(self.clock.now(), (UPDATE, channel), after_ms);
                Err(Late::Failed(ChannelError::Retry { what, after_ms }))
            }
            Err(Stop::Over(error)) => Err(Late::Failed(error)),
        }
    }
}

/// Why a message is not drawn anew.
enum Late {
    /// Not for so many milliseconds.
    Wait(u64),
    /// It was tried.
    Failed(ChannelError),
}

impl Try<'_> {
    /// Posts it, unless it is there.
    pub(super) async fn put_up(&mut self, drawn: &Rendered) -> Result<(), ChannelError> {
        if self.sent.contains_key(LABEL) {
            return Ok(());
        }
        let mut blocks = drawn.blocks.clone();
        if self.mark
            && let Value::Array(blocks) = &mut blocks
        {
            let element = json!({ "type": "plain_text", "text": MARK });
            blocks.push(json!({ "type": "context", "elements": [element] }));
        }
        self.send_blocks(LABEL, &drawn.text, Some(blocks)).await.map_err(Stop::over)
    }
}
