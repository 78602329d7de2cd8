"""A run that tests kill, under the real engine: also a script for `fork_server`.

A job is ``{"folder", "sink", "point", "count"}``: with ``point`` the process kills itself by
SIGKILL when it comes by there for the ``count``-th time.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

import toy_plugin

import simrun
import simrun.api  # here, not in each fork
from simrun import durability, journal

STEPS = 60
PROBES = [
    {"name": "x", "object": "x"},
    {"name": "thin", "object": "x", "sample_every": 7},
    {"name": "mean", "object": "x", "sample_every": 4, "reduce": "mean"},
    {"name": "step", "object": "step"},
]


def config(folder: Path, sink: str = "npy") -> dict:
    """A run that commits, with its state, after every chunk."""
    return {
        "plugin": "toy",
        "model": f"{folder}/model.py:build",
        "steps": STEPS,
        "chunk": 5,
        "probes": PROBES,
        "checkpoint": {"every": "1 us"},
        "output": {"path": str(folder / "out"), "sink": sink},
    }


def run(folder: Path, sink: str = "npy"):
    """The run, or what is left of it."""
    return simrun.run(config(folder, sink), plugins=[toy_plugin])


def sink_class(name: str) -> type:
    """The class of a sink, small enough that a run of a few samples has several files."""
    if name == "npy":
        from simrun.sinks.npy import NpySink

        return NpySink
    if name == "hdf5":
        from simrun_storage_hdf5 import sink

        sink.SMALLEST, sink.LARGEST = 512, 1024
        return sink.Hdf5Sink
    from simrun_storage_zarr import layout
    from simrun_storage_zarr.sink import ZarrSink

    layout.CHUNK_BYTES, layout.SHARDS_BYTES, layout.SMALLEST_SHARD = 128, 1024, 256
    return ZarrSink


#: Where a process may die: (object or None for the sink, function, before or after it).
POINTS = {
    "before append": (None, "append", True),
    "after append": (None, "append", False),
    "before sink commit": (None, "commit", True),
    "after sink commit": (None, "commit", False),
    "after sink finish": (None, "finish", False),
    "before tidy": (None, "tidy", True),
    "before state": (journal.Journal, "_write_state", True),
    "after state": (journal.Journal, "_write_state", False),
    "before rename": (durability, "replace", True),
    "after rename": (durability, "replace", False),
    "before old states go": (journal.Journal, "_remove_old_states", True),
    "after manifest": (journal.Journal, "write", False),
}


def die_at(sink: str, point: str, count: int) -> None:
    """Arrange for the death."""
    owner, name, before = POINTS[point]
    owner = owner or sink_class(sink)
    original, calls = getattr(owner, name), [0]

    def wrapped(*args, **kwargs):
        calls[0] += 1
        if before and calls[0] == count:
            os.kill(os.getpid(), signal.SIGKILL)
        result = original(*args, **kwargs)
        if not before and calls[0] == count:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    setattr(owner, name, wrapped)


def run_job(job: dict) -> str:
    """Serve one job."""
    if "point" in job:
        die_at(job["sink"], job["point"], job["count"])
    return run(Path(job["folder"]), job["sink"]).status


if __name__ == "__main__":
    from fork_server import serve

    for each in ("npy", "hdf5", "zarr"):  # imported before the forks
        sink_class(each)
    serve(run_job)
