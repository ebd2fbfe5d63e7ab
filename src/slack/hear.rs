//! What Slack's envelopes mean: who said what where, and whether it is for the bot. Owns who is
//! heard and by which names a message is known again. Must not know the desk: it decides, and
//! nothing waits.

mod home;
mod pressed;
mod slash;

use serde_json::Value;

use super::envelope::{Authorization, Callback, Envelope, Event, Kind};
use super::order::{self, Order};
use super::place::{PlaceError, Thread, instant, principal};
use super::{Hearing, Mode, Settings, plain};
use crate::core::arrival::{Incoming, What};
use crate::core::id::{DedupeKey, Principal};
use crate::core::installation::Departure;
use crate::core::time::Timestamp;

pub use self::home::{CANCEL_HOME, HomePress, Visit, Visitor};
pub use self::pressed::{CANCEL, CANCEL_LISTED, RUNNING, STOP, STOP_ALL};
pub use self::slash::Wish;

/// Whom Slack takes the bot for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Who {
    /// Its user.
    pub user: String,
    /// Its bot.
    pub bot: Option<String>,
    /// Its app.
    pub app: Option<String>,
}

impl Who {
    /// Of the answer of `auth.test`.
    pub fn of(answer: &Value) -> Option<Self> {
        let word = |key: &str| {
            let text = answer.get(key).and_then(Value::as_str).filter(|text| !text.is_empty());
            text.map(str::to_owned)
        };
        Some(Self { user: word("user_id")?, bot: word("bot_id"), app: word("app_id") })
    }
}

/// The enterprise or team that a token is of, by the answer of `auth.test`.
pub fn home_of(answer: &Value) -> Option<String> {
    let word = |key: &str| answer.get(key).and_then(Value::as_str).filter(|id| !id.is_empty());
    let enterprise = answer.get("is_enterprise_install").and_then(Value::as_bool) == Some(true);
    let id = if enterprise { word("enterprise_id") } else { None };
    id.or_else(|| word("team_id")).map(str::to_owned)
}

/// What an envelope means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Heard {
    /// Somebody said something, or changed what was said: for the desk.
    Say(Box<Said>),
    /// Somebody wrote a command.
    Command(Box<Ask>),
    /// Somebody pressed a button.
    Press(Box<Ask>),
    /// Somebody wants something where there is no thread.
    Wish(Box<Wish>),
    /// Somebody looks at the app's own tab.
    Home(Box<Visit>),
    /// Slack asks whether this address is ours.
    Challenge(String),
    /// Something about the installation.
    Lifecycle(Lifecycle),
    /// It is not for the bot.
    Nothing {
        /// Why.
        why: &'static str,
    },
    /// It may be the bot's own, and the bot does not know who it is.
    Unready,
}

/// Something said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Said {
    /// Where.
    pub thread: Thread,
    /// By whom, for answers that only they see.
    pub user: String,
    /// It is the first message of its thread.
    pub first: bool,
    /// By another program: those are counted.
    pub by_bot: bool,
    /// For the desk.
    pub incoming: Incoming,
}

/// Something asked of the bot itself, not of the model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ask {
    /// What.
    pub order: Order,
    /// Names this command or press, the same in every repeat.
    pub id: String,
    /// Where and by whom; nothing where Slack does not say.
    pub from: Option<Asker>,
    /// An answer may be given here for a while.
    pub response_url: Option<String>,
    /// The answer stands in place of what was pressed, which only this person sees.
    pub replaces: bool,
}

/// Who asks, and in which thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asker {
    /// The thread.
    pub thread: Thread,
    /// Their user.
    pub user: String,
    /// As whom.
    pub by: Principal,
    /// Their message is the first one of the thread.
    pub first: bool,
    /// When they did, by Slack's clock.
    pub said_at: Timestamp,
}

/// Something about the installation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Lifecycle {
    /// It has ended.
    Departed {
        /// Which, where Slack says so.
        installation: Option<String>,
        /// Why.
        why: Departure,
        /// When, at the latest, by Slack's clock.
        at: Option<Timestamp>,
    },
    /// Slack holds events back for a minute.
    RateLimited,
}

const fn nothing(why: &'static str) -> Heard {
    Heard::Nothing { why }
}

/// Understands an envelope. `who` is the bot itself, once that is known.
pub fn hear(envelope: &Envelope, who: Option<&Who>, settings: &Settings) -> Heard {
    match &envelope.kind {
        Kind::Verification { challenge } => Heard::Challenge(challenge.clone()),
        Kind::RateLimited => Heard::Lifecycle(Lifecycle::RateLimited),
        Kind::SslCheck => nothing("Slack looks at the certificate"),
        Kind::Unknown(_) => nothing("nothing is done with this sort"),
        Kind::Event(callback) => event(callback, who, settings),
        Kind::Actions(actions) => pressed::pressed(actions, settings),
        Kind::Slash(slash) => slash::slash(slash, settings),
    }
}

