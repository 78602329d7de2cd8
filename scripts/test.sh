#!/usr/bin/env bash
# All the set-up and all the tests. Needs python3 (3.11 or newer), pip and a C++ compiler.
set -euo pipefail
cd "$(dirname "$0")/.."

python=${PYTHON:-python3}
[ -d .venv-test ] || "$python" -m venv .venv-test
.venv-test/bin/pip install --quiet --constraint tests/constraints.txt \
    --requirement tests/requirements.txt
export PATH="$PWD/.venv-test/bin:$PATH" MPLBACKEND=Agg

ruff check
ruff format --check
lint-imports
mypy
NO_MKDOCS_2_WARNING=1 mkdocs build --quiet --site-dir .venv-test/site
# tests are independent of one another and of their order
pytest -n auto --maxprocesses 4 "$@"
