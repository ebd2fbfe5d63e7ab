#!/usr/bin/env python3
"""Takes each guard of the ledger away, one at a time, and expects a test to notice.

A copy of the package under target/mutants/ is changed, built and run through the simulator and the
tests of the ledger's operations. A mutant that survives fails this script: then a guard could be
lost and nobody would know. Names given as arguments run these mutants only.
"""

import os
import re
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TREE = ROOT / "target" / "mutants"
LEDGER = "src/core/ledger"
SESSION = f"{LEDGER}/session"
# Worlds of each kind; a mutant that these do not catch has survived.
SEEDS = "300"
# The quick one first; the other is built only where the first did not notice.
BINARIES = ("ledger", "sim")
# One mutant, built and run.
SECONDS_MAX = 300


@dataclass(frozen=True)
class Mutant:
    """A guard, where it stands, and the code without it."""

    name: str
    file: str
    old: str
    new: str


MUTANTS = [
    Mutant(
        "fence-grows",
        f"{SESSION}/claim.rs",
        "head.fence += 1;\n            turn.fence = head.fence;",
        "turn.fence = head.fence;",
    ),
    Mutant(
        "stop-id",
        f"{SESSION}/stop.rs",
        "if rows.head().stops.contains(&self.stop) {",
        "if false {",
    ),
    Mutant(
        "collect-bound-to-turn",
        f"{SESSION}/append.rs",
        "arrival.standing = Standing::Offered(turn.no);",
        "arrival.standing = Standing::Settled {\n"
        "        fate: crate::core::execution::Fate::Collected,\n"
        "        turn: turn.no,\n"
        "    };",
    ),
    Mutant(
        "commit-carried-is-seen",
        f"{SESSION}/closing.rs",
        "if turn.seen != turn.carried.len() || turn.len == 0 {",
        "if turn.len == 0 {",
    ),
    Mutant(
        "commit-last-word",
        f"{SESSION}/closing.rs",
        "Some(Body::Model { calls, .. }) => calls.is_empty(),",
        "Some(Body::Model { .. }) => true,",
    ),
    Mutant(
        "stop-all-ends-live",
        f"{SESSION}/stop.rs",
        "for id in &live {",
        "for id in live.iter().take(0) {",
    ),
    Mutant(
        "stop-all-ends-unread",
        f"{SESSION}/stop.rs",
        ".map(|inbox| std::mem::take(&mut inbox.notices))",
        ".map(|inbox| inbox.notices.split_off(inbox.notices.len()))",
    ),
    Mutant(
        "stop-raises-generation",
        f"{SESSION}/stop.rs",
        "head.generation += 1;",
        "",
    ),
    Mutant(
        "stopped-is-stopped",
        f"{SESSION}/stop.rs",
        "head.stopped = true;",
        "",
    ),
    Mutant(
        "stop-writes-unanswered",
        f"{SESSION}/stop.rs",
        "if let Some(body) = body {\n                write(",
        "if let Some(body) = body.filter(|_| false) {\n                write(",
    ),
    Mutant(
        "late-message-clears-nothing",
        f"{SESSION}/accept.rs",
        "self.incoming.source_at <= until);",
        "self.incoming.source_at > until);",
    ),
    Mutant(
        "strip-carries-of-the-tail",
        f"{SESSION}/release.rs",
        "entry.carries.clear();",
        "",
    ),
    Mutant(
        "back-at-its-place",
        f"{SESSION}/end.rs",
        "list.insert(place, unread);",
        "list.insert(place.max(list.len()), unread);",
    ),
    Mutant(
        "split-before-death",
        f"{SESSION}/release.rs",
        "} else if alone && turn.seen == 0 && !carried.collect {",
        "} else if turn.seen == 0 && !carried.collect {",
    ),
    Mutant(
        "solo-takes-no-more",
        f"{SESSION}/append.rs",
        "if self.take && !turn.solo {",
        "if self.take {",
    ),
    Mutant(
        "buried-is-told",
        f"{SESSION}/release.rs",
        "if died || turn.seen > 0 {",
        "if died {",
    ),
    Mutant(
        "revision-is-compared",
        "src/store/memory.rs",
        "} else if stored == change.expected.as_ref() {",
        "} else if stored == change.expected.as_ref() || stored.is_some() {",
    ),
    Mutant(
        "register-fenced",
        f"{SESSION}/register.rs",
        "let head = rows.head();\n        self.token.holds(&head)?;",
        "let head = rows.head();",
    ),
    Mutant(
        "start-key",
        f"{SESSION}/register.rs",
        "return if start.request == self.request {",
        "return if start.request != self.request {",
    ),
    Mutant(
        "start-deadline",
        f"{SESSION}/register.rs",
        "due_at: at.now.plus_ms(START_MS_MAX),",
        "due_at: at.now.plus_ms(START_MS_MAX * 1_000_000),",
    ),
    Mutant(
        "terminal-is-final",
        f"{SESSION}/executions.rs",
        "if let State::Ended(first) = &execution.state {\n            return Ok(late(",
        "if let State::Ended(first) = &execution.state\n"
        "            && first.status == Status::Superseded\n        {\n            return Ok(late(",
    ),
    Mutant(
        "only-its-home-reports",
        f"{SESSION}/executions.rs",
        "        if execution.boot != self.boot {\n            return Err(Refusal::Fenced);\n"
        "        }\n        let outcome",
        "        let outcome",
    ),
    Mutant(
        "started-by-its-home",
        f"{SESSION}/executions.rs",
        "        if execution.boot != self.boot {\n            return Err(Refusal::Fenced);\n"
        "        }\n        start(",
        "        start(",
    ),
    Mutant(
        "timers-never-early",
        f"{SESSION}/executions.rs",
        "if at.now < execution.due_at {",
        "if at.now < execution.registered_at {",
    ),
    Mutant(
        "live-home-decides",
        f"{SESSION}/executions.rs",
        "let away = execution.unattended || self.buried.as_ref() == Some(&execution.boot);",
        "let away = execution.due_at > Timestamp::ZERO;",
    ),
    Mutant(
        "append-token",
        f"{SESSION}/append.rs",
        "self.token.holds(&rows.head())?;",
        "",
    ),
    Mutant(
        "append-expected-length",
        f"{SESSION}/append.rs",
        "if end >= self.at + self.new.len() as u64 && end > self.at {",
        "if end >= self.at + self.new.len() as u64 + 1_000 {",
    ),
    Mutant(
        "commit-token",
        f"{SESSION}/closing.rs",
        "self.token.holds(&rows.head())?;\n        if turn.state",
        "if turn.state",
    ),
    Mutant(
        "renew-token",
        f"{SESSION}/closing.rs",
        "self.token.holds(&rows.head())?;\n        if at.sole_boot",
        "if at.sole_boot",
    ),
    Mutant(
        "compact-token",
        f"{SESSION}/closing.rs",
        "self.token.holds(&head)?;",
        "",
    ),
    Mutant(
        "release-token",
        f"{SESSION}/release.rs",
        "self.token.holds(&rows.head())?;",
        "",
    ),
    Mutant(
        "all-dedupe-keys",
        f"{SESSION}/accept.rs",
        "self.incoming.keys.iter().find_map(",
        "self.incoming.keys.iter().take(1).find_map(",
    ),
    Mutant(
        "claim-waits-for-the-lane",
        f"{SESSION}/claim.rs",
        "if lane.boot != self.boot && is_valid(lane, at) {",
        "if lane.boot != self.boot && is_valid(lane, at) && head.open.is_none() {",
    ),
    Mutant(
        "claim-not-before",
        f"{SESSION}/claim.rs",
        "if at.now < head.not_before {",
        "if at.now < Timestamp::ZERO {",
    ),
    Mutant(
        "claim-buries-crash-loops",
        f"{SESSION}/claim.rs",
        "if turn.attempt >= ATTEMPTS_MAX {\n                let reason",
        "if turn.attempt >= ATTEMPTS_MAX * 1_000 {\n                let reason",
    ),
    Mutant(
        "one-principal",
        f"{SESSION}/take.rs",
        "open.filter(|unread| unread.principal == *principal)\n",
        "open.filter(|_| true)\n",
    ),
    Mutant(
        "collect-of-its-principal",
        f"{SESSION}/append.rs",
        "if arrival.standing != Standing::Pending || arrival.principal != turn.principal {",
        "if arrival.standing != Standing::Pending {",
    ),
    Mutant(
        "nobody-asked-nobody-woken",
        f"{SESSION}/end.rs",
        "None if !before.notify.wakes_agent() => ModelReceipt::Fate(Fate::Waived),",
        "",
    ),
    Mutant(
        "people-are-told",
        f"{SESSION}/end.rs",
        "    if tell && let Some(ended)",
        "    if tell\n        && now < Timestamp::ZERO\n        && let Some(ended)",
    ),
    Mutant(
        "superseded-is-killed",
        f"{SESSION}/register.rs",
        "silent: Some(Fate::Superseded), kill: true }",
        "silent: Some(Fate::Superseded), kill: false }",
    ),
    Mutant(
        "a-wake-is-drawn",
        f"{SESSION}/claim.rs",
        "chain.wakes = chain.wakes.saturating_sub(1);",
        "chain.wakes = chain.wakes.saturating_sub(0);",
    ),
    Mutant(
        "outbox-in-line",
        f"{SESSION}/mail.rs",
        "let at = if before.is_some() { None } else { Some(now) };",
        "let at = Some(now);",
    ),
    Mutant(
        "outbox-lease",
        f"{SESSION}/outbox.rs",
        "ItemState::Leased { until, .. } if at.now < *until => {",
        "ItemState::Leased { until, .. } if at.now < *until && item.at.is_none() => {",
    ),
    Mutant(
        "burial-is-final",
        f"{LEDGER}/node.rs",
        "if before.as_ref().is_some_and(|beat| beat.buried_at.is_some()) {",
        "if false {",
    ),
    Mutant(
        "burial-needs-stillness",
        f"{LEDGER}/node.rs",
        "if !alone && (beat.counter != self.seen || at.now.since_ms(beat.at) < LEASE_MS) {",
        "if !alone && beat.counter > self.seen + 1_000_000 + LEASE_MS {",
    ),
    Mutant(
        "unread-is-not-forgotten",
        f"{SESSION}/forget.rs",
        "if !is_expired(at, rows, key) || is_held(at, rows, key) {",
        "if !is_expired(at, rows, key) {",
    ),
    Mutant(
        "kept-is-not-retired",
        f"{SESSION}/forget.rs",
        "| Row::Beat(_) => return None,",
        "| Row::Beat(_) => {}",
    ),
    Mutant(
        "index-of-old-rows-goes",
        f"{LEDGER}/working.rs",
        "!new.iter().any(|(n, _)| n == i)",
        "new.iter().any(|(n, _)| n == i)",
    ),
]


