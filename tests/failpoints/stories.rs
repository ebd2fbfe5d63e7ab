//! What is said to the bot, and what is waited for. Each story is short, and each line of it may
//! meet a bot that dies. Must not know points.

use super::play::{Play, Told};

/// What a story is called, and how it goes.
pub(crate) struct Story {
    pub(crate) name: &'static str,
    pub(crate) chats: &'static [&'static str],
    /// The points that it is for, where others are quicker with the rest; all if empty.
    pub(crate) only: &'static [&'static str],
    pub(crate) run: fn(&mut Play) -> Told<()>,
}

pub(crate) const STORIES: [Story; 6] = [
    Story { name: "overdue", chats: MAIN, only: OVERDUE, run: overdue },
    Story { name: "main", chats: &["main", "ops"], only: &[], run: main_job },
    Story { name: "stop", chats: MAIN, only: &[], run: stop },
    Story { name: "dead", chats: MAIN, only: &[], run: dead_model },
    Story { name: "lost", chats: MAIN, only: &[], run: lost },
    Story { name: "old", chats: MAIN, only: OLD, run: old },
];

const MAIN: &[&str] = &["main"];
const OVERDUE: &[&str] = &["Adopt", "DoneItem", "LeaseItem", "Overdue", "kill"];
const OLD: &[&str] = &["Bury", "Forget", "ForgetNode", "Retire"];
const HOUR_MS: u64 = 3_600_000;

/// Completion, failure, timeout, steering, folding, another chat, a bot killed meanwhile.
fn main_job(play: &mut Play) -> Told<()> {
    play.start()?;
    play.ask("watch alpha{} for 0.8", "Started alpha")?;
    play.ask("say forty{}", "Said forty")?;
    play.told("alpha")?;
    play.ask("fail broken{} and expire tardy{}", "Started tardy")?;
    play.ask("watch steered{} for 0.01", "steered")?;
    play.told("steered")?;
    play.ask("pair castor{} pollux{}", "Started pollux")?;
    play.go_to("ops")?;
    play.ask("watch elsewhere{} for 0.2", "Started elsewhere")?;
    play.go_to("main")?;
    play.told("elsewhere")?;
    play.told("castor")?;
    play.told("pollux")?;
    play.ask("watch bridge{} for 0.5", "Started bridge")?;
    play.kill_bot()?;
    play.start()?;
    play.told("bridge")?;
    play.told("broken")?;
    play.told("tardy")
}

/// Cancelled by the model and by a person, a turn stopped, everything stopped.
fn stop(play: &mut Play) -> Told<()> {
    play.start()?;
    play.ask("watch meek{} for 30", "Started meek")?;
    let id = play.id_of("meek")?;
    play.ask(&format!("end {id}"), "Ended: ")?;
    play.ask("stubborn mule{}", "Started mule")?;
    play.prints("mule")?;
    let id = play.id_of("mule")?;
    play.order(&format!("cancel {id}"))?;
    play.say_into_turn("slow first{}", "Slow first")?;
    play.order("stop")?;
    play.ask("watch idler{} for 30", "Started idler")?;
    play.prints("idler")?;
    play.say_into_turn("slow second{}", "Slow second")?;
    play.order("stop all")?;
    play.ask("say back{}", "Said back")
}

/// The model refuses a message and a notice, and is away for one call.
fn dead_model(play: &mut Play) -> Told<()> {
    play.start()?;
    play.ask("unwell{}", "I could not answer")?;
    play.ask("watch doomed{} for 0.1", "Started doomed")?;
    play.ask("flaky hour{}", "hour")?;
    play.ask("watch gamma{} for 0.1", "Started gamma")?;
    play.told("gamma")
}

/// A supervisor is killed, a post meets a closed terminal.
fn lost(play: &mut Play) -> Told<()> {
    play.start()?;
    play.ask("watch orphan{} for 30", "Started orphan")?;
    play.prints("orphan")?;
    play.kill_shims();
    play.told("orphan")?;
    play.ask("tell people of unheard{}", "Started unheard")?;
    play.stop_listening()?;
    play.start()?;
    play.told("unheard")
}

/// A deadline passes that the home does not report: by the ledger's clock alone.
fn overdue(play: &mut Play) -> Told<()> {
    play.start()?;
    play.ask("watch asleep{} for 50", "Started asleep")?;
    play.prints("asleep")?;
    play.kill_bot()?;
    play.set_clock_ahead(HOUR_MS);
    play.start()?;
    play.told("asleep")
}

/// What is past its retention goes, and the balance stays.
fn old(play: &mut Play) -> Told<()> {
    play.start()?;
    play.ask("watch ancient{} for 0.1", "Started ancient")?;
    play.told("ancient")?;
    play.leave()?;
    play.set_clock_ahead(100 * 24 * HOUR_MS);
    play.start()?;
    play.books("the session to be forgotten", |books, _| books.sessions == 0)?;
    play.leave()?;
    // The first bot was buried by the second one, and so was forgotten only by the third.
    play.set_clock_ahead(200 * 24 * HOUR_MS);
    play.start()?;
    play.books("bots to be forgotten", |books, deaths| books.nodes <= 2 + deaths)
}
