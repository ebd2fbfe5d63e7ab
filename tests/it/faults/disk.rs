//! Disks that are full, cannot be written, or lose files; and a second process on the same ones.

use std::fs;

use nix::sys::signal::Signal;

use crate::support::real_bot::{Bot, Place, let_go};

const PLAYBOOK: &str = r#"
name = "faults"
[[rule]]
when = { notice = '(?s)(.*)' }
text = "NEWS {1}"
[[rule]]
when = { tool = "trigger_and_auto_notify", result = 'execution_id' }
text = "started"
[[rule]]
when = { tool = "trigger_and_auto_notify", result = '(?s)(.*)' }
text = "REFUSED {1}"
[[rule]]
when = { person = 'run (\w+) (\w+) until (\S+)' }
[[rule.calls]]
tool = "trigger_and_auto_notify"
arguments = { name = "{2}", timeout_seconds = 50, python = """
print('BEGUN {1}', flush=True)
open('{3}').close()
print('DONE {1}')
""" }
[[rule]]
text = "heard"
"#;

fn fifo(place: &Place, name: &str) -> String {
    nix::unistd::mkfifo(&place.path(name), nix::sys::stat::Mode::S_IRWXU).unwrap();
    place.known_as(name)
}

/// What its watcher printed last.
fn bot_last_line(bot: &mut Bot) -> String {
    bot.say("/watchers");
    let reply = bot.wait(|event| event["command"] == "watchers");
    reply["live"][0]["last_line"].as_str().unwrap_or_default().to_owned()
}

fn nothing_is_left(place: &Place) {
    for pid in place.processes() {
        // What is just ending may still be seen; what stays fails the test by its time.
        while fs::exists(format!("/proc/{pid}")).unwrap() && !is_zombie(pid) {
            crate::support::process::pause_here();
        }
    }
}

fn is_zombie(pid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(')').next().is_none_or(|rest| rest.trim_start().starts_with('Z'))
}

#[test]
fn on_a_full_disk_everything_is_refused_in_words_and_nothing_is_lost() {
    let place = Place::on_a_disk_of(3 * 1024, PLAYBOOK);
    let go = fifo(&place, "go");
    let mut bot = place.bot().ready();
    bot.say(format!("run a A until {go}"));
    bot.post("started");
    // What is not launched yet would fail on the full disk, rightly, and nobody would read the pipe.
    while bot_last_line(&mut bot) != "BEGUN a" {}
    place.fill();
    bot.say("is anybody there?");
    let error = bot.error();
    assert!(error.starts_with("not taken: ") && error.contains("the disk is full"), "{error}");
    // It ends while nothing can be written: its record has its place kept.
    let_go(&place.path("go"));
    // A bot that is killed and started now either says why it cannot, or works on.
    drop(bot.kill());
    let second = place.bot();
    let (code, words) = second.refusal();
    assert_eq!(code, Some(1), "{words}");
    assert!(words.contains("full") || words.contains("No space left"), "{words}");
    fs::remove_file(place.path("fill")).unwrap();
    let mut bot = place.bot().ready();
    assert!(bot.post("NEWS").contains("DONE a"));
    assert_eq!(bot.leave().0, Some(0));
    let (even, audit) = place.audit();
    assert!(even, "{audit:#}");
    assert_eq!(audit["executions"]["fates"]["acked"], 1, "{audit:#}");
    nothing_is_left(&place);
}

#[test]
fn a_spool_that_becomes_read_only_starts_nothing_and_loses_nothing() {
    let place = Place::on_a_disk_of(30 * 1024, PLAYBOOK);
    let go = fifo(&place, "go");
    let mut bot = place.bot().ready();
    bot.say(format!("run a A until {go}"));
    bot.post("started");
    while bot_last_line(&mut bot) != "BEGUN a" {}
    let spool = place.known_as("data/spool");
    // As a file system does that has seen an error: names below it can no longer be written.
    let mounted = place.run(&["mount", "-o", "bind,ro", &spool, &spool]);
    assert!(mounted.status.success(), "{}", String::from_utf8_lossy(&mounted.stderr));
    bot.say(format!("run b B until {go}"));
    let told = bot.post("NEWS");
    assert!(told.contains("failed") && told.contains("Read-only file system"), "{told}");
    assert!(told.contains("put the spool elsewhere"), "{told}");
    let_go(&place.path("go"));
    let told = bot.post("NEWS");
    assert!(told.contains("DONE a"), "{told}");
    drop(bot.kill());
    let (code, words) = place.bot().refusal();
    assert!(code == Some(1) && words.contains("Read-only file system"), "{words}");
    let unmounted = place.run(&["umount", &spool]);
    assert!(unmounted.status.success(), "{}", String::from_utf8_lossy(&unmounted.stderr));
    let bot = place.bot().ready();
    assert_eq!(bot.leave().0, Some(0));
    let (even, audit) = place.audit();
    assert!(even, "{audit:#}");
    assert_eq!(audit["executions"]["fates"]["acked"], 2, "{audit:#}");
    nothing_is_left(&place);
}

