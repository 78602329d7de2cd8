"""A run of 1,000 chunks takes no more memory at its end than near its beginning."""

import json
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import toy_plugin

import simrun

CHUNKS = 1000
UNITS = 4000  # a chunk of 4 steps holds 128 kB
CHILD = """
import json, sys
import simrun, toy_plugin
from simrun import memory

class Watch:
    seen = []

    @simrun.hookimpl(wrapper=True)
    def simrun_execute_chunk(self, simulation, chunk):
        self.seen.append(memory.resident())
        return (yield)

ended = simrun.run(json.loads(sys.argv[1]), plugins=[toy_plugin, Watch()])
print(json.dumps(Watch.seen))
"""


@pytest.fixture
def slow_reader(tmp_path):
    """Opens the run again and again while it goes on, and takes its time over each part."""
    stop, read = threading.Event(), []

    def work():
        while not stop.is_set():
            try:
                run = simrun.open_run(tmp_path / "out")
            except simrun.errors.SimrunError:
                time.sleep(0.01)
                continue
            with run:
                step = run.step
                for start in range(0, step, 500):
                    rows = np.asarray(run["step"][start : start + 500])
                    assert np.array_equal(rows, np.arange(start, start + len(rows)) + 1)
                    read.append(np.asarray(run["x"][start]).sum())
                    stop.wait(0.02)
            stop.wait(0.05)

    thread = threading.Thread(target=work)
    thread.start()
    yield read
    stop.set()
    thread.join()


@pytest.mark.parametrize("sink", ["npy", "hdf5", "zarr"])
def test_memory_is_flat_over_a_thousand_chunks(sink, tmp_path, slow_reader, record_count):
    toy_plugin.write_model(tmp_path, n=UNITS)
    output = {"path": str(tmp_path / "out"), "sink": sink}
    config = {
        "plugin": "toy",
        "model": f"{tmp_path}/model.py:build",
        "steps": 4 * CHUNKS,
        "chunk": 4,
        "probes": [{"name": "x", "object": "x"}, {"name": "step", "object": "step"}],
        "checkpoint": {"every": "1 s"},
        "output": output | ({} if sink == "npy" else {"compression": "none"}),
    }
    done = subprocess.run(
        [sys.executable, "-c", CHILD, json.dumps(config)],
        capture_output=True,
        text=True,
        cwd=Path(toy_plugin.__file__).parent,
    )
    assert done.returncode == 0, done.stderr
    resident = np.array(json.loads(done.stdout.splitlines()[-1]))
    assert len(resident) == CHUNKS
    middle, late = resident[200:600], resident[600:]
    growth = int(late.max() - middle.max())
    slope = np.polyfit(np.arange(800), resident[200:], 1)[0]
    record_count(f"{growth / 1e6:+.2f} MB, {slope / 1e3:+.2f} kB a chunk")
    # 50 MB of samples went through between; what zarr holds of its last shard goes up and down,
    # the allocator's own moods are some 100 kB
    assert growth < 2e6
    assert slow_reader
