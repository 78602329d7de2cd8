"""The same network by nengo-dl alone, in one piece, with 1 GiB for TensorFlow: it dies.

    python examples/watts_strogatz/one_piece.py

TensorFlow's limited allocator stands for a GPU of that size.
"""

import os

os.environ["TF_CPU_ALLOCATOR_USE_BFC"] = "1"
os.environ["TF_CPU_BFC_MEM_LIMIT_IN_MB"] = "1024"

from simrun_nengo_dl.compat import load_nengo_dl

nengo_dl = load_nengo_dl()

import nengo
from network import build

network = build()
with network:
    nengo.Probe(network.ensembles[0].neurons)
with nengo_dl.Simulator(network, progress_bar=False, seed=1) as sim:
    sim.run_steps(8000)
    print(sim.data[network.probes[0]].shape)
