//! A bot that is spoken to over its pipes and dies now and then. Owns starting it again, and saying
//! again what it may not have heard. Must not know what a story promises.

use std::fs;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use dogwatch::console::event::{Event, Reply, Step};
use dogwatch::core::execution::PostSort;
use nix::poll::{PollFd, PollFlags, poll};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::laws::Books;

const PROGRAM: &str = env!("CARGO_BIN_EXE_dogwatch");
const PLAYBOOK: &str = include_str!("playbook.toml");
const CONFIG: &str = r#"data_dir = "data"

[model]
kind = "scripted"
playbook = "playbook.toml"

[watch]
sandbox = "off"
grace_ms = 300

[log]
filter = "info"
"#;
/// Nothing takes longer than this, also on a busy machine.
const PATIENCE: Duration = Duration::from_secs(40);
/// What was asked is asked again after so much silence: a turn may have had it together with a
/// result, and the script speaks of the result. Longer than a failed turn waits for its next try.
const SILENCE: Duration = Duration::from_secs(25);
/// Between two looks whether anybody still listens.
const LOOK_MS: u16 = 20;
const SILENT: &str = "nothing more came in time";

pub(crate) type Told<T> = Result<T, String>;

#[expect(clippy::disallowed_methods, reason = "a test that hangs is to fail by the real clock")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// What one wait for an event came to.
enum Came {
    Event,
    Died,
    Nothing,
}

struct Bot {
    child: Child,
    input: Option<ChildStdin>,
    events: Receiver<Event>,
    deaf: Arc<AtomicBool>,
}

impl Drop for Bot {
    fn drop(&mut self) {
        // Both fail when it has ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Passes on what the bot says until it is gone, or until nobody listens any more.
fn listen(mut output: ChildStdout, events: &Sender<Event>, deaf: &AtomicBool) {
    let mut said: Vec<u8> = vec![];
    let mut piece = [0; 4096];
    loop {
        let mut ready = [PollFd::new(output.as_fd(), PollFlags::POLLIN)];
        let any = poll(&mut ready, LOOK_MS).unwrap_or(0) > 0;
        if any {
            let Ok(count @ 1..) = output.read(&mut piece) else { return };
            said.extend(&piece[..count]);
        }
        while let Some(end) = said.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = said.drain(..=end).collect();
            let event = serde_json::from_slice(&line).expect("the bot says events");
            if events.send(event).is_err() {
                return;
            }
        }
        if !any && deaf.load(Ordering::Relaxed) {
            return;
        }
    }
}

/// One run of a scenario: its directory, its bot, and all that was heard.
pub(crate) struct Play {
    directory: PathBuf,
    /// What is armed; nothing once it was reached.
    point: String,
    ahead_ms: u64,
    bot: Option<Bot>,
    /// All events of all bots.
    pub(crate) events: Vec<Event>,
    /// The chat that is typed in.
    chat: &'static str,
    typed: u32,
    /// Lines that were typed again.
    pub(crate) again: u32,
    pub(crate) deaths: usize,
}

impl Play {
    /// In an empty directory; `point` as in `DOGWATCH_FAILPOINT`.
    pub(crate) fn new(directory: &Path, point: &str) -> Self {
        fs::create_dir_all(directory.join("data")).unwrap();
        fs::write(directory.join("dogwatch.toml"), CONFIG).unwrap();
        fs::write(directory.join("playbook.toml"), PLAYBOOK).unwrap();
        Self {
            directory: directory.to_owned(),
            point: point.to_owned(),
            ahead_ms: 0,
            bot: None,
            events: vec![],
            chat: "main",
            typed: 10,
            again: 0,
            deaths: 0,
        }
    }

    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    /// The points that were reached, in order.
    pub(crate) fn reached(&self) -> Vec<String> {
        let log = fs::read_to_string(self.directory.join("reached")).unwrap_or_default();
        log.lines().map(str::to_owned).collect()
    }

    /// Nothing is armed from the next start on.
    pub(crate) fn disarm(&mut self) {
        self.point.clear();
    }

    /// From the next start on the bot's clock is so far ahead.
    pub(crate) fn set_clock_ahead(&mut self, ms: u64) {
        self.ahead_ms = ms;
    }

    #[expect(clippy::disallowed_methods, reason = "the program under test is a process of its own")]
    pub(crate) fn command(&self, subcommand: &str) -> Command {
        let mut command = Command::new(PROGRAM);
        command
            .arg(subcommand)
            .arg("--config")
            .arg(self.directory.join("dogwatch.toml"))
            .arg("--json")
            .env("DOGWATCH_FAILPOINT", &self.point)
            .env("DOGWATCH_FAILPOINT_LOG", self.directory.join("reached"))
            .env("DOGWATCH_CLOCK_AHEAD_MS", self.ahead_ms.to_string());
        command
    }

