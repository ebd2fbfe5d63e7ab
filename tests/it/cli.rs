//! The commands of the real program beside `chat` and `demo`: what they print, and their exit codes:
//! 0 ok, 1 failed, 64 usage, 78 configuration. At the end what `check-config` and `schema` say
//! through the library's own door.

// So that clippy knows the whole module as a test.
#![cfg(test)]

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use dogwatch::{config, tools};
use rusqlite::Connection;
use serde_json::Value;

use crate::support::fake_llm::{FakeLlm, Reply};
use crate::support::program::{Home, KEY, Ran};

const SCRIPTED: &str = "[watch]\nsandbox = \"off\"\n";
const COMMANDS: [&str; 8] =
    ["demo", "chat", "serve", "audit", "load", "doctor", "check-config", "schema"];

fn json(ran: &Ran) -> Value {
    serde_json::from_str(&ran.out).unwrap_or_else(|error| panic!("{error}: {ran:?}"))
}

/// What does not depend on the run: ports, processes, interpreters and names in the spool.
fn anonymous(text: &str) -> String {
    let cases = [
        (r"127\.0\.0\.1:\d+", "127.0.0.1:PORT"),
        (r"process \d+", "process PID"),
        (r"/\S*/python3[.\d]*", "PYTHON"),
        (r"spool/(e|s/\d+)/[0-9a-f]+", "spool/NAME"),
    ];
    cases.iter().fold(text.to_owned(), |text, (pattern, name)| {
        regex::Regex::new(pattern).unwrap().replace_all(&text, *name).into_owned()
    })
}

/// A home in which one watcher has run to its end.
fn lived_in() -> Home {
    let home = Home::new(SCRIPTED);
    let mut chat = home.chat(&["--wait"]);
    chat.say("check the backup");
    chat.ends_well();
    home
}

#[test]
fn each_help_is_known() {
    let home = Home::new("");
    let mut all = home.run(&["--help"]).out;
    for command in COMMANDS {
        let ran = home.run(&[command, "--help"]);
        assert_eq!((ran.code, ran.err.as_str()), (0, ""));
        write!(all, "\n--- {command}\n{}", ran.out).unwrap();
    }
    insta::assert_snapshot!(all);
}

#[test]
fn what_is_wrong_with_the_call_is_said_with_exit_code_64() {
    let home = Home::new(SCRIPTED);
    let calls: [&[&str]; 6] = [
        &[],
        &["chta"],
        &["chat", "--cofnig", "x"],
        &["chat", "--config"],
        &["audit", "extra"],
        &["shim", "data"],
    ];
    let mut all = String::new();
    for call in calls {
        let ran = home.run(call);
        assert_eq!((ran.code, ran.out.as_str()), (64, ""), "{call:?}: {}", ran.err);
        write!(all, "$ dogwatch {}\n{}\n", call.join(" "), ran.err).unwrap();
    }
    insta::assert_snapshot!(all);
    assert!(!home.path("data").exists(), "nothing was begun");
}

#[test]
fn a_bad_configuration_is_refused_by_each_command_with_its_place_and_exit_code_78() {
    let home = Home::new("[watch]\nsandbx = \"off\"\n[limits]\nchain_wakes = 0\n");
    let checked = home.run_here(&["check-config"]);
    assert_eq!(checked.code, 78);
    insta::assert_snapshot!(checked.out);
    let as_json = json(&home.run_here(&["check-config", "--json"]));
    assert_eq!(as_json["ok"], false);
    let errors = as_json["errors"].as_array().unwrap();
    assert_eq!(errors.len(), 2, "{errors:?}");
    for error in errors {
        assert!(checked.out.contains(error["what"].as_str().unwrap()));
        assert!(error["line"].as_u64().unwrap() > 1);
    }
    for command in ["chat", "audit"] {
        let ran = home.run_here(&[command]);
        assert_eq!((ran.code, ran.out.as_str()), (78, ""), "{command}: {}", ran.err);
        assert!(ran.err.contains("dogwatch.toml:3:1: watch.sandbx: there is no such key"));
        assert!(ran.err.contains("Did you mean 'sandbox'?"), "{}", ran.err);
    }
    let missing = home.run(&["chat", "--config", "nowhere.toml"]);
    assert_eq!(missing.code, 78);
    assert!(missing.err.contains("nowhere.toml: cannot be read"), "{}", missing.err);
}

