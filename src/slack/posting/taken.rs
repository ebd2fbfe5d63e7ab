//! A post takes over the message that showed its turn: it says the whole then, and its names stand
//! beside it. Owns what is done where that cannot be: the rest, or all of it, comes in a new
//! message. Must not know how it was shown before.
//!
//! Each step may be repeated, so a crash between any two of them, or an answer that nobody heard,
//! makes neither a gap nor a second text: a stream that is closed takes nothing more, and an edit
//! says the whole whatever stood there. Only a draft to which an edit may still be under way is
//! taken away instead, since the later of two edits is what stays.

use serde_json::{Value, json};

use super::{ChannelError, Stop, Try, cannot_be_changed, metadata, stop};
use crate::core::ledger::row::SurfaceForm;
use crate::core::ledger::session::first_post_of;
use crate::core::limits::SLACK_PACE_MS;
use crate::slack::pace::Rank;
use crate::slack::surface::{DELETE, STOP, UPDATE};
use crate::slack::text::{self, Part};
use crate::slack::verdict::Verdict;
use crate::slack::web::CallError;

/// A surface, as a try of a post finds it.
#[derive(Debug, Clone)]
pub(super) struct Begun {
    pub(super) form: SurfaceForm,
    pub(super) mark: String,
    /// Where it is; `None` where that is to be looked for.
    pub(super) at: Option<String>,
    /// All that it shows, where that is known.
    shown: Option<String>,
    /// Something may still arrive there.
    unsure: bool,
}

/// What became of a surface.
pub(super) enum Taken {
    /// It says all of it.
    Whole,
    /// It stays the beginning: this is the rest.
    Beginning(Part),
    /// There is none, or none any more.
    Nothing,
}

