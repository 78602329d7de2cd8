"""Bit for bit what nengo-dl's one-piece run_steps gives, whatever the chunks (graph path)."""

import nets_for_nengo_dl as nets
import numpy as np
import pytest
from open_nets import assert_same, one_piece, open_net, run, split

STEPS = 103
SAME = [
    "lif",
    "regular_spiking",
    "synapses",
    "triangle",
    "pes",
    "bcm_oja",
    "processes",
    "stateful_node",
    "tensor_node",
    "direct",
    "sparse",
    "cconv",
    "integrator",
    "pes_benchmark",
    "basal_ganglia",
]


def as_reference(simulation, samples):
    return list(samples.values())


@pytest.mark.parametrize("name", SAME)
def test_chunks_equal_one_piece(name):
    expected = one_piece(getattr(nets, name)(), STEPS)
    simulation = open_net(name, compile="graph")
    begin = simulation.snapshot()
    for length in (STEPS, 7, 1, 50):
        simulation.restore(begin)
        found = run(simulation, split(STEPS, length))
        assert len(found) == len(expected)
        for probe, array in zip(found, expected, strict=True):
            np.testing.assert_array_equal(found[probe], array, err_msg=f"{probe} in {length}s")
    assert any(np.ptp(array) > 0 for array in expected)


@pytest.mark.parametrize("name", ["pes", "processes", "stateful_node"])
def test_minibatches(name):
    expected = one_piece(getattr(nets, name)(), 40, minibatch_size=3)
    simulation = open_net(name, compile="graph", minibatch_size=3)
    found = run(simulation, [7, 20, 1, 12])
    for probe, array in zip(simulation.probes, expected, strict=True):
        assert found[probe.name].shape == (len(array), *probe.shape)
        assert probe.dims[0] == "minibatch"
        np.testing.assert_array_equal(found[probe.name], array)


def test_float64():
    net = nets.lif()
    with net:
        nets.nengo_dl.configure_settings(dtype="float64")
    expected = one_piece(net, STEPS)
    simulation = open_net("lif", compile="graph", dtype="float64")
    found = run(simulation, split(STEPS, 10))
    for array, other in zip(found.values(), expected, strict=True):
        assert array.dtype == np.float64
        np.testing.assert_array_equal(array, other)


def test_an_odd_last_chunk_with_unrolling():
    simulation = open_net("lif", compile="graph", unroll_simulation=3)
    assert simulation.alignment == 3
    expected = dict(
        zip([p.name for p in simulation.probes], one_piece(nets.lif(), 43), strict=True)
    )
    begin = simulation.snapshot()
    for lengths in ([43], [9, 30, 4], [3] * 14 + [1]):
        simulation.restore(begin)
        assert_same(run(simulation, lengths), expected)


def test_random_spiking_is_the_same_in_any_chunks():
    # the numbers are not nengo-dl's: those come from generators that can't be set back
    simulation = open_net("stochastic", compile="graph")
    begin = simulation.snapshot()
    whole = run(simulation, [60])
    assert all(np.ptp(array) > 0 for array in whole.values())
    for length in (1, 7):
        simulation.restore(begin)
        assert_same(run(simulation, split(60, length)), whole)
