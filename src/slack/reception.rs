//! The reception: whatever Slack sends, by a request or on a connection, comes through here to the
//! desk. Owns that nothing is acknowledged before it is safe, and nothing acknowledged late. Must
//! not know how it came.
//!
//! What is not acknowledged comes again: Slack repeats an event three times, and the desk knows it
//! by its names. So an outage of a minute costs nothing but the minute.

mod lobby;
mod opening;
mod standing;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::future::BoxFuture;
use secrecy::SecretString;
use serde_json::{Value, json};
use tokio::sync::{Semaphore, oneshot, watch};
use tokio_util::task::TaskTracker;

use self::standing::Standing;
use super::access::Keyring;
use super::envelope::{Envelope, Kind};
use super::guard::{Bots, Commands};
use super::hear::{Ask, Asker, Heard, Said, Visitor, hear};
use super::order::{self, Order};
use super::panel::{self, Told};
use super::place::Thread;
use super::plain::escaped;
use super::{Ingress, Settings};
use crate::core::id::{IdError, PressId, StopId};
use crate::core::limits::{
    SLACK_ACK_MS, SLACK_IN_HAND_MAX, SLACK_RETRIES_MAX, SLACK_SOCKET_LEAVE_MS, SLACK_WHO_MS_MAX,
};
use crate::core::time::Timestamp;
use crate::ports::{Clock, Command, Desk, DeskError};

/// Gives answers that only one person sees and nobody keeps. An answer that does not arrive is
/// lost.
pub trait Answerer: Send + Sync + 'static {
    /// Where the person is.
    fn tell<'a>(&'a self, whom: &'a Whom, told: &'a Told) -> BoxFuture<'a, ()>;
    /// Where Slack said that an answer may be given.
    fn respond<'a>(&'a self, url: &'a str, told: &'a Told) -> BoxFuture<'a, ()>;
    /// There in place of what was pressed; where that cannot be, where the person is.
    fn replace<'a>(&'a self, url: &'a str, whom: &'a Whom, told: &'a Told) -> BoxFuture<'a, ()>;
    /// In the app's own tab, which is drawn anew. Returns at once.
    fn show(&self, visitor: Visitor, said: Option<String>);
}

/// Who is told, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Whom {
    /// The thread it is about.
    pub thread: Thread,
    /// The person.
    pub user: String,
    /// In the thread; else beside it, since Slack shows such an answer only in a thread that has
    /// replies.
    pub inside: bool,
}

/// What the reception needs of the rest.
#[derive(Clone)]
pub struct Reach {
    /// The one way in.
    pub desk: Arc<dyn Desk>,
    /// With which token Slack is asked, and what is known of installations.
    pub keyring: Arc<Keyring>,
    /// For answers to commands.
    pub answers: Arc<dyn Answerer>,
    /// Time.
    pub clock: Arc<dyn Clock>,
}

/// Something that Slack delivered.
#[derive(Debug, Clone)]
pub struct Delivery {
    /// When the first of it was here.
    pub at: Timestamp,
    /// What.
    pub envelope: Envelope,
    /// Which repeat it is, from 1; 0 for the first.
    pub attempt: u32,
}

/// What Slack is answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// In HTTP's words; everything but 200 is no acknowledgement.
    pub status: u16,
    /// What goes with an acknowledgement.
    pub body: Option<Value>,
}

impl Reply {
    const TAKEN: Self = Self { status: 200, body: None };
    const AGAIN: Self = Self { status: 503, body: None };

    /// It is safe, or not for the bot.
    pub const fn is_ack(&self) -> bool {
        self.status == 200
    }
}

/// How well something is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Health {
    /// It is well.
    pub ok: bool,
    /// What was seen, and what now.
    pub what: String,
}

/// An answer on its way to a person.
enum Answer {
    Tell(Whom, Told),
    Respond(String, Told),
    Replace(String, Whom, Told),
    Show(Visitor, Option<String>),
}