    #[expect(clippy::disallowed_methods, reason = "the program under test is a process of its own")]
    pub(crate) fn list() -> Command {
        let mut command = Command::new(PROGRAM);
        command.args(["failpoints", "--json"]);
        command
    }

    fn spawn(&mut self) {
        let errors = self.directory.join("bot.err");
        let errors = fs::OpenOptions::new().create(true).append(true).open(errors).unwrap();
        let mut child = self
            .command("chat")
            .args(["--wait", "--chat", self.chat])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(errors)
            .process_group(0)
            .spawn()
            .unwrap();
        let output = child.stdout.take().unwrap();
        let (sender, events) = channel();
        let deaf = Arc::new(AtomicBool::new(false));
        let is_deaf = Arc::clone(&deaf);
        thread::spawn(move || listen(output, &sender, &is_deaf));
        let input = child.stdin.take();
        self.bot = Some(Bot { child, input, events, deaf });
    }

    /// Starts the bot and waits until it reads lines.
    pub(crate) fn start(&mut self) -> Told<()> {
        self.spawn();
        self.hear_until("the bot to be ready", |event| matches!(event, Event::Ready { .. }))
    }

    /// The next event; a bot that dies on its armed point is told apart from any other death.
    fn hear(&mut self, until: Instant) -> Told<Came> {
        let Some(bot) = &mut self.bot else { return Ok(Came::Died) };
        let left = until.saturating_duration_since(now());
        match bot.events.recv_timeout(left) {
            Ok(event) => {
                self.events.push(event);
                Ok(Came::Event)
            }
            Err(RecvTimeoutError::Timeout) => Ok(Came::Nothing),
            Err(RecvTimeoutError::Disconnected) => {
                let mut bot = self.bot.take().unwrap();
                let status = bot.child.wait().unwrap();
                let armed = self.point.split(':').next().unwrap_or_default().to_owned();
                let killed = status.signal() == Some(9);
                if killed && self.reached().contains(&armed) {
                    self.deaths += 1;
                    Ok(Came::Died)
                } else {
                    Err(format!("the bot ended by itself: {status}"))
                }
            }
        }
    }

    /// Waits for an event that was not heard yet, through deaths.
    fn hear_until(&mut self, what: &str, wanted: impl Fn(&Event) -> bool) -> Told<()> {
        let until = now() + PATIENCE;
        let mut from = self.events.len();
        loop {
            if self.events.iter().skip(from).any(&wanted) {
                return Ok(());
            }
            from = self.events.len();
            self.go_on(until).map_err(|error| format!("waiting for {what}: {error}"))?;
        }
    }

    fn go_on(&mut self, until: Instant) -> Told<()> {
        match self.hear(until)? {
            Came::Event => Ok(()),
            Came::Died => {
                self.spawn();
                Ok(())
            }
            Came::Nothing => Err(SILENT.into()),
        }
    }

    /// Types a line until `heard` says that it was heard, and again after a death: nobody can say
    /// whether the first one was taken. `{}` is a number of this very line.
    fn type_line(&mut self, line: &str, heard: impl Fn(&Event) -> bool) -> Told<()> {
        let until = now() + PATIENCE;
        loop {
            if self.bot.is_none() {
                self.start()?;
            }
            let from = self.events.len();
            self.typed += 1;
            let text = line.replace("{}", &self.typed.to_string());
            if let Some(input) = self.bot.as_mut().and_then(|bot| bot.input.as_mut()) {
                // A bot that is dead does not read; that is seen below.
                let _ = input.write_all(format!("{text}\n").as_bytes());
            }
            loop {
                if self.events.iter().skip(from).any(&heard) {
                    return Ok(());
                }
                match self.hear(until).map_err(|error| format!("after typing {text}: {error}"))? {
                    Came::Event => {}
                    Came::Died => break,
                    Came::Nothing => return Err(format!("after typing {text}: {SILENT}")),
                }
            }
            self.again += 1;
        }
    }

    /// Says something, until it is taken.
    pub(crate) fn say(&mut self, line: &str) -> Told<()> {
        self.type_line(line, |event| matches!(event, Event::Accepted { .. }))
    }

    /// Says something until it is answered with this; again when another answer came, since the
    /// script has one thing to say at a time.
    pub(crate) fn ask(&mut self, line: &str, answer: &str) -> Told<()> {
        let until = now() + 2 * PATIENCE;
        loop {
            let mut from = self.events.len();
            self.say(line)?;
            loop {
                let new = &self.events[from..];
                if new.iter().any(|event| has(event, answer)) {
                    return Ok(());
                }
                if new.iter().any(is_answer) {
                    break;
                }
                from = self.events.len();
                let quiet = until.min(now() + SILENCE);
                match self.go_on(quiet) {
                    Err(error) if quiet < until && error.contains(SILENT) => break,
                    went_on => went_on.map_err(|error| format!("asking {line}: {error}"))?,
                }
            }
            self.again += 1;
        }
    }

