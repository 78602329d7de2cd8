"""Small networks of every kind that the nengo_dl adapter is tested with.

Each function builds a new network from fixed seeds. Probes have labels; the tests find them by
those. Sizes are the smallest that still exercise the operators.
"""

import nengo
import numpy as np

from simrun_nengo_dl.compat import load_nengo_dl

nengo_dl = load_nengo_dl()

import tensorflow as tf  # noqa: E402


def lif(n=20):
    with nengo.Network(seed=0) as net:
        stimulus = nengo.Node(lambda t: np.sin(20 * t), label="stimulus")
        exc = nengo.Ensemble(n, 1, label="exc")
        out = nengo.Ensemble(n, 1, label="out")
        nengo.Connection(stimulus, exc)
        nengo.Connection(exc, out, function=np.square, label="square")
        nengo.Probe(out, synapse=0.01, label="decoded")
        nengo.Probe(exc.neurons, label="spikes")
        nengo.Probe(exc.neurons, "voltage", label="voltage")
    return net


def regular_spiking():
    with nengo.Network(seed=1) as net:
        stimulus = nengo.Node([0.5, -0.2])
        ens = nengo.Ensemble(20, 2, neuron_type=nengo.RegularSpiking(nengo.LIFRate()))
        nengo.Connection(stimulus, ens)
        nengo.Probe(ens, synapse=0.03, label="decoded")
        nengo.Probe(ens.neurons, label="spikes")
    return net


def synapses():
    with nengo.Network(seed=2) as net:
        stimulus = nengo.Node(lambda t: [np.cos(30 * t), t])
        for synapse in (
            nengo.Lowpass(0.02),
            nengo.Alpha(0.01),
            nengo.LinearFilter([1.0, 2.0], [0.02, 1.0]),
            nengo.LinearFilter([0.003, 2.0, 1.0], [0.001, 0.02, 1.0]),
            None,
        ):
            node = nengo.Node(size_in=2)
            nengo.Connection(stimulus, node, synapse=synapse)
            nengo.Probe(node, label=f"of {type(synapse).__name__}")
    return net


def triangle():
    """A synapse that nengo-dl sends to Python, with a state of its own."""
    with nengo.Network(seed=3) as net:
        stimulus = nengo.Node(nengo.processes.WhiteSignal(0.5, high=20, seed=3))
        ens = nengo.Ensemble(15, 1)
        nengo.Connection(stimulus, ens, synapse=nengo.synapses.Triangle(0.01))
        nengo.Probe(ens, synapse=nengo.synapses.Triangle(0.02), label="decoded")
    return net


def pes():
    with nengo.Network(seed=4) as net:
        stimulus = nengo.Node(lambda t: np.sin(15 * t))
        pre, post = nengo.Ensemble(20, 1, label="pre"), nengo.Node(size_in=1)
        nengo.Connection(stimulus, pre)
        learned = nengo.Connection(
            pre, post, function=lambda x: 0 * x, learning_rule_type=nengo.PES(1e-3), label="learned"
        )
        error = nengo.Node(size_in=1)
        nengo.Connection(post, error)
        nengo.Connection(stimulus, error, transform=-1)
        nengo.Connection(error, learned.learning_rule)
        nengo.Probe(post, label="post")
        nengo.Probe(learned, "weights", sample_every=0.01, label="weights")
    return net


def bcm_oja():
    with nengo.Network(seed=5) as net:
        stimulus = nengo.Node([0.6])
        pre = nengo.Ensemble(10, 1)
        nengo.Connection(stimulus, pre)
        for rule in (nengo.BCM(1e-9), nengo.Oja(1e-7), [nengo.BCM(1e-9), nengo.Oja(1e-7)]):
            post = nengo.Ensemble(8, 1)
            learned = nengo.Connection(
                pre,
                post,
                solver=nengo.solvers.LstsqL2(weights=True),
                learning_rule_type=rule,
            )
            nengo.Probe(learned, "weights", sample_every=0.005)
            nengo.Probe(post, synapse=0.01)
    return net


def processes():
    with nengo.Network(seed=6) as net:
        signal = nengo.Node(nengo.processes.WhiteSignal(0.1, high=50), size_out=2)
        noise = nengo.Node(nengo.processes.WhiteNoise(nengo.dists.Gaussian(0, 0.1)), size_out=2)
        shown = nengo.Node(nengo.processes.PresentInput([[0, 1], [1, 0.5], [0.3, 0]], 0.013))
        ens = nengo.Ensemble(
            20, 2, noise=nengo.processes.FilteredNoise(nengo.Lowpass(0.01), seed=9)
        )
        for source in (signal, noise, shown):
            nengo.Connection(source, ens, transform=0.4)
        nengo.Probe(ens, synapse=0.01, label="decoded")
        nengo.Probe(signal, label="signal")
        nengo.Probe(noise, label="noise")
    return net


