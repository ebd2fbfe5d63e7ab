//! Tests of what `check-config` and `schema` say, through the library's own door.

use std::path::{Path, PathBuf};

use dogwatch::{config, tools};
use serde_json::Value;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).to_owned()
}

fn environment(name: &str) -> Option<String> {
    (name == "HOME").then(|| "/home/ada".to_owned())
}

#[test]
fn check_config_accepts_the_reference_and_says_that_scripts_run_unsandboxed() {
    let report = config::check_with(Some(&root().join("config/dogwatch.toml")), &environment);
    assert!(report.ok, "{}", report.to_text());
    assert_eq!(report.warnings.len(), 1);
    assert!(report.warnings[0].what.contains("unsandboxed"), "{}", report.to_text());
}

#[test]
fn check_config_says_the_same_to_people_and_to_programs() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("dogwatch.toml");
    std::fs::write(&file, "[limits]\nattempts = 0\nchain_wake = 1\n").expect("a file");
    let report = config::check_with(Some(&file), &environment);
    let text = report.to_text();
    let json = serde_json::to_value(&report).expect("JSON");
    assert_eq!(json["ok"], false);
    let errors = json["errors"].as_array().expect("a list");
    assert_eq!(errors.len(), 3, "{text}");
    for error in errors {
        assert!(text.contains(error["what"].as_str().expect("a text")), "{text}");
    }
    assert!(text.contains(&format!("{}:2:1: limits.attempts: 0 is out of range", file.display())));
    assert!(text.contains(&format!("{}:3:1: limits.chain_wake: ", file.display())));
    assert!(text.contains("Did you mean 'chain_wakes'?"));
    assert!(text.ends_with("3 errors"), "{text}");
}

/// Every description of an object in a schema refuses what it does not name.
fn open_objects(schema: &Value, path: &str, open: &mut Vec<String>) {
    if let Some(object) = schema.as_object() {
        let described = object.contains_key("properties");
        if described && object.get("additionalProperties") != Some(&Value::Bool(false)) {
            open.push(path.to_owned());
        }
        for (name, below) in object {
            open_objects(below, &format!("{path}/{name}"), open);
        }
    }
}

#[test]
fn schemas_refuse_unknown_fields_everywhere() {
    let mut open = Vec::new();
    open_objects(&config::schema(), "config", &mut open);
    for tool in tools::schema()["tools"].as_array().expect("a list") {
        open_objects(&tool["parameters"], tool["name"].as_str().expect("a name"), &mut open);
    }
    assert_eq!(open, Vec::<String>::new());
}

#[test]
fn the_example_of_each_error_is_itself_accepted() {
    let declared = tools::toolbox(&tools::Wiring::all());
    for tool in &declared {
        let name = &tool.spec().name;
        let error = tools::parse(&declared, name, "[]").expect_err("an array is no object");
        let example = error.example.expect("an example").to_string();
        tools::parse(&declared, name, &example).unwrap_or_else(|e| panic!("{name}: {e}"));
    }
}
