//! A desk that a test holds: it keeps what it is handed, knows repeats by their keys as the ledger
//! does, and can be made to stall or to refuse.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex};

use dogwatch::core::arrival::{Incoming, What};
use dogwatch::core::egress::Access;
use dogwatch::core::execution::{Address, Execution, Home, HumanReceipt, Kind, ModelReceipt};
use dogwatch::core::execution::{Notify, Scope, State};
use dogwatch::core::id::{BootId, ExecutionId, ItemId, Principal, SessionId, SpoolId, TurnNo};
use dogwatch::core::ledger::row::Opening;
use dogwatch::core::time::Timestamp;
use dogwatch::ports::{Command, Desk, DeskError, Done, Glance, SessionView};
use dogwatch::slack::hear::Visitor;
use dogwatch::slack::panel::Told;
use dogwatch::slack::reception::{Answerer, Whom};
use futures_util::future::BoxFuture;
use serde_json::Value;
use tokio::sync::{broadcast, watch};

/// The turn that is open everywhere.
pub(super) const TURN: TurnNo = 3;

/// A clone is the same desk.
#[derive(Clone, Default)]
pub(super) struct TestDesk(Arc<Shared>);

#[derive(Default)]
struct Shared {
    came: watch::Sender<usize>,
    open: Gate,
    safe: watch::Sender<Vec<(SessionId, Incoming)>>,
    repeats: watch::Sender<usize>,
    keys: Mutex<BTreeSet<(SessionId, String)>>,
    refusals: Mutex<VecDeque<DeskError>>,
    commands: watch::Sender<Vec<(SessionId, Principal, Command)>>,
    openings: Mutex<Vec<(SessionId, ItemId, Address, Opening)>>,
    live: Mutex<BTreeMap<SessionId, Vec<Execution>>>,
}

/// Open unless a test shuts it.
struct Gate(watch::Sender<bool>);

impl Default for Gate {
    fn default() -> Self {
        Self(watch::Sender::new(true))
    }
}

impl TestDesk {
    /// Nothing becomes safe until it is opened again.
    pub(super) fn shut(&self) {
        self.0.open.0.send_replace(false);
    }

    pub(super) fn open(&self) {
        self.0.open.0.send_replace(true);
    }

    /// The next thing that is handed in is refused so.
    pub(super) fn refuses(&self, error: DeskError) {
        self.0.refusals.lock().unwrap().push_back(error);
    }

    /// An execution that runs there.
    pub(super) fn runs(&self, session: &str, id: &str, owner: &str) {
        let session = SessionId::new(session).unwrap();
        let execution = execution(id, owner);
        self.0.live.lock().unwrap().entry(session).or_default().push(execution);
    }

    /// Waits until so much was handed in, whatever becomes of it.
    pub(super) async fn came(&self, count: usize) {
        let mut came = self.0.came.subscribe();
        super::patiently(came.wait_for(|came| *came >= count)).await.unwrap();
    }

    /// Waits until so many messages are safe; all that are.
    pub(super) async fn safe(&self, count: usize) -> Vec<(SessionId, Incoming)> {
        let mut safe = self.0.safe.subscribe();
        super::patiently(safe.wait_for(|safe| safe.len() >= count)).await.unwrap().clone()
    }

    pub(super) fn safe_now(&self) -> Vec<(SessionId, Incoming)> {
        self.0.safe.borrow().clone()
    }

    /// Waits until so many were known already.
    pub(super) async fn repeats(&self, count: usize) {
        let mut repeats = self.0.repeats.subscribe();
        super::patiently(repeats.wait_for(|repeats| *repeats >= count)).await.unwrap();
    }

    /// The texts of what is safe, in order.
    pub(super) fn texts(&self) -> Vec<String> {
        let text = |(_, incoming): (SessionId, Incoming)| match incoming.what {
            What::Message { text } | What::Edit { text, .. } => text,
            What::Deletion { .. } => "(gone)".to_owned(),
        };
        self.safe_now().into_iter().map(text).collect()
    }