class Counter:
    """A node function that remembers: an array, a list, a number and a generator."""

    def __init__(self):
        self.total = np.zeros(1)
        self.calls = 0
        self.seen = []
        self.rng = np.random.RandomState(3)

    def __call__(self, t, x):
        self.calls += 1
        self.total += x
        self.seen = [*self.seen[-3:], float(x[0])]
        return [self.total[0] / self.calls + sum(self.seen), self.rng.uniform(-0.1, 0.1)]


def stateful_node():
    with nengo.Network(seed=7) as net:
        previous = np.zeros(2)

        def walk(t):
            previous[:] = 0.9 * previous + np.random.RandomState(int(t * 1e6)).normal(size=2)
            return previous

        source = nengo.Node(walk, size_out=2)
        ens = nengo.Ensemble(20, 2)
        node = nengo.Node(Counter(), size_in=1, size_out=2, label="counter")
        nengo.Connection(source, ens)
        nengo.Connection(ens[0], node, synapse=0.005)
        nengo.Connection(node, ens, transform=0.1)
        nengo.Probe(node, label="node")
        nengo.Probe(ens, synapse=0.01, label="decoded")
    return net


def sampled():
    """Periods: whole, fractional, a sum of dt's that isn't whole in floating point, and last."""
    with nengo.Network(seed=8) as net:
        nengo_dl.configure_settings(keep_history=True)
        stimulus = nengo.Node(lambda t: np.sin(20 * t))
        ens = nengo.Ensemble(12, 1, label="ens")
        nengo.Connection(stimulus, ens)
        for label, every in (
            ("five", 0.005),
            ("fractional", 0.0025),
            ("sum", 0.001 + 0.001 + 0.001),
            ("seven", 0.007),
            ("below", 0.0005),
        ):
            nengo.Probe(ens.neurons, sample_every=every, label=label)
        last = nengo.Probe(ens, label="last")
        net.config[last].keep_history = False
    return net


def tensor_node():
    with nengo.Network(seed=9) as net:
        stimulus = nengo.Node(lambda t: [np.sin(20 * t), 0.3])
        node = nengo_dl.TensorNode(
            lambda t, x: tf.stack([x[:, 0] * x[:, 1], x[:, 0] + t], axis=1),
            shape_in=(2,),
            pass_time=True,
            label="product",
        )
        ens = nengo.Ensemble(20, 2)
        nengo.Connection(stimulus, node, synapse=None)
        nengo.Connection(node, ens)
        dense = nengo_dl.Layer(
            tf.keras.layers.Dense(3, kernel_initializer=tf.keras.initializers.GlorotUniform(1))
        )(ens)
        nengo.Probe(node, label="node")
        nengo.Probe(dense, label="dense")
    return net


def direct():
    with nengo.Network(seed=10) as net:
        stimulus = nengo.Node(lambda t: np.sin(20 * t))
        ens = nengo.Ensemble(1, 1, neuron_type=nengo.Direct())
        out = nengo.Ensemble(20, 1, neuron_type=nengo.AdaptiveLIF())
        nengo.Connection(stimulus, ens)
        nengo.Connection(ens, out, function=lambda x: x**2)
        nengo.Probe(out, synapse=0.01, label="decoded")
    return net


def stochastic():
    with nengo.Network(seed=11) as net:
        stimulus = nengo.Node([0.5])
        for kind in (nengo.StochasticSpiking, nengo.PoissonSpiking):
            ens = nengo.Ensemble(15, 1, neuron_type=kind(nengo.LIFRate()))
            nengo.Connection(stimulus, ens)
            nengo.Probe(ens.neurons)
    return net


def sparse(n=40):
    rng = np.random.RandomState(0)
    with nengo.Network(seed=12) as net:
        stimulus = nengo.Node([1.0])
        ens = nengo.Ensemble(n, 1, label="ens")
        index = np.stack([rng.randint(n, size=4 * n), rng.randint(n, size=4 * n)], axis=1)
        index = np.unique(index, axis=0)
        weights = nengo.Sparse((n, n), indices=index, init=rng.uniform(-1e-3, 1e-3, len(index)))
        nengo.Connection(stimulus, ens)
        nengo.Connection(ens.neurons, ens.neurons, transform=weights, synapse=0.005)
        nengo.Probe(ens.neurons, label="spikes")
    return net


