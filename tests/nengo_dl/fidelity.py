"""How far the XLA path and nengo-dl are from nengo's own simulator, network by network.

    python tests/nengo_dl/fidelity.py [NETWORK …]

A table for docs/nengo_dl.md: the first step in which any neuron's spike differs, the relative
deviation of the population's mean rate, and of all other probes the root mean square of the
difference over that of the values. In float32, and in float64 the first differing step.
"""

import sys
import warnings
from pathlib import Path

import nengo
import nets_for_nengo_dl as nets
import numpy as np
from open_nets import one_piece, open_net, run, split

STEPS = 1000
NAMES = [
    "lif", "regular_spiking", "synapses", "triangle", "pes", "bcm_oja", "processes", "sparse",
    "inputs", "cconv", "integrator", "pes_benchmark", "basal_ganglia", "adaptive", "izhikevich",
    "chaotic",
]  # fmt: skip


def adaptive():
    return driven(nengo.AdaptiveLIF(tau_n=0.2, inc_n=0.05))


def izhikevich():
    return driven(nengo.Izhikevich())


def driven(neuron_type):
    with nengo.Network(seed=30) as net:
        stimulus = nengo.Node(lambda t: np.sin(7 * t))
        ens = nengo.Ensemble(50, 1, neuron_type=neuron_type)
        nengo.Connection(stimulus, ens)
        nengo.Probe(ens, synapse=0.02)
    return net


def chaotic():
    """Random recurrence in which a difference of 1e-7 has moved all spikes after 0.3 s."""
    n = 300
    rng = np.random.RandomState(1)
    weights = rng.normal(0, 0.006, (n, n)) * (rng.uniform(size=(n, n)) < 0.1)
    with nengo.Network(seed=31) as net:
        cells = nengo.Ensemble(n, 1, gain=np.ones(n), bias=rng.uniform(0.9, 1.6, n))
        nengo.Connection(cells.neurons, cells.neurons, transform=weights, synapse=0.005)
    return net


def build(name):
    """The network, and a probe of each ensemble's spikes."""
    net = globals().get(name, getattr(nets, name, None))()
    with net:
        for ensemble in net.all_ensembles:
            if ensemble.neuron_type.spiking:
                nengo.Probe(ensemble.neurons, label="spikes of")
    return net


def compare(name):
    """For each simulator: first differing step, deviation of the rate, of the other probes."""
    core = build(name)
    labels = [probe.label for probe in core.all_probes]
    with nengo.Simulator(core, seed=1, progress_bar=False) as simulator:
        simulator.run_steps(STEPS)
        truth = [simulator.data[probe] for probe in core.all_probes]
    found = {}
    for label, dtype in (("xla", "float32"), ("nengo-dl", "float32"), ("xla64", "float64")):
        if label == "nengo-dl":
            samples = one_piece(build(name), STEPS)
        else:
            simulation = open_net("fidelity.py:build", args={"name": name}, compile="xla",
                                  dtype=dtype)  # fmt: skip
            samples = list(run(simulation, split(STEPS, 250)).values())
            simulation.close()
        found[label] = deviation(samples, truth, [x == "spikes of" for x in labels])
    return found


def deviation(samples, truth, spikes):
    """First step with another spike (None: none), rate, others."""
    first, counts, rms = None, np.zeros(2), 0.0 if not all(spikes) else None
    for array, exact, are_spikes in zip(samples, truth, spikes, strict=True):
        if are_spikes:
            there = np.abs(array) > 0, np.abs(exact) > 0
            differ = np.flatnonzero((there[0] != there[1]).any(axis=1))
            if len(differ):
                first = min(first or STEPS, int(differ[0]) + 1)
            counts += [x.sum() for x in there]
        else:
            size = np.sqrt(np.mean(np.square(exact, dtype=float)))
            error = np.sqrt(np.mean(np.square(np.subtract(array, exact, dtype=float))))
            rms = max(rms, error / size if size else error)
    rate = abs(counts[0] / counts[1] - 1) if counts[1] else None
    return first, rate, rms


def row(name, found):
    def cells(label):
        first, rate, rms = found[label]
        spiking = rate is not None
        return [
            "–" if not spiking else f"> {STEPS}" if first is None else str(first),
            "–" if not spiking else f"{rate:.1e}" if rate else "0",
            "–" if rms is None else f"{rms:.1e}",
        ]

    return f"| {name} | " + " | ".join([*cells("xla"), *cells("nengo-dl"), *cells("xla64")]) + " |"


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    warnings.simplefilter("ignore")
    print("| network | XLA: first | rate | values | nengo-dl: first | rate | values "
          "| XLA float64: first | rate | values |")  # fmt: skip
    print("|---" * 10 + "|")
    for each in sys.argv[1:] or NAMES:
        print(row(each, compare(each)), flush=True)