fn event(callback: &Callback, who: Option<&Who>, settings: &Settings) -> Heard {
    let event = &callback.event;
    match event.kind.as_deref() {
        Some("message" | "app_mention") => match who {
            Some(who) => Ear { callback, who, settings }.hear(),
            None => Heard::Unready,
        },
        Some("app_home_opened") => home::opened(callback, settings),
        Some("agent_session_stopped") => pressed::native_stop(callback, settings),
        Some("app_uninstalled") => departed(callback, Departure::Uninstalled),
        Some("tokens_revoked") => {
            let ours = |user: &String| who.is_none_or(|who| who.user == *user);
            if event.tokens.bot.iter().any(ours) {
                departed(callback, Departure::Revoked)
            } else {
                nothing("the tokens of others are void")
            }
        }
        Some(_) | None => nothing("nothing is done with this sort of event"),
    }
}

fn departed(callback: &Callback, why: Departure) -> Heard {
    // Slack counts whole seconds.
    let at = |seconds: u64| Timestamp::from_ms(seconds.saturating_mul(1_000).saturating_add(999));
    let installation = installation(callback).map(str::to_owned);
    Heard::Lifecycle(Lifecycle::Departed { installation, why, at: callback.event_time.map(at) })
}

/// For which installation it is: never the outer team, which may be another company's in a shared
/// channel, unless Slack does not say.
fn installation(callback: &Callback) -> Option<&str> {
    match callback.authorizations.first() {
        Some(Authorization { is_enterprise_install: true, enterprise_id, team_id, .. }) => {
            enterprise_id.as_deref().or(team_id.as_deref())
        }
        Some(authorization) => authorization.team_id.as_deref(),
        None => callback.team_id.as_deref().or(callback.enterprise_id.as_deref()),
    }
}

/// For which installation a message is, where the bot must know who it is there to judge it.
pub(super) fn addressed(envelope: &Envelope) -> Option<&str> {
    let Kind::Event(callback) = &envelope.kind else { return None };
    match callback.event.kind.as_deref() {
        Some("message" | "app_mention" | "tokens_revoked") => installation(callback),
        Some(_) | None => None,
    }
}

/// Why a message is not taken: the reason, for `Heard::Nothing`.
type Unheard = &'static str;

const NO_PLACE: Unheard = "it does not say where or by whom";
/// Slack's own program, which looks like a person.
const SLACKBOT: &str = "USLACKBOT";
const NOT_MEANT: Unheard = "the bot is not meant";

/// A message and all that is needed to judge it.
struct Ear<'a> {
    callback: &'a Callback,
    who: &'a Who,
    settings: &'a Settings,
}

