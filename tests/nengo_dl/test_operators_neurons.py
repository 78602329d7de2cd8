"""Each native neuron type against nengo's core simulator and nengo-dl's Python path."""

import nengo
import numpy as np
import pytest
from nengo.neurons import (
    LIF,
    AdaptiveLIF,
    AdaptiveLIFRate,
    Izhikevich,
    LIFRate,
    PoissonSpiking,
    RectifiedLinear,
    RegularSpiking,
    Sigmoid,
    SpikingRectifiedLinear,
    StochasticSpiking,
    Tanh,
)

from operators_driver import Run, core, dl, nengo_dl, operators, settings, tf
from simrun_nengo_dl.operators import neurons

STEPS = 1000
OURS = [
    LIF(),
    LIF(tau_rc=0.05, tau_ref=0.003, min_voltage=-0.5, amplitude=0.3),
    LIF(tau_rc=0.005),  # dt / tau_rc = 0.2: the library's functions, not the series
    AdaptiveLIF(tau_n=0.2, inc_n=0.05),
    AdaptiveLIFRate(tau_n=0.2, inc_n=0.05),
    Izhikevich(),
    Izhikevich(reset_voltage=-50, reset_recovery=2),
]
NENGO_DLS = [
    RectifiedLinear(),
    SpikingRectifiedLinear(),
    Sigmoid(),
    Tanh(),
    LIFRate(),
    RegularSpiking(LIFRate()),
]


def make(neuron_type, dtype="float64", n=60):
    """Neurons driven by a sine, beside some of other parameters, so that ops get merged."""
    scale = 12.0 if isinstance(neuron_type, Izhikevich) else 1.0
    with nengo.Network(seed=3) as net:
        stim = nengo.Node(lambda t: np.sin(7 * t) * scale)
        encoders = np.random.RandomState(0).choice([-1.0, 1.0], (n, 1))
        gain, bias = np.linspace(0.8, 4, n), np.linspace(-1, 3, n) * scale
        kw = {"gain": gain, "bias": bias, "encoders": encoders, "neuron_type": neuron_type}
        ens = nengo.Ensemble(n, 1, **kw)
        nengo.Connection(stim, ens, synapse=None)
        nengo.Probe(ens.neurons)
        for name in neuron_type.state:
            nengo.Probe(ens.neurons, name)
    settings(net, dtype)
    return net


def is_spikes(neuron_type):
    return neuron_type.spiking


@pytest.mark.parametrize("neuron_type", OURS + NENGO_DLS, ids=repr)
def test_float64_as_core(neuron_type):
    net = make(neuron_type)
    got = Run(net, capacity=STEPS)(STEPS)
    want = core(net, STEPS)
    if is_spikes(neuron_type):
        assert np.count_nonzero(want[0]) > 50
        np.testing.assert_array_equal(got[0], want[0])
    # the order of arithmetic is the same, but XLA fuses a product and a sum into one rounding
    for a, b in zip(got, want, strict=True):
        if not isinstance(neuron_type, LIF | Izhikevich) or isinstance(neuron_type, AdaptiveLIF):
            np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9)
        else:
            np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("bound", [1e-4, 0.05, 0.1])
def test_short_series_are_exact_to_the_last_bits(bound, dtype):
    dtype = np.dtype(dtype).type
    expm1, log1p = neurons.short_series(bound, dtype)
    x = np.linspace(-bound, 0, 10001).astype(dtype)
    for got, exact in ((expm1(x), np.expm1(x.astype("g"))), (log1p(x), np.log1p(x.astype("g")))):
        np.testing.assert_array_less(np.abs(got - exact), 2 * np.spacing(np.abs(got)))


def test_many_neurons_take_the_series(monkeypatch):
    """The same spikes as core's, by the series and by the library."""
    net = make(LIF())
    want = core(net, STEPS)[0]
    for many in (1, 10**9):
        monkeypatch.setattr(neurons, "_MANY", many)
        run = Run(net, capacity=STEPS)
        np.testing.assert_array_equal(run(STEPS)[0], want)
        builds = run.graph.op_builder.op_builds.values()
        (lif,) = (b for b in builds if isinstance(b, neurons.LIFStep))
        assert (lif.expm1 is tf.math.expm1) == (many > 1)


@pytest.mark.parametrize("neuron_type", OURS, ids=repr)
def test_float32_no_farther_from_core_than_nengo_dl(neuron_type):
    net32, net64 = make(neuron_type, "float32"), make(neuron_type)
    ours = Run(net32, capacity=STEPS)(STEPS)[0].astype(float)
    theirs, truth = dl(net32, STEPS)[0].astype(float), core(net64, STEPS)[0]
    scale = truth.max()
    our_rate, their_rate = (np.abs(x - truth).mean() / scale for x in (ours, theirs))
    # a spike at the edge of a step may fall on either side of it: a few of thousands may move
    moved = 2 / ours.size
    assert our_rate <= 1.5 * their_rate + 3 * moved


