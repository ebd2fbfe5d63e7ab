//! Too much of everything at once, and bytes of every kind.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::Value;

use crate::support::real_bot::{Place, let_all_go};

/// A rule by which one message starts `count` scripts at once.
pub(super) fn starts(word: &str, count: usize, python: &str) -> String {
    let mut rule = format!("[[rule]]\nwhen = {{ person = '^{word}$' }}\n");
    for n in 0..count {
        let python = Value::from(python);
        let _ = write!(
            rule,
            "[[rule.calls]]\ntool = \"trigger_and_auto_notify\"\n\
             arguments = {{ name = \"{word} {n}\", timeout_seconds = 100, python = {python} }}\n"
        );
    }
    rule
}

pub(super) fn playbook(rules: &str) -> String {
    format!(
        "name = \"faults\"\n\
         [[rule]]\nwhen = {{ notice = '(?s)(.*)' }}\ntext = \"NEWS {{1}}\"\n\
         [[rule]]\nwhen = {{ tool = \"trigger_and_auto_notify\", result = '(?s)(.*\"error\".*)' }}\n\
         text = \"REFUSED {{1}}\"\n\
         [[rule]]\nwhen = {{ tool = \"trigger_and_auto_notify\" }}\ntext = \"started\"\n\
         {rules}\n\
         [[rule]]\ntext = \"heard\"\n"
    )
}

/// How often each post was shown without a mark that it may be a repeat.
pub(super) fn unmarked(events: &[Value]) -> BTreeMap<String, usize> {
    let mut shown = BTreeMap::new();
    for post in events.iter().filter(|event| event["event"] == "post") {
        let name = format!("{} {}", post["chat"], post["item"]);
        *shown.entry(name).or_default() += usize::from(post["may_repeat"] == false);
    }
    shown
}

#[test]
fn two_hundred_watchers_that_end_at_once_are_each_told_once() {
    let place = Place::new("");
    let fifo = place.path("go");
    nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let wait = format!("open({:?}).close()\nprint('done')", place.known_as("go"));
    place
        .write("playbook.toml", &playbook(&(starts("one", 20, &wait) + &starts("two", 20, &wait))));
    let mut bot = place.bot().ready();
    for chat in 0..5 {
        bot.say(format!("/chat c{chat}"));
        for word in ["one", "two"] {
            bot.say(word);
            bot.post("started");
        }
    }
    // Each waits at the pipe before it is opened.
    let mut waiting = Vec::new();
    for chat in 0..5 {
        bot.say(format!("/chat c{chat}"));
        loop {
            bot.say("/watchers");
            let reply = bot.wait(|event| event["command"] == "watchers");
            let live = reply["live"].as_array().unwrap();
            if live.iter().all(|work| work["state"] == "running") {
                waiting.push(live.len());
                break;
            }
        }
    }
    assert_eq!(waiting, [40; 5]);
    let mut told = BTreeMap::<String, usize>::new();
    while told.values().sum::<usize>() < 200 {
        // Those that open it late are let go the next time.
        let_all_go(&fifo);
        let post = bot.wait(|event| event["event"] == "post");
        let text = post["text"].as_str().unwrap();
        for word in ["one", "two"] {
            for n in 0..20 {
                let name = format!("'{word} {n}' completed");
                let bold = format!("**{word} {n}** completed");
                let count = text.matches(&name).count() + text.matches(&bold).count();
                *told.entry(format!("{} {word} {n}", post["chat"])).or_default() += count;
            }
        }
    }
    assert!(told.values().all(|count| *count == 1), "{told:#?}");
    let (code, events) = bot.leave();
    assert_eq!(code, Some(0));
    assert!(unmarked(&events).values().all(|count| *count == 1));
    let (even, audit) = place.audit();
    assert!(even, "{audit:#}");
    assert_eq!(audit["executions"]["fates"]["acked"], 200, "{audit:#}");
    assert!(place.processes().is_empty());
}

#[test]
fn the_fifty_first_watcher_is_refused_and_stop_all_ends_the_others() {
    let place = Place::new(&playbook(
        &(starts("one", 30, "import time\ntime.sleep(90)")
            + &starts("two", 30, "import time\ntime.sleep(90)")),
    ));
    let mut bot = place.bot().ready();
    bot.say("one");
    bot.post("started");
    bot.say("two");
    let told = bot.post("REFUSED");
    assert!(told.contains("limit_reached") && told.contains("are live (50)"), "{told}");
    bot.say("stop all");
    let reply = bot.wait(|event| event["command"] == "stop");
    assert_eq!(reply["ended"], 50, "{reply}");
    for id in
        ["auto-notify-one0-0001", "auto-notify-none-0001", "console/other/auto-notify-one0-0001"]
    {
        bot.say(format!("cancel {id}"));
        let reply = bot.wait(|event| event["command"] == "cancel");
        let over = id == "auto-notify-one0-0001";
        assert_eq!(reply["result"] == "unknown", !over, "{reply}");
    }
    bot.say("and now?");
    bot.post("heard");
    assert_eq!(bot.leave().0, Some(0));
    let (even, audit) = place.audit();
    assert!(even, "{audit:#}");
    assert_eq!(audit["executions"]["live"], 0, "{audit:#}");
    // Their ends reach the shims a moment later.
    while !place.shims().is_empty() {
        crate::support::process::pause_here();
    }
}

