#!/usr/bin/env bash
# Installs what the tests need and runs all of them. From any directory, from a clean clone.
# With CI=true nothing is left out: what cannot run fails.
set -euo pipefail

cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."

say() { printf '\n== %s\n' "$*"; }

# The Debian packages that are missing; silent where all are there.
need() {
  local missing=()
  command -v cc >/dev/null || missing+=(build-essential)
  command -v python3 >/dev/null || missing+=(python3)
  python3 -c 'import ensurepip, venv' 2>/dev/null || missing+=(python3-venv)
  command -v openssl >/dev/null || missing+=(openssl)
  command -v redis-server >/dev/null || missing+=(redis-server)
  ((${#missing[@]})) || return 0

  say "installing ${missing[*]}"
  if ((EUID != 0)); then
    echo "tests/run.sh: ${missing[*]} missing; install them, or run this as root" >&2
    return 1
  fi
  if ! command -v apt-get >/dev/null; then
    echo "tests/run.sh: ${missing[*]} missing, and there is no apt-get to install them" >&2
    return 1
  fi
  export DEBIAN_FRONTEND=noninteractive
  apt-get update -qq
  apt-get install -qq --no-install-recommends "${missing[@]}" >/dev/null
}

if ! command -v cargo >/dev/null; then
  echo "tests/run.sh: cargo missing; install the Rust toolchain with rustup" >&2
  exit 1
fi
need

say "independent peers"
bash tests/peers.sh

say "format"
cargo fmt --check

say "lints"
cargo clippy --locked --all-targets -- -D warnings
cargo clippy --locked --features failpoints --bins --test failpoints -- -D warnings

if cargo deny --version >/dev/null 2>&1; then
  say "dependencies"
  cargo deny --locked check bans licenses sources
fi

# Older ones do not know what is in it.
if [[ -e /etc/apparmor.d/abi/4.0 ]] && command -v apparmor_parser >/dev/null; then
  say "AppArmor profile"
  apparmor_parser --skip-kernel-load --skip-cache contrib/apparmor/dogwatch
fi

say "tests"
if cargo nextest --version >/dev/null 2>&1; then
  runner="nextest"
  profile="default"
  [[ "${CI:-}" == true ]] && profile="ci"
  cargo nextest run --locked --profile "$profile"
  say "killed at every point"
  cargo nextest run --locked --profile "$profile" --features failpoints --test failpoints \
    --success-output immediate
else
  runner="cargo test"
  cargo test --locked --lib --bins --tests
  say "killed at every point"
  cargo test --locked --features failpoints --test failpoints -- --nocapture
fi

say "mutants"
python3 tests/mutants.py

say "documentation"
cargo test --locked --doc --quiet

say "all green: peers, format, lints, tests ($runner), mutants, documentation"
