"""Synapses, noise, sparse and convolutional transforms and learning rules, compiled by XLA."""

import nengo
import numpy as np
import pytest
import scipy.sparse
from nengo.processes import BrownNoise, FilteredNoise, PresentInput, WhiteNoise, WhiteSignal
from nengo.synapses import Alpha, LinearFilter, Lowpass, Triangle

from operators_driver import Run, core, dl, nengo_dl, operators, settings, tf

STEPS = 1000


def spiking_pair(net, n=40):
    """Two ensembles, the first driven by a sine; both spiking."""
    with net:
        stim = nengo.Node(lambda t: np.sin(7 * t))
        a, b = (nengo.Ensemble(n, 1, seed=i) for i in (1, 2))
        nengo.Connection(stim, a)
    return a, b


def synapses(kind):
    with nengo.Network(seed=0) as net:
        a, b = spiking_pair(net)
        nengo.Connection(a, b, synapse=kind)
        nengo.Connection(a.neurons, b.neurons, transform=nengo.Dense((40, 40), 1e-4), synapse=kind)
        nengo.Probe(b.neurons)
        nengo.Probe(a, synapse=kind)
        nengo.Probe(a, synapse=Alpha(0.02))
    return net


def noise(process):
    def build():
        with nengo.Network(seed=0) as net:
            a, b = spiking_pair(net)
            a.noise = process
            with net:
                nengo.Ensemble(30, 1, noise=WhiteNoise(seed=4))
                nengo.Connection(a, b)
            for p in (b.neurons, a.neurons):
                nengo.Probe(p)
        return net

    return build


def random_rows(rng, n, fan_in):
    """Fan-ins from 0 to several times the mean, so that there are several buckets."""
    counts = np.minimum(rng.geometric(1 / fan_in, n) - 1, n)
    cols = np.concatenate([rng.choice(n, k, replace=False) for k in counts])
    rows = np.repeat(np.arange(n), counts)
    return scipy.sparse.coo_matrix((rng.normal(size=rows.size) * 2e-3, (rows, cols)), (n, n))


def sparse():
    rng = np.random.RandomState(0)
    with nengo.Network(seed=0) as net:
        a, b = spiking_pair(net, 100)
        nengo.Connection(
            a.neurons, b.neurons, transform=nengo.Sparse((100, 100), init=random_rows(rng, 100, 8))
        )
        indices = np.stack([rng.permutation(100), rng.permutation(100)], axis=1)
        ring = nengo.Sparse((100, 100), indices=indices, init=1e-3)
        nengo.Connection(b.neurons, b.neurons, transform=ring, synapse=0.01)
        nengo.Probe(b.neurons)
        nengo.Probe(b, synapse=0.05)
    return net


def learning(rule, to_neurons=False):
    def build():
        with nengo.Network(seed=0) as net:
            a, b = spiking_pair(net)
            kw = (
                {}
                if isinstance(rule, nengo.PES | nengo.Voja)
                else {"solver": nengo.solvers.LstsqL2(weights=True)}
            )
            if to_neurons:
                kw["solver"] = nengo.solvers.LstsqL2(weights=True)
            conn = nengo.Connection(a, b, learning_rule_type=rule, **kw)
            if isinstance(rule, nengo.PES):
                error = nengo.Node(size_in=1)
                nengo.Connection(b, error)
                nengo.Connection(a, error, transform=-1)
                nengo.Connection(error, conn.learning_rule)
                nengo.Probe(error)
            nengo.Probe(b.neurons)
            nengo.Probe(
                conn.learning_rule, "delta" if hasattr(rule, "beta") else None
            ) if False else None
        return net

    return build