    pub(super) fn commands(&self) -> Vec<(SessionId, Principal, Command)> {
        self.0.commands.borrow().clone()
    }

    /// What conversations it was asked to begin.
    pub(super) fn openings(&self) -> Vec<(SessionId, ItemId, Address, Opening)> {
        self.0.openings.lock().unwrap().clone()
    }

    async fn take(&self, session: &SessionId, incoming: Incoming) -> Result<(), DeskError> {
        self.0.came.send_modify(|came| *came += 1);
        self.pass().await;
        if let Some(error) = self.0.refusals.lock().unwrap().pop_front() {
            return Err(error);
        }
        let keys = incoming.keys.iter().map(|key| (session.clone(), key.to_string()));
        let keys: Vec<_> = keys.collect();
        let mut known = self.0.keys.lock().unwrap();
        let is_known = keys.iter().any(|key| known.contains(key));
        known.extend(keys);
        drop(known);
        if is_known {
            self.0.repeats.send_modify(|repeats| *repeats += 1);
        } else {
            self.0.safe.send_modify(|safe| safe.push((session.clone(), incoming)));
        }
        Ok(())
    }

    async fn pass(&self) {
        let mut open = self.0.open.0.subscribe();
        open.wait_for(|open| *open).await.unwrap();
    }

    async fn obey(
        &self,
        session: &SessionId,
        by: &Principal,
        command: Command,
    ) -> Result<Done, DeskError> {
        self.0.came.send_modify(|came| *came += 1);
        self.pass().await;
        if let Some(error) = self.0.refusals.lock().unwrap().pop_front() {
            return Err(error);
        }
        let given = (session.clone(), by.clone(), command.clone());
        self.0.commands.send_modify(|commands| commands.push(given));
        let live = self.live(session);
        Ok(match command {
            Command::Cancel { execution, .. } => {
                match live.iter().find(|one| one.id == execution) {
                    Some(one) if one.owner == *by => Done::Cancelling,
                    Some(one) => Done::Foreign(one.owner.clone()),
                    None => Done::Unknown,
                }
            }
            Command::Stop { scope: Scope::Turn, .. } => Done::Stopped { ended: 0, turn: true },
            Command::StopTurn { turn, .. } => Done::Stopped { ended: 0, turn: turn == TURN },
            Command::Stop { scope: Scope::All, .. } => {
                Done::Stopped { ended: live.len(), turn: true }
            }
        })
    }

    fn live(&self, session: &SessionId) -> Vec<Execution> {
        self.0.live.lock().unwrap().get(session).cloned().unwrap_or_default()
    }
}

impl Desk for TestDesk {
    fn accept<'a>(
        &'a self,
        session: &'a SessionId,
        incoming: Incoming,
    ) -> BoxFuture<'a, Result<(), DeskError>> {
        Box::pin(self.take(session, incoming))
    }

    fn open<'a>(
        &'a self,
        session: &'a SessionId,
        item: ItemId,
        address: Address,
        opening: Opening,
    ) -> BoxFuture<'a, Result<(), DeskError>> {
        Box::pin(async move {
            self.pass().await;
            if let Some(error) = self.0.refusals.lock().unwrap().pop_front() {
                return Err(error);
            }
            let asked = (session.clone(), item, address, opening);
            self.0.openings.lock().unwrap().push(asked);
            Ok(())
        })
    }

    fn command<'a>(
        &'a self,
        session: &'a SessionId,
        by: &'a Principal,
        command: Command,
    ) -> BoxFuture<'a, Result<Done, DeskError>> {
        Box::pin(self.obey(session, by, command))
    }

    fn view<'a>(&'a self, session: &'a SessionId) -> BoxFuture<'a, Result<SessionView, DeskError>> {
        Box::pin(async move {
            Ok(SessionView {
                turn: Some((TURN, 1)),
                people: 1,
                notices: 0,
                stopped: false,
                not_before: None,
                live: self.live(session),
                ended: Vec::new(),
                unposted: 0,
                shown: std::collections::BTreeMap::new(),
            })
        })
    }

    fn stirs(&self) -> broadcast::Receiver<SessionId> {
        broadcast::Sender::new(1).subscribe()
    }

    fn glance<'a>(
        &'a self,
        _session: &'a SessionId,
        _execution: &'a ExecutionId,
    ) -> BoxFuture<'a, Option<Glance>> {
        Box::pin(std::future::ready(None))
    }
}

