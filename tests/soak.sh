#!/usr/bin/env bash
# tests/soak.sh HOURS: runs the simulator with fresh seeds and the real program under random kills,
# in turn, until HOURS (a fraction will do) have passed. Prints each seed, how many schedules were
# run and what the audits said; ends with 1 at the first failure and says how to replay it.
# Begins with 10 GB through the pipe of one script; DOGWATCH_FLOOD_BYTES asks for another size.
set -euo pipefail

cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."

hours="${1:-}"
if ! [[ "$hours" =~ ^([0-9]+([.][0-9]*)?|[.][0-9]+)$ ]]; then
  echo "usage: tests/soak.sh HOURS    such as 1, or 0.1 for six minutes" >&2
  exit 64
fi
seconds="$(awk -v hours="$hours" 'BEGIN { printf "%d", hours * 3600 }')"
log="$(mktemp)"
trap 'rm -f -- "$log"' EXIT
schedules=0 rounds=0

say() { printf '%s\n' "$*"; }

# Runs a test, shows the lines that begin with a word, and stops where it fails.
try() {
  local shown="$1" replay="$2"
  shift 2
  # A name that no test has any more is a failure too.
  if ! "$@" >"$log" 2>&1 || grep -q "result: ok. 0 passed" -- "$log"; then
    cat -- "$log" >&2
    say "FAILED after $SECONDS s, $rounds rounds, $schedules schedules; replay it with: $replay"
    exit 1
  fi
  grep -h -- "^$shown" "$log" || true
}

# A seed of 48 bits, so that every language reads it as a number.
fresh() { od -An -N6 -tu8 /dev/urandom | tr -d ' '; }

cargo test --locked --test sim --test it --no-run >"$log" 2>&1 || { cat -- "$log" >&2; exit 1; }
SECONDS=0

flood="${DOGWATCH_FLOOD_BYTES:-10000000000}"
say "flood: $flood bytes through one pipe"
try "flood" "DOGWATCH_FLOOD_BYTES=$flood cargo test --test it a_gigabyte" \
  env DOGWATCH_FLOOD_BYTES="$flood" cargo test --locked --test it a_gigabyte -- --nocapture

while ((SECONDS < seconds)); do
  rounds=$((rounds + 1))
  first="$(fresh)"
  # Twice over several nodes and over one boot, once plain and once through the engine.
  count=2000
  try "seeds" "DOGWATCH_SIM_FIRST=$first DOGWATCH_SIM_SEEDS=$count cargo test --test sim worlds_of" \
    env DOGWATCH_SIM_FIRST="$first" DOGWATCH_SIM_SEEDS="$count" \
    cargo test --locked --test sim -- worlds_of --nocapture
  schedules=$((schedules + 4 * count))
  say "round $rounds, $SECONDS s: $((4 * count)) schedules from seed $first hold"

  seed="$(fresh)"
  replay="DOGWATCH_CHAOS_SEED=$seed DOGWATCH_CHAOS_SECONDS=60 cargo test --test it -- whatever_is_killed killed_at_random"
  try "\\(chaos\\|replicas\\)" "$replay" \
    env DOGWATCH_CHAOS_SEED="$seed" DOGWATCH_CHAOS_SECONDS=60 \
    cargo test --locked --test it -- whatever_is_killed shims_killed_at_random replicas_that_are_killed \
    --nocapture
done

say "soaked for $SECONDS s: $rounds rounds, $schedules schedules, nothing lost or doubled"
