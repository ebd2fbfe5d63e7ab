//! What is said to the bot, and what is waited for. Each story is short, and each line of it may
//! meet a bot that dies. Must not know points.

use super::play::{Play, Told};

/// What a story is called, and how it goes.
pub(crate) struct Story {
    pub(crate) name: &'static str,
    pub(crate) chats: &'static [&'static str],
    pub(crate) run: fn(&mut Play) -> Told<()>,
}

pub(crate) const STORIES: [Story; 5] = [
    Story { name: "main", chats: &["main", "ops"], run: main_job },
    Story { name: "stop", chats: &["main"], run: stop },
    Story { name: "dead", chats: &["main"], run: dead_model },
    Story { name: "lost", chats: &["main"], run: lost },
    Story { name: "old", chats: &["main"], run: old },
];

const HOUR_MS: u64 = 3_600_000;

/// Completion, failure, timeout, steering, folding, another chat, a bot killed meanwhile.
fn main_job(play: &mut Play) -> Told<()> {
    play.start()?;
    play.say("watch alpha{} for 0.8")?;
    play.posted("Started alpha")?;
    play.say("say forty{}")?;
    play.posted("Said forty")?;
    play.told("alpha")?;
    play.say("fail broken{} and expire tardy{}")?;
    play.posted("Started tardy")?;
    play.say("watch steered{} for 0.01")?;
    play.told("steered")?;
    play.say("pair castor{} pollux{}")?;
    play.go_to("ops")?;
    play.say("watch elsewhere{} for 0.2")?;
    play.posted("Started elsewhere")?;
    play.go_to("main")?;
    play.told("elsewhere")?;
    play.told("castor")?;
    play.told("pollux")?;
    play.say("watch bridge{} for 0.5")?;
    play.posted("Started bridge")?;
    play.kill_bot()?;
    play.start()?;
    play.told("bridge")?;
    play.told("broken")?;
    play.told("tardy")
}

/// Cancelled by the model and by a person, a turn stopped, everything stopped.
fn stop(play: &mut Play) -> Told<()> {
    play.start()?;
    play.say("watch meek{} for 30")?;
    play.posted("Started meek")?;
    let id = play.id_of("meek")?;
    play.say(&format!("end {id}"))?;
    play.told("meek")?;
    play.say("stubborn mule{}")?;
    play.posted("Started mule")?;
    let id = play.id_of("mule")?;
    play.order(&format!("cancel {id}"))?;
    play.say("slow first{}")?;
    play.streams("Slow")?;
    play.order("stop")?;
    play.say("watch idler{} for 30")?;
    play.posted("Started idler")?;
    play.say("slow second{}")?;
    play.order("stop all")?;
    play.say("say back{}")?;
    play.posted("Said back")
}

/// The model refuses a message and a notice, and is away for one call.
fn dead_model(play: &mut Play) -> Told<()> {
    play.start()?;
    play.say("unwell{}")?;
    play.posted("I could not answer")?;
    play.say("watch doomed{} for 0.1")?;
    play.posted("Started doomed")?;
    play.say("flaky hour{}")?;
    play.posted("hour")?;
    play.say("watch gamma{} for 0.1")?;
    play.told("gamma")
}

/// A supervisor is killed, a deadline passes unheard, a post meets a closed terminal.
fn lost(play: &mut Play) -> Told<()> {
    play.start()?;
    play.say("watch orphan{} for 30")?;
    play.posted("Started orphan")?;
    play.kill_shims();
    play.told("orphan")?;
    play.say("watch asleep{} for 30")?;
    play.posted("Started asleep")?;
    play.kill_bot()?;
    play.set_clock_ahead(HOUR_MS);
    play.start()?;
    play.told("asleep")?;
    play.say("tell people of unheard{}")?;
    play.posted("Started unheard")?;
    play.stop_listening()?;
    play.start()?;
    play.told("unheard")
}

/// What is past its retention goes, and the balance stays.
fn old(play: &mut Play) -> Told<()> {
    play.start()?;
    play.say("watch ancient{} for 0.1")?;
    play.told("ancient")?;
    play.leave()?;
    play.set_clock_ahead(200 * 24 * HOUR_MS);
    play.start()?;
    play.forgotten()
}
