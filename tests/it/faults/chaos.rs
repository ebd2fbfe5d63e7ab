//! Bots and shims that are killed at random moments, over and over. `DOGWATCH_CHAOS_SEED` replays
//! the choices of a run, not its moments; `DOGWATCH_CHAOS_SECONDS` makes it longer.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use super::load::{playbook, starts, unmarked};
use crate::support::real_bot::{Bot, Place, let_all_go};

const SECONDS: u64 = 8;

const PLAYBOOK: &str = r#"
name = "chaos"
[[rule]]
when = { notice = '(?s)(.*)' }
text = "NEWS {1}"
[[rule]]
when = { tool = "trigger_and_auto_notify" }
text = "started"
[[rule]]
when = { person = 'go (\d+)' }
[[rule.calls]]
tool = "trigger_and_auto_notify"
arguments = { name = "work {1}", timeout_seconds = 60, python = """
import random, time
time.sleep(random.random() / 2)
print('END-{1}-')
""" }
[[rule]]
text = "heard"
"#;

pub(super) fn number(name: &str) -> Option<u64> {
    #[expect(clippy::disallowed_methods, reason = "how long a test runs is its own matter")]
    std::env::var(name).ok()?.parse().ok()
}

/// Small, and the same for the same seed.
pub(super) struct Dice(pub(super) u64);

impl Dice {
    pub(super) fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % end
    }
}

/// Lets the bot work for a random while: a kill at a random moment is what is tested.
fn let_it_be(bot: &mut Bot, dice: &mut Dice, ms_max: u64) {
    bot.listen(Duration::from_millis(dice.below(ms_max)));
}

#[test]
fn whatever_is_killed_nothing_is_lost_and_nothing_is_told_twice_unmarked() {
    let seed = number("DOGWATCH_CHAOS_SEED").unwrap_or_else(|| u64::from(std::process::id()));
    let seconds = number("DOGWATCH_CHAOS_SECONDS").unwrap_or(SECONDS);
    let mut dice = Dice(seed);
    let place = Place::new(PLAYBOOK);
    let clock = nix::time::ClockId::CLOCK_MONOTONIC;
    let until = Duration::from(clock.now().unwrap()) + Duration::from_secs(seconds);
    let mut events: Vec<Value> = Vec::new();
    let (mut typed, mut bots, mut shims) = (0, 0, 0);
    while Duration::from(clock.now().unwrap()) < until {
        let mut bot = place.bot().ready();
        for _ in 0..dice.below(4) {
            typed += 1;
            bot.say(format!("go {typed}"));
            let_it_be(&mut bot, &mut dice, 200);
        }
        let_it_be(&mut bot, &mut dice, 900);
        let live = place.shims();
        if !live.is_empty() && dice.below(3) == 0 {
            let victim = live[usize::try_from(dice.below(live.len() as u64)).unwrap()];
            shims += u64::from(kill(Pid::from_raw(victim), Signal::SIGKILL).is_ok());
        }
        bots += 1;
        events.extend(bot.kill());
    }
    // Nobody is killed any more: all that is owed comes, also from what a turn that was open only
    // starts now.
    let mut bot = place.last_bot().ready();
    bot.say("the end");
    let (code, last) = bot.leave();
    events.extend(last);
    let (even, audit) = place.audit();
    println!("chaos: seed {seed}, {bots} bots and {shims} shims killed, {typed} lines typed");
    println!("chaos: audit {}", serde_json::to_string(&audit).unwrap());
    assert_eq!(code, Some(0), "seed {seed}");
    assert!(even, "seed {seed}: {audit:#}");
    let accepted: BTreeSet<_> = events.iter().filter_map(|event| event["key"].as_str()).collect();
    let known = audit["arrivals"]["accepted"].as_u64().unwrap();
    assert!(known >= accepted.len() as u64, "seed {seed}: {known} of {}", accepted.len());
    for number in ["live", "pending", "offered"] {
        assert_eq!(audit["executions"][number], 0, "seed {seed}: {audit:#}");
    }
    assert_eq!(audit["posts"]["undelivered"], 0, "seed {seed}: {audit:#}");
    let repeated: BTreeMap<_, _> = unmarked(&events).into_iter().filter(|(_, n)| *n > 1).collect();
    assert!(repeated.is_empty(), "seed {seed}: {repeated:#?}");
    assert!(place.processes().is_empty(), "seed {seed}");
}

#[test]
fn shims_killed_at_random_are_each_told_once() {
    let seed = number("DOGWATCH_CHAOS_SEED").unwrap_or_else(|| u64::from(std::process::id()));
    let mut dice = Dice(seed);
    let place = Place::new("");
    let fifo = place.path("go");
    nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let wait = format!("open({:?}).close()\nprint('done')", place.known_as("go"));
    place.write("playbook.toml", &playbook(&starts("work", 12, &wait)));
    let mut bot = place.bot().ready();
    bot.say("work");
    bot.post("started");
    // Some of them before they serve, some while their script runs.
    let mut killed = BTreeSet::new();
    for round in 0..3 {
        for shim in place.shims() {
            if dice.below(5) == 0 && kill(Pid::from_raw(shim), Signal::SIGKILL).is_ok() {
                killed.insert(shim);
            }
        }
        bot.listen(Duration::from_millis(100 * round));
    }
    while !place.shims().is_empty() {
        let_all_go(&fifo);
        bot.listen(Duration::from_millis(50));
    }
    bot.say("the end");
    let (code, events) = bot.leave();
    assert_eq!(code, Some(0), "seed {seed}");
    let told: String =
        events.iter().filter(|e| e["event"] == "post").filter_map(|e| e["text"].as_str()).collect();
    let mut lost_in_all = 0;
    for n in 0..12 {
        let [completed, lost] = ["completed", "was lost"].map(|end| {
            told.matches(&format!("'work {n}' {end}")).count()
                + told.matches(&format!("**work {n}** {end}")).count()
        });
        assert_eq!(completed + lost, 1, "seed {seed}: work {n} in {told}");
        lost_in_all += lost;
    }
    println!("chaos: seed {seed}, {} of 12 shims killed, {lost_in_all} told as lost", killed.len());
    assert_eq!(lost_in_all, killed.len(), "seed {seed}: {told}");
    let (even, audit) = place.audit();
    assert!(even, "seed {seed}: {audit:#}");
    assert_eq!(audit["executions"]["fates"]["acked"], 12, "seed {seed}: {audit:#}");
    assert!(place.processes().is_empty(), "seed {seed}");
}
