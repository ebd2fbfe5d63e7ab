//! The bot, and for their own points the supervisor of a script and what supervisors are copies of,
//! is killed once at every point that `src/failpoint.rs` lists, in every story that gets there. It is
//! started again, and the promises of the story must hold. Only with the feature `failpoints`.

#![cfg(test)]

#[path = "failpoints/laws.rs"]
mod laws;
#[path = "failpoints/play.rs"]
mod play;
#[path = "failpoints/stories.rs"]
mod stories;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::sync::Mutex;
use std::thread;

use dogwatch::failpoint::{OPERATIONS, Process, RESTING, points};

use laws::Books;
use play::{Play, Told};
use stories::{STORIES, Story};

/// Stories at the same time; they mostly wait.
const WORKERS: usize = 8;

/// A story with one point armed.
struct Run {
    story: &'static Story,
    point: String,
    /// The how-manieth time it is reached.
    nth: usize,
}

/// Plays a story to its rest; answers what was broken.
fn run(story: &Story, point: &str) -> (Vec<String>, Play) {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let directory = tempfile::Builder::new().prefix(story.name).tempdir_in(directory).unwrap();
    let directory = directory.keep();
    let mut play = Play::new(&directory, point);
    let played = (story.run)(&mut play).and_then(|()| play.leave());
    let played = played.and_then(|()| play.finish(story.chats));
    let mut faults = match played {
        Ok(()) => match Books::read(&directory) {
            Ok(books) => {
                let mut faults = laws::broken(&play, &books, story.name == "stop");
                if story.name == "main" && leaves_no_record(point) && books.lost().is_empty() {
                    faults.push("a supervisor was killed and nothing is lost".into());
                }
                if story.name == "main" && is_of(Process::Zygote, point) && !books.lost().is_empty()
                {
                    faults.push(format!("{} is lost with the zygote", books.lost().join(", ")));
                }
                faults
            }
            Err(error) => vec![error],
        },
        Err(error) => vec![error],
    };
    if !faults.is_empty() {
        faults.push(play.last_words());
    }
    (faults, play)
}

/// A supervisor that dies there leaves no record of the end.
fn leaves_no_record(point: &str) -> bool {
    let leave_one = ["record.written", "record.synced", "record.after", "shim.farewell"];
    is_of(Process::Shim, point) && !leave_one.iter().any(|one| point.starts_with(one))
}

/// Whose point is this, with or without a number?
fn is_of(process: Process, point: &str) -> bool {
    let point = point.split(':').next().unwrap_or_default();
    points().iter().any(|it| it.name == point && it.process == process)
}

/// What a run came to: its line of the table, and what was broken.
struct Outcome {
    line: String,
    /// The point, where it was reached.
    killed: Option<String>,
    faults: Vec<String>,
}

/// A story may get there only now and then; in the end each point must have been reached somewhere.
fn killed(it: &Run) -> Outcome {
    let armed = format!("{}:{}", it.point, it.nth);
    let (faults, play) = run(it.story, &armed);
    let reached = play.reached().contains(&it.point);
    let _gone = faults.is_empty().then(|| fs::remove_dir_all(play.directory()));
    let word = |holds: bool, word: &'static str| if holds { word } else { "-" };
    let line = format!(
        "{:<7} {:<20} {:>3}  {:<8} {:<7} {}",
        it.story.name,
        it.point,
        it.nth,
        word(reached, "reached,"),
        word(reached, "killed,"),
        if faults.is_empty() { "balanced" } else { "BROKEN" },
    );
    Outcome { line, killed: reached.then(|| it.point.clone()), faults }
}

/// Does all of `work` on a few threads, in order.
fn each<T: Sync, R: Send>(work: &[T], act: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let next = Mutex::new(0..work.len());
    let done: Mutex<BTreeMap<usize, R>> = Mutex::default();
    thread::scope(|scope| {
        for _ in 0..WORKERS {
            scope.spawn(|| {
                loop {
                    let Some(place) = next.lock().unwrap().next() else { return };
                    let result = act(&work[place]);
                    done.lock().unwrap().insert(place, result);
                }
            });
        }
    });
    done.into_inner().unwrap().into_values().collect()
}

