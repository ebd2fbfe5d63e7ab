use std::fmt::Write as _;
use std::slice::from_ref;

use serde_json::{Value, json};

use super::*;
use crate::core::egress::Access;
use crate::core::execution::{
    Address, Execution, Exit, Home, HumanReceipt, Kind, ModelReceipt, Outcome, State, Status,
};
use crate::core::id::{BootId, ExecutionId, FileId, Principal, SessionId};
use crate::core::ledger::Refusal;
use crate::core::limits::{CODE_BYTES_MAX, TOOL_ARGUMENTS_BYTES_MAX};
use crate::core::output::Captured;
use crate::core::time::Timestamp;
use crate::ports::{FileError, FileText, Glance, LaunchError, SyntaxFault};

fn all() -> Vec<Tool> {
    toolbox(&Wiring::all())
}

fn refusal(tool: &str, arguments: &str) -> ToolError {
    parse(&all(), tool, arguments).expect_err(arguments)
}

/// Every case with the error that the model reads, in one text.
fn errors(tool: &str, cases: &[(&str, String)]) -> String {
    let mut text = String::new();
    for (case, arguments) in cases {
        let error = refusal(tool, arguments);
        let json = serde_json::to_string_pretty(&error.to_result()).unwrap();
        assert!(json.len() < 2_000, "{case}: an error stays short: {} bytes", json.len());
        assert!(!error.retryable, "{case}: the same arguments will be refused again");
        writeln!(text, "## {case}\n{json}").unwrap();
    }
    text
}

fn start(change: impl FnOnce(&mut serde_json::Map<String, Value>)) -> String {
    let mut arguments = json!({
        "name": "Watch deployment abc123",
        "python": "print('healthy')",
        "timeout_seconds": 600,
    });
    change(arguments.as_object_mut().unwrap());
    arguments.to_string()
}

fn with(field: &str, value: impl Into<Value>) -> String {
    start(|fields| drop(fields.insert(field.to_owned(), value.into())))
}

fn without(field: &str) -> String {
    start(|fields| drop(fields.shift_remove(field)))
}

