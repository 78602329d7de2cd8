"""Networks for the tests of the nengo family; importing this imports nengo alone."""

import itertools

import nengo
import numpy as np

# gains and biases are given, so that nothing is solved for: cheap to build
CELLS = {"gain": nengo.dists.Uniform(1, 3), "bias": nengo.dists.Uniform(0, 3)}


def everything(n=12):
    """One of each thing that remembers something, in signals or in Python."""
    count, rng, seen = itertools.count(1), np.random.default_rng(4), []

    def stateful(t):
        seen.append(t)
        return rng.normal(), next(count) % 7, len(seen) % 5

    with nengo.Network(seed=1) as net:
        stimulus = nengo.Node(lambda t: np.sin(20 * t), label="stimulus")
        python = nengo.Node(stateful, label="python")
        signal = nengo.Node(nengo.processes.WhiteSignal(0.05, high=50), label="signal")
        cells = nengo.Ensemble(
            n,
            2,
            label="cells",
            noise=nengo.processes.FilteredNoise(dist=nengo.dists.Gaussian(0, 1)),
        )
        adaptive = nengo.Ensemble(n, 1, neuron_type=nengo.AdaptiveLIF(), label="adaptive")
        poisson = nengo.Ensemble(
            n, 1, neuron_type=nengo.PoissonSpiking(nengo.LIFRate()), label="poisson"
        )
        echo = nengo.Node(lambda t, x: x * t, size_in=1, label="echo")
        nengo.Connection(stimulus, cells[0])
        nengo.Connection(signal, cells[1], synapse=nengo.Alpha(0.01))
        nengo.Connection(python, adaptive, transform=[[0.1, 0.1, 0.1]], synapse=0.01)
        nengo.Connection(cells, cells, function=lambda x: x[::-1], synapse=0.02)
        nengo.Connection(cells[0], echo, synapse=nengo.Triangle(0.005))
        nengo.Connection(stimulus, poisson)
        learned = nengo.Connection(
            cells,
            adaptive,
            function=lambda x: x[0],
            learning_rule_type=nengo.PES(),
            label="learned",
        )
        nengo.Connection(adaptive, learned.learning_rule)
        nengo.Probe(cells.neurons, label="own")
    return net


def lif(n=60, dimensions=1):
    """Spiking neurons driven by values that float32 has too."""
    with nengo.Network(seed=2) as net:
        stimulus = nengo.Node(lambda t: np.float32(np.sin(10 * t)), label="stimulus")
        cells = nengo.Ensemble(n, dimensions, label="cells")
        nengo.Connection(stimulus, cells, synapse=None)
    return net


def recurrent(n=50):
    """Two populations, each of which drives the other, decoded and filtered."""
    with nengo.Network(seed=3) as net:
        stimulus = nengo.Node(lambda t: [np.cos(12 * t), np.sin(12 * t)], label="stimulus")
        cells = nengo.Ensemble(n, 2, label="cells")
        rates = nengo.Ensemble(n, 2, neuron_type=nengo.LIFRate(), label="rates")
        nengo.Connection(stimulus, cells, synapse=0.005)
        nengo.Connection(cells, rates, synapse=0.01)
        nengo.Connection(rates, cells, transform=0.2, synapse=0.02)
    return net


def wide(n=2000):
    """The samples of one chunk take most of the memory."""
    with nengo.Network(seed=4) as net:
        stimulus = nengo.Node(lambda t: np.sin(20 * t), label="stimulus")
        cells = nengo.Ensemble(n, 1, label="cells", **CELLS)
        nengo.Connection(stimulus, cells.neurons, transform=np.ones((n, 1)))
    return net


def many(ensembles=12, n=20):
    """Populations that sum each other's output: operators that nengo merges and orders."""
    with nengo.Network(seed=5) as net:
        stimulus = nengo.Node(lambda t: np.sin(6 * t), label="stimulus")
        cells = [
            nengo.Ensemble(n, 2, noise=nengo.processes.WhiteNoise(), label=f"cells{i}")
            for i in range(ensembles)
        ]
        for each in cells:
            nengo.Connection(stimulus, each[0])
            for other in cells[:4]:
                nengo.Connection(each, other, transform=0.3)
    return net


def inputs():
    with nengo.Network(seed=6) as net:
        first = nengo.Node([0.0, 0.0], label="first")
        second = nengo.Node(lambda t: t, label="second")
        cells = nengo.Ensemble(15, 2, label="cells", **CELLS)
        nengo.Connection(first, cells)
        nengo.Connection(second, cells[0])
        nengo.Probe(first, label="first")
        nengo.Probe(second, label="second")
    return net


def failing():
    with nengo.Network(seed=7) as net:
        nengo.Probe(nengo.Node(lambda t: 1 / (0.005 - t) if t < 0.0045 else t / 0, label="bad"))
    return net


def returning(value):
    with nengo.Network(seed=8) as net:
        bad = nengo.Node(lambda t: float(value) if t > 0.0035 else 1.0, size_out=1, label="bad")
        nengo.Probe(bad)
    return net


def for_ocl(n=12):
    """As `everything`, of what nengo-ocl has: generators and filters on the device."""
    rng = np.random.default_rng(4)
    seen = []

    def stateful(t):
        seen.append(t)
        return rng.normal(), len(seen) % 5

    with nengo.Network(seed=1) as net:
        stimulus = nengo.Node(lambda t: np.sin(20 * t), label="stimulus")
        net.python = nengo.Node(stateful, label="python")
        net.cells = nengo.Ensemble(n, 2, label="cells", noise=nengo.processes.WhiteNoise())
        adaptive = nengo.Ensemble(n, 1, neuron_type=nengo.AdaptiveLIF(), label="adaptive")
        filtered = nengo.Node(
            nengo.processes.FilteredNoise(dist=nengo.dists.Gaussian(0, 0.1)), label="filtered"
        )
        net.echo = nengo.Node(lambda t, x: x * t, size_in=1, label="echo")
        nengo.Connection(stimulus, net.cells[0])
        nengo.Connection(net.python, net.cells, transform=0.1, synapse=nengo.Alpha(0.01))
        nengo.Connection(filtered, adaptive)
        nengo.Connection(net.cells, net.cells, function=lambda x: x[::-1], synapse=0.02)
        nengo.Connection(net.cells[0], net.echo, synapse=0.005)
        learned = nengo.Connection(
            net.cells, adaptive, function=lambda x: x[0], learning_rule_type=nengo.PES()
        )
        nengo.Connection(adaptive, learned.learning_rule)
        nengo.Probe(net.cells.neurons, label="own")
    return net


def with_a_generator():
    numbers = (float(i) for i in range(10**6))
    with nengo.Network(seed=9) as net:
        nengo.Probe(nengo.Node(lambda t: next(numbers), size_out=1, label="counting"))
    return net