def copy_tree():
    """A copy without the binary: only the library and two tests are built."""
    TREE.mkdir(parents=True, exist_ok=True)
    # With new times: what was built last may have been a mutant of the same text's age.
    for name in ("src", "tests", "config"):
        shutil.rmtree(TREE / name, ignore_errors=True)
        shutil.copytree(ROOT / name, TREE / name, copy_function=shutil.copyfile)
    for name in ("Cargo.lock", "rust-toolchain.toml"):
        shutil.copy(ROOT / name, TREE / name)
    manifest = (ROOT / "Cargo.toml").read_text()
    manifest = re.sub(r"(?ms)^\[\[bin\]\]\n.*?\n\n", "", manifest)
    manifest = re.sub(r"(?m)^default-run = .*\n", "autobins = false\n", manifest)
    # A mutant may leave something unused; that is no matter of style.
    manifest = re.sub(r"(?ms)^\[lints\.\w+\]\n.*?\n\n", "", manifest)
    (TREE / "Cargo.toml").write_text(manifest + "\n[workspace]\n")


def cargo(*arguments):
    """Runs cargo on the copy; answers whether it went well, and what it said."""
    environment = {
        **os.environ,
        "CARGO_TARGET_DIR": str(ROOT / "target"),
        "DOGWATCH_SIM_SEEDS": SEEDS,
        "RUST_BACKTRACE": "0",
    }
    done = subprocess.run(
        ["cargo", *arguments],
        cwd=TREE,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        timeout=SECONDS_MAX,
        check=False,
    )
    return done.returncode == 0, done.stdout