impl Try<'_> {
    /// What shows the turn of this post, once nothing is under way there any more.
    pub(super) async fn settle(&self) -> Result<Option<Begun>, ChannelError> {
        let (Some(row), Some(turn)) = (&self.post.surface, first_post_of(&self.post.item)) else {
            return Ok(None);
        };
        let held = tokio::select! {
            held = self.posting.surfaces.settle(&self.thread, turn) => held,
            () = self.posting.clock.sleep_until(self.until) => {
                let what = "what is shown of it is not over yet".to_owned();
                return Err(ChannelError::Retry { what, after_ms: 0 });
            }
        };
        let (form, mark) = (row.form, row.mark.clone());
        Ok(match held {
            // It was not asked for, or Slack did not do it.
            Some(held) if held.at.is_none() && !held.lost => None,
            Some(held) => {
                let (at, form) = (held.at, if held.lost { form } else { held.form });
                Some(Begun { form, mark, at, shown: held.shown, unsure: held.unsure })
            }
            // Another process showed it, and may do so still.
            None => Some(Begun { form, mark, at: row.at.clone(), shown: None, unsure: true }),
        })
    }

    /// Makes what shows the turn this message.
    pub(super) async fn take_over(
        &mut self,
        label: &str,
        text: &str,
        markdown: Option<&str>,
    ) -> Result<Taken, Stop> {
        let Some(begun) = self.surface.clone() else { return Ok(Taken::Nothing) };
        let Some(ts) = &begun.at else {
            self.surface = None;
            return Ok(Taken::Nothing);
        };
        let rest = markdown.zip(begun.shown.as_deref()).and_then(|(all, s)| all.strip_prefix(s));
        let taken = match begun.form {
            SurfaceForm::Stream if self.close(ts, label, rest).await? => Taken::Whole,
            SurfaceForm::Draft if begun.unsure => self.take_away(ts).await?,
            SurfaceForm::Stream | SurfaceForm::Draft => {
                let blocks = markdown.map(|all| json!([{ "type": "markdown", "text": all }]));
                let rest = rest.filter(|_| begun.form == SurfaceForm::Stream);
                self.replace(ts, label, (text, blocks), rest).await?
            }
        };
        self.surface = None;
        if matches!(taken, Taken::Whole) {
            self.sent.insert(label.to_owned(), ts.clone());
            self.mark = false;
        }
        Ok(taken)
    }

    fn named(&self, label: &str) -> Value {
        metadata(&self.post.session, self.post.item.as_str(), label)
    }

    /// Nothing can be added to it from now on. With the rest of it, where that is all that it
    /// lacks; answers whether it is whole then.
    async fn close(&self, ts: &str, label: &str, rest: Option<&str>) -> Result<bool, Stop> {
        let body = json!({
            "channel": self.thread.channel(),
            "ts": ts,
            "markdown_text": rest.filter(|rest| !rest.is_empty()),
            "metadata": rest.map(|_| self.named(label)),
        });
        match self.ask(STOP, Rank::Answer, &body).await? {
            Ok(_) => Ok(rest.is_some()),
            // It is closed, whoever did that, or is not there.
            Err(CallError::Refused { error, .. }) => {
                tracing::debug!(item.id = %self.post.item, %error, "a stream was over before");
                Ok(false)
            }
            Err(error) => Err(stop(error)),
        }
    }

    /// It says all of it, whatever stood there.
    async fn replace(
        &self,
        ts: &str,
        label: &str,
        (text, blocks): (&str, Option<Value>),
        rest: Option<&str>,
    ) -> Result<Taken, Stop> {
        let body = json!({
            "channel": self.thread.channel(),
            "ts": ts,
            "text": text,
            // What is left out stays.
            "blocks": blocks.unwrap_or_else(|| json!([])),
            "metadata": self.named(label),
        });
        let Err(error) = self.ask(UPDATE, Rank::Answer, &body).await? else {
            return Ok(Taken::Whole);
        };
        let word = match &error {
            CallError::Refused { error, .. } => error.as_str(),
            CallError::Limited { .. } | CallError::Unreached { .. } | CallError::Unknown { .. } => {
                return Err(stop(error));
            }
        };
        match word {
            // Slack has not closed it yet.
            "streaming_state_conflict" => {
                let (what, after_ms) = (error.to_string(), SLACK_PACE_MS);
                Err(Stop::Over(ChannelError::Retry { what, after_ms }))
            }
            // Somebody took it away: a person, or whoever posted it in its place.
            "message_not_found" if self.post.may_repeat => Ok(Taken::Nothing),
            "message_not_found" => {
                let what = error.to_string();
                Err(Stop::Over(ChannelError::Unknown { what, after_ms: 0 }))
            }
            word if cannot_be_changed(word) => match rest {
                Some(rest) if !rest.trim().is_empty() => Ok(Taken::Beginning(text::rest(rest))),
                Some(_) => Ok(Taken::Whole),
                None => self.take_away(ts).await,
            },
            _ => match stop(error) {
                Stop::Refused(Verdict::Never(what)) => {
                    tracing::warn!(item.id = %self.post.item, what = %what, "what showed a turn \
                        cannot become its answer");
                    self.take_away(ts).await
                }
                other @ (Stop::Refused(_) | Stop::Over(_)) => Err(other),
            },
        }
    }

    /// It goes, and all of it comes in a new message. An edit still under way finds nothing then.
    async fn take_away(&self, ts: &str) -> Result<Taken, Stop> {
        let body = json!({ "channel": self.thread.channel(), "ts": ts });
        match self.ask(DELETE, Rank::Answer, &body).await? {
            Ok(_) => {}
            Err(CallError::Refused { error, .. }) if error == "message_not_found" => {}
            Err(CallError::Refused { error, .. }) => {
                tracing::warn!(item.id = %self.post.item, error = %error, "the beginning of an \
                    answer cannot be taken away: it stands there twice");
            }
            Err(error) => return Err(stop(error)),
        }
        Ok(Taken::Nothing)
    }
}
