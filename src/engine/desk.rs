//! The one way in: arrivals and commands of people. Owns what a person hears when something is not
//! taken. Must not know channels.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::sync::broadcast;

use super::{Engine, LedgerError, effects, home, owners};
use crate::core::arrival::{Incoming, What};
use crate::core::execution::{Address, Execution, Scope, State};
use crate::core::id::{ExecutionId, ItemId, PressId, Principal, SessionId, StopId, TurnNo};
use crate::core::ledger::row::{Head, Inbox, Item, ItemState, Live, Opening, RowType, Tails, Turn};
use crate::core::ledger::session::{
    Accept, Accepted, Behalf, Cancel, CancelAnswer, Open, Placed, PutSurface, Stop, shown_by,
};
use crate::core::ledger::{Aggregate, Index, Key, Refusal};
use crate::core::limits::MESSAGE_BYTES_MAX;
use crate::core::output::clean;
use crate::core::time::Timestamp;
use crate::ports::{Command, Desk, DeskError, Done, Glance, Owned, SessionView, Shown, StoreError};

/// The desk of an engine.
pub struct FrontDesk(pub Arc<Engine>);

/// Most executions of one home that are looked for at once.
const AT_HOME_MAX: usize = 1_000;

fn away(error: &LedgerError) -> DeskError {
    DeskError::Away(format!("{error}; nothing is lost by sending it again"))
}

impl FrontDesk {
    async fn take(&self, session: &SessionId, incoming: Incoming) -> Result<(), DeskError> {
        let incoming = self.check(incoming)?;
        let chain = self.0.settings.agents.at(&incoming.address).allowance;
        let accept = Accept { session: session.clone(), incoming, chain };
        match self.0.ledger.run(&accept).await {
            Ok(
                Accepted::New(_)
                | Accepted::Duplicate(_)
                | Accepted::Late(_)
                | Accepted::Changed(_)
                | Accepted::Early
                | Accepted::Ignored,
            ) => Ok(()),
            Err(LedgerError::Refused(Refusal::Full(unread))) => Err(DeskError::Full(format!(
                "{unread} messages here are not read yet; wait for an answer, or `stop`"
            ))),
            Err(error) => Err(away(&error)),
        }
    }

    fn check(&self, mut incoming: Incoming) -> Result<Incoming, DeskError> {
        match &mut incoming.what {
            What::Message { text } | What::Edit { text, .. } => *text = self.fit(text)?,
            What::Deletion { .. } => {}
        }
        Ok(incoming)
    }

    /// A text of a person, as it is kept.
    fn fit(&self, text: &str) -> Result<String, DeskError> {
        if text.len() > MESSAGE_BYTES_MAX {
            return Err(DeskError::Invalid(format!(
                "a message has at most {MESSAGE_BYTES_MAX} bytes, this has {}; send it in parts or \
                 as a file",
                text.len()
            )));
        }
        let text = self.0.ports.redactor.redact(&clean(text)).into_owned();
        if text.trim().is_empty() {
            return Err(DeskError::Invalid("the message is empty".into()));
        }
        Ok(text)
    }

    async fn begin(&self, mut open: Open) -> Result<(), DeskError> {
        open.opening.text = self.fit(&open.opening.text)?;
        match self.0.ledger.run(&open).await {
            Ok(()) => Ok(()),
            Err(LedgerError::Refused(Refusal::Full(waiting))) => Err(DeskError::Full(format!(
                "{waiting} conversations are to be begun here and are not yet"
            ))),
            Err(error) => Err(away(&error)),
        }
    }

    async fn cancel(
        &self,
        session: &SessionId,
        by: &Principal,
        execution: ExecutionId,
        press: PressId,
    ) -> Result<Done, DeskError> {
        let behalf = Behalf::Person { principal: by.clone(), press };
        let cancel = Cancel { session: session.clone(), execution, behalf };
        match self.0.ledger.run(&cancel).await {
            Ok(CancelAnswer::Cancelling(_)) => {
                home::cancel(&self.0, session, &cancel.execution).await;
                Ok(Done::Cancelling)
            }
            Ok(CancelAnswer::Over(status)) => Ok(Done::Over(status)),
            Err(LedgerError::Refused(Refusal::Unknown)) => Ok(Done::Unknown),
            Err(LedgerError::Refused(Refusal::Foreign(owner))) => Ok(Done::Foreign(owner)),
            Err(error) => Err(away(&error)),
        }
    }

