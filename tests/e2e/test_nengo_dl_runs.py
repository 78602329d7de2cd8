"""simrun with nengo-dl, as users run it: real processes, real kills, real out-of-memory."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import yaml

import simrun

HERE = Path(__file__).parent
MODEL = f"{HERE / 'e2e_network.py'}"
BFC = {"TF_CPU_ALLOCATOR_USE_BFC": "1", "TF_CPU_BFC_MEM_LIMIT_IN_MB": "300"}


def write(folder, name, **changes):
    config = {
        "plugin": "nengo_dl",
        "model": f"{MODEL}:build",
        "steps": 600,
        "seed": 1,
        "probes": [{"name": "spikes", "object": "cells.neurons"}],
        "output": {"path": name},
    } | changes
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(config))
    return path


def command(*arguments, **environment):
    return subprocess.run(
        [sys.executable, "-m", "simrun", *map(str, arguments)],
        capture_output=True,
        text=True,
        env=os.environ | environment,
        timeout=300,
    )


def samples(folder):
    with simrun.open_run(folder) as run:
        return {probe.name: np.array(run[probe.name]) for probe in run.probes}


def same(a, b):
    assert a.keys() == b.keys()
    for name in a:
        assert np.array_equal(a[name], b[name]), name


@pytest.mark.parametrize("compile", ["graph", "xla"])
def test_a_far_too_optimistic_plan_recovers(tmp_path, compile):
    # 20,000 values × 6,000 steps are 458 MiB of samples; TensorFlow has 300 MB
    shared = {
        "model_args": {"neurons": 20_000},
        "steps": 6000,
        "memory": {"host": "1 TiB"},
        "nengo_dl": {"compile": compile},
    }
    config = write(tmp_path, "hopeful", chunk=6000, **shared)
    done = command(config, **BFC)
    assert done.returncode == 0, done.stderr
    assert "trying again with 3000" in done.stderr
    quiet = command(write(tmp_path, "quiet", chunk=500, **shared))
    assert quiet.returncode == 0, quiet.stderr
    same(samples(tmp_path / "hopeful"), samples(tmp_path / "quiet"))


def test_what_cannot_be_recovered_is_explained(tmp_path):
    # the state fits into 300 MB; one sample of each of eight probes, 31 MiB each, doesn't
    config = write(
        tmp_path,
        "hopeless",
        model_args={"neurons": 10_000},
        steps=20,
        chunk=4,
        memory={"host": "1 TiB"},
        probes=[{"name": f"p{n}", "object": "cells.neurons"} for n in range(8)],
        nengo_dl={"minibatch_size": 800, "compile": "graph"},
    )
    done = command(config, **BFC)
    assert done.returncode == 75, done.stderr
    for part in ("memory ran out", "largest:", "minibatch"):
        assert part in done.stderr


def test_killed_and_gone_on_with(tmp_path):
    shared = {"model": f"{MODEL}:learning", "probes": [], "steps": 3000}
    quiet = command(write(tmp_path, "quiet", **shared))
    assert quiet.returncode == 0, quiet.stderr
    config = write(tmp_path, "killed", **shared, chunk=50, checkpoint={"every": "1 ms"})
    process = subprocess.Popen(
        [sys.executable, "-m", "simrun", str(config), "--in-process"], stderr=subprocess.DEVNULL
    )
    manifest = tmp_path / "killed" / "manifest.json"
    while not manifest.exists() or simrun.open_run(manifest.parent).step == 0:
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    with simrun.open_run(manifest.parent) as run:
        step = run.step
        assert 0 < step < 3000
    done = command(config)
    assert done.returncode == 0, done.stderr
    assert re.search(r"going on with steps \d+ to", done.stderr)
    same(samples(tmp_path / "killed"), samples(tmp_path / "quiet"))


def test_ten_times_the_steps_the_same_peak(tmp_path):
    peaks = {}
    for steps in (1000, 50_000):
        config = write(tmp_path, f"n{steps}", model_args={"neurons": 2000}, steps=steps)
        code = (
            f"import simrun; e = simrun.run({str(config)!r});"
            "from simrun.memory import peak_resident; print(peak_resident())"
        )
        # VmHWM of a process of its own, from the first chunk on
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        peaks[steps] = int(done.stdout.split()[-1])
    assert abs(peaks[50_000] / peaks[1000] - 1) < 0.05, peaks


def test_the_example_dies_in_one_piece():
    script = HERE.parents[1] / "examples" / "watts_strogatz" / "one_piece.py"
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True)
    assert done.returncode != 0
    assert "ResourceExhaustedError" in done.stderr
