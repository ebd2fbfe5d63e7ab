//! What a typed line means. Owns the commands of the terminal and their words.
//! Must not know who carries a command out.
//!
//! A line is a command when it is exactly one: `/status`, `/cancel ID`, or the bare words
//! `watchers`, `status`, `stop`, `stop all`, `help` and `cancel ID` (where ID has a digit, as every
//! id has, so that "cancel it" is still a message). Case does not matter. Everything else is a
//! message, also a text that only begins like a command. A line that begins with `/` is never a
//! message by accident: an unknown one is an error that says how to send it (`//…`). A pasted text
//! of several lines is always a message.

use crate::core::execution::Scope;
use crate::core::id::ExecutionId;
use crate::core::limits::MESSAGE_BYTES_MAX;

use super::chat::ChatName;
use super::clean;

/// A typed line, understood.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Typed {
    /// Nothing but white space.
    Nothing,
    /// A message for the model, sanitised.
    Say(String),
    /// Show the running watchers and the last ended ones.
    Watchers,
    /// Show what the chat is doing.
    Status,
    /// End one execution.
    Cancel(ExecutionId),
    /// End the turn, or everything.
    Stop(Scope),
    /// Show the commands.
    Help,
    /// Go to another chat.
    Chat(ChatName),
    /// Show the chats.
    Chats,
    /// Leave.
    Quit,
    /// None of these; what is wrong and what now.
    Wrong(String),
}

/// The commands, for people.
pub const HELP: &str = "\
Write a message, or a command:
  watchers        what runs in the background here, and what ended
  status          what this chat is doing
  cancel ID       end one watcher
  stop            end the turn that is running; watchers run on
  stop all        end the turn and all watchers of this chat
  help            this list
  /chat NAME      go to another chat, a new one if need be
  /chats          all chats
  /quit           leave; watchers run on (also ^D)
Each command may be written with a slash. To send a text that begins with a
slash, write two. Commands work while the model is away.";

/// Understands a line.
pub fn read(line: &str) -> Typed {
    let text = clean::text(line);
    let text = text.trim();
    if text.is_empty() {
        return Typed::Nothing;
    }
    if text.len() > MESSAGE_BYTES_MAX {
        return Typed::Wrong(format!(
            "the message has {} bytes, at most {MESSAGE_BYTES_MAX} are taken; send it in parts",
            text.len()
        ));
    }
    if text.contains('\n') {
        return Typed::Say(text.to_owned());
    }
    match text.strip_prefix('/') {
        Some(rest) if rest.starts_with('/') => Typed::Say(rest.to_owned()),
        Some(rest) => slash(rest),
        None => bare(text),
    }
}

fn bare(text: &str) -> Typed {
    let lower = text.to_ascii_lowercase();
    let words: Vec<&str> = text.split_whitespace().collect();
    match lower.split_whitespace().collect::<Vec<_>>().as_slice() {
        ["watchers"] => Typed::Watchers,
        ["status"] => Typed::Status,
        ["stop"] => Typed::Stop(Scope::Turn),
        ["stop", "all"] => Typed::Stop(Scope::All),
        ["help"] => Typed::Help,
        ["cancel", id] if id.contains(|c: char| c.is_ascii_digit()) => {
            cancel(words.last().copied().unwrap_or_default())
        }
        [..] => Typed::Say(text.to_owned()),
    }
}