    async fn stop(
        &self,
        session: &SessionId,
        by: &Principal,
        (scope, only): (Scope, Option<TurnNo>),
        (stop, said_at): (StopId, Option<Timestamp>),
    ) -> Result<Done, DeskError> {
        let source_at = said_at.unwrap_or_else(|| self.0.ports.clock.now());
        let by = by.clone();
        let stop = Stop { session: session.clone(), scope, stop, source_at, by, only };
        match self.0.ledger.run(&stop).await {
            Ok(answer) => {
                if answer.turn || only.is_none() {
                    self.0.interrupt(session);
                }
                Ok(Done::Stopped { ended: answer.ended, turn: answer.turn })
            }
            Err(error) => Err(away(&error)),
        }
    }

    async fn look(&self, session: &SessionId) -> Result<SessionView, LedgerError> {
        let store = &self.0.ports.store;
        let aggregate = Aggregate::Session(session.clone());
        let keys = [Key::head(), Key::inbox(), Key::live(), Key::tails()];
        let rows = store.load(&aggregate, &keys).await?.rows;
        let row = |i: usize| rows.get(i).and_then(Option::as_ref);
        let head = row(0).and_then(Head::of).cloned().unwrap_or_default();
        let inbox = row(1).and_then(Inbox::of).cloned().unwrap_or_default();
        let ids = row(2).and_then(Live::of).cloned().unwrap_or_default();
        let unposted = row(3).and_then(Tails::of).map_or(0, |tails| tails.0.len());
        let turn = match head.open {
            Some(no) => {
                let rows = store.load(&aggregate, &[Key::turn(no)]).await?.rows;
                let turn = rows.into_iter().flatten().next();
                turn.as_ref().and_then(Turn::of).map(|turn| (turn.no, turn.attempt))
            }
            None => None,
        };
        let keys: Vec<Key> = ids.0.iter().map(Key::execution).collect();
        let live = store.load(&aggregate, &keys).await?.rows;
        let live = live.iter().flatten().filter_map(Execution::of).cloned();
        let live: Vec<Execution> =
            live.filter(home::is_live).map(|execution| self.redacted(execution)).collect();
        let ended = effects::ended(&self.0, session).await?;
        let shown = self.shown(&aggregate, &live).await?;
        Ok(SessionView {
            turn,
            people: inbox.people.len(),
            notices: inbox.notices.len(),
            stopped: head.stopped,
            not_before: head.open.filter(|_| head.lane.is_none()).map(|_| head.not_before),
            live,
            ended: ended.into_iter().map(|execution| self.redacted(execution)).collect(),
            unposted,
            shown,
        })
    }

    /// Its name is the model's, and shown to people.
    fn redacted(&self, mut execution: Execution) -> Execution {
        execution.name = self.0.ports.redactor.redact(&execution.name).into_owned();
        execution
    }

    /// Where the messages of these executions are.
    async fn shown(
        &self,
        aggregate: &Aggregate,
        live: &[Execution],
    ) -> Result<BTreeMap<ExecutionId, String>, StoreError> {
        let shown = live.iter().filter(|execution| execution.shown);
        let named = shown.filter_map(|one| Some((one.id.clone(), shown_by(&one.id)?)));
        let (ids, items): (Vec<_>, Vec<_>) = named.unzip();
        if items.is_empty() {
            return Ok(BTreeMap::new());
        }
        let keys: Vec<Key> = items.iter().map(Key::item).collect();
        let rows = self.0.ports.store.load(aggregate, &keys).await?.rows;
        let posted = ids.into_iter().zip(rows).filter_map(|(id, row)| {
            let item = row.as_ref().and_then(Item::of)?;
            let ItemState::Done(receipt) = &item.state else { return None };
            Some((id, receipt.clone()))
        });
        Ok(posted.collect())
    }

