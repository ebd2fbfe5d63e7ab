use super::*;
use crate::core::id::ExecutionId;
use crate::core::time::Timestamp;
use crate::slack::tests::execution as sample;

fn execution(n: usize, channel: &str, state: State) -> Execution {
    let at = Timestamp::from_ms(1_700_000_100_000);
    let root = format!("17000000{:02}.0001", n % 100);
    let address = Thread::new("T1", channel, &root).unwrap().address();
    let one = sample(&format!("w-{n}"), &format!("deploy {n}"), state);
    Execution { address, registered_at: at, started_at: Some(at), ..one }
}

fn blocks(view: &Value) -> Vec<Value> {
    view.get("blocks").and_then(Value::as_array).cloned().unwrap()
}

fn cancels(view: &Value) -> usize {
    view.to_string().matches(CANCEL_HOME).count()
}

/// Nothing is longer or more than Slack takes.
fn fits(view: &Value) {
    let blocks = blocks(view);
    assert!(blocks.len() <= 100, "{}", blocks.len());
    for block in blocks {
        let text = block.pointer("/text/text").and_then(Value::as_str).unwrap_or_default();
        assert!(text.chars().count() <= 3_000, "{text}");
        let value = block.pointer("/accessory/value").and_then(Value::as_str).unwrap_or_default();
        assert!(value.len() <= 2_000, "{value}");
    }
}

#[test]
fn a_home_tab_shows_what_runs_where_and_how_to_begin() {
    let mut starting = execution(2, "D3", State::Registered);
    starting.started_at = None;
    let mut nasty = execution(4, "C9", State::Running);
    nasty.name = format!("<!channel> & *`\n{}", "x".repeat(300));
    nasty.unattended = true;
    let live = vec![
        execution(1, "C2", State::Running),
        starting,
        execution(3, "C2", State::Cancelling),
        nasty,
    ];
    let view = home(&Owned { live, taken: 5, cap: 20 }, Some("`w-3` is being ended."));
    fits(&view);
    assert_eq!(cancels(&view), 3, "what is being ended has no button");
    insta::assert_json_snapshot!(view);
}

#[test]
fn b40_an_empty_home_tab_says_how_to_begin() {
    let view = home(&Owned { live: vec![], taken: 0, cap: 20 }, None);
    let text = view.to_string();
    assert!(text.contains("Nothing of yours is running") && text.contains("To begin"), "{text}");
    assert_eq!(cancels(&view), 0);
}

#[test]
fn a_hundred_and_fifty_watchers_are_within_slacks_limits() {
    let long = |n| {
        let mut one = execution(n, "C0123456789", State::Running);
        one.id = ExecutionId::new(format!("{n}{}", "&".repeat(150))).unwrap();
        one.name = "<!channel>".repeat(30);
        one
    };
    let live: Vec<_> = (0..100).map(long).collect();
    let view = home(&Owned { live, taken: 150, cap: 10_000 }, Some(&"&amp;".repeat(600)));
    fits(&view);
    let text = view.to_string();
    assert_eq!(cancels(&view), SLACK_HOME_WATCHERS_MAX);
    assert!(text.contains("and 70 more") && text.contains("150 of your 10000 places"), "{text}");
    assert!(text.contains("and 85 threads"), "{text}");
    assert!(!text.contains("<!channel>"), "it calls nobody");
    assert!(text.len() < 250_000);
}