#[test]
fn a_good_configuration_is_ok_with_exit_code_0() {
    let home = Home::new(SCRIPTED);
    let ran = home.run_here(&["check-config"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(ran.out.ends_with("dogwatch.toml: ok, 1 note\n"), "{}", ran.out);
    assert_eq!(json(&home.run_here(&["check-config", "--json"]))["ok"], true);
}

#[test]
fn each_bad_playbook_is_told_with_its_place_and_cure() {
    let books = [
        "[[rule]]\ntex = 'a'\n",
        "[[rule]]\ntext = 3\n",
        "[[rule]\n",
        "[[rule]]\nname = 'idle'\n",
        "[[rule]]\ntext = 'a'\nwhen = { person = '(a' }\n",
        "[[rule]]\ntext = 'a'\n\n[[rule]]\ntext = 'b'\n",
        "",
    ];
    let scripted = "[model]\nkind = \"scripted\"\nplaybook = \"book.toml\"\n";
    let home = Home::new(&format!("{scripted}{SCRIPTED}"));
    let mut all = String::new();
    for book in books {
        home.write("book.toml", book);
        let ran = home.run_here(&["chat"]);
        assert_eq!((ran.code, ran.out.as_str()), (78, ""), "{book}: {}", ran.err);
        let checked = home.run_here(&["check-config"]);
        assert_eq!(checked.code, 78, "{}", checked.out);
        let what = ran.err.trim().trim_start_matches("dogwatch: ");
        assert!(checked.out.contains(what), "{what}\n{}", checked.out);
        writeln!(all, "{book}  => {}", ran.err).unwrap();
    }
    insta::assert_snapshot!(all);
}

#[tokio::test(flavor = "multi_thread")]
async fn doctor_says_what_is_wrong_and_the_cure() {
    let llm = FakeLlm::start().await;
    llm.otherwise(|_| Reply::text("ok"));
    let url = llm.base_url();
    let home = Home::with_model(&url, 2_000);
    let well = home.run_here(&["doctor"]);
    assert_eq!(well.code, 0, "{well:?}");
    let model = |url: &str| {
        let key = "api_key = { env = \"DOGWATCH_TEST_KEY\" }";
        format!("[model]\nkind = \"openai\"\nbase_url = \"{url}\"\nmodel = \"m\"\n{key}\n")
    };
    let said = |config: &str| {
        let home = Home::new(config);
        let ran = home.run_here(&["doctor"]);
        let as_json = home.run_here(&["doctor", "--json"]);
        assert_eq!((ran.code, as_json.code), (1, 1), "{}", ran.out);
        let as_json = json(&as_json);
        assert_eq!(as_json["well"], false);
        let checks = as_json["checks"].as_array().unwrap();
        let failed = checks.iter().filter(|check| check["grade"] == "failed").count();
        assert_eq!(failed, ran.out.matches("FAILED").count(), "{}", ran.out);
        assert!(!home.path("data").exists(), "doctor changes nothing");
        ran.out
    };
    let no_python = "[watch]\nsandbox = \"off\"\npython = \"no-such-python\"\n";
    let mut all = format!("--- well\n{}\n", well.out);
    write!(all, "--- no python\n{}\n", said(no_python)).unwrap();
    let no_spool = "[watch]\nsandbox = \"off\"\nspool_dir = \"/dev/null/spool\"\n";
    write!(all, "--- no spool\n{}\n", said(no_spool)).unwrap();
    write!(all, "--- bad configuration\n{}\n", said("[modle]\n")).unwrap();
    llm.otherwise(|_| Reply::status(401).error(&format!("no such key: {KEY}")));
    write!(all, "--- 401\n{}\n", said(&format!("{}{SCRIPTED}", model(&url)))).unwrap();
    drop(llm);
    let gone = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let url = format!("http://{gone}/v1");
    write!(all, "--- away\n{}\n", said(&format!("{}{SCRIPTED}", model(&url)))).unwrap();
    assert!(!all.contains(KEY), "{all}");
    insta::assert_snapshot!(anonymous(&all));
}

#[test]
fn audit_proves_the_balance_beside_a_bot_that_runs() {
    let home = Home::new(SCRIPTED);
    let mut chat = home.chat(&["--json"]);
    chat.say("watch deployment x1");
    chat.wait_for("\"event\":\"watcher\"");
    let ran = home.run_here(&["audit"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    // A post is shown before that is written.
    insta::assert_snapshot!(ran.out.replace("1 posts undelivered", "0 posts undelivered"));
    let audited = json(&home.run_here(&["audit", "--json"]));
    assert_eq!((&audited["even"], &audited["sessions"]), (&true.into(), &1.into()));
    assert_eq!(audited["executions"]["live"], 1);
    assert_eq!(audited["spool"]["unknown"], Value::Array(vec![]));
    assert_eq!(audited["faults"], Value::Array(vec![]));
    chat.say("stop all");
    chat.wait_for("\"stop\"");
    chat.ends_well();
}

#[test]
fn audit_without_a_store_says_so() {
    let home = Home::new(SCRIPTED);
    let ran = home.run_here(&["audit"]);
    assert_eq!((ran.code, ran.out.as_str()), (1, ""));
    insta::assert_snapshot!(ran.err);
    assert!(!home.path("data").exists(), "audit makes nothing");
}

/// Opens the store behind its owner's back.
fn tamper(home: &Home, sql: &str) {
    let store = Connection::open(home.path("data/dogwatch.db")).unwrap();
    let changed = store.execute(sql, []).unwrap();
    assert!(changed > 0, "nothing was changed by {sql}");
}

#[test]
fn audit_finds_what_was_tampered_with() {
    let home = lived_in();
    assert_eq!(home.run_here(&["audit"]).code, 0);
    let lost = "DELETE FROM rows WHERE key = 'a/000000000002'";
    let forged = "UPDATE rows SET value = CAST(replace(CAST(value AS TEXT), \
                  '\"acked\"', '\"stopped\"') AS BLOB) \
                  WHERE key = 'a/000000000002'";
    let broken = "UPDATE rows SET value = X'00' WHERE key = 'head' OR key = 'h'";
    let newer = "UPDATE rows SET value = CAST('9 {}' AS BLOB) WHERE key = 'a/000000000001'";
    let untouched = fs::read(home.path("data/dogwatch.db")).unwrap();
    let mut all = String::new();
    for (name, sql) in [("lost", lost), ("forged", forged), ("broken", broken), ("newer", newer)] {
        tamper(&home, sql);
        let ran = home.run_here(&["audit"]);
        assert_eq!(ran.code, 1, "{name}: {ran:?}");
        write!(all, "--- {name}\n{}{}", ran.out, ran.err).unwrap();
        restore(&home, &untouched);
    }
    fs::write(home.path("data/dogwatch.db"), "no database at all, and long enough for a header")
        .unwrap();
    let ran = home.run_here(&["audit"]);
    assert_eq!((ran.code, ran.out.as_str()), (1, ""));
    write!(all, "--- no database\n{}", ran.err).unwrap();
    insta::assert_snapshot!(all);
}

/// Puts the store back as it was.
fn restore(home: &Home, store: &[u8]) {
    for name in ["data/dogwatch.db-wal", "data/dogwatch.db-shm"] {
        // There is none after a clean end.
        let _ = fs::remove_file(home.path(name));
    }
    fs::write(home.path("data/dogwatch.db"), store).unwrap();
}

#[test]
fn a_spool_entry_that_the_store_does_not_know_is_reported_and_never_told() {
    let home = lived_in();
    for end in ["", "-wal", "-shm"] {
        let _ = fs::remove_file(home.path(&format!("data/dogwatch.db{end}")));
    }
    // As if its end had never been told.
    let settled = fs::read_dir(home.path("data/spool/s")).unwrap().next().unwrap().unwrap().path();
    let entry = fs::read_dir(&settled).unwrap().next().unwrap().unwrap();
    fs::rename(entry.path(), home.path("data/spool/e").join(entry.file_name())).unwrap();
    // A start on another store makes no completion of what it does not know.
    assert_eq!(home.chat(&[]).ends_well(), "");
    let log = fs::read_to_string(home.path("data/dogwatch.log")).unwrap();
    assert!(log.contains("the store does not know a spool entry"), "{log}");
    assert_eq!(home.chat(&[]).ends_well(), "");
    let again = fs::read_to_string(home.path("data/dogwatch.log")).unwrap();
    let told = |log: &str| log.matches("the store does not know a spool entry").count();
    assert_eq!(told(&again), told(&log), "it is set aside and not told at each start");
    let (audited, checked) = (home.run_here(&["audit"]), home.run_here(&["doctor"]));
    assert_eq!((audited.code, checked.code), (0, 0), "{audited:?} {checked:?}");
    insta::assert_snapshot!(anonymous(&format!("{}\n{}", audited.out, checked.out)));
    let audited = json(&home.run_here(&["audit", "--json"]));
    assert_eq!(audited["spool"]["unknown"].as_array().unwrap().len(), 1);
}

#[test]
fn a_second_process_on_the_store_is_refused() {
    let home = Home::new(SCRIPTED);
    let mut chat = home.chat(&["--json"]);
    chat.wait_for("\"ready\"");
    let ran = home.run_here(&["chat"]);
    assert_eq!((ran.code, ran.out.as_str()), (1, ""));
    assert!(ran.err.contains(&format!("process {} holds", chat.pid())), "{}", ran.err);
    insta::assert_snapshot!(anonymous(&ran.err));
    chat.ends_well();
    // The first one is gone: nothing is in the way any more.
    assert_eq!(home.chat(&[]).ends_well(), "");
}

/// What of a schema is no JSON Schema: unknown words, types and references.
fn faults(schema: &Value, root: &Value, path: &str, found: &mut Vec<String>) {
    const TYPES: [&str; 7] = ["object", "array", "string", "integer", "number", "boolean", "null"];
    let Some(object) = schema.as_object() else {
        if !schema.is_boolean() {
            found.push(format!("{path} is no schema: {schema}"));
        }
        return;
    };
    for (word, value) in object {
        let here = format!("{path}/{word}");
        let below: Vec<&Value> = match word.as_str() {
            "properties" | "$defs" => value.as_object().unwrap().values().collect(),
            "items" | "additionalProperties" | "not" => vec![value],
            "anyOf" | "oneOf" | "allOf" => value.as_array().unwrap().iter().collect(),
            "type" => {
                let types = value.as_array().cloned().unwrap_or_else(|| vec![value.clone()]);
                let known = |it: &Value| it.as_str().is_some_and(|it| TYPES.contains(&it));
                if !types.iter().all(known) {
                    found.push(format!("{here}: {value}"));
                }
                vec![]
            }
            "required" => {
                let names = value.as_array().unwrap();
                let has = |name: &Value| schema["properties"].get(name.as_str().unwrap()).is_some();
                if !names.iter().all(has) {
                    found.push(format!("{here}: {value}"));
                }
                vec![]
            }
            "$ref" => {
                let place = value.as_str().unwrap().strip_prefix('#').unwrap();
                if root.pointer(place).is_none() {
                    found.push(format!("{here}: {value}"));
                }
                vec![]
            }
            "pattern" => {
                regex::Regex::new(value.as_str().unwrap()).unwrap();
                vec![]
            }
            "$schema" | "title" | "description" | "format" | "default" | "enum" | "const"
            | "minimum" | "maximum" | "minLength" | "maxLength" | "minItems" | "maxItems"
            | "examples" => vec![],
            _ => {
                found.push(format!("{here} is no word of JSON Schema"));
                vec![]
            }
        };
        for schema in below {
            faults(schema, root, &here, found);
        }
    }
}

#[test]
fn schema_prints_json_schemas() {
    let ran = Home::new("").run(&["schema"]);
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    let schemas = json(&ran);
    let mut found = Vec::new();
    for tool in schemas["tools"].as_array().unwrap() {
        let parameters = &tool["parameters"];
        assert_eq!(parameters["type"], "object");
        faults(parameters, parameters, tool["name"].as_str().unwrap(), &mut found);
    }
    for (file, schema) in schemas["config"].as_object().unwrap() {
        faults(schema, schema, file, &mut found);
    }
    assert_eq!(found, Vec::<String>::new());
    assert_eq!(schemas["tools"].as_array().unwrap().len(), 6);
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).to_owned()
}

#[test]
fn doctor_tries_the_sandbox_and_names_its_tier() {
    let home = Home::new("[watch.limits]\nprocesses_max = 7\n");
    let checked = json(&home.run_here(&["doctor", "--json"]));
    let checks = checked["checks"].as_array().unwrap();
    let sandbox = checks.iter().find(|check| check["name"] == "sandbox").unwrap();
    let limits = checks.iter().find(|check| check["name"] == "limits").unwrap();
    let what = limits["what"].as_str().unwrap();
    // Which of both, and why not more: never nothing.
    assert!(what.contains("control groups (v") || what.contains("no control group: "), "{limits}");
    assert_eq!(limits["grade"], "ok");
    assert!(what.starts_with("each script has 512 MiB of memory, 7 processes"), "{limits}");
    match sandbox["what"].as_str().unwrap() {
        "namespaces" => assert_eq!(sandbox["grade"], "ok"),
        other => {
            // In a container: the weaker tier with the reason and a cure, or a refusal with both.
            assert!(other.contains("namespaces: "), "{sandbox}");
            assert!(sandbox["cure"].as_str().unwrap().contains("seccomp"), "{sandbox}");
        }
    }
    let no_python = Home::new("[watch]\npython = \"no-such-python\"\n");
    let checked = json(&no_python.run_here(&["doctor", "--json"]));
    let checks = checked["checks"].as_array().unwrap();
    let sandbox = checks.iter().find(|check| check["name"] == "sandbox").unwrap();
    assert_eq!(sandbox["grade"], "failed");
}

fn environment(name: &str) -> Option<String> {
    (name == "HOME").then(|| "/home/ada".to_owned())
}

#[test]
fn check_config_accepts_the_reference() {
    let report = config::check_with(Some(&root().join("config/dogwatch.toml")), &environment);
    assert!(report.ok && report.warnings.is_empty(), "{}", report.to_text());
}

#[test]
fn check_config_says_the_same_to_people_and_to_programs() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("dogwatch.toml");
    std::fs::write(&file, "[limits]\nchain_spawns = 0\nchain_wake = 1\n").expect("a file");
    let report = config::check_with(Some(&file), &environment);
    let text = report.to_text();
    let json = serde_json::to_value(&report).expect("JSON");
    assert_eq!(json["ok"], false);
    let errors = json["errors"].as_array().expect("a list");
    assert_eq!(errors.len(), 2, "{text}");
    for error in errors {
        assert!(text.contains(error["what"].as_str().expect("a text")), "{text}");
    }
    assert!(
        text.contains(&format!("{}:2:1: limits.chain_spawns: 0 is out of range", file.display()))
    );
    assert!(text.contains(&format!("{}:3:1: limits.chain_wake: ", file.display())));
    assert!(text.contains("Did you mean 'chain_wakes'?"));
    assert!(text.ends_with("2 errors"), "{text}");
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