    /// Says something and waits until a turn has begun with it, or one that had begun before, with
    /// what the kill has ended, says this `answer` to it as well.
    pub(crate) fn say_into_turn(&mut self, line: &str, answer: &str) -> Told<()> {
        self.say(line)?;
        self.hear_until("a turn to begin", |event| {
            matches!(event, Event::Progress { step: Step::Began { .. }, .. }) || has(event, answer)
        })
    }

    /// Waits until the watchers whose names begin so have printed something.
    pub(crate) fn prints(&mut self, name: &str) -> Told<()> {
        let until = now() + PATIENCE;
        loop {
            self.order("watchers")?;
            let live = self.events.iter().rev().find_map(|event| {
                let Event::Command { reply: Reply::Watchers { live, .. }, .. } = event else {
                    return None;
                };
                Some(live)
            });
            // Where it died instead there is nothing to wait for.
            let mut live = live.into_iter().flatten().filter(|work| work.name.starts_with(name));
            if live.all(|work| work.last_line.is_some()) {
                return Ok(());
            }
            if now() > until {
                return Err(format!("{name} prints nothing"));
            }
            let look = now() + Duration::from_millis(50);
            if matches!(self.hear(look)?, Came::Died) {
                self.spawn();
            }
        }
    }

    /// Gives a command, until it is answered.
    pub(crate) fn order(&mut self, line: &str) -> Told<()> {
        self.type_line(line, |event| matches!(event, Event::Command { .. } | Event::Error { .. }))
    }

    /// Goes to another chat.
    pub(crate) fn go_to(&mut self, chat: &'static str) -> Told<()> {
        self.type_line(&format!("/chat {chat}"), |event| {
            matches!(event, Event::Command { reply: Reply::Chat { name }, .. }
                if name.as_str() == chat)
        })?;
        // A bot that is started again begins here.
        self.chat = chat;
        Ok(())
    }

    /// Waits until the end of a watcher is told.
    pub(crate) fn told(&mut self, name: &str) -> Told<()> {
        let until = now() + PATIENCE;
        while !self.events.iter().any(|event| tells(event, name))
            // A turn that was resumed may have two notices; the script speaks of the newest.
            && !Books::read(&self.directory).is_ok_and(|books| books.has_read(name))
        {
            if now() > until {
                return Err(format!("waiting for the end of {name} to be told: {SILENT}"));
            }
            if matches!(self.hear(now() + Duration::from_millis(200))?, Came::Died) {
                self.spawn();
            }
        }
        Ok(())
    }

    /// The id of the last watcher whose name begins so, as a post gave it.
    pub(crate) fn id_of(&self, name: &str) -> Told<String> {
        let found = self.events.iter().rev().find_map(|event| {
            let Event::Post { text, .. } = event else { return None };
            let (_, after) = text.split_once(&format!("Started {name}"))?;
            let (_, id) = after.split_once(" as ")?;
            Some(id.split(['.', ' ']).next()?.to_owned())
        });
        found.ok_or_else(|| format!("no watcher {name} was started"))
    }

    /// Kills the bot from outside.
    pub(crate) fn kill_bot(&mut self) -> Told<()> {
        if let Some(mut bot) = self.bot.take() {
            bot.child.kill().map_err(|error| error.to_string())?;
            bot.child.wait().map_err(|error| error.to_string())?;
            // What it said before is heard.
            self.events.extend(bot.events.iter());
        }
        Ok(())
    }

    /// Kills the supervisors that run for this play.
    pub(crate) fn kill_shims(&self) {
        for pid in processes(&self.directory, "shim") {
            // One that has just ended is as dead.
            let _ = kill(pid, Signal::SIGKILL);
        }
    }