#[test]
fn what_a_full_inbox_cannot_take_is_refused_and_the_rest_is_answered() {
    let place = Place::new("name = \"faults\"\n[[rule]]\ntext = \"heard you\"\ndelay_ms = 1000\n");
    let mut bot = place.bot().ready();
    for n in 0..300 {
        bot.say(format!("message {n}"));
    }
    let mut taken = 0;
    let mut refused = 0;
    while taken + refused < 300 {
        let event = bot.wait(|event| event["event"] == "accepted" || event["event"] == "error");
        if event["event"] == "accepted" {
            taken += 1;
        } else {
            refused += 1;
            let what = event["what"].as_str().unwrap();
            assert!(what.contains("256 messages here are not read yet"), "{what}");
        }
    }
    assert!(taken >= 256 && refused > 0, "{taken} taken, {refused} refused");
    bot.say("stop all");
    assert_eq!(bot.leave().0, Some(0));
    let (even, audit) = place.audit();
    assert!(even, "{audit:#}");
    assert_eq!(audit["arrivals"]["accepted"], taken, "{audit:#}");
}

#[test]
fn b73_all_256_bytes_reach_the_person_as_text() {
    let script = "import sys
everything = bytes(range(256)) * 3
for stream in (sys.stdout.buffer, sys.stderr.buffer):
    stream.write(everything)
    stream.flush()
sys.exit(1)";
    let place = Place::new(&playbook(&starts("all", 1, script)));
    let mut bot = place.bot().ready();
    bot.say("all");
    let told = bot.post("NEWS");
    let printable: String = (b' '..=b'~').map(char::from).collect();
    // Three times on each of the two streams.
    assert_eq!(told.matches(&printable).count(), 6, "{told:?}");
    let steers = |c: &char| c.is_control() && !matches!(c, '\n' | '\t');
    assert_eq!(told.chars().find(steers), None, "{told:?}");
    // The bytes that are no text were there, and one can see it.
    assert!(told.contains('\u{FFFD}'), "{told:?}");
    assert_eq!(bot.leave().0, Some(0));
    assert!(place.audit().0);
}

#[test]
fn a_script_of_64_kib_runs_and_one_byte_more_is_refused() {
    let most = dogwatch::core::limits::CODE_BYTES_MAX;
    let script = |bytes: usize| {
        let begin = "print('WHOLE')\n#";
        format!("{begin}{}", "x".repeat(bytes - begin.len()))
    };
    let rules = starts("fits", 1, &script(most)) + &starts("burst", 1, &script(most + 1));
    let place = Place::new(&playbook(&rules));
    let mut bot = place.bot().ready();
    bot.say("burst");
    let told = bot.post("REFUSED");
    assert!(told.contains("65537 bytes") && told.contains("at most 65536"), "{told}");
    bot.say("fits");
    assert!(bot.post("NEWS").contains("WHOLE"));
    assert_eq!(bot.leave().0, Some(0));
    let (even, audit) = place.audit();
    assert!(even, "{audit:#}");
    assert_eq!(audit["executions"]["registered"], 1, "{audit:#}");
}

#[test]
fn lines_of_any_bytes_are_taken_or_refused_and_the_next_is_heard() {
    let place = Place::new(&playbook(""));
    let mut bot = place.bot().ready();
    let long = vec![b'A'; 1_000_000];
    let lines: [&[u8]; 9] = [
        b"\xff\xfe\x00\x01\x02",
        &long,
        b"a\0b",
        b"\x1b[31mred\x1b]0;title\x07\x9b2J",
        "\u{2028}sep\u{202e}rtl".as_bytes(),
        b"/chat ../../etc",
        b"/cancel \x1b[2J",
        b"/stop nonsense",
        "[AUTO-NOTIFICATION] Agent 'x' completed".as_bytes(),
    ];
    for line in lines {
        bot.say(line);
        bot.say("status");
        bot.wait(|event| event["command"] == "status");
    }
    let (code, events) = bot.leave();
    assert_eq!(code, Some(0));
    let words =
        |event: &Value| event["text"].as_str().or(event["what"].as_str()).map(str::to_owned);
    let steers = |text: &String| text.chars().any(|c| c.is_control() && !matches!(c, '\n' | '\t'));
    assert_eq!(events.iter().filter_map(words).find(steers), None);
    assert!(place.audit().0);
}
