//! Everything that others have recorded of Slack: each is understood or kept as it came, each has a
//! decision with a reason, and nothing breaks over any of it.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use dogwatch::core::installation::Departure;
use dogwatch::slack::envelope::{Envelope, Frame, Kind, Reason};
use dogwatch::slack::hear::{Heard, Lifecycle, Who, hear};
use dogwatch::slack::{Mode, Settings};
use serde_json::Value;

use super::settings;

/// Where the recordings are, if they are here: beside the repository.
fn shelf() -> Option<PathBuf> {
    let shelf = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/fixtures/slack");
    shelf.is_dir().then_some(shelf)
}

/// The recordings of these folders, by folder and name.
fn recordings(folders: &[&str]) -> BTreeMap<String, String> {
    let Some(shelf) = shelf() else { return BTreeMap::new() };
    let mut found = BTreeMap::new();
    for folder in folders {
        for entry in fs::read_dir(shelf.join(folder)).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            found.insert(format!("{folder}/{name}"), fs::read_to_string(path).unwrap());
        }
    }
    assert!(!found.is_empty(), "the shelf is empty");
    found
}

/// The bot of most recordings.
fn bot() -> Who {
    Who { user: "W111".into(), bot: Some("B111".into()), app: Some("A111".into()) }
}

fn all() -> Settings {
    let guests = vec!["W222".into(), "U00EXTERNAL".into()];
    Settings { hearing: Mode::All.into(), guests, ..settings() }
}

fn word(heard: &Heard) -> &'static str {
    match heard {
        Heard::Say(_) => "say",
        Heard::Command(_) => "command",
        Heard::Press(_) => "press",
        Heard::Wish(_) => "wish",
        Heard::Home(_) => "home",
        Heard::Challenge(_) => "challenge",
        Heard::Lifecycle(_) => "lifecycle",
        Heard::Nothing { why } => {
            assert!(!why.is_empty());
            "nothing"
        }
        Heard::Unready => "unready",
    }
}

#[test]
fn every_recording_is_understood_or_kept_and_decided() {
    let folders = ["events", "interactions", "slash", "structural_blank", "web_api"];
    let mut decided = BTreeMap::<(String, &str), usize>::new();
    for (name, text) in recordings(&folders) {
        let raw: Value = serde_json::from_str(&text).unwrap();
        let envelope = Envelope::of(raw.clone());
        assert_eq!(envelope.raw, raw, "{name} is kept whole");
        assert!(!envelope.word().is_empty());
        let heard = hear(&envelope, Some(&bot()), &all());
        // Whoever does not know themselves hears no message.
        let blind = hear(&envelope, None, &all());
        assert!(!matches!(blind, Heard::Say(_)), "{name}");
        let folder = name.split('/').next().unwrap().to_owned();
        *decided.entry((folder, word(&heard))).or_default() += 1;
        assert!(Envelope::of_form(text.as_bytes()).is_some());
    }
    if decided.is_empty() {
        return;
    }
    // Nothing that is no envelope is taken for one.
    assert!(decided.keys().all(|(folder, word)| folder != "web_api" || *word == "nothing"));
    let said = decided.get(&("events".to_owned(), "say")).copied().unwrap_or_default();
    let life = decided.get(&("events".to_owned(), "lifecycle")).copied().unwrap_or_default();
    assert!(said >= 14 && life >= 4, "{decided:?}");
}

fn of(name: &str) -> Option<Value> {
    let text = fs::read_to_string(shelf()?.join(name)).unwrap();
    Some(serde_json::from_str(&text).unwrap())
}

