#!/usr/bin/env bash
# tests/attacks.sh: runs the attack scripts under real shims, as root (where this is root) and as an
# ordinary user, with namespaces (where this machine has them) and without, and prints what each
# attack met: who, tier, attack, stopped or THROUGH, how. Ends with 1 where one came through.
set -euo pipefail

cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."

log="$(mktemp)"
trap 'rm -f -- "$log"' EXIT

ran=0
cargo test --locked --test it sandbox:: -- --nocapture --test-threads=1 >"$log" 2>&1 || ran=1
grep -ahoE '(root|user) \| (Namespaces|Landlock) \| .*' -- "$log" | sort -u
if ((ran)) || ! grep -q 'test result: ok' -- "$log"; then
  cat -- "$log" >&2
  echo "tests/attacks.sh: not everything was stopped, or not everything ran; see above" >&2
  exit 1
fi
