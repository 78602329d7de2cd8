"""On a machine with a GPU: checks the nengo_dl adapter there, and times it. Under 8 minutes.

    python benchmarks/gpu_nengo_dl.py

For each network and each way to execute: samples of chunks of 1, 7 and 50 steps against one
piece, bit for bit; a chunk undone and executed again; steps per second against run_steps; the
predicted peak of device memory against the measured one; and a run that is far too optimistic
for the GPU's memory, recovered. Ends with code 1 if anything failed.
"""

from __future__ import annotations

import sys
import tempfile
import time
import warnings
from pathlib import Path

import networks
import numpy as np

import simrun
from simrun.adapter import OpenRequest
from simrun.records import Chunk
from simrun_nengo_dl.compat import load_nengo_dl
from simrun_nengo_dl.opening import open_simulation
from simrun_nengo_dl.settings import Settings

HERE = Path(__file__).parent
STEPS = 200


def opened(name, compile):
    settings = Settings(compile=compile, device="gpu")
    return open_simulation(OpenRequest(f"networks.py:{name}", {}, HERE, 1, (), settings))


def samples(simulation, chunk, steps=STEPS):
    parts = []
    for start in range(0, steps, chunk):
        stop = min(start + chunk, steps)
        parts.append(simulation.execute(Chunk(start, stop, steps, chunk)).samples)
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def same(a, b):
    return all(np.array_equal(a[name], b[name]) for name in a)


def check(name, compile):
    """Chunk invariance, rollback, prediction, speed; a line and whether all is well."""
    simulation = opened(name, compile)
    begin = simulation.snapshot()
    whole = samples(simulation, STEPS)
    fine = True
    for chunk in (1, 7, 50):
        simulation.restore(begin)
        fine &= same(samples(simulation, chunk), whole)
    simulation.restore(begin)
    simulation.execute(Chunk(0, 30, STEPS, 30))
    simulation.restore(begin)
    fine &= same(samples(simulation, STEPS), whole)
    simulation.restore(begin)
    simulation.reset_device_peak()
    started = time.perf_counter()
    samples(simulation, STEPS)
    rate = STEPS / (time.perf_counter() - started)
    measured, predicted = simulation.device_peak(), simulation.estimate_memory(STEPS)
    ratio = predicted.peak("device", STEPS) / measured if measured else float("nan")
    simulation.close()
    return fine, f"{rate:9.0f} steps/s   predicted/measured device peak {ratio:.2f}"


def run_steps(name):
    nengo_dl = load_nengo_dl()
    network = getattr(networks, name)()
    with network:
        nengo_dl.configure_settings(inference_only=True)
    with nengo_dl.Simulator(network, progress_bar=False, seed=1) as sim:
        sim.run_steps(STEPS, progress_bar=False)
        started = time.perf_counter()
        sim.run_steps(STEPS, progress_bar=False)
        return STEPS / (time.perf_counter() - started)


def recovery():
    """A chunk of a million steps of ten thousand values is 37 GiB several times over."""
    with tempfile.TemporaryDirectory() as folder:
        config = {
            "plugin": "nengo_dl",
            "model": f"{HERE / 'networks.py'}:medium",
            "steps": 20_000,
            "seed": 1,
            "nengo_dl": {"device": "gpu", "compile": "graph"},
        }
        quiet = config | {"output": {"path": f"{folder}/quiet"}}
        hopeful = config | {
            "chunk": 20_000,
            "memory": {"device": "100 TiB", "host": "100 TiB"},
            "output": {"path": f"{folder}/hopeful"},
        }
        simrun.run(quiet)
        simrun.run(hopeful)
        log = Path(folder, "hopeful", "run.log").read_text()
        a, b = (simrun.open_run(f"{folder}/{name}")["spikes"] for name in ("quiet", "hopeful"))
        return "trying again" in log, bool(np.array_equal(a, b))


def main():
    warnings.simplefilter("ignore")
    load_nengo_dl()
    import tensorflow as tf

    gpus = tf.config.list_physical_devices("GPU")
    if not gpus:
        print("TensorFlow sees no GPU here; nothing was checked")
        return 1
    # 4 GiB are enough for everything here, and few enough to run out of
    limit = tf.config.LogicalDeviceConfiguration(memory_limit=4096)
    tf.config.set_logical_device_configuration(gpus[0], [limit])
    well = True
    for name in ("small", "medium", "large"):
        print(f"{name:8s} run_steps {run_steps(name):9.0f} steps/s")
        for compile in ("graph", "xla"):
            fine, line = check(name, compile)
            well &= fine
            print(f"{name:8s} {compile:9s} {line}   {'exact' if fine else 'NOT EXACT'}")
    recovered, exact = recovery()
    print(f"recovery: ran out of memory {recovered}, same samples {exact}")
    return 0 if well and exact else 1


if __name__ == "__main__":
    sys.exit(main())
