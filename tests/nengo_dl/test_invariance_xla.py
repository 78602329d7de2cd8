"""The same samples in any chunks, compiled as one XLA program; and those of nengo's simulator."""

import warnings

import nengo
import nets_for_nengo_dl as nets
import numpy as np
import pytest
from open_nets import assert_same, open_net, run, split

STEPS = 60


NETS = [
    "lif", "regular_spiking", "synapses", "triangle", "pes", "bcm_oja", "processes", "tensor_node",
    "sampled", "stochastic", "sparse", "cconv", "integrator", "pes_benchmark", "basal_ganglia",
]  # fmt: skip
PLAIN, BATCH, DOUBLE = {}, {"minibatch_size": 5}, {"dtype": "float64"}
# each network in one of the ways; the slow tests have all
SAMPLE = [(name, (PLAIN, BATCH, DOUBLE)[i % 3]) for i, name in enumerate(NETS)]
WAYS = [(n, s) for n in NETS for s in (PLAIN, BATCH, DOUBLE, BATCH | DOUBLE)]
# what a TensorNode computes has the precision that its function was written for
REST = [w for w in WAYS if w not in SAMPLE and not (w[0] == "tensor_node" and "dtype" in w[1])]
ANEW = {"lif", "pes", "sparse"}  # compiled for a smaller buffer, too


def check_any_chunks(name, settings, steps, anew):
    simulation = open_net(name, compile="xla", **settings)
    begin = simulation.snapshot()
    whole = run(simulation, [steps])
    assert any(np.ptp(array) > 0 for array in whole.values() if len(array))
    for lengths, capacity in (
        ([1, 1, 1, *split(steps - 3, 7)], None),
        (split(steps, 100), None),
        (split(steps, 7), 7),
    ):
        if capacity is None or anew:
            simulation.restore(begin)
            assert_same(run(simulation, lengths, capacity=capacity), whole)


@pytest.mark.parametrize(("name", "settings"), SAMPLE)
def test_any_chunks(name, settings):
    check_any_chunks(name, settings, 150, name in ANEW)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "settings"), REST)
def test_any_chunks_in_every_way(name, settings):
    check_any_chunks(name, settings, 303, True)


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
    assert_same(run(simulation, [10, 30, 3]), whole)


def test_auto_says_what_it_chose():
    assert any("XLA" in note for note in open_net("lif").notes)
    simulation = open_net("stateful_node")
    assert any("Counter" in note and "graph" in note for note in simulation.notes)
    assert simulation.provenance()["compile"] == "graph"


def test_what_runs_in_python_is_said_only_where_it_is_true(tmp_path):
    (tmp_path / "net.py").write_text(
        "import nengo\n"
        "def build():\n"
        "    with nengo.Network(seed=0) as net:\n"
        "        ens = nengo.Ensemble(5, 1, neuron_type=nengo.AdaptiveLIF())\n"
        "        nengo.Probe(ens.neurons)\n"
        "    return net\n"
    )
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        native = open_net("net.py:build", base=tmp_path, compile="xla")
        python = open_net("net.py:build", base=tmp_path, compile="graph")
    assert not [w for w in caught if "native TensorFlow implementation" in str(w.message)]
    said = ["AdaptiveLIF run in Python" in " ".join(s.notes) for s in (native, python)]
    assert said == [False, True]