impl Ear<'_> {
    fn hear(&self) -> Heard {
        let event = &self.callback.event;
        let heard = match event.subtype.as_deref() {
            Some("message_changed") => self.changed(event),
            Some("message_deleted") => self.deleted(event),
            _ if event.hidden => Err("it is not shown to people"),
            None | Some("file_share" | "thread_broadcast" | "me_message" | "bot_message") => {
                self.message(event)
            }
            Some(_) => Err("nobody wrote it"),
        };
        heard.unwrap_or_else(nothing)
    }

    fn message(&self, event: &Event) -> Result<Heard, Unheard> {
        let by_bot = self.judge(event)?;
        if event.kind.as_deref() == Some("app_mention") && event.edited.is_some() {
            // The message was known before; its change comes by itself.
            return Err("a mention that was edited");
        }
        let direct = is_direct(event);
        let raw = event.text.as_deref().unwrap_or_default();
        let mention =
            event.kind.as_deref() == Some("app_mention") || plain::names(raw, &self.who.user);
        let (thread, first) = self.thread(event)?;
        // What a thread of the bot's own was asked for may enter it after this.
        let begun = event.parent_user_id.as_ref() == Some(&self.who.user);
        let continues = self.mode(&thread, direct || mention, first)? && !begun;
        let text = self.text(event);
        let from = asker(event, thread, first)?;
        if (direct || mention) && !by_bot {
            // Somebody who only calls the bot wants to know what it can do.
            let order = if text.is_empty() { Some(Order::Help) } else { order::read(&text) };
            if let Some(order) = order {
                let id = self.order_id(event)?;
                let (from, response_url) = (Some(from), None);
                let ask = Ask { order, id, from, response_url, replaces: false };
                return Ok(Heard::Command(Box::new(ask)));
            }
        }
        if text.is_empty() {
            return Err("there is nothing in it");
        }
        let keys = self.keys(event)?;
        let shared = self.hearing(&from.thread).shared;
        let what = What::Message { text };
        Ok(said(event, from, keys, Way { by_bot, continues, shared, what }))
    }

    fn hearing(&self, thread: &Thread) -> Hearing {
        self.settings.hearing_in(thread.channel())
    }

    /// Does it begin or go on with a conversation? Says whether it only goes on.
    fn mode(&self, thread: &Thread, meant: bool, first: bool) -> Result<bool, Unheard> {
        match (meant, self.hearing(thread).mode) {
            (true, _) | (false, Mode::All) => Ok(false),
            (false, Mode::Thread) if !first => Ok(true),
            (false, Mode::Thread | Mode::Mention) => Err(NOT_MEANT),
        }
    }

    fn changed(&self, event: &Event) -> Result<Heard, Unheard> {
        let now = event.message.as_deref().ok_or(NO_PLACE)?;
        let before = event.previous_message.as_deref().ok_or("it does not say what it was")?;
        let gone = now.subtype.as_deref() == Some("tombstone");
        let author = if gone { before } else { now };
        if self.judge(author)? {
            return Err("a program changed its own message");
        }
        let written = matches!(
            author.subtype.as_deref(),
            None | Some("file_share" | "thread_broadcast" | "me_message")
        );
        if !gone && (!written || now.text == before.text) {
            // Links that unfold, counts of replies and the like.
            return Err("no person changed its text");
        }
        let ts = now.ts.as_deref().or(before.ts.as_deref()).ok_or(NO_PLACE)?;
        let text = self.text(now);
        self.change(event, author, ts, (!gone && !text.is_empty()).then_some(text))
    }

    fn deleted(&self, event: &Event) -> Result<Heard, Unheard> {
        let before = event.previous_message.as_deref().ok_or("it does not say what it was")?;
        if self.judge(before)? {
            return Err("a program deleted its own message");
        }
        let ts = event.deleted_ts.as_deref().or(before.ts.as_deref()).ok_or(NO_PLACE)?;
        self.change(event, before, ts, None)
    }

    /// The message `ts` of `author` now reads so, or is gone.
    fn change(
        &self,
        event: &Event,
        author: &Event,
        ts: &str,
        text: Option<String>,
    ) -> Result<Heard, Unheard> {
        let place = Event {
            user: author.user.clone(),
            channel: event.channel.clone(),
            ts: Some(ts.to_owned()),
            thread_ts: author.thread_ts.clone(),
            ..Event::default()
        };
        let of = self.message_key(&place)?;
        let (thread, first) = self.thread(&place)?;
        let from = asker(&place, thread, first)?;
        let what = match text {
            Some(text) => What::Edit { of, text },
            None => What::Deletion { of },
        };
        // Of its own, since the message's keys are taken: each change is another one.
        let when = event.event_ts.as_deref().or(event.ts.as_deref()).ok_or(NO_PLACE)?;
        let own = format!("change/{}/{}/{when}", from.thread.installation(), from.thread.channel());
        let keys = [DedupeKey::new(own).ok(), self.event_key()].into_iter().flatten().collect();
        let shared = self.hearing(&from.thread).shared;
        Ok(said(event, from, keys, Way { by_bot: false, continues: true, shared, what }))
    }

    /// May its author be heard? Says whether it is another program.
    fn judge(&self, event: &Event) -> Result<bool, Unheard> {
        if self.is_own(event) {
            return Err("the bot's own");
        }
        let by_bot = event.bot_id.is_some()
            || event.bot_profile.id.is_some()
            || event.subtype.as_deref() == Some("bot_message")
            || event.user.as_deref() == Some(SLACKBOT);
        let among =
            |list: &[String], id: &Option<String>| id.as_ref().is_some_and(|id| list.contains(id));
        if by_bot {
            let bots = &self.settings.bots;
            let listed = [&event.user, &event.bot_id, &event.bot_profile.id];
            if !listed.into_iter().any(|id| among(bots, id)) {
                return Err("another program, which [slack] bots does not list");
            }
        }
        if is_guest(self.callback, event) && !among(&self.settings.guests, &event.user) {
            return Err("somebody of another company, whom [slack] guests does not list");
        }
        Ok(by_bot)
    }

    fn is_own(&self, event: &Event) -> bool {
        let Who { user, bot, app } = self.who;
        let is = |id: &Option<String>, own: &Option<String>| id.is_some() && id == own;
        let seen_as = self.callback.authorizations.iter().filter(|seen| seen.is_bot);
        event.user.as_ref() == Some(user)
            || is(&event.bot_id, bot)
            || is(&event.bot_profile.id, bot)
            || [app, &self.callback.api_app_id].into_iter().any(|own| {
                is(&event.app_id, own) || is(&event.bot_profile.app_id, own)
            })
            // In an enterprise the bot may be somebody else in each team.
            || seen_as.into_iter().any(|seen| is(&event.user, &seen.user_id))
    }

    fn thread(&self, event: &Event) -> Result<(Thread, bool), Unheard> {
        let installation = installation(self.callback).ok_or("it does not say for whom it is")?;
        let channel = event.channel.as_deref().ok_or(NO_PLACE)?;
        let ts = event.ts.as_deref().ok_or(NO_PLACE)?;
        let root = event.thread_ts.as_deref().unwrap_or(ts);
        let thread = Thread::new(installation, channel, root).map_err(unplaced)?;
        Ok((thread, root == ts))
    }

    fn text(&self, event: &Event) -> String {
        plain::whole(event, Some(&self.who.user))
    }

    /// By what a repeat is known: the person's own name for it, then its place, then the event's.
    fn keys(&self, event: &Event) -> Result<Vec<DedupeKey>, Unheard> {
        let own = event.client_msg_id.as_ref();
        let own = own.and_then(|id| DedupeKey::new(format!("client_msg_id/{id}")).ok());
        let place = self.message_key(event)?;
        Ok([own, Some(place), self.event_key()].into_iter().flatten().collect())
    }

    fn message_key(&self, event: &Event) -> Result<DedupeKey, Unheard> {
        DedupeKey::new(format!("message/{}", self.order_id(event)?)).map_err(|_| NO_PLACE)
    }

    fn event_key(&self) -> Option<DedupeKey> {
        let id = self.callback.event_id.as_ref()?;
        DedupeKey::new(format!("event/{id}")).ok()
    }

    /// A message's name: where it stands.
    fn order_id(&self, event: &Event) -> Result<String, Unheard> {
        let (thread, _) = self.thread(event)?;
        let ts = event.ts.as_deref().ok_or(NO_PLACE)?;
        // Of Slack's form like the thread's own.
        Thread::new(thread.installation(), thread.channel(), ts).map_err(unplaced)?;
        Ok(format!("{}/{}/{ts}", thread.installation(), thread.channel()))
    }
}