    async fn homes(&self) -> Result<Vec<SessionId>, StoreError> {
        let index = Index::Home(self.0.home.clone());
        let live = self.0.ports.store.members(&index, u64::MAX, None, AT_HOME_MAX).await?;
        let mut sessions: Vec<SessionId> = live
            .into_iter()
            .filter_map(|member| match member.aggregate {
                Aggregate::Session(session) => Some(session),
                Aggregate::Installer
                | Aggregate::Installation(_)
                | Aggregate::Node(_)
                | Aggregate::Owner(_) => None,
            })
            .collect();
        sessions.sort();
        sessions.dedup();
        Ok(sessions)
    }
}

impl Desk for FrontDesk {
    fn accept<'a>(
        &'a self,
        session: &'a SessionId,
        incoming: Incoming,
    ) -> BoxFuture<'a, Result<(), DeskError>> {
        self.take(session, incoming).boxed()
    }

    fn open<'a>(
        &'a self,
        session: &'a SessionId,
        item: ItemId,
        address: Address,
        opening: Opening,
    ) -> BoxFuture<'a, Result<(), DeskError>> {
        self.begin(Open { session: session.clone(), item, address, opening }).boxed()
    }

    fn command<'a>(
        &'a self,
        session: &'a SessionId,
        by: &'a Principal,
        command: Command,
    ) -> BoxFuture<'a, Result<Done, DeskError>> {
        async move {
            match command {
                Command::Cancel { execution, press } => {
                    self.cancel(session, by, execution, press).await
                }
                Command::Stop { scope, stop, said_at } => {
                    self.stop(session, by, (scope, None), (stop, said_at)).await
                }
                Command::StopTurn { turn, stop, said_at } => {
                    let said = (stop, Some(said_at));
                    self.stop(session, by, (Scope::Turn, Some(turn)), said).await
                }
            }
        }
        .boxed()
    }

    fn view<'a>(&'a self, session: &'a SessionId) -> BoxFuture<'a, Result<SessionView, DeskError>> {
        async move { self.look(session).await.map_err(|error| away(&error)) }.boxed()
    }

    fn at_home(&self) -> BoxFuture<'_, Result<Vec<SessionId>, DeskError>> {
        async move { self.homes().await.map_err(|error| away(&error.into())) }.boxed()
    }

    fn of_owner<'a>(&'a self, owner: &'a Principal) -> BoxFuture<'a, Result<Owned, DeskError>> {
        async move {
            let found = owners::owned(&self.0, owner).await;
            let Owned { live, taken, cap } = found.map_err(|error| away(&error.into()))?;
            let live = live.into_iter().map(|one| self.redacted(one)).collect();
            Ok(Owned { live, taken, cap })
        }
        .boxed()
    }

    fn surface<'a>(
        &'a self,
        session: &'a SessionId,
        turn: TurnNo,
        Shown { form, mark, at }: Shown,
    ) -> BoxFuture<'a, Result<Placed, DeskError>> {
        let (session, boot) = (session.clone(), self.0.boot());
        let put = PutSurface { session, turn, boot, form, mark, at };
        async move { self.0.ledger.run(&put).await.map_err(|error| away(&error)) }.boxed()
    }

    fn stirs(&self) -> broadcast::Receiver<SessionId> {
        self.0.stirs.subscribe()
    }

    fn attended(&self) {
        self.0.attended.notify_one();
    }

    fn glance<'a>(
        &'a self,
        session: &'a SessionId,
        execution: &'a ExecutionId,
    ) -> BoxFuture<'a, Option<Glance>> {
        async move {
            // Only what this session has: an id of another one shows nothing.
            let known = home::find(&self.0, session, execution).await.ok().flatten()?;
            let live = self.0.ports.launcher.glance(session, execution).await;
            match known.state {
                State::Ended(outcome) => {
                    Some(Glance { stdout: outcome.stdout, stderr: outcome.stderr, stalled: false })
                }
                State::Registered | State::Running | State::Cancelling => live,
            }
        }
        .boxed()
    }
}