    /// Nobody listens to the bot any more; it ends when it has something to say.
    pub(crate) fn stop_listening(&mut self) -> Told<()> {
        let Some(mut bot) = self.bot.take() else { return Ok(()) };
        bot.deaf.store(true, Ordering::Relaxed);
        self.events.extend(bot.events.iter());
        let until = now() + PATIENCE;
        while bot.child.try_wait().map_err(|error| error.to_string())?.is_none() {
            if now() > until {
                return Err("a bot that nobody hears goes on for ever".into());
            }
            thread::park_timeout(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Ends the input and waits until everything is answered and has ended, through deaths.
    pub(crate) fn leave(&mut self) -> Told<()> {
        let until = now() + PATIENCE;
        loop {
            if self.bot.is_none() {
                self.start()?;
            }
            if let Some(bot) = &mut self.bot {
                bot.input = None;
            }
            loop {
                if matches!(self.events.last(), Some(Event::Bye { .. })) {
                    let mut bot = self.bot.take().unwrap();
                    self.events.extend(bot.events.iter());
                    let status = bot.child.wait().map_err(|error| error.to_string())?;
                    if status.success() {
                        return Ok(());
                    }
                    let killed = status.signal() == Some(9);
                    if killed && !self.reached().is_empty() {
                        self.deaths += 1;
                        break;
                    }
                    return Err(format!("the bot ended badly: {status}"));
                }
                match self.hear(until).map_err(|error| format!("leaving: {error}"))? {
                    Came::Event => {}
                    Came::Died => break,
                    Came::Nothing => return Err(format!("leaving: {SILENT}")),
                }
            }
        }
    }

    /// Waits until the books say so, through deaths.
    pub(crate) fn books(&mut self, what: &str, say: impl Fn(&Books, usize) -> bool) -> Told<()> {
        let until = now() + PATIENCE;
        while !say(&Books::read(&self.directory)?, self.deaths) {
            if now() > until {
                return Err(format!("waiting for {what}: it does not come"));
            }
            let look = now() + Duration::from_millis(100);
            if matches!(self.hear(look)?, Came::Died) {
                self.spawn();
            }
        }
        Ok(())
    }

    /// One more bot, which nothing happens to: a message in each chat takes what only rides.
    pub(crate) fn finish(&mut self, chats: &[&'static str]) -> Told<()> {
        self.disarm();
        self.start()?;
        for chat in chats {
            self.go_to(chat)?;
            self.say("say bye{}")?;
        }
        self.leave()
    }

    /// The last words of the bot, for when it failed.
    pub(crate) fn last_words(&self) -> String {
        let mut words = String::new();
        for (path, most) in [("bot.err", 12), ("data/dogwatch.log", 40)] {
            let text = fs::read_to_string(self.directory.join(path)).unwrap_or_default();
            let lines: Vec<&str> = text.lines().collect();
            let tail = lines.iter().rev().take(most).rev();
            words += &tail.fold(format!("--- {path}\n"), |words, line| words + line + "\n");
        }
        let events = self.events.iter().rev().take(40).rev();
        let events = events.filter(|event| !matches!(event, Event::Progress { .. }));
        events.fold(words + "--- heard\n", |words, event| {
            words + &serde_json::to_string(event).unwrap() + "\n"
        })
    }
}

impl Drop for Play {
    fn drop(&mut self) {
        self.bot = None;
        for pid in processes(&self.directory, "") {
            let _ = kill(pid, Signal::SIGKILL);
        }
    }
}

/// A post with this in it.
pub(crate) fn has(event: &Event, text: &str) -> bool {
    matches!(event, Event::Post { text: said, .. } if said.contains(text))
}

fn is_answer(event: &Event) -> bool {
    matches!(event, Event::Post { sort: PostSort::Answer | PostSort::Failure, .. })
}

/// A post of the model that tells the end of a watcher, or one of dogwatch that it could not.
pub(crate) fn tells(event: &Event, name: &str) -> bool {
    match event {
        Event::Post { text, sort: PostSort::Answer | PostSort::Woken, .. } => {
            text.split_once("News: ").is_some_and(|(_, news)| news.contains(name))
                || text.split_once("Ended: ").is_some_and(|(_, end)| end.contains(name))
        }
        Event::Post { text, sort: PostSort::Human, .. } => text.contains(name),
        Event::Post { sort: PostSort::Failure, .. }
        | Event::Ready { .. }
        | Event::Accepted { .. }
        | Event::Progress { .. }
        | Event::Watcher { .. }
        | Event::Command { .. }
        | Event::Error { .. }
        | Event::Link { .. }
        | Event::Bye { .. } => false,
    }
}

/// The processes that work in this directory, by their arguments or their environment.
pub(crate) fn processes(directory: &Path, subcommand: &str) -> Vec<Pid> {
    let wanted = directory.to_str().unwrap();
    let has = |pid: i32, file: &str, text: &str| {
        let bytes = fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
        String::from_utf8_lossy(&bytes).contains(text)
    };
    let all = fs::read_dir("/proc").unwrap().flatten();
    let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let mine = pids.filter(|pid| {
        let named = has(*pid, "cmdline", wanted) && has(*pid, "cmdline", subcommand);
        named || (subcommand.is_empty() && has(*pid, "environ", wanted))
    });
    mine.map(Pid::from_raw).collect()
}
