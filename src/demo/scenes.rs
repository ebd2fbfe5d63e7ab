//! The story of the demo: what is said in which chat and what has to come of it. Owns the scenes
//! and their checks. Must not know how the bot is run or how the story is told.

use crate::console::event::{Event, Reply, Stand, Step as Progress};
use crate::core::execution::PostSort;

use super::story::Record;

/// One step of the story.
#[derive(Debug, Clone, Copy)]
pub(super) enum Step {
    /// A new scene begins.
    Scene(&'static str),
    /// A remark of the narrator.
    Remark(&'static str),
    /// The person types this; lines with `/` are not told.
    Type(&'static str),
    /// Goes on when this has happened in the scene.
    Until(Until),
    /// Goes on after so many milliseconds.
    Pause(u64),
    /// The bot is killed, without a chance to do anything.
    Kill,
    /// The bot is started.
    Start,
    /// This holds of the scene, or the demo has failed.
    Check(&'static str, fn(&[Event]) -> Result<(), String>),
    /// Likewise, of everything since the beginning.
    CheckAll(&'static str, fn(&Record) -> Result<(), String>),
    /// The bot's input ends; goes on when it has exited well.
    Leave,
    /// The audit runs; goes on when it is even.
    Audit,
}

/// Something that happens.
#[derive(Debug, Clone, Copy)]
pub(super) enum Until {
    /// Lines are read.
    Ready,
    /// The answer of a turn that a person started, in this chat, with this in it.
    Answered(&'static str, &'static str),
    /// The answer of a turn that a result started.
    Woken(&'static str, &'static str),
    /// The turn is over.
    Ended(&'static str),
    /// The table of watchers came.
    Watchers,
    /// This chat is in front.
    InFront(&'static str),
}

impl Until {
    /// Is it this?
    pub(super) fn is(self, event: &Event) -> bool {
        match self {
            Self::Ready => matches!(event, Event::Ready { .. }),
            Self::Answered(chat, text) => is_post(event, chat, PostSort::Answer, text),
            Self::Woken(chat, text) => is_post(event, chat, PostSort::Woken, text),
            Self::Ended(chat) => matches!(event,
                Event::Progress { chat: at, step: Progress::Ended, .. } if at.as_str() == chat),
            Self::Watchers => {
                matches!(event, Event::Command { reply: Reply::Watchers { .. }, .. })
            }
            Self::InFront(chat) => matches!(event,
                Event::Command { reply: Reply::Chat { name }, .. } if name.as_str() == chat),
        }
    }

    /// For the person who wonders what was waited for.
    pub(super) fn words(self) -> String {
        match self {
            Self::Ready => "the bot to be ready".to_owned(),
            Self::Answered(chat, text) => format!("an answer with {text:?} in chat {chat}"),
            Self::Woken(chat, text) => format!("a result with {text:?} in chat {chat}"),
            Self::Ended(chat) => format!("the end of the turn in chat {chat}"),
            Self::Watchers => "the table of watchers".to_owned(),
            Self::InFront(chat) => format!("chat {chat} to be in front"),
        }
    }
}

fn is_post(event: &Event, chat: &str, wanted: PostSort, text: &str) -> bool {
    matches!(event, Event::Post { chat: at, sort, text: said, .. }
        if at.as_str() == chat && *sort == wanted && said.contains(text))
}

use Step::{Audit, Check, CheckAll, Kill, Leave, Pause, Remark, Scene, Start, Type};
use Until::{Answered, Ended, InFront, Ready, Watchers, Woken};

const fn until(what: Until) -> Step {
    Step::Until(what)
}

/// The whole story.
pub(super) const STORY: &[Step] = &[
    Start,
    until(Ready),
    Scene("A watcher ends while the chat goes on"),
    Type("Please watch deployment abc123."),
    until(Answered("main", "in the background")),
    Type("Meanwhile: what is 6 x 7?"),
    until(Answered("main", "42")),
    until(Woken("main", "abc123 is healthy")),
    Check("the chat went on while it ran, and the result came by itself", went_on),
    Scene("A watcher fails"),
    Type("Check the backup."),
    until(Woken("main", "exit code 3")),
    Check("its exit code was told", one_woken),
    Scene("A watcher runs out of time"),
    Type("Wait for the queue to be empty, one second at most."),
    until(Woken("main", "ran out of time")),
    Check("it was ended at its deadline and that was told", one_woken),
    Scene("A watcher ends while a turn is busy"),
    Type("Probe the load and write a long report."),
    until(Answered("main", "in the same turn")),
    until(Ended("main")),
    Check("its result was steered into the busy turn, which answered it", steered),
    Scene("Two watchers end together"),
    Type("Check both shards."),
    until(Woken("main", "Shard A and shard B")),
    until(Ended("main")),
    Check("one synthetic turn read both", folded),
    Scene("A watcher belongs to the chat that started it"),
    Type("/chat ops"),
    until(InFront("ops")),
    Type("Watch the release build."),
    until(Answered("ops", "in the background")),
    Type("/chat main"),
    until(InFront("main")),
    Remark("the person is back in chat main when it ends"),
    until(Woken("ops", "release build")),
    Check("the result landed in chat ops, and only there", only_in_ops),
    Scene("The bot is killed while a watcher runs"),
    Type("Watch the migration."),
    until(Answered("main", "in the background")),
    // Let the post be settled too: killed before that, the next bot shows it again, marked so.
    Pause(500),
    Kill,
    Remark("the watcher runs on and ends while there is no bot"),
    Pause(2_500),
    Start,
    until(Ready),
    until(Woken("main", "migration: completed")),
    Check("the new bot found the result and told it, once", one_woken),
    Scene("The books"),
    Type("/watchers"),
    until(Watchers),
    Check("every watcher of chat main is recorded with how it ended", recorded),
    CheckAll("no post came twice", no_repeats),
    Leave,
    Audit,
];

type Verdict = Result<(), String>;

fn place(scene: &[Event], what: Until) -> Option<usize> {
    scene.iter().position(|event| what.is(event))
}

fn count(scene: &[Event], test: impl Fn(&Event) -> bool) -> usize {
    scene.iter().filter(|event| test(event)).count()
}

fn is_woken(event: &Event) -> bool {
    matches!(event, Event::Post { sort: PostSort::Woken, .. })
}

fn is_synthetic(event: &Event) -> bool {
    matches!(event, Event::Progress { step: Progress::Began { synthetic: true, .. }, .. })
}

fn expect(holds: bool, what: &str) -> Verdict {
    if holds { Ok(()) } else { Err(what.to_owned()) }
}

fn went_on(scene: &[Event]) -> Verdict {
    let started = place(scene, Answered("main", "in the background"));
    let sum = place(scene, Answered("main", "42"));
    let result = place(scene, Woken("main", "healthy"));
    expect(started < sum && sum < result, "the answers did not come in the order of the story")?;
    one_woken(scene)
}

fn one_woken(scene: &[Event]) -> Verdict {
    match count(scene, is_woken) {
        1 => Ok(()),
        n => Err(format!("{n} results were told, not one")),
    }
}

fn steered(scene: &[Event]) -> Verdict {
    expect(count(scene, is_woken) == 0, "a turn of its own was started for the result")?;
    expect(count(scene, is_synthetic) == 0, "a synthetic turn began")
}

fn folded(scene: &[Event]) -> Verdict {
    match count(scene, is_synthetic) {
        1 => one_woken(scene),
        n => Err(format!("{n} synthetic turns began, not one")),
    }
}

fn only_in_ops(scene: &[Event]) -> Verdict {
    let in_main =
        count(scene, |event| matches!(event, Event::Post { chat, .. } if chat.as_str() != "ops"));
    expect(in_main == 0, "something was posted in another chat")?;
    one_woken(scene)
}

fn recorded(scene: &[Event]) -> Verdict {
    let table = scene.iter().rev().find_map(|event| match event {
        Event::Command { reply: Reply::Watchers { live, ended }, .. } => Some((live, ended)),
        Event::Command { .. }
        | Event::Ready { .. }
        | Event::Accepted { .. }
        | Event::Post { .. }
        | Event::Progress { .. }
        | Event::Watcher { .. }
        | Event::Error { .. }
        | Event::Link { .. }
        | Event::Bye { .. } => None,
    });
    let (live, ended) = table.ok_or("there is no table")?;
    expect(live.is_empty(), "something still runs")?;
    let mut stands: Vec<Stand> = ended.iter().rev().map(|work| work.state).collect();
    // Two of these end together, in either order.
    let wanted = [
        Stand::Completed,
        Stand::Failed,
        Stand::TimedOut,
        Stand::Completed,
        Stand::Completed,
        Stand::Completed,
        Stand::Completed,
    ];
    stands.truncate(wanted.len() + 1);
    if stands == wanted { Ok(()) } else { Err(format!("they ended as {stands:?}")) }
}

fn no_repeats(record: &Record) -> Verdict {
    let mut items = std::collections::BTreeSet::new();
    for event in record.all() {
        // An item's id is unique in its chat only.
        if let Event::Post { chat, item, may_repeat: false, text, .. } = event
            && !items.insert((chat, item))
        {
            return Err(format!("this came twice: {text}"));
        }
    }
    Ok(())
}