def test():
    """Whether all tests pass, what the last one said, and whether it was built at all."""
    for binary in BINARIES:
        command = ("test", "--quiet", "--locked", "--test", binary)
        built, said = cargo(*command, "--no-run")
        if not built:
            return False, said, False
        passed, said = cargo(*command, "--", "--skip", "the_engines_runner")
        if not passed:
            return False, f"{binary}: {why(said)}", True
    return True, "", True


def why(said):
    """The line that names the fault."""
    lines = said.splitlines()
    for i, line in enumerate(lines):
        if "panicked at" in line and i + 1 < len(lines):
            return " ".join(lines[i + 1 : i + 4])[:100]
    return lines[-1][:100] if lines else "no word"


def main():
    wanted = set(sys.argv[1:])
    unknown = wanted - {mutant.name for mutant in MUTANTS}
    if unknown:
        sys.exit(f"no such mutant: {', '.join(sorted(unknown))}")
    copy_tree()
    sound, said, _ = test()
    if not sound:
        sys.exit(f"the ledger fails without any mutant:\n{said}")
    faults = []
    for mutant in MUTANTS:
        if wanted and mutant.name not in wanted:
            continue
        began = time.monotonic()
        file = TREE / mutant.file
        source = file.read_text()
        if source.count(mutant.old) != 1:
            faults.append(f"{mutant.name}: its guard stands {source.count(mutant.old)} times in "
                          f"{mutant.file}; teach tests/mutants.py where it is now")
            print(f"  stale     {mutant.name}", flush=True)
            continue
        file.write_text(source.replace(mutant.old, mutant.new))
        try:
            survived, said, built = test()
        except subprocess.TimeoutExpired:
            survived, said, built = False, "it hangs", True
        finally:
            file.write_text(source)
        took = time.monotonic() - began
        if not built:
            faults.append(f"{mutant.name} does not compile:\n{said[-2000:]}")
            print(f"  no build  {mutant.name}", flush=True)
        elif survived:
            faults.append(f"{mutant.name} survived: a guard of {mutant.file} is proved by no test")
            print(f"  SURVIVED  {mutant.name} ({took:.0f} s)", flush=True)
        else:
            print(f"  caught    {mutant.name} ({took:.0f} s) {said}", flush=True)
    if faults:
        sys.exit("\n".join(faults))


if __name__ == "__main__":
    main()
