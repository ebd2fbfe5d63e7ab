//! What a person wants where there is no thread: safe first, then a thread is begun for it. Owns
//! what they are told at once. Must not know how a thread is begun.

use serde_json::json;

use super::{Reception, Reply, invalid};
use crate::core::ledger::row::Opening;
use crate::ports::DeskError;
use crate::slack::hear::Wish;
use crate::slack::order;

const OPENING: &str = "\
I begin a thread for it here. If none appears in a moment, I am not in this channel: `/invite` me \
and write it again.";

impl Reception {
    /// Nobody but this person sees the answer.
    pub(super) async fn wish(&self, wish: Wish) -> Reply {
        if let Some(reply) = self.closed(wish.spot.installation()).await {
            return reply;
        }
        let text = match self.open(wish).await {
            Ok(()) => OPENING.to_owned(),
            // Slack sends no command again: the person has to.
            Err(error) => order::refused_wish(&error),
        };
        let body = json!({ "response_type": "ephemeral", "text": order::bounded(&text) });
        Reply { body: Some(body), ..Reply::TAKEN }
    }

    async fn open(&self, wish: Wish) -> Result<(), DeskError> {
        let Wish { spot, by, text, shared, item } = wish;
        let session = spot.session().map_err(|error| invalid(&error))?;
        let opening = Opening { principal: by, text, said_at: self.now(), shared };
        self.reach.desk.open(&session, item, spot.address(), opening).await
    }
}