/// A watcher that runs in the thread of the tests.
pub(crate) fn execution(id: &str, owner: &str) -> Execution {
    Execution {
        id: ExecutionId::new(id).unwrap(),
        kind: Kind::Script,
        name: "deploy <watch>".into(),
        turn: 1,
        call: (1, 0),
        owner: Principal::new(owner).unwrap(),
        generation: 0,
        chain: 1,
        address: Address { surface: "slack".into(), thread: "T1/C1/1.1".into() },
        home: Home::Spool(SpoolId::new("spool").unwrap()),
        boot: BootId::new("boot").unwrap(),
        notify: Notify::Agent,
        key: None,
        timeout_ms: 600_000,
        state: State::Running,
        cancel: None,
        registered_at: Timestamp::from_ms(1_000),
        started_at: Some(Timestamp::from_ms(940_000)),
        ended_at: None,
        due_at: Timestamp::MAX,
        unattended: false,
        model: ModelReceipt::None,
        human: HumanReceipt::None,
        late: Vec::new(),
        shown: false,
        shared: false,
        access: Access::default(),
    }
}

/// Who was told what; nobody, where it went to an address.
type Given = Vec<(Option<Whom>, String)>;

/// Whose home tab was shown anew, with what.
type Homes = Vec<(Visitor, Option<String>)>;

/// What was given with buttons.
type Panels = Vec<(String, Value)>;

/// What people were told. A clone is the same.
#[derive(Clone, Default)]
pub(super) struct Answers(Arc<watch::Sender<Given>>, Arc<Mutex<Panels>>, Arc<watch::Sender<Homes>>);

impl Answers {
    /// Waits for so many; all that were given.
    pub(super) async fn given(&self, count: usize) -> Given {
        let mut given = self.0.subscribe();
        super::patiently(given.wait_for(|given| given.len() >= count)).await.unwrap().clone()
    }

    pub(super) fn count(&self) -> usize {
        self.0.borrow().len()
    }
}

impl Answers {
    /// The last answer that had buttons: where it went, and its blocks.
    pub(super) fn panel(&self) -> (String, Value) {
        self.1.lock().unwrap().last().cloned().unwrap()
    }

    /// Waits until so many home tabs were shown; all that were.
    pub(super) async fn shown(&self, count: usize) -> Homes {
        let mut shown = self.2.subscribe();
        super::patiently(shown.wait_for(|shown| shown.len() >= count)).await.unwrap().clone()
    }

    fn give(&self, whom: Option<&Whom>, url: &str, told: &Told) -> BoxFuture<'static, ()> {
        if let Some(blocks) = &told.blocks {
            self.1.lock().unwrap().push((url.to_owned(), blocks.clone()));
        }
        let text = format!("{url} {}", told.text).trim().to_owned();
        self.0.send_modify(|given| given.push((whom.cloned(), text)));
        Box::pin(std::future::ready(()))
    }
}

impl Answerer for Answers {
    fn tell<'a>(&'a self, whom: &'a Whom, told: &'a Told) -> BoxFuture<'a, ()> {
        self.give(Some(whom), "", told)
    }

    fn respond<'a>(&'a self, url: &'a str, told: &'a Told) -> BoxFuture<'a, ()> {
        self.give(None, url, told)
    }

    fn show(&self, visitor: Visitor, said: Option<String>) {
        self.2.send_modify(|shown| shown.push((visitor, said)));
    }

    fn replace<'a>(&'a self, url: &'a str, whom: &'a Whom, told: &'a Told) -> BoxFuture<'a, ()> {
        self.give(Some(whom), url, told)
    }
}
