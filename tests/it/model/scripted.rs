//! The scripted model: what it matches, what it counts, and how it speaks of a bad playbook.

use std::fmt::Write as _;
use std::sync::Arc;

use dogwatch::core::message::{Answer, Delta, Message, ModelError, Request, ToolSpec};
use dogwatch::core::transcript::{Call, Finish};
use dogwatch::model::{Chosen, Playbook, Scripted, Settings};
use dogwatch::ports::Model;
use pretty_assertions::assert_eq;
use serde_json::{Value, json};

use super::{ask, patiently};
use crate::support::manual_clock::ManualClock;

const STORY: &str = r#"
name = "story"

[[rule]]
name = "start"
when = { person = '(?i)watch (?<what>\w+) for (\d+)' }
text = "I will."
[[rule.calls]]
tool = "trigger_and_auto_notify"
arguments = { name = "Watch {what}", python = "d = {'a': '{1}'}", deep = [{ seconds = "{2}" }] }
[[rule.calls]]
tool = "watch__list"

[[rule]]
when = { tool = "trigger_and_auto_notify", result = '"id":"([^"]+)"' }
text = "Started {1}."

[[rule]]
when = { notice = 'AUTO-NOTIFICATION. (.*)' }
text = "News: {1}"

[[rule]]
when = { person = "broken" }
calls = [{ tool = "watch__list", arguments = '{"a": tru' }]

[[rule]]
when = { person = "^twice$" }
times = 2
text = "one of two"

[[rule]]
when = { person = "^twice$" }
text = "no more"

[[rule]]
when = { person = "^away$" }
times = 2
text = "half an"
fail = "outage"
retry_after_ms = 7

[[rule]]
when = { any = "refuse|garble" }
times = 1
fail = "refused"

[[rule]]
when = { any = "garble" }
fail = "garbled"

[[rule]]
when = { person = "^away$" }
text = "back"
"#;

const INTRODUCTION: &str = "(The script `story` answers here, not a language model.)\n\n";

fn story() -> Scripted {
    Scripted::new(Playbook::parse(STORY).unwrap(), Arc::new(ManualClock::new()))
}

fn person(text: &str) -> Message {
    Message::Person(text.to_owned())
}

fn said(answer: &Answer) -> Message {
    Message::Model { text: answer.text.clone(), calls: answer.calls.clone() }
}

fn result(name: &str, content: &Value) -> Message {
    let (call_id, content) = ("x".to_owned(), content.to_string());
    Message::Tool { call_id, name: name.to_owned(), content }
}

/// A chat that keeps its log, as the engine does.
#[derive(Default)]
struct Chat(Vec<Message>);

impl Chat {
    async fn hear(&mut self, model: &impl Model, news: Message) -> Result<Answer, ModelError> {
        self.0.push(news);
        let (result, _) = ask(model, &self.request()).await;
        self.0.extend(result.as_ref().ok().map(said));
        result
    }

    async fn text(&mut self, model: &impl Model, news: Message) -> String {
        self.hear(model, news).await.unwrap().text
    }

    fn request(&self) -> Request {
        let tool = ToolSpec {
            name: "watch__list".to_owned(),
            description: String::new(),
            parameters: json!({}),
        };
        Request { agent: "main".to_owned(), messages: self.0.clone(), tools: vec![tool] }
    }
}

#[tokio::test]
async fn fills_what_it_matched_into_text_and_arguments() {
    let (model, mut chat) = (story(), Chat::default());
    let answer = chat.hear(&model, person("Watch deploy for 30 s")).await.unwrap();
    let calls: Vec<(&str, Value)> = answer
        .calls
        .iter()
        .map(|call| (call.name.as_str(), serde_json::from_str(&call.arguments).unwrap()))
        .collect();
    let arguments = json!({
        "name": "Watch deploy",
        "python": "d = {'a': 'deploy'}",
        "deep": [{ "seconds": "30" }],
    });
    assert_eq!(calls, [("trigger_and_auto_notify", arguments), ("watch__list", json!({}))]);
    assert_eq!((answer.text.as_str(), answer.finish), ("I will.", Finish::ToolCalls));
    assert!(answer.calls[0].id != answer.calls[1].id && !answer.usage.reported);

    let started = result("trigger_and_auto_notify", &json!({ "id": "auto-1" }));
    assert_eq!(chat.text(&model, started).await, format!("{INTRODUCTION}Started auto-1."));
}

