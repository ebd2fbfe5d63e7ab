use std::collections::BTreeSet;

use super::*;
use crate::core::execution::Status;
use crate::core::transcript::{Finish, Usage};

const DOCUMENTED: &str = include_str!("../../../config/prometheus/metrics.md");

fn metrics() -> Metrics {
    Metrics::new(vec!["watch__list".to_owned()])
}

fn gauges() -> Gauges {
    Gauges { stored: Some(Stored::default()), store_bytes: Some(4_096), ..Gauges::default() }
}

/// Every fact and event there is, once.
fn all_once(metrics: &Metrics) {
    let sorts = [Sort::Message, Sort::Remark, Sort::Completion];
    let deliveries =
        [Delivery::Opened { waited_ms: 400 }, Delivery::Steered, Delivery::Retried, Delivery::Dead];
    let mut facts = vec![Fact::AttemptFailed, Fact::Registered(Kind::Script)];
    facts.extend(sorts.map(Fact::Arrived));
    for sort in sorts {
        facts.extend(deliveries.map(|delivery| Fact::Woke(sort, delivery)));
    }
    facts.extend([false, true].map(|resumed| Fact::Claimed { resumed }));
    for origin in [Origin::Human, Origin::Synthetic] {
        let ends = [TurnEnd::Committed, TurnEnd::Dead, TurnEnd::Stopped];
        facts.extend(ends.map(|end| Fact::TurnEnded { origin, end, ms: 1_500 }));
    }
    let ends = [
        Status::Completed,
        Status::Failed,
        Status::TimedOut,
        Status::Cancelled,
        Status::Lost,
        Status::Superseded,
    ];
    facts.extend(ends.map(|status| Fact::Ended { kind: Kind::Script, status, ms: 2_000 }));
    for sort in [PostSort::Answer, PostSort::Woken, PostSort::Human, PostSort::Failure] {
        let ends = [PostEnd::Done { after_ms: 20 }, PostEnd::Retried, PostEnd::Dead];
        facts.extend(ends.map(|end| Fact::Posted(sort, end)));
    }
    metrics.wrote(&facts);
    let ends = [ApplyEnd::Applied, ApplyEnd::Conflict, ApplyEnd::Already, ApplyEnd::Failed];
    for end in ends {
        metrics.applied(end, 3);
    }
    metrics.called("watch__list", true, 1);
    metrics.called("no such tool \n", false, 1);
    let usage = Usage { input_tokens: 100, output_tokens: 7, reported: true };
    let answer = Answer { text: String::new(), calls: vec![], finish: Finish::Stop, usage };
    metrics.asked(&Ok(answer), 900);
    let what = String::new;
    metrics.asked(&Err(ModelError::Outage { what: what(), retry_after_ms: None }), 1);
    metrics.asked(&Err(ModelError::Garbled { what: what() }), 1);
    metrics.asked(&Err(ModelError::Refused { what: what() }), 1);
}

/// The families in a text, as their samples name them but for a histogram's parts.
fn names(text: &str) -> BTreeSet<String> {
    let sample = |line: &str| line.split(['{', ' ']).next().unwrap().to_owned();
    let family = |name: String| {
        let parts = ["_bucket", "_sum", "_count"];
        parts.iter().find_map(|part| name.strip_suffix(part)).map_or(name.clone(), str::to_owned)
    };
    text.lines().filter(|line| !line.starts_with('#')).map(sample).map(family).collect()
}

#[test]
fn each_metric_is_documented_and_each_documented_one_is_there() {
    let metrics = metrics();
    all_once(&metrics);
    let documented: BTreeSet<String> = DOCUMENTED
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split('`').next().map(str::to_owned))
        .collect();
    assert_eq!(names(&metrics.text(&gauges())), documented);
}

#[test]
fn each_label_value_is_documented_with_its_metric() {
    let metrics = metrics();
    all_once(&metrics);
    let value = regex::Regex::new(r#"(\w+)="([^"]*)""#).unwrap();
    for line in metrics.text(&gauges()).lines().filter(|line| !line.starts_with('#')) {
        for found in value.captures_iter(line) {
            let (label, value) = (&found[1], &found[2]);
            if matches!(label, "le" | "version" | "tool") {
                continue;
            }
            let listed = DOCUMENTED.lines().any(|line| {
                line.split(['|', ';']).any(|cell| {
                    let cell = cell.trim().trim_start_matches('`');
                    let values =
                        cell.strip_prefix(label).and_then(|rest| rest.strip_prefix("` = "));
                    values.is_some_and(|values| values.split(", ").any(|one| one == value))
                })
            });
            assert!(listed, "{label}={value} of {line}");
        }
    }
}

#[test]
fn nobodys_text_makes_a_series() {
    let metrics = metrics();
    for number in 0..100 {
        metrics.called(&format!("tool_{number}"), false, 1);
    }
    let text = metrics.text(&gauges());
    assert!(
        text.contains(r#"dogwatch_tool_calls_total{tool="other",outcome="error"} 100"#),
        "{text}"
    );
    assert_eq!(text.matches("dogwatch_tool_calls_total{").count(), 1);
}

#[test]
fn a_store_that_is_away_keeps_the_last_values_and_says_so() {
    let metrics = metrics();
    let stored = Stored { running: 3, queue: 2, queue_ms: 1_500, ..Stored::default() };
    metrics.text(&Gauges { stored: Some(stored), ..gauges() });
    let text = metrics.text(&Gauges { stored: None, ..gauges() });
    for line in [
        "dogwatch_store_up 0",
        r#"dogwatch_watchers{state="running"} 3"#,
        "dogwatch_wakeup_queue_depth 2",
        "dogwatch_wakeup_oldest_age_seconds 1.5",
    ] {
        assert!(text.lines().any(|it| it == line), "{line} is not in\n{text}");
    }
}
