"""What each knob does to a run's memory: predicted and measured peaks, one process a row.

    python benchmarks/memory_knobs.py

prints the table of docs/memory.md.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

NEURONS = 10_000
NETWORK = f"""
import nengo


def build(n={NEURONS}):
    with nengo.Network(seed=1) as network:
        network.drive = nengo.Node([0.5], label="drive")
        network.cells = nengo.Ensemble(n, 1, label="cells")
        nengo.Connection(network.drive, network.cells)
    return network
"""
PROBE = {"name": "v", "object": "cells.neurons", "attribute": "voltage"}
BASE = {
    "plugin": "nengo_dl",
    "model": "network.py:build",
    "steps": 1200,
    "chunk": 400,
    "probes": [PROBE],
}
ROWS = [
    ("as below", {}),
    ("`chunk: 100`", {"chunk": 100}),
    ("`chunk: 1200` (in one piece)", {"chunk": 1200}),
    ("`sample_every: 10`", {"probes": [PROBE | {"sample_every": 10}]}),
    ("`sample_every: 10`, `reduce: mean`", {
        "probes": [PROBE | {"sample_every": 10, "reduce": "mean"}],
    }),
    ("`format: events` of the spikes (hdf5)", {
        "probes": [PROBE | {"attribute": "output", "format": "events"}],
        "output": {"sink": "hdf5"},
    }),
    ("half the neurons probed", {"model_args": {"n": NEURONS // 2}}),
    ("`minibatch_size: 4`", {"nengo_dl": {"minibatch_size": 4}}),
    ("`dtype: float64`", {"nengo_dl": {"dtype": "float64"}}),
    ("`unroll_simulation: 10`", {"nengo_dl": {"unroll_simulation": 10}}),
    ("`compile: graph`", {"nengo_dl": {"compile": "graph"}}),
]  # fmt: skip
CHILD = """
import json, sys
import simrun
from simrun import memory
config = json.loads(sys.argv[1])
plan = simrun.plan(config).plan
fixed = plan.estimate.fixed("host")
ended = simrun.run(config)
print(json.dumps([fixed, ended.predicted_host, ended.measured_host, plan.output_bytes]))
"""


def measure(change, folder):
    (folder / "network.py").write_text(NETWORK)
    output = {"path": str(folder / "out")} | change.get("output", {})
    config = BASE | change | {"output": output}
    child = [sys.executable, "-c", CHILD, json.dumps(config)]
    out = subprocess.run(child, cwd=folder, capture_output=True, text=True, check=True).stdout
    written = sum(p.stat().st_size for p in (folder / "out" / "data").rglob("*") if p.is_file())
    return (*json.loads(out.splitlines()[-1]), written)


def main():
    print("| knob | fixed | chunk, predicted | peak, measured | error | on the disk |")
    print("|---|---|---|---|---|---|")
    for name, change in ROWS:
        with tempfile.TemporaryDirectory() as folder:
            fixed, predicted, measured, _, written = measure(change, Path(folder))
        mib = [f"{value / 2**20:,.0f} MiB" for value in (fixed, predicted - fixed, measured)]
        error = f"{measured / predicted - 1:+.1%}"
        print(f"| {name} | {' | '.join(mib)} | {error} | {written / 2**20:,.1f} MiB |", flush=True)


if __name__ == "__main__":
    main()