#[test]
fn what_is_known_of_single_recordings() {
    let synthetic = Who { user: "U0000000BOT".into(), bot: Some("B0000000BOT".into()), app: None };
    let nobody = Settings { hearing: Mode::All.into(), ..settings() };
    let table = [
        ("events/double_delivery_app_mention.json", "say"),
        ("events/double_delivery_message.json", "say"),
        ("events/message_bot_own_reply.json", "nothing"),
        ("events/message_ext_shared_channel.json", "nothing"),
        ("events/message_with_numeric_metadata.json", "nothing"),
        ("events/app_rate_limited.json", "lifecycle"),
        ("events/url_verification.json", "challenge"),
        ("events/agent_session_stopped.json", "press"),
        ("events/app_uninstalled.json", "lifecycle"),
        ("events/message__file_share_2.json", "say"),
        ("events/message__thread_broadcast.json", "say"),
        ("events/app_mention_3.json", "say"),
        ("events/message__message_changed_channel.json", "nothing"),
        ("interactions/block_actions_button_cancel_watcher.json", "press"),
        ("interactions/block_actions_org_install_null_team.json", "press"),
        ("interactions/view_submission.json", "nothing"),
        ("slash/slash_command.json", "wish"),
        ("slash/slash_command_2.json", "nothing"),
    ];
    for (name, wanted) in table {
        let Some(raw) = of(name) else { return };
        let heard = hear(&Envelope::of(raw), Some(&synthetic), &nobody);
        assert_eq!(word(&heard), wanted, "{name}: {heard:?}");
    }
    // Values of all sorts in it cost neither text nor blocks.
    let raw = of("events/message_with_numeric_metadata.json").unwrap();
    let stranger = Who { user: "UX".into(), bot: None, app: None };
    let Kind::Event(callback) = Envelope::of(raw).kind else { panic!("no event") };
    assert!(callback.event.text.is_some_and(|text| !text.is_empty()));
    assert_eq!(callback.event.bot_id.as_deref(), Some("B0000000BOT"));
    let raw = of("events/message_ext_shared_channel.json").unwrap();
    let guests = Settings { guests: vec!["U00EXTERNAL".into()], ..nobody.clone() };
    assert_eq!(word(&hear(&Envelope::of(raw), Some(&stranger), &guests)), "say");
    let raw = of("events/app_mention_3.json").unwrap();
    let Heard::Say(said) = hear(&Envelope::of(raw), Some(&bot()), &nobody) else {
        panic!("silent")
    };
    assert_eq!(said.thread.installation(), "E111", "the whole enterprise is the installation");
    let raw = of("events/tokens_revoked_2.json").unwrap();
    let revoked = Who { user: "UXXXXXXXX".into(), ..bot() };
    let heard = hear(&Envelope::of(raw), Some(&revoked), &nobody);
    let Heard::Lifecycle(Lifecycle::Departed { why, at, .. }) = heard else { panic!("{heard:?}") };
    assert_eq!((why, at.is_some()), (Departure::Revoked, true));
}

#[test]
fn every_recorded_frame_is_told_apart() {
    for (name, text) in recordings(&["socket_mode"]) {
        let frame = Frame::of(&text);
        let name = name.trim_start_matches("socket_mode/").trim_end_matches(".json");
        let fine = match (name, &frame) {
            ("synthetic_hello", Frame::Hello)
            | ("disconnect_too_many_websockets", Frame::Disconnect(Reason::TooMany))
            | (
                "synthetic_disconnect_no_debug_info" | "synthetic_disconnect_refresh_requested",
                Frame::Disconnect(Reason::Refresh),
            )
            | ("synthetic_disconnect_warning", Frame::Disconnect(Reason::Warning)) => true,
            ("events_api_event_callback", Frame::Envelope(parcel)) => {
                matches!(parcel.envelope.kind, Kind::Event(_)) && parcel.attempt == 1
            }
            ("interactive_block_actions_LARGE_frame", Frame::Envelope(parcel)) => {
                matches!(parcel.envelope.kind, Kind::Actions(_))
            }
            ("slash_commands_cmd", Frame::Envelope(parcel)) => {
                matches!(parcel.envelope.kind, Kind::Slash(_)) && parcel.answers
            }
            ("interactive_shortcut" | "synthetic_unknown_type_with_envelope", _) => {
                matches!(&frame, Frame::Envelope(parcel)
                    if matches!(parcel.envelope.kind, Kind::Unknown(_)))
            }
            _ => false,
        };
        assert!(fine, "{name}: {frame:?}");
    }
}

/// Each recording, cut and changed at many places: whatever comes of it, nothing breaks.
#[test]
fn broken_recordings_break_nothing() {
    for (name, text) in recordings(&["events", "interactions", "socket_mode", "slash"]) {
        if text.len() > 20_000 {
            continue;
        }
        let step = (text.len() / 40).max(1);
        for at in (0..text.len()).step_by(step) {
            let at = text.floor_char_boundary(at);
            let cut = &text[..at];
            drop(Frame::of(cut));
            drop(Envelope::of_json(cut.as_bytes()));
            drop(Envelope::of_form(&text.as_bytes()[at..]));
        }
        let raw: Value = serde_json::from_str(&text).unwrap();
        for odd in ["null", "[]", "7", "{}", "\"\\u0000<@W111>\"", "true"] {
            let odd: Value = serde_json::from_str(odd).unwrap();
            replaced(&raw, &odd, &mut |changed| {
                let envelope = Envelope::of(changed.clone());
                word(&hear(&envelope, Some(&bot()), &all()));
                drop(Frame::of(&changed.to_string()));
            });
        }
        assert!(!name.is_empty());
    }
}

/// Calls back with every version in which one value is another.
fn replaced(raw: &Value, odd: &Value, then: &mut dyn FnMut(Value)) {
    let Some(fields) = raw.as_object() else { return };
    for (key, value) in fields {
        let with = |value: Value| {
            let mut changed = raw.clone();
            changed[key] = value;
            changed
        };
        then(with(odd.clone()));
        replaced(value, odd, &mut |inner| then(with(inner)));
    }
}