@pytest.mark.parametrize("xla", [True, False])
@pytest.mark.parametrize("minibatch", [None, 3])
def test_random_spiking_is_a_function_of_the_step(minibatch, xla):
    with nengo.Network(seed=0) as net:
        for kind in (StochasticSpiking, PoissonSpiking):
            ens = nengo.Ensemble(40, 1, neuron_type=kind(LIFRate()))
            nengo.Probe(ens.neurons)
            other = nengo.Ensemble(40, 1, neuron_type=kind(Tanh()))
            nengo.Connection(ens, other)
            nengo.Probe(other.neurons)
    settings(net, "float32")
    kw = {"minibatch": minibatch, "xla": xla, "capacity": 150 if xla else None}
    whole = Run(net, **kw)(150)
    parts = Run(net, **kw).chunks([1, 49, 7, 93])
    for a, b in zip(whole, parts, strict=True):
        np.testing.assert_array_equal(a, b)
        assert len(np.unique(a.sum(axis=2))) > 5
        if minibatch:
            assert not np.array_equal(a[:, 0], a[:, 1])
    assert not np.array_equal(Run(net, seed=2, **kw)(150)[0], whole[0])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("xla", [True, False])
def test_random_spiking_statistics(dtype, xla):
    """Mean and variance per step, for a few rates; within five standard errors."""
    n, steps, dt = 500, 400, 0.001
    for kind in (StochasticSpiking, PoissonSpiking):
        with nengo.Network(seed=0) as net:
            rates = np.repeat([0.0, 20.0, 150.0, 1300.0, 9000.0], n // 5)
            ens = nengo.Ensemble(
                n, 1, gain=np.ones(n), bias=rates, neuron_type=kind(RectifiedLinear())
            )
            nengo.Probe(ens.neurons)
        settings(net, dtype)
        (spikes,) = Run(net, xla=xla, capacity=steps)(steps)
        counts = (spikes[:, 0] * dt).reshape(steps, 5, -1)
        for i, mean in enumerate(rates[:: n // 5] * dt):
            got = counts[:, i].ravel()
            variance = mean if kind is PoissonSpiking else (mean % 1) * (1 - mean % 1)
            assert abs(got.mean() - mean) <= 5 * np.sqrt(variance / got.size) + 1e-5
            # relative error of a sample variance: sqrt((kurtosis + 2) / size)
            kurtosis = 1 / variance if variance > 1e-9 else 0
            slack = 5 * variance * np.sqrt((kurtosis + 2) / got.size)
            assert abs(got.var() - variance) <= slack + 1e-4
            lag = np.mean((counts[1:, i] - mean) * (counts[:-1, i] - mean))
            assert abs(lag) <= 5 * variance / np.sqrt(got.size) + 1e-4


def test_poisson_quantiles_are_scipys():
    from scipy.stats import poisson

    from simrun_nengo_dl.operators.spiking import poisson as native

    u = np.random.RandomState(0).rand(20000)
    u[:3] = 0.0, 1 - 2.0**-53, 1 - 1e-12
    for mean in (0.0, 1e-9, 0.3, 7.0, 450.0):
        got = native(tf.constant(np.full_like(u, mean)), tf.constant(u)).numpy()
        want = poisson.ppf(u, mean).clip(0)
        assert np.all(np.abs(got - want)[3:] <= (1 if mean > 100 else 0))
        assert np.mean(got != want) < 1e-3
        assert np.isfinite(got).all()
    got = native(tf.constant(np.full_like(u, 4000.0)), tf.constant(u)).numpy()
    assert abs(got.mean() - 4000) < 5 * np.sqrt(4000 / u.size)
    assert np.abs(got - poisson.ppf(u, 4000))[3:].max() <= 3


def test_registries_stay_as_they_were():
    before = dict(nengo_dl.builder.Builder.builders)
    implementations = dict(nengo_dl.neuron_builders.SimNeuronsBuilder.TF_NEURON_IMPL)
    Run(make(AdaptiveLIF()))
    assert before == nengo_dl.builder.Builder.builders
    assert implementations == nengo_dl.neuron_builders.SimNeuronsBuilder.TF_NEURON_IMPL


def test_a_neuron_type_of_ones_own_is_named():
    class Mine(LIFRate):
        def step(self, dt, J, output):
            output[:] = J

    with nengo.Network() as net:
        nengo.Ensemble(5, 1, neuron_type=Mine(), label="odd ones")
    settings(net)
    (reason,) = operators.why_not_xla(Run(net).graph)
    assert "odd ones" in reason
    assert "Mine" in reason
