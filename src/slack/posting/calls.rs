//! The calls of one try: paced, within its time, as the installation of its place. Owns what a
//! failed call says of the try. Must not know what is posted.

use serde_json::Value;

use super::Posting;
use crate::core::limits::{SLACK_CALL_MS_MIN, SLACK_MENDED_MS};
use crate::core::time::Timestamp;
use crate::ports::ChannelError;
use crate::slack::pace::{Pass, Rank};
use crate::slack::verdict::{self, Verdict};
use crate::slack::web::CallError;

/// Why a step of a try did not work.
pub(super) enum Stop {
    /// Slack said no, and did nothing.
    Refused(Verdict),
    /// The try is over.
    Over(ChannelError),
}

impl Stop {
    /// For whoever has no other form to offer.
    pub(super) fn over(self) -> ChannelError {
        match self {
            Self::Over(error) => error,
            Self::Refused(Verdict::Never(what) | Verdict::Smaller(what)) => {
                ChannelError::Never { what }
            }
            Self::Refused(Verdict::Mend(what)) => {
                ChannelError::Retry { what, after_ms: SLACK_MENDED_MS }
            }
        }
    }
}

/// Calls at one place.
pub(super) struct Calls<'a> {
    pub(super) posting: &'a Posting,
    /// The installation and the channel.
    pub(super) at: (&'a str, &'a str),
    /// When the try is over.
    pub(super) until: Timestamp,
}

impl Calls<'_> {
    /// Calls Slack once its pace allows it, while there is time.
    pub(super) async fn call(
        &self,
        method: &'static str,
        rank: Rank,
        body: &Value,
    ) -> Result<Value, Stop> {
        self.ask(method, rank, body).await?.map_err(stop)
    }

    /// Likewise, for whoever knows what to do about Slack's own word.
    pub(super) async fn ask(
        &self,
        method: &'static str,
        rank: Rank,
        body: &Value,
    ) -> Result<Result<Value, CallError>, Stop> {
        let (installation, channel) = self.at;
        loop {
            self.pass(method, rank).await?;
            let Posting { web, keyring, .. } = self.posting;
            let token = keyring.token(installation).await;
            let token = token.map_err(|error| Stop::Over(error.for_post()))?;
            let answered = self.in_time(method, web.call(&token, method, body)).await;
            match answered {
                Err(CallError::Limited { after_ms, .. }) => {
                    let now = self.posting.clock.now();
                    self.posting.pace().limited(now, (method, channel), after_ms);
                }
                // New ones are on their way.
                Err(CallError::Refused { error, .. })
                    if error == "token_expired" && keyring.configured().is_none() =>
                {
                    let what = "the token is being changed for a new one".to_owned();
                    return Err(Stop::Over(ChannelError::Retry { what, after_ms: 0 }));
                }
                answered => return Ok(answered),
            }
        }
    }

    /// Waits until the call may be made; not longer than this try lasts.
    pub(super) async fn pass(&self, method: &'static str, rank: Rank) -> Result<(), Stop> {
        let clock = &self.posting.clock;
        let whereto = (method, self.at.1);
        loop {
            let now = clock.now();
            let left_ms = self.until.since_ms(now);
            if left_ms < SLACK_CALL_MS_MIN {
                let what = "there was no time left for it in this try".to_owned();
                return Err(Stop::Over(ChannelError::Retry { what, after_ms: 0 }));
            }
            let passed = self.posting.pace().ask(now, whereto, rank);
            let Pass::Wait(at) = passed else { return Ok(()) };
            let after_ms = at.since_ms(now);
            if after_ms + SLACK_CALL_MS_MIN > left_ms {
                let what = format!("Slack limits {method} in this channel");
                return Err(Stop::Over(ChannelError::Retry { what, after_ms }));
            }
            clock.sleep_until(at).await;
        }
    }

    /// A call that this try cannot wait for any longer has an unknown outcome.
    pub(super) async fn in_time<T>(
        &self,
        method: &'static str,
        call: impl Future<Output = Result<T, CallError>>,
    ) -> Result<T, CallError> {
        tokio::select! {
            answer = call => answer,
            () = self.posting.clock.sleep_until(self.until) => {
                Err(CallError::Unknown { method, what: "no answer in time".to_owned() })
            }
        }
    }
}

pub(super) fn stop(error: CallError) -> Stop {
    let what = error.to_string();
    match error {
        CallError::Refused { method, error, needed } => {
            Stop::Refused(verdict::of(method, &error, needed.as_deref()))
        }
        CallError::Limited { after_ms, .. } => Stop::Over(ChannelError::Retry { what, after_ms }),
        CallError::Unreached { .. } => Stop::Over(ChannelError::Retry { what, after_ms: 0 }),
        CallError::Unknown { .. } => Stop::Over(ChannelError::Unknown { what, after_ms: 0 }),
    }
}
