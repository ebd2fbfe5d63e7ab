mod installing;

use std::path::{Path, PathBuf};

use secrecy::ExposeSecret;

use super::*;

const REFERENCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/config/dogwatch.toml");

/// A fixed home, and two variables that hold secrets.
fn environment(name: &str) -> Option<String> {
    match name {
        "HOME" => Some("/home/ada".into()),
        "OPENAI_API_KEY" => Some("sk-from-env".into()),
        "DOGWATCH_HTTP_TOKEN" => Some("http-from-env".into()),
        "SLACK_BOT_TOKEN" => Some("xoxb-from-env".into()),
        "SLACK_CLIENT_SECRET" => Some("client-from-env".into()),
        "SLACK_SEAL_KEY" => Some("seal-from-env".into()),
        "SLACK_APP_TOKEN" => Some("xapp-from-env".into()),
        "SLACK_SIGNING_SECRET" => Some("signing-from-env".into()),
        "GITHUB_TOKEN" => Some("github-from-env".into()),
        "GATEWAY_KEY" => Some("gateway-from-env".into()),
        _ => None,
    }
}

struct Files(tempfile::TempDir);

impl Files {
    fn new(config: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("dogwatch.toml"), config).unwrap();
        std::fs::create_dir(dir.path().join("agents")).unwrap();
        Self(dir)
    }

    fn with(self, file: &str, text: &str) -> Self {
        std::fs::write(self.0.path().join(file), text).unwrap();
        self
    }

    fn load(&self) -> Result<Config, ConfigError> {
        load_with(Some(&self.0.path().join("dogwatch.toml")), &environment)
    }

    /// The errors, with the directory taken out.
    fn errors(&self) -> String {
        let error = self.load().expect_err("it was accepted").to_string();
        error.replace(&format!("{}/", self.0.path().display()), "")
    }
}

fn errors(config: &str) -> String {
    Files::new(config).errors()
}

/// The text with every `#key = value` line made a key, and every `#[table]` a table.
fn uncommented(text: &str) -> String {
    let key = |line: &str| line.starts_with(|c: char| c.is_ascii_lowercase() || c == '[');
    text.lines()
        .map(|line| match line.strip_prefix('#') {
            Some(rest) if key(rest) => rest,
            Some(_) | None => line,
        })
        .collect::<Vec<_>>()
        .join("\n")
}

fn database(config: &Config) -> &Path {
    match &config.store {
        StoreConfig::Sqlite { path } => path,
        StoreConfig::Redis { .. } => panic!("no file: {:?}", config.store),
    }
}

#[test]
fn redis_is_named_by_a_secret() {
    let files = Files::new(
        "[store]\nkind = \"redis\"\nurl = { env = \"REDIS\" }\nprefix = \"x:\"\nca = \"ca.pem\"\n",
    );
    let lookup = |name: &str| match name {
        "REDIS" => Some("redis://bot:hush@store/1".to_owned()),
        _ => environment(name),
    };
    let config = load_with(Some(&files.0.path().join("dogwatch.toml")), &lookup).unwrap();
    let StoreConfig::Redis { url, prefix, ca } = &config.store else { panic!("{config:?}") };
    assert_eq!((url.expose_secret(), prefix.as_str()), ("redis://bot:hush@store/1", "x:"));
    assert!(ca.as_ref().is_some_and(|ca| ca.is_absolute() && ca.ends_with("ca.pem")));
    assert!(!format!("{config:?}").contains("hush"));
    assert!(config.secrets().iter().any(|secret| secret.expose_secret().contains("hush")));
}

#[test]
fn the_reference_says_the_defaults() {
    let reference = load_with(Some(Path::new(REFERENCE)), &environment).unwrap();
    let defaults = load_with(None, &environment).unwrap();
    let mut written = reference.clone();
    written.file = None;
    written.agents.clone_from(&defaults.agents);
    assert_eq!(format!("{written:?}"), format!("{defaults:?}"));
    assert_eq!(defaults.data_dir, Path::new("/home/ada/.local/state/dogwatch"));
    assert_eq!(database(&defaults), Path::new("/home/ada/.local/state/dogwatch/dogwatch.db"));
    assert_eq!(reference.default_agent().unwrap().name, "dogwatch");
    assert!(reference.default_agent().unwrap().instructions.starts_with("You help"));
    let observer = reference.agents.iter().find(|agent| agent.name == "observer").unwrap();
    assert_eq!((observer.role, observer.tools.len()), (Role::ReadOnly, 3));
}

