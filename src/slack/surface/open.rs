//! How a surface begins: the row first, then Slack, then the row again. Owns what becomes of one
//! that comes too late. Must not know what is added later.

use std::sync::Arc;

use serde_json::{Value, json};

use super::able::Way;
use super::talk::Told;
use super::{DELETE, START, STOP, Surfaces, Turn, mark};
use crate::core::id::{Principal, SessionId};
use crate::core::ledger::row::SurfaceForm;
use crate::core::ledger::session::Placed;
use crate::core::limits::{SLACK_POST_MS_MAX, SLACK_STREAM_RETRY_MS};
use crate::ports::{Desk, DeskError, Shown};
use crate::slack::place::{self, Thread};
use crate::slack::posting::{self, POST};
use crate::slack::text;
use crate::slack::verdict;
use crate::slack::web::CallError;

/// Why a message was not begun.
enum Miss {
    /// Slack does not stream this.
    NoStream,
    Told(Told),
}

impl Surfaces {
    pub(super) async fn open(&self, desk: &Arc<dyn Desk>, turn: &Turn, first: &str) -> Told {
        if self.able.may(Way::Stream, turn.0.installation()) {
            match self.begin(desk, turn, first, SurfaceForm::Stream).await {
                Err(Miss::NoStream) => {}
                Err(Miss::Told(told)) | Ok(told) => return told,
            }
        }
        if !self.able.may(Way::Edit, turn.0.installation()) {
            return Told::Never;
        }
        match self.begin(desk, turn, first, SurfaceForm::Draft).await {
            Ok(told) | Err(Miss::Told(told)) => told,
            Err(Miss::NoStream) => Told::Never,
        }
    }

    async fn begin(
        &self,
        desk: &Arc<dyn Desk>,
        turn: &Turn,
        first: &str,
        form: SurfaceForm,
    ) -> Result<Told, Miss> {
        let Some(session) = self.talks().get(turn).map(|talk| talk.session.clone()) else {
            return Ok(Told::Never);
        };
        let shown = Shown { form, mark: mark(first), at: None };
        let whose = match desk.surface(&session, turn.1, shown.clone()).await {
            Ok(Placed::Here(whose)) => whose,
            Ok(Placed::Taken | Placed::Over | Placed::Late(_)) => return Ok(Told::Never),
            Err(_) => return Ok(Told::NotYet),
        };
        if let Some(talk) = self.talks().get_mut(turn) {
            talk.owned();
        }
        let ts = match form {
            SurfaceForm::Stream => self.start(turn, first, &whose).await?,
            SurfaceForm::Draft => self.post(turn, &session, first).await?,
        };
        // It takes the status away.
        self.live.posted(&turn.0);
        let known = Shown { at: Some(ts.clone()), ..shown };
        let placed = self.placed(desk, &session, turn, &known).await;
        let elsewhere = match &placed {
            Ok(Placed::Taken | Placed::Over) => true,
            Ok(Placed::Late(Some(receipt))) => *receipt != posting::receipt(&turn.0, &ts),
            // The answer may be made of it at this moment, or is.
            Ok(Placed::Late(None) | Placed::Here(_)) | Err(_) => false,
        };
        if elsewhere && !self.is_sealed(turn) {
            self.remove(&turn.0, &ts, form).await;
            return Ok(Told::Never);
        }
        Ok(match placed {
            Ok(Placed::Here(_)) => Told::Opened(form, ts),
            // What is not written down must not be added to.
            Ok(Placed::Taken | Placed::Over | Placed::Late(_)) | Err(_) => {
                Told::OpenedOnly(form, ts)
            }
        })
    }

