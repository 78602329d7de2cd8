"""Peak memory that `sample_every` of ten steps leaves: simrun against nengo-dl's run_steps.

    python benchmarks/sample_every_memory.py

Growth of VmHWM over 3,000 steps of 5,000 neurons sampled every tenth step, one chunk, each in a
process of its own; and whether the samples are the same (graph mode).
"""

import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
COMMON = f"""
import sys, numpy as np
sys.path.insert(0, {str(HERE)!r})
from simrun import memory
from simrun_nengo_dl.compat import load_nengo_dl
nengo_dl = load_nengo_dl()
import nengo, networks
"""
THEIRS = """
net = networks.medium()
for p in net.probes: p.sample_every = 0.01
with net: nengo_dl.configure_settings(inference_only=True)
sim = nengo_dl.Simulator(net, progress_bar=False, seed=1)
sim.run_steps(20, progress_bar=False); sim.reset()
memory.trim(); memory.reset_peak(); before = memory.resident()
sim.run_steps(3000, progress_bar=False)
print(memory.peak_resident() - before)
np.save(sys.argv[1], sim.data[net.probes[1]])
"""
OURS = f"""
from simrun.adapter import OpenRequest
from simrun.records import Chunk
from simrun_nengo_dl.opening import open_simulation
from simrun_nengo_dl.settings import Settings
import pathlib
original = networks.medium
def thinned():
    net = original()
    for p in net.probes: p.sample_every = 0.01
    return net
networks.thinned = thinned
request = OpenRequest("networks:thinned", {{}}, pathlib.Path({str(HERE)!r}), 1, (),
                      Settings(compile="graph"))
sim = open_simulation(request)
memory.trim(); memory.reset_peak(); before = memory.resident()
block = sim.execute(Chunk(0, 3000, 3000, 3000))
print(memory.peak_resident() - before)
np.save(sys.argv[1], block.samples["spikes"])
"""


def main():
    with tempfile.TemporaryDirectory() as folder:
        growth, samples = [], []
        for number, code in enumerate((THEIRS, OURS)):
            path = f"{folder}/{number}.npy"
            words = [sys.executable, "-c", COMMON + code, path]
            done = subprocess.run(words, check=True, capture_output=True, text=True)
            growth.append(int(done.stdout.split()[-1]))
            samples.append(np.load(path))
    theirs, ours = growth
    print(
        f"run_steps grows by {theirs / 1e6:.0f} MB, simrun by {ours / 1e6:.0f} MB: a factor of "
        f"{theirs / ours:.1f}; same samples: {np.array_equal(*samples)}"
    )


if __name__ == "__main__":
    main()
