//! Slack's blocks, as far as more than one message has them. Must not know what they say.

use serde_json::{Value, json};

/// Longest name or line of a watcher where it is one of several things, in characters.
const SHORT_CHARS_MAX: usize = 80;

/// Text in Slack's own writing, escaped by whoever made it. What looks like a mention or a link in
/// it is none.
pub(super) fn section(text: &str) -> Value {
    json!({ "type": "section", "text": { "type": "mrkdwn", "text": text, "verbatim": true } })
}

/// The same with a button beside it.
pub(super) fn section_with(text: &str, button: Option<Value>) -> Value {
    let mut section = section(text);
    if let (Some(fields), Some(button)) = (section.as_object_mut(), button) {
        fields.insert("accessory".to_owned(), button);
    }
    section
}

/// Small print.
pub(super) fn note(text: &str) -> Value {
    let element = json!({ "type": "mrkdwn", "text": text, "verbatim": true });
    json!({ "type": "context", "elements": [element] })
}

/// Buttons in a row.
pub(super) fn row(buttons: &[Value]) -> Value {
    json!({ "type": "actions", "block_id": "dogwatch", "elements": buttons })
}

/// Text that is only text.
pub(super) fn plain(text: &str) -> Value {
    json!({ "type": "plain_text", "text": text })
}

/// A button.
pub(super) fn button(label: &str, action: &str, value: &str) -> Value {
    json!({ "type": "button", "action_id": action, "text": plain(label), "value": value })
}

/// One that ends something, and so asks once more: at three in the morning a thumb slips.
pub(super) fn danger(button: Value, words: [&str; 4]) -> Value {
    let [title, text, confirm, deny] = words.map(plain);
    let mut button = button;
    if let Some(fields) = button.as_object_mut() {
        fields.insert("style".to_owned(), "danger".into());
        let confirm = json!({ "title": title, "text": text, "confirm": confirm, "deny": deny });
        fields.insert("confirm".to_owned(), confirm);
    }
    button
}

/// The button that ends one watcher.
pub(super) fn cancel(action: &str, value: &str) -> Value {
    danger(
        button("Cancel", action, value),
        [
            "Cancel this watcher?",
            "It is ended at once. What it has done so far stays done.",
            "Cancel it",
            "Let it run",
        ],
    )
}

/// As much of a name or line as is shown.
pub(super) fn short(text: &str) -> String {
    if text.chars().count() <= SHORT_CHARS_MAX {
        return text.to_owned();
    }
    text.chars().take(SHORT_CHARS_MAX - 1).chain(['…']).collect()
}