/// Is the author of another company?
fn is_guest(callback: &Callback, event: &Event) -> bool {
    let shared = callback.is_ext_shared_channel;
    let home: Vec<&str> = match callback.authorizations.first() {
        Some(seen) => [&seen.team_id, &seen.enterprise_id].into_iter().flatten(),
        None => [&callback.team_id, &callback.enterprise_id].into_iter().flatten(),
    }
    .map(String::as_str)
    .collect();
    let teams = [&event.user_team, &event.source_team];
    let mut teams: Vec<&str> = teams.into_iter().flatten().map(String::as_str).collect();
    if teams.is_empty() {
        // Says whose the message is where nothing says whose the person is.
        teams.extend(event.team.as_deref());
    }
    let elsewhere = teams.iter().any(|team| !home.contains(team));
    let enterprise = callback
        .authorizations
        .first()
        .is_some_and(|seen| seen.is_enterprise_install || seen.enterprise_id.is_some());
    match shared {
        // Teams of one enterprise share channels among themselves.
        Some(false) => elsewhere && !enterprise,
        // In a channel of several companies, who is from nowhere is from elsewhere.
        Some(true) => elsewhere || teams.is_empty(),
        None => elsewhere,
    }
}

/// How something said goes to the desk.
struct Way {
    by_bot: bool,
    continues: bool,
    shared: bool,
    what: What,
}

fn said(event: &Event, from: Asker, keys: Vec<DedupeKey>, way: Way) -> Heard {
    let Asker { thread, user, by, first, said_at: _ } = from;
    let Way { by_bot, continues, shared, what } = way;
    let at = event.ts.as_deref().or(event.event_ts.as_deref()).unwrap_or_default();
    let incoming = Incoming {
        keys,
        what,
        principal: by,
        address: thread.address(),
        source_at: instant(at),
        continues,
        shared,
    };
    Heard::Say(Box::new(Said { thread, user, first, by_bot, incoming }))
}

fn asker(event: &Event, thread: Thread, first: bool) -> Result<Asker, Unheard> {
    let user = event.user.as_deref().or(event.bot_id.as_deref()).ok_or(NO_PLACE)?;
    let by = principal(thread.installation(), user).map_err(unplaced)?;
    let said_at = instant(event.ts.as_deref().unwrap_or_default());
    Ok(Asker { thread, user: user.to_owned(), by, first, said_at })
}

const fn unplaced(_: PlaceError) -> Unheard {
    "its place has no name of Slack's"
}

/// Between the bot and one person. A mention does not say which sort of channel it stands in, and
/// never comes from such a one.
fn is_direct(event: &Event) -> bool {
    match event.channel_type.as_deref() {
        Some(kind) => kind == "im",
        None => event.channel.as_deref().is_some_and(|channel| channel.starts_with('D')),
    }
}

#[cfg(test)]
mod tests;
