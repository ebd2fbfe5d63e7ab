use super::*;

fn logged(format: Format, filter: &str, speak: impl FnOnce()) -> String {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("dogwatch.log");
    let settings = Settings {
        format,
        filter: filter.to_owned(),
        sink: Sink::File(file.clone()),
        color: false,
        redactor: Redactor::new(vec!["hush-hush-secret".to_owned()]),
    };
    let (dispatch, guard) = build(settings).unwrap();
    tracing::dispatcher::with_default(&dispatch, speak);
    drop(guard);
    std::fs::read_to_string(file).unwrap()
}

#[test]
fn json_lines_keep_dotted_fields() {
    let text = logged(Format::Json, "info", || {
        tracing::info!(session.id = "console/main", turn.no = 7_u64, "a turn began");
        tracing::debug!("not shown");
    });
    let lines: Vec<serde_json::Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 1);
    assert_eq!(lines[0]["session.id"], "console/main");
    assert_eq!(lines[0]["turn.no"], 7);
    assert_eq!(lines[0]["message"], "a turn began");
}

#[test]
fn no_secret_leaves_by_either_format() {
    for format in [Format::Pretty, Format::Json] {
        let text = logged(format, "info", || {
            let span = tracing::info_span!("call", key = "hush-hush-secret");
            let _entered = span.enter();
            let error = std::io::Error::other("refused: hush-hush-secret");
            tracing::warn!(%error, header = ?("Bearer", "hush-hush-secret"), "hush-hush-secret!");
        });
        assert!(text.contains("refused"), "{text}");
        assert!(!text.contains("hush"), "{text}");
        if format == Format::Json {
            serde_json::from_str::<serde_json::Value>(text.trim()).unwrap();
        }
    }
}

#[test]
fn the_filter_chooses_by_module() {
    let text = logged(Format::Pretty, "warn,dogwatch::telemetry=debug", || {
        tracing::debug!("mine");
        tracing::info!(target: "hyper", "somebody else's");
    });
    assert!(text.contains("mine") && !text.contains("somebody"), "{text}");
}

#[test]
fn a_line_break_in_a_value_makes_no_second_line() {
    let text = logged(Format::Pretty, "info", || {
        let name = "x\r\n2026-01-01T00:00:00Z  INFO forged\u{1b}[2Jand wiped\u{2028}";
        tracing::info!(name, %name, ?name, "started {name}");
    });
    assert!(!text.contains('\u{1b}'), "{text:?}");
    assert_eq!(text.lines().count(), 1, "{text}");
}

#[test]
fn what_cannot_be_set_up_is_said() {
    let settings = |filter: &str, file: &str| Settings {
        format: Format::Pretty,
        filter: filter.to_owned(),
        sink: Sink::File(file.into()),
        color: false,
        redactor: Redactor::new(vec![]),
    };
    let filter = build(settings("dogwatch=loud", "/tmp/x")).map(drop).unwrap_err().to_string();
    assert!(filter.starts_with("the log filter 'dogwatch=loud' cannot be read"), "{filter}");
    let file = build(settings("info", "/proc/none/x.log")).map(drop).unwrap_err().to_string();
    assert!(file.starts_with("the log file /proc/none/x.log cannot be opened"), "{file}");
}