#[tokio::test]
async fn finds_a_notice_by_itself_or_merged_into_a_result() {
    let model = story();
    for news in [
        Message::Report("[AUTO-NOTIFICATION] done\nmore".to_owned()),
        result("watch__list", &json!({ "system_notifications": "[AUTO-NOTIFICATION] done" })),
        result(
            "watch__list",
            &json!({ "x": 1, "system_notifications": ["a", { "t": "[AUTO-NOTIFICATION] done" }] }),
        ),
    ] {
        let text = Chat::default().text(&model, news).await;
        assert_eq!(text, format!("{INTRODUCTION}News: done"));
    }
    // A person who writes the same is no notice.
    let text = Chat::default().text(&model, person("[AUTO-NOTIFICATION] done")).await;
    assert!(text.contains("no rule for this"), "{text}");
}

#[tokio::test]
async fn only_what_came_after_the_last_answer_is_news() {
    let (model, mut chat) = (story(), Chat::default());
    chat.text(&model, Message::Report("[AUTO-NOTIFICATION] old".to_owned())).await;
    let text = chat.text(&model, person("hm")).await;
    assert_eq!(
        text,
        "My script has no rule for this. Its rules: start, rule 2, rule 3, rule 4, rule 5, \
         rule 6, rule 7, rule 8, rule 9, rule 10."
    );
}

#[tokio::test]
async fn the_newest_of_several_is_found_first() {
    let request = Chat(vec![person("watch a for 1"), person("watch b for 2"), person("hm")]);
    let answer = ask(&story(), &request.request()).await.0.unwrap();
    assert!(answer.calls[0].arguments.contains("Watch b"), "{answer:?}");
}

#[tokio::test]
async fn says_once_in_each_chat_that_it_is_a_script() {
    let (model, mut chat) = (story(), Chat::default());
    let playbook = Playbook::parse(STORY).unwrap();
    let chosen = Chosen::new(Settings::Scripted(playbook), Arc::new(ManualClock::new())).unwrap();
    assert_eq!(chosen.describe(), "the script `story`, not a language model");
    assert!(chat.text(&model, person("hm")).await.starts_with(INTRODUCTION));
    assert!(!chat.text(&model, person("hm")).await.starts_with(INTRODUCTION));
    assert!(Chat::default().text(&model, person("hm")).await.starts_with(INTRODUCTION));
}

#[tokio::test]
async fn times_are_counted_in_the_chat_so_a_new_process_goes_on() {
    let mut chat = Chat::default();
    let mut texts = Vec::new();
    for news in ["twice", "hm", "twice", "twice", "twice"] {
        // A model without memory of what was before.
        texts.push(chat.text(&story(), person(news)).await.replace(INTRODUCTION, ""));
    }
    texts.remove(1);
    assert_eq!(texts, ["one of two", "one of two", "no more", "no more"]);
    let text = Chat::default().text(&story(), person("twice")).await;
    assert_eq!(text, format!("{INTRODUCTION}one of two"));
}

#[tokio::test]
async fn fails_as_often_as_it_is_told() {
    let (model, mut chat) = (story(), Chat::default());
    chat.0.push(person("away"));
    for _ in 0..2 {
        let (result, heard) = ask(&model, &chat.request()).await;
        let what = "the script says so".to_owned();
        assert_eq!(result, Err(ModelError::Outage { what, retry_after_ms: Some(7) }));
        assert_eq!(heard, ["half ", "an"].map(|word| Delta::Text(word.to_owned())));
    }
    let (result, _) = ask(&model, &chat.request()).await;
    assert_eq!(result.unwrap().text, format!("{INTRODUCTION}back"));

    let refused = Chat::default().hear(&model, person("refuse")).await;
    assert!(matches!(refused, Err(ModelError::Refused { .. })), "{refused:?}");
    let mut chat = Chat(vec![person("garble")]);
    let first = ask(&model, &chat.request()).await.0;
    assert!(matches!(first, Err(ModelError::Refused { .. })), "{first:?}");
    let second = chat.hear(&model, person("garble")).await;
    assert!(matches!(second, Err(ModelError::Refused { .. })), "another request: {second:?}");
    let third = ask(&model, &chat.request()).await.0;
    assert!(matches!(third, Err(ModelError::Garbled { .. })), "{third:?}");
}

