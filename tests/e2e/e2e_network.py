"""A network for the end-to-end tests: cheap steps, many probed values."""

import nengo
import numpy as np


def build(neurons=1000):
    rng = np.random.default_rng(0)
    with nengo.Network(seed=1) as network:
        stimulus = nengo.Node(lambda t: [np.sin(5 * t)], label="stimulus")
        cells = nengo.Ensemble(
            neurons,
            1,
            gain=rng.uniform(0.5, 2.0, neurons),
            bias=rng.uniform(0.5, 1.5, neurons),
            encoders=rng.choice([-1.0, 1.0], (neurons, 1)),
            label="cells",
        )
        nengo.Connection(stimulus, cells, synapse=0.01)
    return network


def learning(neurons=60):
    """PES, a noise process, and a node function that remembers."""
    count = [0]

    def remember(t, x):
        count[0] += 1
        return x * (1 if count[0] % 200 < 100 else -1)

    with nengo.Network(seed=2) as network:
        noise = nengo.Node(nengo.processes.WhiteSignal(1.0, 5, seed=3), label="noise")
        turned = nengo.Node(remember, size_in=1, label="turned")
        pre = nengo.Ensemble(neurons, 1, label="pre")
        post = nengo.Ensemble(neurons, 1, label="post")
        error = nengo.Node(size_in=1, label="error")
        nengo.Connection(noise, turned, synapse=None)
        nengo.Connection(turned, pre)
        learned = nengo.Connection(
            pre, post, function=lambda x: [0], learning_rule_type=nengo.PES()
        )
        nengo.Connection(post, error)
        nengo.Connection(noise, error, transform=-1)
        nengo.Connection(error, learned.learning_rule)
        nengo.Probe(post, synapse=0.01, label="decoded")
        nengo.Probe(pre.neurons, label="spikes")
    return network