#[test]
fn every_key_of_the_schema_is_in_the_reference_and_loads() {
    let text = uncommented(&std::fs::read_to_string(REFERENCE).unwrap());
    let written: toml::Table = text.parse().unwrap();
    assert_eq!(missing(&schema()["dogwatch.toml"], &written), Vec::<String>::new());

    let agent = include_str!("../../config/agents/dogwatch.toml");
    let agent = uncommented(agent);
    let written: toml::Table = agent.parse().unwrap();
    assert_eq!(missing(&schema()["agents/*.toml"], &written), Vec::<String>::new());

    // One of the two ways to tokens.
    let text = text.replace("bot_token = { env = \"SLACK_BOT_TOKEN\" }\n", "");
    let files = Files::new(&text.replace("kind = \"scripted\"", "kind = \"openai\""))
        .with("agents/dogwatch.toml", &agent)
        .with("internal-ca.pem", "none that anybody would trust");
    let config = files.load().unwrap_or_else(|error| panic!("{error}"));
    let secrets = config.secrets();
    let held: Vec<&str> = secrets.iter().map(ExposeSecret::expose_secret).collect();
    assert_eq!(
        held,
        [
            "http-from-env",
            "sk-from-env",
            "gateway-from-env",
            "github-from-env",
            "client-from-env",
            "seal-from-env",
            "xapp-from-env"
        ]
    );
    assert_eq!(config.data_dir, Path::new("/var/lib/dogwatch"));
    assert!(!format!("{config:?}").contains("from-env"));
}

/// Keys of the schema that the table does not have.
fn missing(schema: &Value, written: &toml::Table) -> Vec<String> {
    let sections = &schema["$defs"];
    let mut missing = Vec::new();
    for (name, property) in schema["properties"].as_object().unwrap() {
        // What may be absent stands in a list, before "null".
        let property = property.get("anyOf").map_or(property, |any| &any[0]);
        // Of a table whose keys are free each value has the same ones.
        let free = property["additionalProperties"]["$ref"].as_str();
        let section = property["$ref"].as_str().or(free).and_then(|r| r.rsplit('/').next());
        let keys = section.map_or(&Value::Null, |section| &sections[section]["properties"]);
        let first = |table: &toml::Value| table.as_table()?.values().next().cloned();
        let value = written.get(name);
        match if free.is_some() { value.and_then(first) } else { value.cloned() } {
            None => missing.push(name.clone()),
            Some(toml::Value::Table(table)) => {
                let keys = keys.as_object().unwrap_or_else(|| panic!("{name} has no schema"));
                let absent = keys.keys().filter(|key| !table.contains_key(*key));
                missing.extend(absent.map(|key| format!("{name}.{key}")));
            }
            Some(_) => {}
        }
    }
    missing
}

#[test]
fn slack_is_off_without_its_table_and_says_what_it_needs() {
    assert!(Files::new("").load().unwrap().slack.is_none());
    let config = "[slack]\nbot_token = { env = \"SLACK_BOT_TOKEN\" }\n";
    let http = "ingress = \"http\"\nsigning_secret = { env = \"SLACK_SIGNING_SECRET\" }\n";
    let slack = Files::new(&format!("{config}{http}")).load().unwrap().slack.unwrap();
    let SlackIngress::Http { signing_secret } = &slack.ingress else { panic!("{slack:?}") };
    assert_eq!(signing_secret.expose_secret(), "signing-from-env");
    assert_eq!(
        (slack.place.mode, slack.api.as_str()),
        (SlackMode::Thread, "https://slack.com/api/")
    );
    assert_eq!(slack.streaming, SlackStreaming::Auto);
    let edit = Files::new(&format!("{config}{http}streaming = \"edit\"\n")).load().unwrap();
    assert_eq!(edit.slack.unwrap().streaming, SlackStreaming::Edit);
    let app = "app_token = { env = \"SLACK_APP_TOKEN\" }\n";
    for (mistake, said) in [
        (String::new(), "slack.app_token"),
        (format!("{app}channels = {{ general = \"all\" }}\n"), "not the id of a channel"),
        (format!("{app}bots = [\"deploybot\"]\n"), "not an id of Slack's"),
        (format!("{app}connections = 11\n"), "Allowed: 1 to 10."),
        (format!("{app}api = \"http://slack.example.com/api/\"\n"), "cannot be there"),
        ("app_token = { env = \"SLACK_BOT_TOKEN\" }\n".into(), "does not begin with xapp-"),
        (format!("{app}[slack.oauth]\nclient_id = \"1.2\"\n"), "slack.bot_token: there is"),
    ] {
        let errors = errors(&format!("{config}{mistake}"));
        assert!(errors.contains(said), "{said}: {errors}");
        assert!(!errors.contains("from-env"), "{errors}");
    }
}