def _benchmark(name):
    def build():
        from nengo_dl import benchmarks

        net = getattr(benchmarks, name)(3, 12, nengo.LIF())
        if name == "integrator":
            net.inp.output = np.full(3, 100.0)  # its own input, zero, lets no neuron spike
        net.seed = 13
        return net

    return build


cconv = _benchmark("cconv")
integrator = _benchmark("integrator")
pes_benchmark = _benchmark("pes")
basal_ganglia = _benchmark("basal_ganglia")


def inputs():
    """Two input nodes whose values tests take from files."""
    with nengo.Network(seed=14) as net:
        first = nengo.Node([0.0, 0.0], label="first")
        second = nengo.Node(lambda t: t, label="second")
        ens = nengo.Ensemble(15, 2, label="ens")
        nengo.Connection(first, ens)
        nengo.Connection(second, ens[0])
        nengo.Probe(ens, synapse=0.01, label="decoded")
        nengo.Probe(first, label="first")
    return net


def nested():
    with nengo.Network(seed=15) as net:
        net.sub = nengo.Network(label="sub")
        with net.sub:
            ens = nengo.Ensemble(10, 1, label="ens")
            net.sub.attribute = nengo.Ensemble(5, 1)
        nengo.Ensemble(4, 1, label="twin")
        nengo.Ensemble(4, 1, label="twin")
        nengo.Connection(ens, ens, label="loop")
    return net


def unseeded():
    with nengo.Network() as net:
        nengo.Probe(nengo.Ensemble(10, 1), synapse=0.01)
    return net


# Wide networks, cheap to build (neurons' gains are given, nothing is solved for), in which the
# samples of one chunk take most of the memory.


def _wide(n, dimensions=1):
    gain, bias = nengo.dists.Uniform(1, 3), nengo.dists.Uniform(0, 3)
    return nengo.Ensemble(n, dimensions, gain=gain, bias=bias, label="wide")


def wide(n=2000):
    with nengo.Network(seed=20) as net:
        stimulus = nengo.Node(lambda t: np.sin(20 * t))
        ens = _wide(n)
        nengo.Connection(stimulus, ens.neurons, transform=np.ones((n, 1)))
        nengo.Probe(ens.neurons, label="spikes")
        nengo.Probe(ens.neurons, "voltage", label="voltage")
    return net


def wide_sampled(n=20000):
    with nengo.Network(seed=21) as net:
        nengo.Probe(_wide(n).neurons, sample_every=0.01, label="spikes")
    return net


def wide_input(n=500):
    with nengo.Network(seed=22) as net:
        stimulus = nengo.Node(lambda t: np.full(n, t))
        out = nengo.Node(size_in=n)
        nengo.Connection(stimulus, out, synapse=0.01)
        nengo.Probe(out, label="out")
    return net


def wide_pes(n=1000):
    with nengo.Network(seed=23) as net:
        pre, post = _wide(n), nengo.Node(size_in=1)
        solver = nengo.solvers.NoSolver(np.zeros((n, 1)))
        learned = nengo.Connection(pre, post, solver=solver, learning_rule_type=nengo.PES())
        nengo.Connection(post, learned.learning_rule)
        nengo.Probe(learned, "weights", label="weights")
        nengo.Probe(post, label="post")
    return net


def wide_bcm(n=3000):
    """Weights that a rule changes: 36 MB that go in and come out of each chunk."""
    with nengo.Network(seed=26) as net:
        pre, post = _wide(n), _wide(n)
        weights = np.random.RandomState(0).normal(size=(n, n)) * 1e-6
        learned = nengo.Connection(
            pre.neurons, post.neurons, transform=weights, learning_rule_type=nengo.BCM(1e-12)
        )
        nengo.Probe(post.neurons, label="spikes")
        nengo.Probe(learned, "weights", sample_every=0.05, label="weights")
    return net


def wide_dense(n=2000):
    with nengo.Network(seed=24) as net:
        ens = _wide(n)
        weights = np.random.RandomState(0).normal(size=(n, n)) * 1e-5
        nengo.Connection(ens.neurons, ens.neurons, transform=weights, synapse=0.005)
        nengo.Probe(ens.neurons, label="spikes")
    return net


def wide_synapses(n=1000):
    with nengo.Network(seed=25) as net:
        stimulus = nengo.Node(nengo.processes.WhiteSignal(1.0, high=10), size_out=50)
        ens = _wide(n, 50)
        nengo.Connection(stimulus, ens, synapse=nengo.Alpha(0.01))
        nengo.Probe(ens.neurons, synapse=0.01, label="filtered")
        nengo.Probe(stimulus, synapse=0.1, label="stimulus")
    return net