/// The reception.
pub struct Reception {
    settings: Settings,
    reach: Reach,
    standing: watch::Sender<Standing>,
    tasks: TaskTracker,
    seats: Arc<Semaphore>,
    commands: Mutex<Commands>,
    bots: Mutex<Bots>,
    /// When it was last said in the log that a request was not believed.
    doubted_at: AtomicU64,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Reception {
    /// Hears no messages until it was told who the bot is: by [`Self::learn`] or
    /// [`Self::introduce`].
    pub fn new(settings: Settings, reach: Reach) -> Arc<Self> {
        Arc::new(Self {
            settings,
            reach,
            standing: watch::Sender::default(),
            tasks: TaskTracker::new(),
            seats: Arc::new(Semaphore::new(SLACK_IN_HAND_MAX)),
            commands: Mutex::default(),
            bots: Mutex::default(),
            doubted_at: AtomicU64::new(0),
        })
    }

    /// Signs requests, where events come by them.
    pub(super) fn signing_secret(&self) -> Option<&SecretString> {
        match &self.settings.ingress {
            Ingress::Http { signing_secret } => Some(signing_secret),
            Ingress::Socket { .. } => None,
        }
    }

    /// What Slack signs by its clock is judged by this machine's, as it is set now: the store's may
    /// be another machine's, or set wrong when the bot began.
    pub(super) fn wall(&self) -> Timestamp {
        self.reach.clock.wall()
    }

    pub(super) fn now(&self) -> Timestamp {
        self.reach.clock.now()
    }

    /// Should a request that is not believed be told of? Anybody can send many.
    pub(super) fn doubts(&self) -> bool {
        let now = self.now().as_ms();
        let last = self.doubted_at.load(Ordering::Relaxed);
        let due = last == 0 || now.saturating_sub(last) >= SLACK_WHO_MS_MAX;
        if due {
            self.doubted_at.store(now, Ordering::Relaxed);
        }
        due
    }

    /// Takes what Slack delivered. The reply is an acknowledgement only if what it acknowledges is
    /// safe, and comes in time or not at all. What is under way then goes on: the next delivery
    /// finds it done.
    pub async fn receive(self: &Arc<Self>, delivery: Delivery) -> Reply {
        let kind = delivery.envelope.word();
        let Ok(seat) = Arc::clone(&self.seats).try_acquire_owned() else {
            tracing::warn!(slack.kind = %kind, "not acknowledged: too much is in hand");
            return Reply::AGAIN;
        };
        let late = self.reach.clock.sleep_until(delivery.at.plus_ms(SLACK_ACK_MS));
        let (says, said) = oneshot::channel();
        let this = Arc::clone(self);
        // Of its own, since whoever asks may go away half-way.
        self.tasks.spawn(async move {
            let (reply, answer) = this.handle(delivery).await;
            drop(seat);
            // Nobody may be there any more to hear it.
            let _ = says.send(reply);
            let answers = &this.reach.answers;
            match answer {
                Some(Answer::Tell(whom, told)) => answers.tell(&whom, &told).await,
                Some(Answer::Respond(url, told)) => answers.respond(&url, &told).await,
                Some(Answer::Replace(url, whom, told)) => {
                    answers.replace(&url, &whom, &told).await;
                }
                Some(Answer::Show(visitor, said)) => answers.show(visitor, said),
                None => {}
            }
        });
        tokio::select! {
            biased;
            reply = said => reply.unwrap_or(Reply::AGAIN),
            () = late => {
                tracing::warn!(slack.kind = %kind, "not acknowledged: it was not safe in time");
                Reply::AGAIN
            }
        }
    }

    /// Waits, within a bound, for what is in hand.
    pub async fn finish(&self) {
        self.tasks.close();
        let clock = &self.reach.clock;
        tokio::select! {
            () = self.tasks.wait() => {}
            () = clock.sleep_until(clock.now().plus_ms(SLACK_SOCKET_LEAVE_MS)) => {
                tracing::warn!(slack.in_hand = self.tasks.len(), "left to Slack to send again");
            }
        }
    }

    async fn handle(&self, delivery: Delivery) -> (Reply, Option<Answer>) {
        let Delivery { envelope, attempt, .. } = delivery;
        let who = match self.who(&envelope).await {
            Ok(who) => who,
            Err(reply) => return (reply, None),
        };
        let heard = hear(&envelope, who.as_ref(), &self.settings);
        match heard {
            Heard::Say(said) => match self.closed(said.thread.installation()).await {
                Some(reply) => (reply, None),
                None => self.say(*said, attempt).await,
            },
            Heard::Command(ask) => self.ask_where_open(*ask, attempt, false).await,
            Heard::Press(ask) => self.ask_where_open(*ask, attempt, true).await,
            Heard::Wish(wish) => (self.wish(*wish).await, None),
            Heard::Home(visit) => self.visit(*visit).await,
            Heard::Challenge(challenge) => {
                (Reply { body: Some(json!({ "challenge": challenge })), ..Reply::TAKEN }, None)
            }
            Heard::Lifecycle(lifecycle) => (self.live(lifecycle).await, None),
            Heard::Nothing { why } => {
                let kind = envelope.word();
                if matches!(envelope.kind, Kind::Unknown(_)) {
                    tracing::info!(slack.kind = %kind, slack.why = why, "not for the bot");
                } else {
                    tracing::debug!(slack.kind = %kind, slack.why = why, "not for the bot");
                }
                (Reply::TAKEN, None)
            }
            // Whoever asks Slack for it has said so in the log.
            Heard::Unready => (Reply::AGAIN, None),
        }
    }

    async fn say(&self, said: Said, attempt: u32) -> (Reply, Option<Answer>) {
        let Said { thread, user, first, by_bot, incoming } = said;
        let name = incoming.keys.first().map(ToString::to_string).unwrap_or_default();
        if by_bot && !lock(&self.bots).may_speak(self.now(), &thread, &name) {
            tracing::warn!(
                slack.channel = thread.channel(),
                slack.thread = thread.root(),
                "other programs say too much here: not heard for a while"
            );
            return (Reply::TAKEN, None);
        }
        let taken = match thread.session() {
            Ok(session) => self.reach.desk.accept(&session, incoming).await,
            Err(error) => Err(invalid(&error)),
        };
        let Err(error) = taken else { return (Reply::TAKEN, None) };
        let whom = Whom { thread, user, inside: !first };
        let (reply, tell) = refusal(&error, attempt);
        // Both twins are refused; the person hears it once.
        let tell = tell && lock(&self.commands).cell(&format!("told/{name}")).set(()).is_ok();
        (reply, tell.then(|| Answer::Tell(whom, order::refused(&error).into())))
    }

    async fn ask(&self, ask: Ask, attempt: u32, pressed: bool) -> (Reply, Option<Answer>) {
        let Some(asker) = &ask.from else { return apart(&ask) };
        let cell = lock(&self.commands).cell(&ask.id);
        let mut answer = None;
        let done = cell
            .get_or_try_init(|| async {
                answer = Some(self.carry_out(&ask.order, asker, &ask.id).await?);
                Ok::<(), DeskError>(())
            })
            .await;
        let whom =
            Whom { thread: asker.thread.clone(), user: asker.user.clone(), inside: !asker.first };
        match (done, ask.response_url) {
            // What could not be done leaves its button, to be pressed again.
            (Ok(()), Some(url)) if ask.replaces => {
                (Reply::TAKEN, answer.map(|told| Answer::Replace(url, whom, told)))
            }
            (Ok(()), _) => (Reply::TAKEN, answer.map(|told| Answer::Tell(whom, told))),
            // Slack sends no press again: the person has to.
            (Err(error), _) if pressed => {
                (Reply::TAKEN, Some(Answer::Tell(whom, order::refused(&error).into())))
            }
            (Err(error), _) => {
                let (reply, tell) = refusal(&error, attempt);
                (reply, tell.then(|| Answer::Tell(whom, order::refused(&error).into())))
            }
        }
    }

    async fn carry_out(&self, order: &Order, by: &Asker, id: &str) -> Result<Told, DeskError> {
        let desk = &self.reach.desk;
        let session = by.thread.session().map_err(|error| invalid(&error))?;
        let command = match order {
            Order::Help => return Ok(order::HELP.to_owned().into()),
            Order::Wrong(what) => return Ok(escaped(what).into()),
            Order::Watchers => {
                return Ok(panel::watchers(&desk.view(&session).await?, by, self.now()));
            }
            Order::Status => return Ok(panel::status(&desk.view(&session).await?, by, self.now())),
            Order::Stop(scope) => {
                let stop = StopId::new(format!("slack/{id}")).map_err(|error| invalid(&error))?;
                Command::Stop { scope: *scope, stop, said_at: Some(by.said_at) }
            }
            Order::StopTurn(turn) => {
                let stop = StopId::new(format!("slack/{id}")).map_err(|error| invalid(&error))?;
                Command::StopTurn { turn: *turn, stop, said_at: by.said_at }
            }
            Order::Cancel(execution) => {
                let press = PressId::new(format!("slack/{id}")).map_err(|error| invalid(&error))?;
                Command::Cancel { execution: execution.clone(), press }
            }
        };
        let text = order::done(order, &desk.command(&session, &by.by, command).await?);
        Ok(panel::done(&text, &by.thread))
    }

    async fn ask_where_open(
        &self,
        ask: Ask,
        attempt: u32,
        pressed: bool,
    ) -> (Reply, Option<Answer>) {
        let closed = match &ask.from {
            Some(asker) => self.closed(asker.thread.installation()).await,
            None => None,
        };
        match closed {
            Some(reply) => (reply, None),
            None => self.ask(ask, attempt, pressed).await,
        }
    }
}

/// What Slack is answered, and whether the person is told.
fn refusal(error: &DeskError, attempt: u32) -> (Reply, bool) {
    match error {
        // It will be the same the next time.
        DeskError::Invalid(_) => (Reply::TAKEN, true),
        DeskError::Full(_) | DeskError::Away(_) => {
            tracing::warn!(slack.attempt = attempt, %error, "not taken");
            // Slack does not try again after that.
            (Reply::AGAIN, attempt >= SLACK_RETRIES_MAX)
        }
    }
}

fn invalid(error: &IdError) -> DeskError {
    DeskError::Invalid(error.to_string())
}

/// Asked outside of any thread: nothing that it could be about.
fn apart(ask: &Ask) -> (Reply, Option<Answer>) {
    let text = match &ask.order {
        Order::Help => order::HELP,
        Order::Wrong(what) => what,
        Order::Watchers
        | Order::Status
        | Order::Cancel(_)
        | Order::Stop(_)
        | Order::StopTurn(_) => order::NO_THREAD,
    };
    if let Some(url) = &ask.response_url {
        return (Reply::TAKEN, Some(Answer::Respond(url.clone(), text.to_owned().into())));
    }
    let body = json!({ "response_type": "ephemeral", "text": order::bounded(text) });
    (Reply { body: Some(body), ..Reply::TAKEN }, None)
}