    /// Says where the surface is. Where the answer is posted at this moment, what becomes of that
    /// is waited for, within a bound: only then is it known whether this is the answer. Whoever
    /// posts it here takes this over, and waits for it.
    async fn placed(
        &self,
        desk: &Arc<dyn Desk>,
        session: &SessionId,
        turn: &Turn,
        known: &Shown,
    ) -> Result<Placed, DeskError> {
        let until = self.clock.now().plus_ms(2 * SLACK_POST_MS_MAX);
        loop {
            let sealing = self.sealing.notified();
            tokio::pin!(sealing);
            sealing.as_mut().enable();
            let placed = desk.surface(session, turn.1, known.clone()).await;
            let now = self.clock.now();
            if !matches!(placed, Ok(Placed::Late(None))) || self.is_sealed(turn) || now >= until {
                return placed;
            }
            tokio::select! {
                () = sealing => {}
                () = self.clock.sleep_until(now.plus_ms(SLACK_STREAM_RETRY_MS)) => {}
            }
        }
    }

    fn is_sealed(&self, turn: &Turn) -> bool {
        self.talks().get(turn).is_some_and(|talk| talk.sealed)
    }

    async fn start(
        &self,
        (thread, _): &Turn,
        first: &str,
        whose: &Principal,
    ) -> Result<String, Miss> {
        // In a channel Slack asks who it is for, and of which workspace.
        let direct = thread.channel().starts_with('D');
        let reader = place::user_of(whose).filter(|_| thread.installation().starts_with('T'));
        if reader.is_none() && !direct {
            return Err(Miss::NoStream);
        }
        let body = json!({
            "channel": thread.channel(),
            "thread_ts": thread.root(),
            "markdown_text": first,
            "recipient_user_id": reader.filter(|_| !direct),
            "recipient_team_id": Some(thread.installation()).filter(|_| !direct),
        });
        let answered = self.call(thread, START, &body).await;
        match answered {
            Ok(answer) => ts(&answer),
            Err(CallError::Refused { error, .. })
                if verdict::is_of_thread(&error) || verdict::is_of_now(&error) =>
            {
                Err(Miss::Told(Told::Never))
            }
            Err(CallError::Refused { error, .. }) => {
                let one = error.contains("recipient");
                if !one && self.able.refuse(Way::Stream, thread.installation()) {
                    tracing::warn!(error = %error, "Slack streams no answers here: they are \
                        shown in a message that is edited");
                }
                Err(Miss::NoStream)
            }
            Err(error) => Err(Miss::Told(self.failed(thread, &error))),
        }
    }

    async fn post(
        &self,
        (thread, turn): &Turn,
        session: &SessionId,
        first: &str,
    ) -> Result<String, Miss> {
        let part = text::draft(first);
        let body = json!({
            "channel": thread.channel(),
            "thread_ts": thread.root(),
            "text": part.text,
            "blocks": [{ "type": "markdown", "text": part.markdown }],
            "unfurl_links": false,
            "unfurl_media": false,
            "metadata": posting::metadata(session, &format!("post/{turn}/0"), posting::DRAFT),
        });
        let answered = self.call(thread, POST, &body).await;
        ts(&answered.map_err(|error| Miss::Told(self.failed(thread, &error)))?)
    }

    /// It came too late: its turn has another one, or its answer went its way without it.
    async fn remove(&self, thread: &Thread, ts: &str, form: SurfaceForm) {
        let body = json!({ "channel": thread.channel(), "ts": ts });
        // Whoever closed it before has made it the answer, or the whole beside it is whole anyway.
        if form == SurfaceForm::Stream && self.call(thread, STOP, &body).await.is_err() {
            return;
        }
        if let Err(error) = self.call(thread, DELETE, &body).await {
            tracing::warn!(slack.thread = thread.root(), %error, "a late beginning of an answer \
                cannot be taken away");
        }
    }
}

/// Where a message is; it is there also when Slack does not say where.
fn ts(answer: &Value) -> Result<String, Miss> {
    let ts = answer.get("ts").and_then(Value::as_str).map(str::to_owned);
    ts.ok_or(Miss::Told(Told::Unsure))
}