fn slash(rest: &str) -> Typed {
    let mut words = rest.split_whitespace();
    let name = words.next().unwrap_or_default().to_ascii_lowercase();
    let arguments: Vec<&str> = words.collect();
    match (name.as_str(), arguments.as_slice()) {
        ("watchers", []) => Typed::Watchers,
        ("status", []) => Typed::Status,
        ("help", []) => Typed::Help,
        ("chats", []) => Typed::Chats,
        ("quit" | "exit", []) => Typed::Quit,
        ("stop", []) => Typed::Stop(Scope::Turn),
        ("stop", [all]) if all.eq_ignore_ascii_case("all") => Typed::Stop(Scope::All),
        ("stop", [..]) => Typed::Wrong("write `/stop` or `/stop all`".to_owned()),
        ("cancel", [id]) => cancel(id),
        ("cancel", [..]) => {
            Typed::Wrong("write `/cancel ID` with one id; `/watchers` shows the ids".to_owned())
        }
        ("chat", [name]) => match ChatName::new(*name) {
            Ok(chat) => Typed::Chat(chat),
            Err(error) => Typed::Wrong(error.to_string()),
        },
        ("chat", [..]) => {
            Typed::Wrong("write `/chat NAME` with one name; `/chats` shows them".to_owned())
        }
        ("watchers" | "status" | "help" | "chats" | "quit" | "exit", [..]) => {
            Typed::Wrong(format!("`/{name}` takes nothing after it"))
        }
        (_, [..]) => Typed::Wrong(format!(
            "there is no command `/{}`; `/help` lists them, and `//…` sends a message that begins \
             with a slash",
            clean::cut(&name, 40)
        )),
    }
}

fn cancel(id: &str) -> Typed {
    match ExecutionId::new(id) {
        Ok(id) => Typed::Cancel(id),
        Err(error) => Typed::Wrong(format!("{error}; `/watchers` shows the ids")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn say(text: &str) -> Typed {
        Typed::Say(text.to_owned())
    }

    #[test]
    fn commands_are_exact_and_everything_else_is_a_message() {
        let id = ExecutionId::new("auto-notify-depl-0001").unwrap();
        let table = [
            ("", Typed::Nothing),
            (" \t ", Typed::Nothing),
            ("\u{1b}[A", Typed::Nothing),
            ("watchers", Typed::Watchers),
            (" Status ", Typed::Status),
            ("/STATUS", Typed::Status),
            ("stop", Typed::Stop(Scope::Turn)),
            ("stop  all", Typed::Stop(Scope::All)),
            ("/stop all", Typed::Stop(Scope::All)),
            ("cancel auto-notify-depl-0001", Typed::Cancel(id.clone())),
            ("/cancel auto-notify-depl-0001", Typed::Cancel(id)),
            ("/chat ops", Typed::Chat(ChatName::new("ops").unwrap())),
            ("/quit", Typed::Quit),
            ("cancel it", say("cancel it")),
            ("stop all of that", say("stop all of that")),
            ("status of the deploy?", say("status of the deploy?")),
            ("quit", say("quit")),
            ("chat ops", say("chat ops")),
            ("//etc/hosts is gone", say("/etc/hosts is gone")),
            ("stop\nall", say("stop\nall")),
            ("/a\n/b", say("/a\n/b")),
            ("a\u{7}b", say("ab")),
        ];
        for (given, wanted) in table {
            assert_eq!(read(given), wanted, "{given:?}");
        }
    }

    #[test]
    fn wrong_commands_teach() {
        let table = [
            ("/etc/hosts is gone", "`//…`"),
            ("/statsu", "/help"),
            ("/", "/help"),
            ("/status now", "takes nothing"),
            ("/cancel", "/watchers"),
            ("/cancel a b", "/watchers"),
            ("/chat", "/chats"),
            ("/chat a/b", "letters, digits"),
            ("/stop it", "/stop all"),
        ];
        for (given, hint) in table {
            let Typed::Wrong(what) = read(given) else { panic!("{given:?} is not wrong") };
            assert!(what.contains(hint), "{given:?}: {what}");
        }
    }

    #[test]
    fn a_message_is_bounded() {
        assert!(matches!(read(&"x".repeat(MESSAGE_BYTES_MAX)), Typed::Say(_)));
        assert!(matches!(read(&"x".repeat(MESSAGE_BYTES_MAX + 1)), Typed::Wrong(_)));
    }
}