def convolution():
    with nengo.Network(seed=0) as net:
        stim = nengo.Node(lambda t: np.sin(np.arange(1, 65) * t))
        conv = nengo.Convolution(3, (8, 8, 1), padding="same", init=nengo.dists.Uniform(-1, 1))
        ens = nengo.Ensemble(192, 1, neuron_type=nengo.LIF(), gain=np.ones(192), bias=np.ones(192))
        nengo.Connection(stim, ens.neurons, transform=conv, synapse=None)
        up = nengo.ConvolutionTranspose(1, (8, 8, 3), padding="same")
        out = nengo.Node(size_in=up.size_out)
        nengo.Connection(ens.neurons, out, transform=up, synapse=0.01)
        nengo.Probe(ens.neurons)
        nengo.Probe(out)
    return net


NETS = {
    "alpha": lambda: synapses(Alpha(0.01)),
    "second order": lambda: synapses(LinearFilter([0.1, 1], [0.0004, 0.01, 1])),
    "passthrough": lambda: synapses(LinearFilter([0.005, 1], [0.02, 1])),
    "first order": lambda: synapses(LinearFilter([1], [0.02, 1])),
    "gain": lambda: synapses(LinearFilter([0.7], [1], analog=False)),
    "triangle": lambda: synapses(Triangle(0.008)),
    "sparse": sparse,
    "convolution": convolution,
    "pes": learning(nengo.PES()),
    "pes to neurons": learning(nengo.PES(1e-5), to_neurons=True),
    "bcm": learning(nengo.BCM(1e-9)),
    "oja": learning(nengo.Oja(1e-6)),
    "voja": learning(nengo.Voja(post_synapse=0.005)),
    "white noise": noise(WhiteNoise(seed=1)),
    "filtered noise": noise(FilteredNoise(Alpha(0.01), seed=2)),
    "brown noise": noise(BrownNoise(seed=2)),
    "white signal": noise(WhiteSignal(0.5, 20, seed=3)),
    "present input": noise(PresentInput(np.arange(80.0).reshape(2, 40) / 40, 0.02)),
}


@pytest.mark.parametrize("name", NETS)
def test_float64_spikes_are_cores(name):
    net = NETS[name]()
    settings(net)
    run = Run(net, capacity=STEPS)
    assert operators.why_not_xla(run.graph) == []
    for got, want in zip(run(STEPS), core(net, STEPS), strict=True):
        if len(np.unique(want)) == 2:
            assert np.count_nonzero(want) > 100
            np.testing.assert_array_equal(got, want)
        else:
            # sums are taken in another order, a product and a sum are rounded once
            np.testing.assert_allclose(got, want, rtol=1e-7, atol=1e-8)


# the adapter's tests have the other kinds of network
HERE_ONLY = {"passthrough", "convolution", "pes to neurons", "voja", "filtered noise"}


@pytest.mark.parametrize(
    "name", [n if n in HERE_ONLY else pytest.param(n, marks=pytest.mark.slow) for n in NETS]
)
def test_chunks_are_one_piece(name):
    net = NETS[name]()
    settings(net, "float32")
    run = Run(net, minibatch=3)
    whole = run(150)
    run.reset()
    parts = run.chunks([1, 49, 7, 93])
    # another capacity is another program
    once_more = name in ("alpha", "sparse", "pes to neurons")
    small = Run(net, minibatch=3, capacity=64).chunks([64, 64, 22]) if once_more else whole
    for a, b, c in zip(whole, parts, small, strict=True):
        np.testing.assert_array_equal(a, b)
        np.testing.assert_array_equal(a, c)
        assert np.isfinite(a).all()
        assert np.ptp(a) > 0


@pytest.mark.parametrize("name", ["filtered noise", "triangle", "sparse"])
def test_float32_is_nengo_dls_own_path(name):
    """The same random numbers and formulas as nengo-dl's Python path, minibatches and all."""
    net = NETS[name]()
    settings(net, "float32")
    ours, theirs = Run(net, minibatch=3)(150), dl(net, 150, minibatch=3)
    for a, b in zip(ours, theirs, strict=True):
        # up to spikes that fall on the other side of a step by the last bit
        assert np.mean(np.abs(a - b) > 1e-3 * np.abs(b).max()) < 2e-3


