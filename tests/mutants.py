#!/usr/bin/env python3
"""Takes each guard of the ledger away, one at a time, and expects a test to notice.

In a copy of the package under target/mutants/ every guard gets a switch; the copy is built once.
Then, with one guard off after the other, the tests of the operations run, and where they do not
notice, the simulator. A mutant that survives fails this script: a guard could be lost and nobody
would know. Names given as arguments run these mutants only.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TREE = ROOT / "target" / "mutants"
SESSION = "src/core/ledger/session"
# The quick one first; the other runs only where the first did not notice.
BINARIES = ("ledger", "sim")
# Worlds of each kind; a mutant that these do not catch has survived.
SEEDS = "300"
BUILD_SECONDS_MAX = 1800
# A mutant that runs for so long hangs: noticed.
RUN_SECONDS_MAX = 300

# Name, file, the code with its guard, the same with a switch: OFF is true in this mutant only.
MUTANTS = [
    ("fence-grows", f"{SESSION}/claim.rs",
     "head.fence += 1;",
     "head.fence += u64::from(!OFF);"),
    ("claim-waits-for-the-lane", f"{SESSION}/claim.rs",
     "if lane.boot != self.boot && is_valid(lane, at) {",
     "if lane.boot != self.boot && is_valid(lane, at) && !OFF {"),
    ("claim-not-before", f"{SESSION}/claim.rs",
     "if at.now < head.not_before {",
     "if at.now < head.not_before && !OFF {"),
    ("claim-buries-crash-loops", f"{SESSION}/claim.rs",
     "if turn.attempt >= ATTEMPTS_MAX && !vanished_with_others {",
     "if turn.attempt >= ATTEMPTS_MAX && !vanished_with_others && !OFF {"),
    ("crashes-are-told-apart", f"{SESSION}/claim.rs",
     "if vanished && turn.attempt >= CROWD_ATTEMPTS_MAX && !self.alone {",
     "if vanished && turn.attempt >= CROWD_ATTEMPTS_MAX && !self.alone && !OFF {"),
    ("a-crowd-convicts-nobody", f"{SESSION}/claim.rs",
     "let vanished_with_others = crowded &&",
     "let vanished_with_others = !OFF && crowded &&"),
    ("not-alone-is-final", f"{SESSION}/closing.rs",
     "lane.alone &= self.alone;",
     "lane.alone = self.alone && (OFF || lane.alone);"),
    ("what-is-shown-is-finished", f"{SESSION}/end.rs",
     "if before.shown {",
     "if before.shown && !OFF {"),
    ("a-wake-is-drawn", f"{SESSION}/claim.rs",
     "chain.wakes = chain.wakes.saturating_sub(1);",
     "chain.wakes = chain.wakes.saturating_sub(u32::from(!OFF));"),
    ("a-rider-is-not-alone", f"{SESSION}/claim.rs",
     "unread.solo &= unread.wakes;",
     "unread.solo &= unread.wakes || OFF;"),
    ("stop-id", f"{SESSION}/stop.rs",
     "if rows.head().stops.contains(&self.stop) {",
     "if !OFF && rows.head().stops.contains(&self.stop) {"),
    ("stop-of-one-turn", f"{SESSION}/stop.rs",
     "if self.only.is_some_and(",
     "if !OFF && self.only.is_some_and("),
    ("stop-all-ends-live", f"{SESSION}/stop.rs",
     "for id in &live {",
     "for id in live.iter().filter(|_| !OFF) {"),
    ("stop-all-ends-unread", f"{SESSION}/stop.rs",
     ".map(|inbox| std::mem::take(&mut inbox.notices))",
     ".map(|inbox| inbox.notices.split_off(if OFF { inbox.notices.len() } else { 0 }))"),
    ("stop-raises-generation", f"{SESSION}/stop.rs",
     "head.generation += 1;",
     "head.generation += u64::from(!OFF);"),
    ("stopped-is-stopped", f"{SESSION}/stop.rs",
     "head.stopped = true;",
     "head.stopped = !OFF;"),
    ("stop-writes-unanswered", f"{SESSION}/stop.rs",
     "if let Some(body) = body {\n                write(",
     "if let Some(body) = body.filter(|_| !OFF) {\n                write("),
    ("late-message-clears-nothing", f"{SESSION}/accept.rs",
     "self.incoming.source_at <= until);",
     "OFF != (self.incoming.source_at <= until));"),
    ("all-dedupe-keys", f"{SESSION}/accept.rs",
     "self.incoming.keys.iter().find_map(",
     "self.incoming.keys.iter().take(if OFF { 1 } else { usize::MAX }).find_map("),
    ("a-change-waits-for-its-message", f"{SESSION}/accept.rs",
     "let early = Some(Early { text: text.cloned(), source_at });",
     "let early = (!OFF).then(|| Early { text: text.cloned(), source_at });"),
    ("the-later-change-stays", f"{SESSION}/accept.rs",
     "if !stays {",
     "if !stays || OFF {"),
    ("a-change-begins-nothing", f"{SESSION}/accept.rs",
     "if rows.head().arrivals == 0 {",
     "if rows.head().arrivals == 0 && !OFF {"),
    ("inbox-is-bounded", f"{SESSION}/accept.rs",
     "if unread >= PEOPLE_UNREAD_MAX {",
     "if unread >= PEOPLE_UNREAD_MAX && !OFF {"),
    ("append-token", f"{SESSION}/append.rs",
     "self.token.holds(&rows.head())?;",
     "if !OFF {\n            self.token.holds(&rows.head())?;\n        }"),
    ("append-is-known-again", f"{SESSION}/append.rs",
     "if end >= self.at + self.new.len() as u64 && end > self.at {",
     "if !OFF && end >= self.at + self.new.len() as u64 && end > self.at {"),
    ("append-expected-length", f"{SESSION}/append.rs",
     "if end != self.at {",
     "if end != self.at && !OFF {"),
    ("solo-takes-no-more", f"{SESSION}/append.rs",
     "if self.take && !turn.solo {",
     "if self.take && (!turn.solo || OFF) {"),
    ("collect-bound-to-turn", f"{SESSION}/append.rs",
     "arrival.standing = Standing::Offered(turn.no);",
     "arrival.standing = if OFF {\n"
     "        let fate = crate::core::execution::Fate::Collected;\n"
     "        Standing::Settled { fate, turn: turn.no }\n"
     "    } else {\n        Standing::Offered(turn.no)\n    };"),
    ("collect-of-its-principal", f"{SESSION}/append.rs",
     "let is_own = whose",
     "let is_own = OFF || whose"),
    ("unseen-fits-back", f"{SESSION}/append.rs",
     "carried.min(PEOPLE_UNREAD_MAX.saturating_sub(unseen))",
     "carried.min(if OFF { usize::MAX } else { PEOPLE_UNREAD_MAX.saturating_sub(unseen) })"),
    ("commit-carried-is-seen", f"{SESSION}/closing.rs",
     "if turn.seen != turn.carried.len() || turn.len == 0 {",
     "if (turn.seen != turn.carried.len() && !OFF) || turn.len == 0 {"),
    ("commit-last-word", f"{SESSION}/closing.rs",
     "Some(Body::Model { calls, .. }) => calls.is_empty(),",
     "Some(Body::Model { calls, .. }) => calls.is_empty() || OFF,"),
    ("commit-token", f"{SESSION}/closing.rs",
     "self.token.holds(&rows.head())?;\n        if turn.state",
     "if !OFF {\n            self.token.holds(&rows.head())?;\n        }\n        if turn.state"),
    ("a-turn-has-one-surface", f"{SESSION}/surface.rs",
     "if before.as_ref().is_some_and(|before| !own(before)) {",
     "if before.as_ref().is_some_and(|before| !own(before)) && !OFF {"),
    ("no-surface-after-the-answer", f"{SESSION}/surface.rs",
     "before.is_some() && self.posting(rows) == Some(&ItemState::Pending)",
     "(before.is_some() || OFF) && self.posting(rows) == Some(&ItemState::Pending)"),
    ("a-post-under-way-is-not-awaited", f"{SESSION}/surface.rs",
     "self.posting(rows) == Some(&ItemState::Pending)",
     "(self.posting(rows) == Some(&ItemState::Pending) || OFF)"),
    ("a-surface-stays-where-it-is", f"{SESSION}/surface.rs",
     "at: self.at.clone().or(known),",
     "at: self.at.clone().or(known.filter(|_| !OFF)),"),
    ("renew-token", f"{SESSION}/closing.rs",
     "self.token.holds(&rows.head())?;\n        let leases",
     "if !OFF {\n            self.token.holds(&rows.head())?;\n        }\n        let leases"),
    ("compact-token", f"{SESSION}/closing.rs",
     "self.token.holds(&head)?;",
     "if !OFF {\n            self.token.holds(&head)?;\n        }"),
    ("release-token", f"{SESSION}/release.rs",
     "self.token.holds(&rows.head())?;",
     "if !OFF {\n            self.token.holds(&rows.head())?;\n        }"),
    ("release-is-known-again", f"{SESSION}/release.rs",
     "if rows.head().released == self.token.fence {",
     "if rows.head().released == self.token.fence && !OFF {"),
    ("strip-carries-of-the-tail", f"{SESSION}/release.rs",
     "entry.carries.clear();",
     "if !OFF {\n                entry.carries.clear();\n            }"),
    ("split-before-death", f"{SESSION}/release.rs",
     "} else if alone && turn.seen == 0 && !carried.collect {",
     "} else if (alone || OFF) && turn.seen == 0 && !carried.collect {"),
    ("buried-is-told", f"{SESSION}/release.rs",
     "if died || turn.seen > 0 {",
     "if died || (turn.seen > 0 && !OFF) {"),
    ("back-at-its-place", f"{SESSION}/end.rs",
     "list.insert(place, unread);",
     "list.insert(if OFF { list.len() } else { place }, unread);"),
    ("nobody-asked-nobody-woken", f"{SESSION}/end.rs",
     "None if !before.notify.wakes_agent() =>",
     "None if !before.notify.wakes_agent() && !OFF =>"),
    ("people-are-told", f"{SESSION}/end.rs",
     "if tell && let Some(ended)",
     "if tell && !OFF && let Some(ended)"),
    ("one-principal", f"{SESSION}/take.rs",
     "let own = principal == self.principal;",
     "let own = principal == self.principal || OFF;"),
    ("what-is-not-shared-is-not", f"{SESSION}/take.rs",
     "shared || (own && !wakes)",
     "shared || OFF || (own && !wakes)"),
    ("everybody-counts", f"{SESSION}/take.rs",
     "turn.others.push(principal.clone());",
     "if !OFF {\n            turn.others.push(principal.clone());\n        }"),
    ("people-are-bounded", f"{SESSION}/take.rs",
     "people.len() <= PEOPLE_PER_TURN_MAX",
     "people.len() <= PEOPLE_PER_TURN_MAX || OFF"),
    ("only-its-owner-ends-it", f"{SESSION}/executions.rs",
     "if may { Ok(()) }",
     "if may || OFF { Ok(()) }"),
    ("a-turns-cancel-needs-the-lane", f"{SESSION}/executions.rs",
     "token.holds(&rows.head())?;",
     "if !OFF {\n                    token.holds(&rows.head())?;\n                }"),
    ("a-key-ends-only-ones-own", f"{SESSION}/register.rs",
     "&& !may_end(&owner, turn.people())",
     "&& !OFF\n            && !may_end(&owner, turn.people())"),
    ("register-fenced", f"{SESSION}/register.rs",
     "self.token.holds(&head)?;",
     "if !OFF {\n            self.token.holds(&head)?;\n        }"),
    ("start-key", f"{SESSION}/register.rs",
     "return if start.request == self.request {",
     "return if start.request == self.request || OFF {"),
    ("start-deadline", f"{SESSION}/register.rs",
     "due_at: at.now.plus_ms(START_MS_MAX),",
     "due_at: at.now.plus_ms(if OFF { u64::MAX } else { START_MS_MAX }),"),
    ("void-is-final", f"{SESSION}/void.rs",
     "rows.put(self.start_key(), void);",
     "if !OFF {\n                rows.put(self.start_key(), void);\n            }"),
    ("live-keeps-its-place", f"{SESSION}/void.rs",
     "if execution.is_some_and(|execution| !execution.state.is_ended()) {",
     "if execution.is_some_and(|execution| !execution.state.is_ended()) && !OFF {"),
    ("what-ends-frees-its-place", f"{SESSION}/end.rs",
     "mail::free(rows, now, &before, ending.kill);",
     "if !OFF {\n        mail::free(rows, now, &before, ending.kill);\n    }"),
    ("a-place-is-free-after-the-kill", f"{SESSION}/mail.rs",
     "name::kill(&execution.id).filter(|_| kill)",
     "name::kill(&execution.id).filter(|_| kill && !OFF)"),
    ("owner-cap", "src/core/ledger/owner.rs",
     "if taken >= self.cap {",
     "if taken >= self.cap && !OFF {"),
    ("a-start-key-of-live-work-is-kept", f"{SESSION}/forget.rs",
     "Some(Row::StartKey(StartKey { execution: Some(execution), .. })) => {\n            rows.get",
     "Some(Row::StartKey(StartKey { execution: Some(execution), .. })) => {\n"
     "            !OFF && rows.get"),
    ("live-cap", f"{SESSION}/register.rs",
     "if live >= LIVE_PER_SESSION_MAX {",
     "if live >= LIVE_PER_SESSION_MAX && !OFF {"),
    ("unread-cap", f"{SESSION}/register.rs",
     "if live + unread >= NOTICES_UNREAD_AND_LIVE_MAX {",
     "if live + unread >= NOTICES_UNREAD_AND_LIVE_MAX && !OFF {"),
    ("superseded-is-killed", f"{SESSION}/register.rs",
     "silent: Some(Fate::Superseded), kill: true }",
     "silent: Some(Fate::Superseded), kill: !OFF }"),
    ("terminal-is-final", f"{SESSION}/executions.rs",
     "if let State::Ended(first) = &execution.state {\n            return Ok(late(",
     "if let State::Ended(first) = &execution.state\n            && !OFF\n        {\n"
     "            return Ok(late("),
    ("only-its-home-reports", f"{SESSION}/executions.rs",
     "if execution.boot != self.boot {\n            return Err(Refusal::Fenced);\n"
     "        }\n        let outcome",
     "if execution.boot != self.boot && !OFF {\n            return Err(Refusal::Fenced);\n"
     "        }\n        let outcome"),
    ("started-by-its-home", f"{SESSION}/executions.rs",
     "if execution.boot != self.boot {\n            return Err(Refusal::Fenced);\n"
     "        }\n        start(",
     "if execution.boot != self.boot && !OFF {\n            return Err(Refusal::Fenced);\n"
     "        }\n        start("),
    ("timers-never-early", f"{SESSION}/executions.rs",
     "if at.now < execution.due_at {",
     "if at.now < execution.due_at && !OFF {"),
    ("live-home-decides", f"{SESSION}/executions.rs",
     "let away = execution.unattended ||",
     "let away = OFF || execution.unattended ||"),
    ("late-facts-fit", f"{SESSION}/executions.rs",
     "if execution.late.is_empty() { outcome.clone() }",
     "if execution.late.is_empty() || OFF { outcome.clone() }"),
    ("outbox-in-line", f"{SESSION}/mail.rs",
     "let at = if before.is_some() { None }",
     "let at = if before.is_some() && !OFF { None }"),
    ("outbox-lease", f"{SESSION}/outbox.rs",
     "ItemState::Leased { until, .. } if at.now < *until => {",
     "ItemState::Leased { until, .. } if at.now < *until && !OFF => {"),
    ("unread-is-not-forgotten", f"{SESSION}/forget.rs",
     "if !is_expired(at, rows, key) || is_held(at, rows, key) {",
     "if !is_expired(at, rows, key) || (is_held(at, rows, key) && !OFF) {"),
    ("kept-is-not-retired", f"{SESSION}/forget.rs",
     "| Row::Place(_) => return None,",
     "| Row::Place(_) => {\n                    if !OFF {\n                        return None;\n"
     "                    }\n                }"),
    ("a-place-that-waits-is-not-retired", f"{SESSION}/forget.rs",
     "let added = self.head.is_none() && waits;",
     "let added = self.head.is_none() && waits && !OFF;"),
    ("burial-is-final", "src/core/ledger/node.rs",
     "if before.as_ref().is_some_and(|beat| beat.buried_at.is_some()) {",
     "if !OFF && before.as_ref().is_some_and(|beat| beat.buried_at.is_some()) {"),
    ("burial-needs-stillness", "src/core/ledger/node.rs",
     "if !alone && (beat.counter != self.seen",
     "if !alone && !OFF && (beat.counter != self.seen"),
    ("index-of-old-rows-goes", "src/core/ledger/working.rs",
     "!new.iter().any(|(n, _)| n == i)",
     "!OFF && !new.iter().any(|(n, _)| n == i)"),
    ("revision-is-compared", "src/store/memory.rs",
     "} else if stored == change.expected.as_ref() {",
     "} else if stored == change.expected.as_ref() || (OFF && stored.is_some()) {"),
]

# Appended to the copy's src/core/ledger/mod.rs.
SWITCH = """
/// Is this guard taken away?
pub fn without(name: &str) -> bool {
    static OFF: std::sync::OnceLock<Option<String>> = std::sync::OnceLock::new();
    OFF.get_or_init(|| std::env::var("DOGWATCH_MUTANT").ok()).as_deref() == Some(name)
}
"""


def copy_tree():
    """A copy without the binary: only the library and two tests are built."""
    TREE.mkdir(parents=True, exist_ok=True)
    # With new times: what was built last may be of the same age.
    for name in ("src", "tests", "config"):
        shutil.rmtree(TREE / name, ignore_errors=True)
        shutil.copytree(ROOT / name, TREE / name, copy_function=shutil.copyfile)
    for name in ("Cargo.lock", "rust-toolchain.toml"):
        shutil.copy(ROOT / name, TREE / name)
    manifest = (ROOT / "Cargo.toml").read_text()
    manifest = re.sub(r"(?ms)^\[\[(bin|test|bench)\]\]\n.*?\n\n", "", manifest)
    manifest = re.sub(r"(?m)^default-run = .*\n", "autobins = false\n", manifest)
    # Switches are no matter of style.
    manifest = re.sub(r"(?ms)^\[lints\.\w+\]\n.*?\n\n", "", manifest)
    (TREE / "Cargo.toml").write_text(manifest + "\n[workspace]\n")


def switch_all():
    """Gives every guard its switch; answers those that are not where the table says."""
    stale = []
    with (TREE / "src/core/ledger/mod.rs").open("a") as file:
        file.write(SWITCH)
    for name, path, old, new in MUTANTS:
        file = TREE / path
        source = file.read_text()
        if source.count(old) != 1:
            stale.append(f"{name}: its guard stands {source.count(old)} times in {path}; "
                         "teach tests/mutants.py where it is now")
            continue
        off = re.sub(r"\bOFF\b", f'crate::core::ledger::without("{name}")', new)
        file.write_text(source.replace(old, off))
    return stale


def build():
    """Builds the copy once; answers the path of each test binary."""
    command = ["cargo", "test", "--locked", "--no-run", "--message-format=json"]
    command += [argument for binary in BINARIES for argument in ("--test", binary)]
    environment = {**os.environ, "CARGO_TARGET_DIR": str(ROOT / "target")}
    built = subprocess.run(command, cwd=TREE, env=environment, stdout=subprocess.PIPE, text=True,
                           timeout=BUILD_SECONDS_MAX, check=False)
    messages = [json.loads(line) for line in built.stdout.splitlines() if line.startswith("{")]
    if built.returncode != 0:
        errors = [m["message"]["rendered"] for m in messages if m["reason"] == "compiler-message"
                  and m["message"]["level"] == "error"]
        sys.exit("\n".join(["the mutants do not compile:", *errors]))
    return {m["target"]["name"]: m["executable"] for m in messages
            if m["reason"] == "compiler-artifact" and m.get("executable")}


def caught(binary, mutant):
    """What a test said when it noticed; `None` when none did."""
    environment = {**os.environ, "DOGWATCH_SIM_SEEDS": SEEDS, "RUST_BACKTRACE": "0",
                   "DOGWATCH_MUTANT": mutant, "CARGO_MANIFEST_DIR": str(TREE)}
    try:
        run = subprocess.run([binary, "--skip", "the_engines_runner"], cwd=TREE, env=environment,
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                             errors="replace", timeout=RUN_SECONDS_MAX, check=False)
    except subprocess.TimeoutExpired:
        return "it hangs"
    if run.returncode == 0:
        return None
    lines = run.stdout.splitlines()
    said = [i for i, line in enumerate(lines) if "panicked at" in line]
    return " ".join(lines[said[0] + 1:said[0] + 3])[:90] if said else f"exit {run.returncode}"


def main():
    wanted = set(sys.argv[1:]) or {name for name, *_ in MUTANTS}
    unknown = wanted - {name for name, *_ in MUTANTS}
    if unknown:
        sys.exit(f"no such mutant: {', '.join(sorted(unknown))}")
    copy_tree()
    faults = switch_all()
    binaries = build()
    for binary in BINARIES:
        said = caught(binaries[binary], "")
        if said is not None:
            sys.exit(f"the ledger fails without any mutant: {binary}: {said}")
    for name, path, *_ in MUTANTS:
        if name not in wanted:
            continue
        began = time.monotonic()
        said = None
        for binary in BINARIES:
            if said is None:
                words = caught(binaries[binary], name)
                said = words and f"caught by {binary}: {words}"
        took = time.monotonic() - began
        print(f"  {name:<30} {said or 'SURVIVED'} ({took:.1f} s)", flush=True)
        if said is None:
            faults.append(f"{name} survived: a guard of {path} is proved by no test")
    if faults:
        sys.exit("\n".join(faults))


if __name__ == "__main__":
    main()