/// What each story reaches when nobody dies, with how often.
fn reached() -> Told<Vec<(&'static Story, BTreeMap<String, usize>)>> {
    let stories: Vec<&'static Story> = STORIES.iter().collect();
    let played = each(&stories, |story| {
        let (faults, play) = run(story, "*");
        let mut counts = BTreeMap::new();
        for point in play.reached() {
            *counts.entry(point).or_insert(0) += 1;
        }
        if faults.is_empty() {
            let _gone = fs::remove_dir_all(play.directory());
            Ok((*story, counts))
        } else {
            Err(format!("the story {} alone: {}", story.name, faults.join("\n")))
        }
    });
    played.into_iter().collect()
}

/// A rare one is killed at its first time, a frequent one later in the story.
fn planned(reached: &[(&'static Story, BTreeMap<String, usize>)], only: &str) -> Vec<Run> {
    let mut runs = vec![];
    for (story, counts) in reached {
        for (point, count) in counts {
            let family = point.split('.').next().unwrap_or_default();
            let is_for = story.only.is_empty() || story.only.contains(&family);
            if is_for && format!("{}:{point}", story.name).contains(only) {
                runs.push(Run { story, point: point.clone(), nth: 1 + (count - 1) / 3 });
            }
        }
    }
    runs
}

#[expect(clippy::disallowed_methods, reason = "narrows the run while a fault is looked for")]
fn only() -> String {
    std::env::var("FAILPOINTS_ONLY").unwrap_or_default()
}

#[test]
fn a_kill_at_every_point_loses_and_doubles_nothing() {
    let only = only();
    let reached = reached().unwrap_or_else(|fault| panic!("{fault}"));
    let done = each(&planned(&reached, &only), killed);
    let mut broken = vec![];
    for Outcome { line, faults, .. } in &done {
        println!("{line}");
        if !faults.is_empty() {
            broken.push(format!("{line}\n{}", faults.join("\n")));
        }
    }
    println!("{} points, {} kills", points().len(), done.len());
    assert!(broken.is_empty(), "{} of {}:\n{}", broken.len(), done.len(), broken.join("\n\n"));
    let killed: Vec<&String> = done.iter().filter_map(|it| it.killed.as_ref()).collect();
    let names = points().into_iter().map(|point| point.name);
    let missed: Vec<String> = names.filter(|name| !killed.contains(&name)).collect();
    assert!(missed.is_empty() || !only.is_empty(), "nobody was killed at {missed:?}");
}

fn sources(directory: &Path, into: &mut Vec<String>) {
    for entry in fs::read_dir(directory).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() {
            sources(&path, into);
        } else if path.extension().is_some_and(|end| end == "rs") {
            into.push(fs::read_to_string(path).unwrap());
        }
    }
}

fn after<'a>(text: &'a str, mark: &'a str) -> impl Iterator<Item = &'a str> {
    text.split(mark).skip(1)
}

#[test]
fn the_list_names_every_point_of_the_source_and_no_other() {
    let mut files = vec![];
    sources(Path::new("src"), &mut files);
    let mut used: BTreeSet<String> = BTreeSet::new();
    let mut operations: BTreeSet<&str> = BTreeSet::new();
    for text in &files {
        for rest in after(text, "failpoint!(\"") {
            used.insert(rest.split('"').next().unwrap().to_owned());
        }
        for rest in after(text, "\nimpl Operation for ") {
            operations.insert(rest.split(' ').next().unwrap());
        }
    }
    let resting = RESTING.iter().map(|(operation, _)| *operation);
    let known: BTreeSet<&str> = OPERATIONS.iter().copied().chain(resting).collect();
    assert_eq!(operations, known);
    let sides = ["before", "after"];
    used.extend(OPERATIONS.iter().flat_map(|name| sides.map(|side| format!("{name}.{side}"))));
    let listed: Vec<String> = points().into_iter().map(|point| point.name).collect();
    assert_eq!(listed.len(), used.len(), "{listed:?} {used:?}");
    assert_eq!(listed.into_iter().collect::<BTreeSet<_>>(), used);
}

#[test]
fn the_program_lists_its_points() {
    let output = Play::list().output().unwrap();
    let told: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let named = told["points"].as_array().unwrap().iter();
    let named: Vec<&str> = named.map(|point| point["name"].as_str().unwrap()).collect();
    let listed: Vec<String> = points().into_iter().map(|point| point.name).collect();
    assert_eq!(named, listed);
    let shims = told["points"].as_array().unwrap().iter();
    let shims = shims.filter(|point| point["process"] == "shim").count();
    assert_eq!(shims, points().iter().filter(|point| point.process == Process::Shim).count());
}