fn raw_timeout(text: &str) -> String {
    format!(r#"{{"name":"n","python":"pass","timeout_seconds":{text}}}"#)
}

#[test]
fn peer_d01_every_malformed_argument_is_refused_with_its_name_and_cure() {
    let cases = [
        ("name missing", without("name")),
        ("name null", with("name", Value::Null)),
        ("name a number", with("name", 7)),
        ("name empty", with("name", "")),
        ("name white space", with("name", " \t\n ")),
        ("name of 201 characters", with("name", "ä".repeat(201))),
        ("NUL in name", with("name", "a\0b")),
        ("line break in name", with("name", "a\nb")),
        ("line separator in name", with("name", "a\u{2028}b")),
        ("python missing", without("python")),
        ("python an array", with("python", json!(["print(1)"]))),
        ("python empty", with("python", "")),
        ("python too long", with("python", "#".repeat(CODE_BYTES_MAX + 1))),
        ("NUL in python", with("python", "print('\0')")),
        ("timeout missing", without("timeout_seconds")),
        ("timeout null", with("timeout_seconds", Value::Null)),
        ("timeout a string", with("timeout_seconds", "600")),
        ("timeout a boolean", with("timeout_seconds", true)),
        ("timeout zero", with("timeout_seconds", 0)),
        ("timeout negative", with("timeout_seconds", -5)),
        ("timeout a fraction", with("timeout_seconds", 1.5)),
        ("timeout a negative fraction", with("timeout_seconds", -0.5)),
        ("timeout one too many", with("timeout_seconds", 86_401)),
        ("timeout huge", raw_timeout("99999999999999999999999")),
        ("timeout beyond any number", raw_timeout("1e999")),
        ("timeout not a number", raw_timeout("NaN")),
        ("notify another word", with("notify", "humans")),
        ("notify another type", with("notify", json!({}))),
        ("key empty", with("key", "  ")),
        ("key too long", with("key", "k".repeat(201))),
        ("key with a control character", with("key", "a\u{7}b")),
        ("extra field", with("cwd", "/tmp")),
        ("extra field, nearly a right one", with("timeoutSeconds", 5)),
        ("extra field with a strange name", with("a\nb\0c", 1)),
        ("hosts a string", with("hosts", "example.com")),
        ("hosts with a number", with("hosts", json!(["example.com", 5]))),
        ("a host that is an address of the web", with("hosts", json!(["https://example.com/x"]))),
        ("a secret as a credential", with("credentials", json!(["ghp_A1b2C3d4E5f6"]))),
    ];
    insta::assert_snapshot!(errors(trigger::NAME, &cases));
}

#[test]
fn arguments_that_are_not_one_object_are_refused() {
    let deep = format!("{}{}", "{\"a\":".repeat(10_000), "1");
    let cases = [
        ("null", "null".to_owned()),
        ("array", "[1]".to_owned()),
        ("string", "\"name\"".to_owned()),
        ("number", "5".to_owned()),
        ("nothing", String::new()),
        ("cut off", r#"{"name":"n","python":"import ti"#.to_owned()),
        ("line break in a text", "{\"name\":\"a\nb\"}".to_owned()),
        ("two objects", "{}{}".to_owned()),
        ("half a surrogate pair", r#"{"name":"\ud800"}"#.to_owned()),
        ("Python dict", "{'name': 'n'}".to_owned()),
        ("duplicate field", r#"{"name":"a","python":"1","timeout_seconds":1,"name":"b"}"#.into()),
        ("nested too deep", deep),
        ("a megabyte", with("python", "x".repeat(1024 * 1024))),
    ];
    insta::assert_snapshot!(errors(trigger::NAME, &cases));
}

#[test]
fn malformed_arguments_of_the_other_tools() {
    let mut text = errors(watch::LIST, &[("list with a field", r#"{"id":"x"}"#.to_owned())]);
    let cancel = [
        ("cancel without id", "{}".to_owned()),
        ("cancel all", r#"{"id":["a","b"]}"#.to_owned()),
        ("cancel another field", r#"{"execution_id":"auto-notify-watc-0001"}"#.to_owned()),
    ];
    text += &errors(watch::CANCEL, &cancel);
    let output = [
        ("output of no lines", r#"{"id":"a","tail_lines":0}"#.to_owned()),
        ("output of too many", r#"{"id":"a","tail_lines":1001}"#.to_owned()),
        ("output of some", r#"{"id":"a","tail_lines":"some"}"#.to_owned()),
    ];
    text += &errors(watch::OUTPUT, &output);
    let silent = [
        ("silent without a reason", String::new()),
        ("silent for an empty reason", r#"{"reason":" "}"#.to_owned()),
        ("silent for a long reason", json!({ "reason": "r".repeat(501) }).to_string()),
    ];
    text += &errors(silence::NAME, &silent);
    insta::assert_snapshot!(text);
}

#[test]
fn peer_d01_bounds_are_inside_and_the_name_is_trimmed() {
    let full = "ä".repeat(200);
    for (arguments, name, seconds) in [
        (start(|_| ()), "Watch deployment abc123", 600),
        (with("name", "  padded \n"), "padded", 600),
        (with("name", full.clone()), full.as_str(), 600),
        (raw_timeout("1"), "n", 1),
        (raw_timeout("86400"), "n", 86_400),
        (raw_timeout("60.0"), "n", 60),
        (raw_timeout("6e1"), "n", 60),
    ] {
        let Ok(Action::StartScript(script)) = parse(&all(), trigger::NAME, &arguments) else {
            panic!("{arguments}");
        };
        assert_eq!((script.name.as_str(), script.timeout_seconds), (name, seconds));
        assert_eq!((script.key, script.notify), (None, Notify::Agent));
    }
}

#[test]
fn optional_arguments_are_read_and_null_is_absence() {
    let arguments = start(|fields| {
        fields.insert("key".into(), "deploy".into());
        fields.insert("notify".into(), "both".into());
    });
    let Ok(Action::StartScript(script)) = parse(&all(), trigger::NAME, &arguments) else {
        panic!()
    };
    assert_eq!(script.key.unwrap().as_str(), "deploy");
    assert_eq!(script.notify, Notify::Both);
    let Ok(Action::StartScript(script)) = parse(&all(), trigger::NAME, &with("key", Value::Null))
    else {
        panic!()
    };
    assert_eq!(script.key, None);
    for nothing in ["", " ", "{}"] {
        assert_eq!(parse(&all(), watch::LIST, nothing), Ok(Action::ListWatchers));
    }
    assert_eq!(
        parse(&all(), watch::OUTPUT, r#"{"id":" a "}"#),
        Ok(Action::WatcherOutput { id: "a".into(), tail_lines: 40 })
    );
}

#[test]
fn the_largest_script_passes_even_when_a_third_of_it_is_escaped() {
    let python = "a\\\n".repeat(CODE_BYTES_MAX / 3);
    let arguments = with("python", python.clone());
    assert!(arguments.len() < TOOL_ARGUMENTS_BYTES_MAX);
    let Ok(Action::StartScript(script)) = parse(&all(), trigger::NAME, &arguments) else {
        panic!()
    };
    assert_eq!(script.python, python);
}

#[test]
fn names_are_matched_exactly_among_those_declared() {
    let all = all();
    for name in ["trigger_and_auto_notify ", "Watch__list", "watch__", "", "functions.watch__list"]
    {
        let error = parse(&all, name, "{}").unwrap_err();
        assert_eq!(error.code, Code::UnknownTool, "{name}");
        assert!(error.hint.contains(watch::LIST), "{}", error.hint);
    }
    assert!(parse(&all, "watch_list", "{}").unwrap_err().hint.contains("'watch__list'"));
    let long = parse(&all, &"x\n".repeat(100_000), "{}").unwrap_err();
    assert!(long.message.len() < 600 && !long.message.contains('\n'));
    let none = parse(&[], watch::LIST, "{}").unwrap_err();
    assert_eq!(none.hint, "No tools can be called now; answer in text.");
}

#[test]
fn a_read_only_agent_sees_no_tool_that_writes() {
    let wiring = Wiring { role: Role::ReadOnly, ..Wiring::all() };
    let tools = toolbox(&wiring);
    let names: Vec<_> = tools.iter().map(|tool| tool.spec().name.as_str()).collect();
    assert_eq!(names, [watch::LIST, watch::OUTPUT, silence::NAME, file::NAME]);
    assert!(tools.iter().all(|tool| !tool.writes()));
    for hidden in [trigger::NAME, watch::CANCEL] {
        assert_eq!(find(&tools, hidden).unwrap_err().code, Code::UnknownTool);
        for tool in &tools {
            assert!(
                !tool.spec().description.contains(hidden),
                "{} names {hidden}",
                tool.spec().name
            );
        }
    }
}

#[test]
fn families_that_are_not_wired_are_not_declared() {
    let only = |families| toolbox(&Wiring { families, ..Wiring::all() });
    assert!(only(vec![]).is_empty());
    assert_eq!(only(vec![Family::Silence, Family::Silence]).len(), 1);
    assert_eq!(only(vec![Family::Watch]).len(), 4);
}

#[test]
fn declared_schemas() {
    insta::assert_json_snapshot!(schema());
    for tool in all() {
        assert_eq!(tool.spec().parameters["additionalProperties"], false);
        assert_eq!(tool.spec().parameters["type"], "object");
    }
}

#[test]
fn peer_d03_the_readable_part_of_an_id() {
    for (name, prefix) in [
        ("Watch deployment abc123", "auto-notify-watc"),
        ("CI", "auto-notify-ci"),
        ("a-b c_d e", "auto-notify-abcd"),
        ("42", "auto-notify-42"),
        ("../../etc/passwd", "auto-notify-etcp"),
        ("Überwachung", "auto-notify-berw"),
        ("監視", "auto-notify-work"),
        ("—", "auto-notify-work"),
    ] {
        assert_eq!(trigger::id_prefix(name), prefix, "{name}");
    }
}

fn execution(id: &str, state: State) -> Execution {
    Execution {
        id: ExecutionId::new(id).unwrap(),
        kind: Kind::Script,
        name: "Watch deployment".into(),
        turn: 1,
        call: (0, 0),
        owner: Principal::new("ada").unwrap(),
        generation: 0,
        chain: 1,
        address: Address { surface: "console".into(), thread: "main".into() },
        home: Home::Process(BootId::new("boot").unwrap()),
        boot: BootId::new("boot").unwrap(),
        notify: Notify::Agent,
        key: None,
        timeout_ms: 600_000,
        state,
        cancel: None,
        registered_at: Timestamp::from_ms(1_000),
        started_at: Some(Timestamp::from_ms(2_000)),
        ended_at: None,
        due_at: Timestamp::from_ms(1_000_000),
        unattended: false,
        model: ModelReceipt::None,
        human: HumanReceipt::None,
        late: vec![],
        shown: false,
        shared: false,
        access: Access::default(),
    }
}

fn captured(head: &str, tail: &str, missing_bytes: u64) -> Captured {
    let bytes = u64::try_from(head.len() + tail.len()).unwrap() + missing_bytes;
    Captured { head: head.into(), tail: tail.into(), bytes, missing_bytes }
}

fn failed() -> Outcome {
    Outcome {
        exit: Some(Exit::Code(3)),
        reason: None,
        stdout: captured("one\ntwo\n", "eight\nnine\n", 4_096),
        stderr: captured("Traceback\n", "", 0),
        elapsed_ms: 12_345,
        leftovers_killed: 2,
        ..Outcome::bare(Status::Failed, "")
    }
}

#[test]
fn peer_d02_results_of_calls_that_worked() {
    let now = Timestamp::from_ms(62_000);
    let running = execution("auto-notify-watc-0001", State::Running);
    let mut ended = execution("auto-notify-watc-0002", State::Ended(failed()));
    ended.ended_at = Some(Timestamp::from_ms(50_000));
    ended.notify = Notify::Both;
    ended.key = Some(SupersessionKey::new("deploy").unwrap());
    let glance =
        Glance { stdout: captured("a\nb\nc\nd\n", "", 0), stalled: true, ..Glance::default() };
    insta::assert_json_snapshot!(json!({
        "started": trigger::started(&running.id, &running.name),
        "listed": watch::listed(from_ref(&running), from_ref(&ended), now),
        "nothing listed": watch::listed(&[], &[], now),
        "output while it runs": watch::output(&running, Some(&glance), 2, now),
        "output not seen": watch::output(&running, None, 2, now),
        "output after the end": watch::output(&ended, None, 3, now),
        "cancelled": watch::cancelled(&running, &failed()),
        "cancelling": watch::cancelling(&running),
        "silent": silence::accepted(),
    }));
}

#[test]
fn b40_work_of_others_is_named_with_its_owner() {
    let ours = execution("auto-notify-watc-0001", State::Running);
    let mut theirs = execution("auto-notify-watc-0002", State::Running);
    theirs.owner = Principal::new("slack/T1/U2").unwrap();
    let listed = watch::listed(&[ours, theirs.clone()], &[], Timestamp::from_ms(62_000));
    let owners: Vec<_> = listed["watchers"].as_array().unwrap().iter().collect();
    let owners: Vec<_> = owners.into_iter().map(|row| row["owner"].as_str().unwrap()).collect();
    assert_eq!(owners, ["ada", "slack/T1/U2"]);
    insta::assert_json_snapshot!(json!({
        "cancel": watch::foreign(&theirs.owner).to_result(),
        "key": trigger::refused(&Refusal::Foreign(theirs.owner)).to_result(),
    }));
}

#[test]
fn b11_what_was_not_done_is_never_told_as_done() {
    let refusals = [
        Refusal::Stopped,
        Refusal::Cap { what: "too many executions are live", limit: 50 },
        Refusal::Full(256),
        Refusal::Conflict,
        Refusal::Fenced,
        Refusal::Unknown,
    ];
    let mut text = String::new();
    let over = execution("auto-notify-watc-0002", State::Ended(failed()));
    let fault = SyntaxFault { line: 2, message: "'(' was never closed".into() };
    let nowhere = SyntaxFault { line: 0, message: "source code cannot be decoded".into() };
    let mut all: Vec<_> = refusals.iter().map(trigger::refused).collect();
    all.push(trigger::not_launched(&LaunchError { what: "no such file: python3".into() }));
    all.push(trigger::syntax_error(&fault, "import time\nprint(\n"));
    all.push(trigger::syntax_error(&nowhere, "x"));
    all.push(watch::already_over(&over));
    all.push(watch::unavailable("the store does not answer"));
    for error in all {
        let result = error.to_result();
        assert!(result.get("status").is_none() && result.get("execution_id").is_none());
        writeln!(text, "{}", serde_json::to_string_pretty(&result).unwrap()).unwrap();
    }
    insta::assert_snapshot!(text);
}

#[test]
fn an_id_is_understood_in_its_own_session_only() {
    let own = SessionId::new("console/main").unwrap();
    let id = |written: &str| watch::resolve(&own, written).map(|id| id.to_string());
    assert_eq!(id("auto-notify-watc-0001"), Ok("auto-notify-watc-0001".into()));
    assert_eq!(id("console/main/auto-notify-watc-0001"), Ok("auto-notify-watc-0001".into()));
    for other in ["console/other/auto-notify-watc-0001", "../x", "console/main/a/b"] {
        assert_eq!(id(other).unwrap_err().code, Code::OtherSession, "{other}");
    }
    assert_eq!(id(&"x".repeat(300)).unwrap_err().code, Code::TooLong);
    assert_eq!(id("console/main/").unwrap_err().code, Code::Empty);
}

#[test]
fn an_unknown_id_gets_what_was_meant_or_what_there_is() {
    let known = [execution("auto-notify-watc-0001", State::Running)];
    let hint =
        |id: &str, known: &[Execution]| watch::unknown(&ExecutionId::new(id).unwrap(), known).hint;
    let meant = "Did you mean 'auto-notify-watc-0001'? watch__list shows all.";
    assert_eq!(hint("auto-notify-watch-1", &known), meant);
    assert_eq!(hint("watch deployment", &known), meant);
    assert_eq!(hint("job_77", &known), "watch__list shows what there is: auto-notify-watc-0001.");
    assert!(hint("job_77", &[]).starts_with("Nothing was started"));
}

proptest::proptest! {
    /// Whatever a model writes, it gets an action or a short error, and what is accepted is
    /// within the declared bounds.
    #[test]
    fn any_arguments_are_an_action_or_a_short_error(
        tool in 0usize..5,
        name in proptest::option::of(".{0,300}"),
        python in proptest::option::of("(?s).{0,40}"),
        seconds in proptest::option::of("-?[0-9]{1,12}(\\.[0-9])?|\"[0-9]\"|null|\\[\\]"),
        noise in "(?s).{0,20}",
        cut in proptest::option::of(0usize..40),
    ) {
        let mut fields = Vec::new();
        if let Some(name) = &name {
            fields.push(format!("\"name\":{}", json!(name)));
        }
        if let Some(python) = &python {
            fields.push(format!("\"python\":{}", json!(python)));
        }
        if let Some(seconds) = seconds {
            fields.push(format!("\"timeout_seconds\":{seconds}"));
        }
        let mut arguments = format!("{{{}}}", fields.join(","));
        if let Some(cut) = cut {
            arguments = arguments.chars().take(cut).collect::<String>() + &noise;
        }
        let tools = all();
        match tools[tool].parse(&arguments) {
            Ok(Action::StartScript(script)) => {
                assert!((1..=86_400).contains(&script.timeout_seconds));
                assert!(!script.name.is_empty() && script.name.chars().count() <= 200);
                assert_eq!(script.name.trim(), script.name);
                assert!(!script.name.contains('\n') && !script.python.contains('\0'));
                assert!(ExecutionId::new(trigger::id_prefix(&script.name)).is_ok());
            }
            Ok(_) => {}
            Err(error) => assert!(error.to_result().to_string().len() < 2_000),
        }
    }
}

#[test]
fn read_file_takes_an_id_and_a_line() {
    for (arguments, code) in [
        ("{}", Code::MissingField),
        (r#"{"name":"build.log"}"#, Code::UnknownField),
        (r#"{"file":""}"#, Code::Empty),
        (r#"{"file":"F1","from_line":0}"#, Code::OutOfRange),
        (r#"{"file":"F1","path":"/etc/passwd"}"#, Code::UnknownField),
    ] {
        assert_eq!(refusal(file::NAME, arguments).code, code, "{arguments}");
    }
    let id = FileId::new("F1").unwrap();
    let wanted = Action::ReadFile { file: id, from_line: 1 };
    assert_eq!(parse(&all(), file::NAME, r#"{"file":" F1 ","from_line":null}"#), Ok(wanted));
}

#[test]
fn a_file_beyond_its_end_and_every_reason_teach() {
    let id = FileId::new("F1").unwrap();
    let text = "one\ntwo\n".to_owned();
    let found = FileText { name: "a.log".into(), kind: "text/plain".into(), bytes: 8, text };
    let past = file::shown(&id, &found, 3).unwrap_err();
    assert_eq!((past.code, past.field.as_deref()), (Code::OutOfRange, Some("from_line")));
    assert_eq!(file::shown(&id, &found, 2).unwrap()["text"], "two");
    for error in [
        FileError::Unknown,
        FileError::Gone,
        FileError::NotText { kind: "image/png".into() },
        FileError::Elsewhere,
        FileError::Large { bytes: 300_000, max: 1 },
        FileError::Forbidden { what: "no scope".into() },
        FileError::Away { what: "no answer".into() },
    ] {
        let told = file::unread(&id, &error);
        assert!(told.message.contains(&error.to_string()) && !told.hint.is_empty());
        assert_eq!(told.retryable, matches!(error, FileError::Away { .. }), "{error}");
    }
}
