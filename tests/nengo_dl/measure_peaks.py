"""Run as a program: predicted and measured peak memory of chunks, one JSON line for each.

``measure_peaks.py MODE NET:STEPS[:MINIBATCH] …``
"""

import gc
import json
import sys
from pathlib import Path

import psutil
from open_nets import open_net

from simrun import planning
from simrun.records import Chunk
from simrun.sink import SinkEntry

NPY = SinkEntry("npy", "", "", "")


def peak():
    status = Path("/proc/self/status").read_text()
    return next(int(line.split()[1]) * 1024 for line in status.splitlines() if "VmHWM" in line)


def measure(mode, name, steps, minibatch=None):
    minibatch = minibatch and int(minibatch)
    simulation = open_net(name, compile=mode, minibatch_size=minibatch)
    steps = int(steps)
    gc.collect()
    resident = psutil.Process().memory_info().rss
    estimate = planning.complete(
        simulation.estimate_memory(steps), simulation.probes, resident, NPY
    )
    Path("/proc/self/clear_refs").write_text("5")
    # two chunks, the first one's samples still held, as the writer holds them
    blocks = []
    for i in range(2):
        snapshot = simulation.snapshot()
        blocks.append(simulation.execute(Chunk(i * steps, (i + 1) * steps, 10**9, steps)))
        del snapshot  # as the engine does
    measured = peak()
    simulation.close()
    print(
        json.dumps(
            {
                "net": name,
                "predicted": estimate.peak("host", steps),
                "measured": measured,
                "grown": measured - resident,
                "block": blocks[1].nbytes,
                "fixed": sum(item.fixed for item in estimate.items if not item.resident),
                "inputs": steps
                * sum(item.per_step for item in estimate.items if item.name.startswith("input")),
            }
        )
    )


if __name__ == "__main__":
    for item in sys.argv[2:]:
        measure(sys.argv[1], *item.split(":"))
        gc.collect()