def test_tensor_node_compiles():
    with nengo.Network(seed=0) as net:
        a, _ = spiking_pair(net)
        node = nengo_dl.TensorNode(lambda t, x: tf.sin(x) + t, shape_in=(1,), shape_out=(1,))
        layer = nengo_dl.TensorNode(
            tf.keras.layers.Dense(4), shape_in=(1,), shape_out=(4,), pass_time=False
        )
        nengo.Connection(a, node)
        nengo.Connection(a, layer)
        p, q = nengo.Probe(node), nengo.Probe(layer)
        x = nengo.Probe(a, synapse=nengo.synapses.Lowpass(0.005))
    settings(net, "float32")
    run = Run(net)
    out = dict(zip((p, q, x), run.chunks([70, 30]), strict=True))
    time = np.arange(1, 101)[:, None, None] * 0.001
    np.testing.assert_allclose(out[p], np.sin(out[x]) + time, atol=1e-6)
    assert np.ptp(out[q]) > 0


def test_what_stays_on_the_graph_is_named():
    class Square(nengo.Process):
        def make_step(self, shape_in, shape_out, dt, rng, state):
            return lambda t, x: x**2

    def threshold(t, x):
        return x > 0.5

    with nengo.Network() as net:
        a, _ = spiking_pair(net)
        node = nengo.Node(threshold, size_in=1, label="gate")
        nengo.Connection(a, node)
        nengo.Connection(a, nengo.Node(Square(), size_in=1, label="squarer"))
    settings(net)
    reasons = operators.why_not_xla(Run(net).graph)
    assert len(reasons) == 2
    by_name = {word: r for r in reasons for word in ("gate", "squarer") if word in r}
    assert "threshold" in by_name["gate"]
    assert "TensorNode" in by_name["gate"]
    assert "Square" in by_name["squarer"]


def test_noise_state_comes_back():
    """Restoring what `host_objects` lists takes the processes back to a step."""
    from simrun_nengo.host_state import HostState

    net = NETS["filtered noise"]()
    settings(net, "float32")
    run = Run(net)
    run(10)
    state = HostState((p.label, thing) for p in run.ahead for thing in p.host_objects)
    assert state.obstacles == ()
    saved = state.capture()
    first = [p.rows(10, 20) for p in run.ahead]
    state.restore(saved)
    for a, b in zip(first, [p.rows(10, 20) for p in run.ahead], strict=True):
        np.testing.assert_array_equal(a, b)
        assert np.ptp(a) > 0


def test_lowpass_groups_keep_nengo_dls_builder():
    with nengo.Network() as net:
        a, b = spiking_pair(net)
        nengo.Connection(a, b, synapse=Lowpass(0.01))
    settings(net)
    builds = Run(net).graph.op_builder.op_builds.values()
    names = {type(getattr(x, "built_process", None)).__name__ for x in builds}
    assert "LowpassBuilder" in names


@pytest.mark.parametrize("fan_in", [[0, 0, 0], [5], [1, 9, 2, 9, 0, 30, 4, 4], [3] * 40])
def test_padded_rows_hold_every_entry_once(fan_in):
    from simrun_nengo_dl.operators.sparse import padded_rows

    rng = np.random.RandomState(0)
    rows = rng.permutation(np.repeat(np.arange(len(fan_in)), fan_in))
    cols = rng.randint(0, 7, rows.size)
    values, x = rng.normal(size=rows.size), rng.normal(size=7)
    order, buckets = padded_rows(rows, cols, len(fan_in))
    padded = np.append(values, 0)
    sums = [(x[c] * padded[e]).sum(axis=(1, 2)) for c, e in buckets]
    got = np.concatenate(sums) if order is None else np.concatenate(sums)[order]
    want = np.zeros(len(fan_in))
    np.add.at(want, rows, values * x[cols])
    np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-12)
    entries = np.concatenate([e.ravel() for _, e in buckets])
    np.testing.assert_array_equal(np.sort(entries[entries < rows.size]), np.arange(rows.size))
