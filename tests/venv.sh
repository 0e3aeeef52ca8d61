#!/bin/bash
# Makes .venv with the packages of tests/requirements.txt, and leaves the system's Python alone. Returns at once, without
# network, when it is already so.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

python=/usr/bin/python3  # the one whose venv module the package table installs
stamp=.venv/requirements.sha256
wanted=$("$python" -c 'import sys; print(sys.version)' | cat - tests/requirements.txt | sha256sum)
if [[ -x .venv/bin/python && $(cat "$stamp" 2>/dev/null) == "$wanted" ]]; then
  exit 0
fi
echo "nibble: installing tests/requirements.txt into .venv"
rm -rf .venv
"$python" -m venv .venv
.venv/bin/pip install --quiet --disable-pip-version-check --only-binary=:all: --require-hashes \
  -r tests/requirements.txt </dev/null
echo "$wanted" >"$stamp"
