//! Socket Mode: Slack's events by connections that the bot opens. Owns the tasks and the time of
//! the machine. Must not know what an event means: each goes to the reception in a task of its own,
//! so that a slow one holds up no other.

mod line;
mod machine;

use std::collections::BTreeMap;
use std::sync::Arc;

use secrecy::SecretString;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::line::Order;
use self::machine::{Effect, Input, LineNo, Machine};
use super::envelope::{Frame, Parcel, Reason};
use super::reception::{Delivery, Health, Reception};
use super::web::Web;
use crate::core::limits::SLACK_SOCKET_QUEUE_MAX;
use crate::core::time::Timestamp;
use crate::ports::{Clock, Ids};

/// What the connections need of the rest.
#[derive(Clone)]
pub struct Reach {
    /// Where everything goes.
    pub reception: Arc<Reception>,
    /// Gives the tickets.
    pub web: Arc<Web>,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Chance, so that many bots do not come back together.
    pub ids: Arc<dyn Ids>,
}

/// The connections.
pub struct Socket {
    app_token: SecretString,
    connections: u8,
    reach: Reach,
    health: watch::Sender<Health>,
}

/// One connection, from outside.
struct Line {
    orders: mpsc::Sender<Order>,
    /// Ends its task wherever it stands.
    cut: CancellationToken,
}

/// What one run has.
struct Run {
    lines: BTreeMap<LineNo, Line>,
    says: mpsc::Sender<Input>,
    tasks: TaskTracker,
}

impl Socket {
    /// Does not connect.
    pub fn new(app_token: SecretString, connections: u8, reach: Reach) -> Self {
        let what = "no connection to Slack was opened yet".to_owned();
        let health = watch::Sender::new(Health { ok: false, what });
        Self { app_token, connections, reach, health }
    }

    /// Can Slack reach the bot?
    pub fn health(&self) -> Health {
        self.health.borrow().clone()
    }

    /// Says it whenever it changes.
    pub fn healths(&self) -> watch::Receiver<Health> {
        self.health.subscribe()
    }

    /// Keeps the connections until `ending`; then takes nothing more, acknowledges within a bound
    /// what is in hand, and closes them. Where Socket Mode is switched off it only waits.
    pub async fn run(&self, ending: CancellationToken) {
        let clock = &self.reach.clock;
        let (says, mut hears) = mpsc::channel(SLACK_SOCKET_QUEUE_MAX);
        let mut run = Run { lines: BTreeMap::new(), says, tasks: TaskTracker::new() };
        let mut machine = Machine::new(self.connections, seed(&self.reach.ids.fresh()));
        let mut input = Input::Tick;
        let mut ended = false;
        loop {
            let now = clock.now();
            tell(&input);
            for effect in machine.step(now, input) {
                self.act(&mut run, now, effect);
            }
            self.note(machine.health());
            if machine.is_over() {
                break;
            }
            input = tokio::select! {
                biased;
                () = ending.cancelled(), if !ended => {
                    ended = true;
                    Input::End
                }
                // This holds a sender of it.
                Some(input) = hears.recv() => input,
                () = clock.sleep_until(machine.next_at()) => Input::Tick,
            };
        }
        // Nobody hears what is still said.
        drop(hears);
        run.tasks.close();
        for line in run.lines.values() {
            line.cut.cancel();
        }
        run.tasks.wait().await;
        ending.cancelled().await;
    }

    fn note(&self, health: Health) {
        self.health.send_if_modified(|known| {
            let changed = *known != health;
            *known = health;
            changed
        });
    }

    fn act(&self, run: &mut Run, now: Timestamp, effect: Effect) {
        match effect {
            Effect::Open(line) => self.open(run, line),
            Effect::Ping(line) => order(run, line, Order::Ping),
            Effect::Send(line, text) => order(run, line, Order::Send(text)),
            Effect::Close(line) => order(run, line, Order::Close),
            Effect::Hand(line, parcel) => self.hand(run, now, line, *parcel),
            Effect::Drop(line, why) => {
                tracing::warn!(slack.line = line, slack.why = why, "a connection is given up");
                if let Some(line) = run.lines.remove(&line) {
                    line.cut.cancel();
                }
            }
        }
    }

    fn open(&self, run: &mut Run, line: LineNo) {
        // Those that ended by themselves.
        run.lines.retain(|_, line| !line.orders.is_closed());
        let (orders, takes) = mpsc::channel(SLACK_SOCKET_QUEUE_MAX);
        let cut = CancellationToken::new();
        let (web, token) = (Arc::clone(&self.reach.web), self.app_token.clone());
        let (says, cuts) = (run.says.clone(), cut.clone());
        run.tasks.spawn(async move {
            let runs = Box::pin(line::run(line, &web, &token, takes, says));
            // Cut off means that nobody waits for its end.
            let _ = cuts.run_until_cancelled(runs).await;
        });
        run.lines.insert(line, Line { orders, cut });
    }

    fn hand(&self, run: &Run, at: Timestamp, line: LineNo, parcel: Parcel) {
        let reception = Arc::clone(&self.reach.reception);
        let says = run.says.clone();
        run.tasks.spawn(async move {
            let Parcel { envelope_id, envelope, answers, attempt } = parcel;
            let mut reply = reception.receive(Delivery { at, envelope, attempt }).await;
            reply.body = reply.body.filter(|_| answers);
            // The connections may have ended meanwhile: then Slack sends it again.
            let _ = says.send(Input::Settled { line, envelope_id, reply }).await;
        });
    }
}

/// A connection that takes no more orders is stuck, and will be found deaf.
fn order(run: &Run, line: LineNo, order: Order) {
    if let Some(to) = run.lines.get(&line)
        && to.orders.try_send(order).is_err()
    {
        tracing::debug!(slack.line = line, "a connection takes no orders");
    }
}

/// What a reader of the log wants to know of it.
fn tell(input: &Input) {
    match input {
        Input::Failed { what, .. } => {
            tracing::warn!(slack.error = %what, "no connection to Slack; it is tried again");
        }
        Input::Heard(line, Frame::Hello) => {
            tracing::info!(slack.line = line, "connected to Slack");
        }
        Input::Heard(_, Frame::Disconnect(Reason::Disabled)) => {
            tracing::error!("Slack has switched Socket Mode off (link_disabled)");
        }
        Input::Heard(line, Frame::Disconnect(reason)) => {
            tracing::info!(slack.line = line, slack.reason = ?reason, "a connection will end");
        }
        Input::Heard(line, Frame::Unknown(kind)) => {
            tracing::info!(slack.line = line, slack.kind = %kind, "a frame of an unknown sort");
        }
        Input::Large(line, bytes) => {
            tracing::error!(
                slack.line = line,
                slack.bytes = bytes,
                "Slack sent more at once than is read; it is lost unless it comes again smaller"
            );
        }
        Input::Gone(line) => tracing::debug!(slack.line = line, "a connection ended"),
        Input::Tick
        | Input::Joined(_)
        | Input::Heard(_, Frame::Envelope(_))
        | Input::Alive(_)
        | Input::Settled { .. }
        | Input::End => {}
    }
}

/// A number of a text that is by chance.
fn seed(text: &str) -> u64 {
    let mix = |seed: u64, byte: u8| (seed ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    text.bytes().fold(0xcbf2_9ce4_8422_2325, mix)
}