#[test]
fn a_data_directory_that_cannot_be_written_is_named() {
    let place = Place::new(PLAYBOOK);
    place.write("a-file", "x");
    // The second is one that not even root can write.
    for data in [place.known_as("a-file/data"), "/proc/dogwatch".to_owned()] {
        let config = fs::read_to_string(place.path("dogwatch.toml")).unwrap();
        place.write("other.toml", &config.replace("\"data\"", &format!("{data:?}")));
        let (code, words) = place.bot_with("other.toml").refusal();
        assert_eq!(code, Some(1), "{words}");
        assert!(words.contains(&data), "{words}");
    }
}

#[test]
fn a_second_bot_on_the_same_store_or_spool_is_refused_and_harms_nothing() {
    let place = Place::new(PLAYBOOK);
    let go = fifo(&place, "go");
    let mut bot = place.bot().ready();
    bot.say(format!("run a A until {go}"));
    bot.post("started");
    let (code, words) = place.bot().refusal();
    assert!(code == Some(1) && words.contains("is in use"), "{words}");
    let config = fs::read_to_string(place.path("dogwatch.toml")).unwrap();
    place.write("other.toml", &format!("{config}[store]\npath = \"other.db\"\n"));
    let (code, words) = place.bot_with("other.toml").refusal();
    assert!(code == Some(1) && words.contains("is held by another dogwatch"), "{words}");
    let_go(&place.path("go"));
    assert!(bot.post("NEWS").contains("DONE a"));
    assert_eq!(bot.leave().0, Some(0));
    assert!(place.audit().0);
    nothing_is_left(&place);
}

#[test]
fn a_store_that_is_removed_or_that_another_could_lock_is_not_written_any_more() {
    for gone in ["dogwatch.db", "dogwatch.db.lock"] {
        let place = Place::new(PLAYBOOK);
        let mut bot = place.bot().ready();
        bot.say("hello");
        bot.post("heard");
        let file = place.path("data").join(gone);
        let aside = place.path("data").join("aside");
        fs::rename(&file, &aside).unwrap();
        bot.say("are you there?");
        let error = bot.error();
        assert!(error.contains("was removed or replaced"), "{gone}: {error}");
        bot.signal(Signal::SIGTERM);
        bot.end();
        fs::rename(&aside, &file).unwrap();
        let mut bot = place.bot().ready();
        bot.say("and now?");
        bot.post("heard");
        assert_eq!(bot.leave().0, Some(0), "{gone}");
        let (even, audit) = place.audit();
        assert!(even, "{gone}: {audit:#}");
        assert_eq!(audit["arrivals"]["accepted"], 2, "{gone}: {audit:#}");
    }
}

#[test]
fn a_damaged_store_is_said_at_once_and_does_not_hold_up_the_end() {
    let place = Place::new(PLAYBOOK);
    let go = fifo(&place, "go");
    let mut bot = place.bot().ready();
    bot.say("hello");
    bot.post("heard");
    for name in ["dogwatch.db", "dogwatch.db-wal"] {
        let path = place.path("data").join(name);
        let length = fs::metadata(&path).unwrap().len();
        fs::write(&path, vec![0xA5; usize::try_from(length).unwrap()]).unwrap();
    }
    bot.say(format!("run a A until {go}"));
    // What the database still has in memory goes on for a moment.
    let error = loop {
        bot.say("are you there?");
        let event = bot.wait(|event| event["event"] == "accepted" || event["event"] == "error");
        if let Some(what) = event["what"].as_str() {
            break what.to_owned();
        }
    };
    assert!(error.starts_with("not taken: "), "{error}");
    bot.signal(Signal::SIGTERM);
    bot.end();
    let (code, words) = place.bot().refusal();
    assert!(code == Some(1) && words.contains("damaged or not a store"), "{words}");
    let (even, audit) = place.audit();
    assert!(!even && audit.as_str().is_some_and(|words| words.contains("damaged")), "{audit:#}");
    nothing_is_left(&place);
}

#[test]
fn work_whose_record_was_taken_away_is_lost_not_never_started_and_ends() {
    let place = Place::new(PLAYBOOK);
    let go = fifo(&place, "go");
    let mut bot = place.bot().ready();
    bot.say(format!("run a A until {go}"));
    bot.post("started");
    while bot_last_line(&mut bot) != "BEGUN a" {}
    drop(bot.kill());
    assert_eq!(place.shims().len(), 1);
    fs::remove_dir_all(place.path("data/spool/e")).unwrap();
    let mut bot = place.bot().ready();
    let told = bot.post("NEWS");
    assert!(told.contains("was lost") && told.contains("removed from the spool"), "{told}");
    assert_eq!(bot.leave().0, Some(0));
    assert!(place.audit().0);
    nothing_is_left(&place);
}
