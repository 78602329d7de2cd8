"""The same samples in any chunks, compiled as one XLA program; and those of nengo's simulator."""

import nengo
import nets_for_nengo_dl as nets
import numpy as np
import pytest
from open_nets import assert_same, open_net, run, split

STEPS = 60


@pytest.mark.parametrize(
    "name",
    ["lif", "synapses", "pes", "processes", "sampled", "stochastic", "sparse", "basal_ganglia"],
)
def test_any_chunks(name):
    simulation = open_net(name, compile="xla")
    begin = simulation.snapshot()
    whole = run(simulation, [STEPS])
    assert any(np.ptp(array) > 0 for array in whole.values() if len(array))
    # the same program, then one compiled anew for a smaller buffer
    for lengths, capacity in (([1, 30, 13, 16], STEPS), ([7] * 8 + [4], 7)):
        simulation.restore(begin)
        assert_same(run(simulation, lengths, capacity=capacity), whole)


@pytest.mark.parametrize("settings", [{"minibatch_size": 5}, {"dtype": "float64"}])
def test_any_chunks_of_minibatches_and_float64(settings):
    simulation = open_net("pes", compile="xla", **settings)
    begin = simulation.snapshot()
    whole = run(simulation, [STEPS])
    simulation.restore(begin)
    assert_same(run(simulation, split(STEPS, 7)), whole)


@pytest.mark.parametrize("name", ["lif", "pes", "synapses"])
def test_agrees_with_nengo_in_float64(name):
    net = getattr(nets, name)()
    with nengo.Simulator(net, dt=0.001, seed=1, progress_bar=False) as reference:
        reference.run_steps(STEPS)
    simulation = open_net(name, compile="xla", dtype="float64")
    found = run(simulation, split(STEPS, 20))
    for samples, probe in zip(found.values(), net.all_probes, strict=True):
        # both round in float64, in different orders; nothing chaotic is in these networks
        np.testing.assert_allclose(
            samples, reference.data[probe], rtol=0, atol=1e-9 * max(1, np.abs(samples).max())
        )


def test_odd_last_chunk_with_unrolling():
    simulation = open_net("lif", compile="xla", unroll_simulation=2)
    begin = simulation.snapshot()
    whole = run(simulation, [43])
    simulation.restore(begin)
    assert_same(run(simulation, [10, 30, 3], capacity=43), whole)


def test_auto_says_what_it_chose():
    assert any("XLA" in note for note in open_net("lif").notes)
    simulation = open_net("stateful_node")
    assert any("Counter" in note and "graph" in note for note in simulation.notes)
    assert simulation.provenance()["compile"] == "graph"