#[test]
fn a_choice_that_is_written_as_no_text_is_told_what_it_is() {
    for (given, at) in [("true", "2:11"), ("[\"off\"]", "2:11")] {
        let errors = errors(&format!("[watch]\nsandbox = {given}\n"));
        let what = format!("{at}: watch.sandbox: the value is of a wrong type\n    Give one of");
        assert!(errors.contains(&what), "{errors}");
    }
}

#[test]
fn each_place_of_slack_has_its_agent_its_role_and_its_sharing() {
    let slack = "agent = \"observer\"\n[slack]\nbot_token = { env = \"SLACK_BOT_TOKEN\" }\n\
                 app_token = { env = \"SLACK_APP_TOKEN\" }\n";
    let files = |more: &str| {
        let observer = "name = \"observer\"\nrole = \"read-only\"\n";
        Files::new(&format!("{slack}{more}"))
            .with("agents/observer.toml", observer)
            .with("agents/deploys.toml", "name = \"deploys\"\n")
    };
    let place = |mode, agent: &str, role, shared_authority| SlackPlace {
        mode,
        agent: agent.to_owned(),
        role,
        shared_authority,
    };
    let bare = files("").load().unwrap().slack.unwrap();
    assert_eq!(bare.place, place(SlackMode::Thread, "observer", Role::ReadOnly, false));
    let written = files(
        "mode = \"mention\"\nagent = \"deploys\"\nshared_authority = true\n[slack.channels]\n\
         C1 = \"all\"\nC2 = { role = \"read-only\", shared_authority = false }\n\
         [slack.channels.C3]\nagent = \"observer\"\nmode = \"thread\"\n",
    );
    let written = written.load().unwrap().slack.unwrap();
    assert_eq!(written.place, place(SlackMode::Mention, "deploys", Role::Writable, true));
    let channels: Vec<_> = written.channels.into_values().collect();
    assert_eq!(
        channels,
        [
            place(SlackMode::All, "deploys", Role::Writable, true),
            place(SlackMode::Mention, "deploys", Role::ReadOnly, false),
            place(SlackMode::Thread, "observer", Role::ReadOnly, true),
        ]
    );
    let narrowed = files(
        "agent = \"deploys\"\nrole = \"read-only\"\nchannels = { C1 = { role = \"writable\" } }\n",
    );
    let narrowed = narrowed.load().unwrap().slack.unwrap();
    assert_eq!(
        (narrowed.place.role, narrowed.channels["C1"].role),
        (Role::ReadOnly, Role::Writable)
    );
    insta::assert_snapshot!(
        files(
            r#"agent = "deploy"
role = "readonly"
[slack.channels]
C1 = "everything"
C2 = 7
C3 = { mode = "all", agnet = "deploys" }
C4 = { agent = "deplos" }
C5 = { agent = "observer", role = "writable" }
C6 = { shared_authority = "yes" }
"#,
        )
        .errors()
    );
}

#[test]
fn every_structural_mistake_is_named_with_place_and_cure() {
    insta::assert_snapshot!(errors(
        r#"
colour = "red"
data_dri = "/x"
agent = 7

[modle]
kind = "openai"

[model]
kind = "open-ai"
header_ms = "60s"
max_tokens = 1.5
headers = "x"

[watch]
sandbox = "on"
graceMs = 5

[limits]
chain_wake = 3

[log]
format = "xml"
"#
    ));
}

#[test]
fn every_value_out_of_bounds_is_named_with_place_and_cure() {
    insta::assert_snapshot!(errors(
        r#"
agent = "dogwhat"
agents_dir = ""

[store]
path = "a\nb"

[model]
kind = "openai"
base_url = "ftp://example.com"
temperature = 9.0
max_tokens = 0
connect_ms = 50_000
header_ms = 20_000
idle_ms = -1
total_ms = 10_000

[watch]
python = " "
grace_ms = 0

[limits]
chain_tokens = 9_999_999_999
chain_spawns = 0

[console]
chat = "a b"

[log]
filter = "dogwatch=loud"
"#
    ));
}

