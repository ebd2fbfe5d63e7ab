use super::*;
use crate::core::execution::Exit;
use crate::core::output::Captured;
use crate::slack::tests::execution as sample;

fn execution(name: &str, state: State) -> Execution {
    sample("auto-notify-watc-0001", name, state)
}

fn outcome(status: Status, exit: Option<Exit>, said: &str) -> State {
    State::Ended(Outcome {
        exit,
        reason: None,
        stdout: Captured { head: said.into(), bytes: said.len() as u64, ..Captured::default() },
        elapsed_ms: 182_000,
        ..Outcome::bare(status, "")
    })
}

/// As a reader sees it: texts and buttons, a line each.
fn seen(execution: &Execution, last: Option<&str>) -> String {
    let mut lines = vec![];
    for block in render(execution, last).blocks.as_array().unwrap() {
        let parts = block["elements"].as_array().cloned().unwrap_or_else(|| vec![block.clone()]);
        for part in parts {
            let text = part["text"].as_str().or(part["text"]["text"].as_str()).unwrap();
            lines.push(if part["type"] == "button" {
                format!("[{text}]")
            } else {
                text.to_owned()
            });
        }
    }
    lines.join("\n")
}

#[test]
fn a_watcher_is_shown_as_it_stands() {
    let states = [
        ("registered", State::Registered),
        ("running", State::Running),
        ("cancelling", State::Cancelling),
        ("completed", outcome(Status::Completed, Some(Exit::Code(0)), "healthy\n")),
        ("failed", outcome(Status::Failed, Some(Exit::Code(3)), "no route to <host> & more\n")),
        ("timed out", outcome(Status::TimedOut, Some(Exit::Signal(9)), "")),
        ("cancelled", outcome(Status::Cancelled, Some(Exit::Signal(15)), "half\n")),
        ("lost", outcome(Status::Lost, None, "")),
        ("superseded", outcome(Status::Superseded, None, "")),
    ];
    let all = states.map(|(name, state)| {
        format!("--- {name}\n{}", seen(&execution("Watch deployment abc123", state), None))
    });
    let running = execution("Watch deployment abc123", State::Running);
    let said =
        format!("--- running, having said something\n{}", seen(&running, Some("3 of 5 <up>")));
    insta::assert_snapshot!(format!("{}\n{said}", all.join("\n")));
}

#[test]
fn a_name_gives_slack_nothing_to_obey() {
    let name = "<!channel> & <@U1> ".repeat(20);
    for state in [State::Running, outcome(Status::Failed, Some(Exit::Code(1)), "<!here>")] {
        let rendered = render(&execution(&name, state), None);
        let all = format!("{} {}", rendered.text, rendered.blocks);
        assert!(
            !all.contains("<!channel") && !all.contains("<@") && !all.contains("<!here"),
            "{all}"
        );
        assert!(rendered.text.chars().count() < 3_000);
    }
}

#[test]
fn only_what_runs_can_be_cancelled_and_only_after_a_second_thought() {
    let rendered = render(&execution("w", State::Running), None);
    let button = &rendered.blocks[2]["elements"][0];
    assert_eq!(
        (button["action_id"].as_str(), button["value"].as_str()),
        (Some(CANCEL), Some("auto-notify-watc-0001"))
    );
    assert!(button["confirm"]["text"]["text"].is_string());
    for state in [State::Cancelling, outcome(Status::Completed, Some(Exit::Code(0)), "")] {
        let blocks = render(&execution("w", state), None).blocks;
        assert!(blocks.as_array().unwrap().iter().all(|block| block["type"] != "actions"));
    }
}