#[tokio::test]
async fn can_break_its_arguments_and_calls_nothing_without_tools() {
    let model = story();
    let mut request = Chat(vec![person("broken")]).request();
    let answer = ask(&model, &request).await.0.unwrap();
    assert_eq!(
        answer.calls.iter().map(|c| c.arguments.as_str()).collect::<Vec<_>>(),
        ["{\"a\": tru"]
    );
    request.tools.clear();
    let answer = ask(&model, &request).await.0.unwrap();
    assert_eq!((answer.calls, answer.finish), (Vec::<Call>::new(), Finish::Stop));
}

#[tokio::test]
async fn speaks_at_the_pace_of_its_clock() {
    let clock = ManualClock::new();
    let text = "name = 'slow'\n[[rule]]\ntext = 'a b'\ndelay_ms = 50\ncalls = [{ tool = 't' }]";
    let model = Scripted::new(Playbook::parse(text).unwrap(), Arc::new(clock.clone()));
    let request = Chat(vec![person("go")]).request();
    let moves = async {
        for count in 1..=3 {
            assert_eq!(clock.sleeps(count).await.last(), Some(&50));
            clock.advance(50);
        }
    };
    let ((result, heard), ()) = tokio::join!(ask(&model, &request), patiently(moves));
    assert_eq!(result.unwrap().calls.len(), 1);
    assert_eq!(heard.len(), 3);
}

#[test]
fn a_bad_playbook_is_told_where_and_how_to_mend_it() {
    let bad = [
        "",
        "[[rule]\n",
        "nam = 'x'\n[[rule]]\ntext = 'a'",
        "[[rule]]\ntex = 'a'",
        "[[rule]]\ntext = 3",
        "[[rule]]\nname = 'idle'",
        "[[rule]]\ntext = ''\ncalls = []",
        "[[rule]]\ntext = 'a'\n\n[[rule]]\ntext = 'b'",
        "[[rule]]\ntext = 'a'\nwhen = {}",
        "[[rule]]\ntext = 'a'\nwhen = { persn = 'a' }",
        "[[rule]]\ntext = 'a'\nwhen = { person = '(a' }",
        "[[rule]]\ntext = 'a'\n[rule.when]\n\nnotice = '[AUTO'",
        "[[rule]]\ntext = 'a'\ntimes = 0",
        "[[rule]]\ntext = 'a'\ntimes = -1",
        "[[rule]]\ntext = 'a'\ndelay_ms = 999999",
        "[[rule]]\nfail = 'sometimes'",
        "[[rule]]\nfail = 'refused'\nretry_after_ms = 5",
        "[[rule]]\ntext = 'a'\nretry_after_ms = 5",
        "[[rule]]\nfail = 'outage'\ncalls = [{ tool = 'a' }]",
        "[[rule]]\ncalls = [{ arguments = {} }]",
        "[[rule]]\ncalls = [{ tool = 'a', args = {} }]",
        "[[rule]]\ncalls = [{ tool = 'a', arguments = [1] }]",
        "[[rule]]\nwhen = { person = '(a)' }\ntext = '{1} and {2}'",
    ];
    let mut told = String::new();
    for text in bad {
        let error = Playbook::parse(text).unwrap_err();
        writeln!(told, "{text}\n  => {error}\n").unwrap();
    }
    insta::assert_snapshot!(told);
    let long = "#".repeat(dogwatch::core::limits::PLAYBOOK_BYTES_MAX + 1);
    assert!(Playbook::parse(&long).unwrap_err().what.contains("bytes"));
}
