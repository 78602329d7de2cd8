#!/usr/bin/env bash
# The main job: a venv with the core and one plugin, a long spiking network inside 1 GiB, and
# what came of it. Needs python3 (3.11 or newer) and pip. Takes a few minutes the first time.
set -euo pipefail
cd "$(dirname "$0")/.."

python=${PYTHON:-python3}
[ -d .venv ] || "$python" -m venv .venv
echo "== installing into .venv (TensorFlow is large: a minute or two)"
.venv/bin/pip install --quiet --constraint tests/constraints.txt \
    ./core ./plugins/nengo_adapter ./plugins/nengo_dl_adapter matplotlib scipy
export PATH="$PWD/.venv/bin:$PATH" MPLBACKEND=Agg

for example in watts_strogatz lorenz; do
    folder=examples/$example
    echo "== $example: simrun --plugin nengo_dl $folder/config.yaml"
    simrun --plugin nengo_dl "$folder/config.yaml"
    simrun inspect "$folder/runs/$example"
    python "$folder/plot.py" "$folder/runs/$example" "$folder/$example.png"
done
