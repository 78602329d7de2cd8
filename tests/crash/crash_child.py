"""A run that a test kills: ``crash_child.py FOLDER SINK [POINT COUNT]``.

With POINT the process kills itself by SIGKILL at the COUNT-th time that it comes by there.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "core"))

import toy_plugin

import simrun
from simrun import durability, journal
from simrun.sinks import npy

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


#: Where a process may die: (object, function, before or after it).
POINTS = {
    "before append": (npy.NpySink, "append", True),
    "after append": (npy.NpySink, "append", False),
    "inside sink commit": (npy._Column, "commit", False),
    "after sink commit": (npy.NpySink, "commit", False),
    "before state": (journal.Journal, "_write_state", True),
    "after state": (journal.Journal, "_write_state", False),
    "before rename": (durability, "replace", True),
    "after rename": (durability, "replace", False),
    "before old states go": (journal.Journal, "_remove_old_states", True),
    "after manifest": (journal.Journal, "write", False),
}


def die_at(point: str, count: int) -> None:
    """Arrange for the death."""
    owner, name, before = POINTS[point]
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


if __name__ == "__main__":
    where, which = Path(sys.argv[1]), sys.argv[2]
    if len(sys.argv) > 3:
        die_at(sys.argv[3], int(sys.argv[4]))
    run(where, which)