#[test]
fn deadlines_that_do_not_fit_together_are_named() {
    insta::assert_snapshot!(errors(
        "[model]\nconnect_ms = 50_000\nheader_ms = 20_000\nidle_ms = 30_000\ntotal_ms = 10_000\n"
    ));
}

#[test]
fn what_is_not_toml_is_named_with_place() {
    insta::assert_snapshot!(errors("[store\npath = \"x\"\n\n[log]\nformat = pretty\n"));
    assert!(errors("[log]\nformat = \"json\"\nformat = \"json\"\n").contains("dogwatch.toml:3:"));
}

#[test]
fn a_secret_is_only_a_reference_and_never_repeated() {
    let key = |value: &str| {
        errors(&format!("[model]\nkind = \"openai\"\nmodel = \"m\"\napi_key = {value}\n"))
    };
    let values = [
        "\"sk-hush\"",
        "{ env = \"sk-hush\" }",
        "{ env = \"NOT_SET\" }",
        "{ file = \"no/such/file\" }",
        "{ value = \"sk-hush\" }",
        "{ env = \"HOME\", value = \"sk-hush\" }",
        "{ env = [\"sk-hush\"] }",
        "{}",
        "[\"sk-hush\"]",
        "5",
    ];
    let texts: Vec<String> = values.iter().map(|v| format!("# {v}\n{}", key(v))).collect();
    for text in &texts {
        assert!(text.contains("dogwatch.toml:4:"), "{text}");
        let (_, error) = text.split_once('\n').unwrap();
        assert!(!error.contains("hush"), "{error}");
    }
    insta::assert_snapshot!(texts.join("\n"));
    let misplaced = errors("model = \"sk-hush\"\n[limits]\nchain_spawns = \"sk-hush\"\n");
    assert!(!misplaced.contains("hush"), "{misplaced}");
}

#[test]
fn a_secret_may_be_in_a_file_beside_the_configuration() {
    let config = "[model]\nkind = \"openai\"\nmodel = \"m\"\napi_key = { file = \"key\" }\n";
    let files = Files::new(config).with("key", "sk-from-file\n");
    assert_eq!(files.load().unwrap().secrets()[0].expose_secret(), "sk-from-file");
    assert!(Files::new(config).with("key", "\n").errors().contains("is empty"));
    let two_lines = Files::new(config).with("key", "sk-from\nfile\n").errors();
    assert!(two_lines.contains("no header may have") && !two_lines.contains("sk-"), "{two_lines}");
    let header = errors(
        "[model]\nkind = \"openai\"\nmodel = \"m\"\nheaders = { \"a b\" = { env = \"HOME\" } }\n",
    );
    assert!(header.contains("dogwatch.toml:4:1: model.headers: 'a b' is not a name"), "{header}");
    // Who does not use a secret need not have it.
    let scripted = config.replace("openai", "scripted");
    assert!(Files::new(&scripted).load().unwrap().secrets().is_empty());
}

#[test]
fn paths_are_absolute_and_say_what_they_are_relative_to() {
    let files = Files::new(
        "data_dir = \"state\"\n[store]\npath = \"x.db\"\n[log]\nfile = \"~/x.log\"\n\
         [watch]\npython = \"./venv/python\"\nspool_dir = \"/var/spool/x\"\n",
    );
    let config = files.load().unwrap();
    let here = std::path::absolute(files.0.path()).unwrap();
    assert_eq!(config.data_dir, here.join("state"));
    assert_eq!(database(&config), here.join("state/x.db"));
    assert_eq!(config.log.file, Some(PathBuf::from("/home/ada/x.log")));
    assert_eq!(config.watch.python, here.join("venv/python"));
    assert_eq!(config.watch.spool_dir, Path::new("/var/spool/x"));
}

#[test]
fn a_place_for_data_must_be_known() {
    let nothing = |_: &str| None;
    let error = load_with(None, &nothing).unwrap_err();
    assert_eq!(error.problems[0].key, "data_dir");
    let xdg = |name: &str| (name == "XDG_STATE_HOME").then(|| "/state".to_owned());
    assert_eq!(load_with(None, &xdg).unwrap().data_dir, Path::new("/state/dogwatch"));
    let relative = |name: &str| (name == "XDG_STATE_HOME").then(|| "state".to_owned());
    assert!(load_with(None, &relative).is_err());
}

