"""A recurrent network of spiking neurons with small-world wiring."""

import nengo
import numpy as np
from scipy.sparse import coo_matrix


def build(neurons=20_000, neighbours=10, rewire=0.1, seed=1):
    """Excitatory and inhibitory LIF neurons on a ring, wired after Watts and Strogatz (1998).

    Each neuron drives ``neighbours`` others: those next to it, except that a share ``rewire``
    of the connections goes to a random neuron instead. One neuron in five inhibits.
    """
    rng = np.random.default_rng(seed)
    source = np.repeat(np.arange(neurons), neighbours)
    target = (source + np.tile(np.arange(1, neighbours + 1), neurons)) % neurons
    rewired = rng.random(len(target)) < rewire
    target[rewired] = rng.integers(neurons, size=rewired.sum())
    inhibits = rng.random(neurons) < 0.2
    weights = np.where(inhibits[source], -0.012, 0.003)
    wiring = coo_matrix((weights, (target, source)), shape=(neurons, neurons))

    with nengo.Network(seed=seed) as network:
        stimulus = nengo.Node(lambda t: 0.5 * np.sin(2 * np.pi * 2 * t), label="stimulus")
        cells = nengo.Ensemble(
            neurons,
            dimensions=1,
            neuron_type=nengo.LIF(),
            gain=rng.uniform(0.5, 1.5, neurons),
            bias=rng.uniform(0.6, 1.4, neurons),
            encoders=rng.choice([-1.0, 1.0], (neurons, 1)),
            label="cells",
        )
        nengo.Connection(stimulus, cells, synapse=None)
        nengo.Connection(
            cells.neurons,
            cells.neurons,
            transform=nengo.Sparse(wiring.shape, init=wiring),
            synapse=0.005,
        )
    return network
