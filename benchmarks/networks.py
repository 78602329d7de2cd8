"""The networks that the benchmarks run."""

import nengo
import numpy as np
from scipy.sparse import coo_matrix


def small():
    """100 LIF neurons in two ensembles."""
    return two_ensembles(50)


def medium():
    """10,000 LIF neurons in two ensembles, every neuron of one probed."""
    return two_ensembles(5000)


def two_ensembles(neurons):
    with nengo.Network(seed=0) as network:
        # few evaluation points: the decoders are solved in seconds and run as any others
        network.config[nengo.Ensemble].n_eval_points = 300
        stimulus = nengo.Node(lambda t: np.sin(6 * t))
        a = nengo.Ensemble(neurons, 1, label="a")
        b = nengo.Ensemble(neurons, 1, label="b")
        nengo.Connection(stimulus, a)
        nengo.Connection(a, b)
        nengo.Probe(b, synapse=0.01, label="decoded")
        nengo.Probe(a.neurons, label="spikes")
    return network


def large(neurons=100_000, synapses=1_000_000, probed=1000):
    """100,000 LIF neurons with a million random sparse synapses, a thousand neurons probed."""
    rng = np.random.default_rng(0)
    rows, columns = rng.integers(neurons, size=(2, synapses))
    wiring = coo_matrix((rng.normal(0, 0.002, synapses), (rows, columns)), shape=(neurons, neurons))
    wiring.sum_duplicates()
    with nengo.Network(seed=0) as network:
        cells = nengo.Ensemble(
            neurons,
            1,
            gain=rng.uniform(0.5, 1.5, neurons),
            bias=rng.uniform(0.6, 1.6, neurons),
            encoders=rng.choice([-1.0, 1.0], (neurons, 1)),
            label="cells",
        )
        nengo.Connection(
            cells.neurons,
            cells.neurons,
            transform=nengo.Sparse(wiring.shape, init=wiring),
            synapse=0.005,
        )
        nengo.Probe(cells.neurons[:probed], label="spikes")
    return network