#[test]
fn the_usual_file_is_read_when_none_is_named() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().join(".config/dogwatch");
    std::fs::create_dir_all(&dir).unwrap();
    std::fs::write(dir.join("dogwatch.toml"), "[console]\nchat = \"ops\"\n").unwrap();
    let home = home.path().display().to_string();
    let lookup = |name: &str| (name == "HOME").then(|| home.clone());
    assert_eq!(load_with(None, &lookup).unwrap().console.chat, "ops");
    let error = load_with(Some(Path::new("/no/such.toml")), &lookup).unwrap_err();
    assert!(error.to_string().starts_with("/no/such.toml: cannot be read"), "{error}");
}

#[test]
fn peer_a02_peer_a03_agents_have_names_and_each_its_own() {
    let files = Files::new("[limits]\nchain_spawns = 3\n")
        .with("agents/a.toml", "name = \"ops\"\n[limits]\nchain_wakes = 7\n")
        .with("agents/b.toml", "\n  name = \"ops\"\n")
        .with("agents/c.toml", "name = \"Ops\"\nrole = \"readonly\"\n")
        .with("agents/d.toml", "name = \"\"\ntools = [\"watch\", \"shell\"]\n")
        .with("agents/e.toml", "instructions = \"hi\"\n[limits]\nchain_spawns = 10001\n")
        .with("agents/notes.txt", "not an agent");
    insta::assert_snapshot!(files.errors());

    let one = Files::new("agent = \"ops\"\n[limits]\nchain_spawns = 3\n")
        .with("agents/a.toml", "name = \"ops\"\ntools = []\n[limits]\nchain_wakes = 7\n");
    let config = one.load().unwrap();
    let ops = config.default_agent().unwrap();
    assert_eq!((ops.limits.chain_wakes, ops.limits.chain_spawns), (7, 3));
    assert!(ops.tools.is_empty());
    let names: Vec<&str> = config.agents.iter().map(|agent| agent.name.as_str()).collect();
    assert_eq!(names, [BUILT_IN_AGENT, "ops"]);
    assert!(errors("agents_dir = \"nowhere\"\n").contains("dogwatch.toml:1:1: agents_dir:"));
}

#[test]
fn a_sandbox_is_required_unless_it_is_written_down_and_a_check_warns_of_what_is_open() {
    let silent = check_with(None, &environment);
    assert!(silent.ok && silent.warnings.is_empty(), "{}", silent.to_text());
    let config = load_with(None, &environment).unwrap();
    assert_eq!(config.watch.sandbox, Sandbox::Required);

    let files = Files::new(
        "[watch]\nsandbox = \"off\"\n[model]\nkind = \"openai\"\nmodel = \"m\"\n\
         base_url = \"http://llm.example:8080/v1\"\napi_key = { env = \"OPENAI_API_KEY\" }\n",
    );
    let report = check_with(Some(&files.0.path().join("dogwatch.toml")), &environment);
    assert!(report.ok);
    let keys: Vec<_> = report.warnings.iter().map(|w| (w.key.as_str(), w.line)).collect();
    assert_eq!(keys, [("watch.sandbox", 2), ("model.base_url", 6)]);
    assert!(report.to_text().ends_with("dogwatch.toml: ok, 2 notes"), "{}", report.to_text());
    assert_eq!(serde_json::to_value(&report).unwrap()["warnings"][0]["line"], 2);
    assert_eq!(files.load().unwrap().watch.sandbox, Sandbox::Off);
}

#[test]
fn schemas_of_the_files() {
    insta::assert_json_snapshot!(schema());
}

#[test]
fn the_server_is_for_this_machine_unless_a_token_is_asked_for() {
    assert_eq!(
        errors("[http]\nbind = \"0.0.0.0:7878\"\n"),
        "dogwatch.toml:2:1: http.bind: 0.0.0.0:7878 can be reached from other machines, and no \
         token is asked for\n    Set [http] token, or bind to 127.0.0.1 and put a proxy before it."
    );
    for bind in ["localhost", "127.0.0.1", "7878", "127.0.0.1:99999", ""] {
        let said = errors(&format!("[http]\nbind = \"{bind}\"\n"));
        assert!(said.starts_with("dogwatch.toml:2:1: http.bind: "), "{bind}: {said}");
    }
    for bind in ["127.0.0.1:0", "127.9.9.9:80", "[::1]:7878"] {
        assert!(Files::new(&format!("[http]\nbind = \"{bind}\"\n")).load().is_ok(), "{bind}");
    }
    let token = "[http]\nbind = \"0.0.0.0:80\"\ntoken = { env = \"GATEWAY_KEY\" }\n";
    let config = Files::new(token).load().unwrap();
    assert_eq!(config.secrets().len(), 1, "the log knows it as a secret");
}
