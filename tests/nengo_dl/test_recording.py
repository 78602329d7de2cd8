"""Which steps are recorded, what they are reduced to, and how probes are described."""

import math

import numpy as np
import pytest
from open_nets import assert_same, open_net, run, split

from simrun.errors import ConfigError
from simrun.sampling import recorded_steps

STEPS = 61
PERIODS = {"five": 5, "fractional": 2.5, "sum": 0.003 / 0.001, "seven": 7, "below": 1}


@pytest.fixture(scope="module", params=["graph", "xla"])
def simulation(request):
    reduced = [
        {"name": f"{reduce}_{every}", "object": "ens.neurons", "attribute": "voltage",
         "sample_every": every, "reduce": reduce}
        for reduce in ("last", "mean", "sum", "max")
        for every in (7, 2.5)
    ]  # fmt: skip
    full = {"name": "full", "object": "ens.neurons", "attribute": "voltage"}
    return open_net("sampled", full, *reduced, compile=request.param)


@pytest.mark.parametrize("length", [STEPS, 7, 1, 30])
def test_recorded_steps_are_those_of_nengo(simulation, length):
    begin = simulation.snapshot()
    found = run(simulation, split(STEPS, length))
    simulation.restore(begin)
    for name, period in PERIODS.items():
        steps = np.arange(1, STEPS + 1)
        expected = steps[steps % period < 1]
        np.testing.assert_array_equal(expected, recorded_steps(period, 0, STEPS, STEPS))
        assert len(found[name]) == len(expected)
    np.testing.assert_array_equal(found["five"], found["below"][4::5])
    np.testing.assert_array_equal(found["seven"], found["below"][6::7])
    assert len(found["last"]) == 1


@pytest.mark.parametrize("length", [STEPS, 8, 1])
def test_reductions_are_those_of_the_full_record(simulation, length):
    begin = simulation.snapshot()
    found = run(simulation, split(STEPS, length))
    simulation.restore(begin)
    full = found["full"].astype(np.float64)
    for every in (7, 2.5):
        stops = recorded_steps(every, 0, STEPS, STEPS)
        for i, stop in enumerate(stops):
            window = full[(stops[i - 1] if i else 0) : stop]
            # in the order of the steps, as the device adds them
            total = np.cumsum(window, axis=0)[-1]
            assert np.array_equal(found[f"last_{every}"][i], full[stop - 1])
            assert np.array_equal(found[f"sum_{every}"][i], total.astype(np.float32))
            assert np.array_equal(found[f"max_{every}"][i], window.max(axis=0))
            mean = (total / len(window)).astype(np.float32)
            assert np.array_equal(found[f"mean_{every}"][i], mean)


def test_last_is_of_the_runs_end_only(simulation):
    begin = simulation.snapshot()
    found = run(simulation, [10, 10], end=40)
    assert len(found["last"]) == 0
    found = run(simulation, [13, 7], end=40)
    assert len(found["last"]) == 1
    simulation.restore(begin)
    assert_same({"last": run(simulation, [40])["last"]}, found, ["last"])
    simulation.restore(begin)


def test_specs(simulation):
    by_name = {probe.name: probe for probe in simulation.probes}
    assert by_name["five"].period == 5
    assert by_name["below"].period == 1
    assert math.isinf(by_name["last"].period)
    assert by_name["full"].dims == ("neuron",)
    assert by_name["full"].shape == (12,)
    assert by_name["full"].attrs["attribute"] == "voltage"
    assert by_name["last"].dims == ("dimension",)
    assert by_name["mean_7"].reduce == "mean"


def test_weights_have_their_own_axes():
    simulation = open_net("pes", {"name": "w", "object": "learned", "attribute": "weights"},
                          compile="graph", minibatch_size=2)  # fmt: skip
    spec = next(probe for probe in simulation.probes if probe.name == "w")
    assert spec.dims == ("minibatch", "post", "pre")
    assert spec.shape == (2, 1, 20)
    assert run(simulation, [3])["w"].shape == (3, 2, 1, 20)


def test_parameters_have_no_minibatch_axis():
    probe = {"name": "w", "object": "square", "attribute": "weights"}
    spec = open_net("lif", probe, compile="graph", minibatch_size=2).probes[-1]
    assert (spec.dims, spec.shape) == (("post", "pre"), (1, 20))


def test_a_filter_and_a_duration():
    simulation = open_net(
        "lif", {"name": "slow", "object": "exc", "synapse": 0.05, "sample_every": "4 ms"},
        compile="graph",
    )  # fmt: skip
    spec = simulation.probes[-1]
    assert spec.period == 4
    assert "0.05" in spec.attrs["synapse"]
    assert len(run(simulation, [9])["slow"]) == 2


@pytest.mark.parametrize(
    "label", ["sub.ens", "sub.ens.neurons", "sub.attribute", "sub.loop", "sub"]
)
def test_objects_are_found_by_label(label):
    probe = {"name": "x", "object": label}
    if label in ("sub.loop", "sub"):
        with pytest.raises(ConfigError, match="has no"):
            open_net("nested", probe, compile="graph")
    else:
        assert open_net("nested", probe, compile="graph").probes[0].name == "x"


@pytest.mark.parametrize(
    ("probe", "message"),
    [
        ({"name": "x", "object": "exk.neurons"}, "did you mean exc.neurons"),
        ({"name": "x", "object": "zzz"}, "exc"),
        ({"name": "x", "object": "exc.neurons", "attribute": "voltag"}, "did you mean voltage"),
        ({"name": "x", "object": "exc", "attribute": "voltage"}, "exc.neurons"),
        ({"name": "spikes", "object": "exc"}, "also the name of"),
        ({"name": "x", "object": "exc", "sample_every": "0.5 ms"}, "at least one step"),
    ],
)
def test_wrong_probes_are_explained(probe, message):
    with pytest.raises(ConfigError) as caught:
        open_net("lif", probe, compile="graph")
    assert message in str(caught.value)
    assert "probes.0" in str(caught.value)


def test_twins_are_ambiguous():
    with pytest.raises(ConfigError, match="several objects"):
        open_net("nested", {"name": "x", "object": "twin"}, compile="graph")


def test_names_of_the_networks_own_probes_are_unique_and_valid():
    names = [probe.name for probe in open_net("synapses", compile="graph").probes]
    assert names == [
        "of_Lowpass",
        "of_Alpha",
        "of_LinearFilter",
        "of_LinearFilter_1",
        "of_NoneType",
    ]


def test_only_the_returned_probes_are_recorded(tmp_path):
    (tmp_path / "net.py").write_text(
        "import nets_for_nengo_dl as nets\n"
        "def some():\n"
        "    net = nets.lif()\n"
        "    return net, {'only': net.probes[1]}\n"
        "def foreign():\n"
        "    return nets.lif(), nets.lif().probes\n"
        "def none():\n"
        "    net = nets.lif()\n"
        "    net.probes.clear()\n"
        "    return net\n"
        "def wrong():\n"
        "    return 3\n"
    )
    simulation = open_net("net.py:some", base=tmp_path, compile="graph")
    assert [probe.name for probe in simulation.probes] == ["only"]
    assert set(run(simulation, [4])) == {"only"}
    for name, message in (
        ("foreign", "another network"),
        ("none", "no probes"),
        ("wrong", "returned a int"),
    ):
        with pytest.raises(ConfigError, match=message):
            open_net(f"net.py:{name}", base=tmp_path, compile="graph")


def test_a_block_belongs_to_its_receiver():
    for mode in ("graph", "xla"):
        simulation = open_net("lif", compile=mode)
        first = run(simulation, [10])
        copies = {name: array.copy() for name, array in first.items()}
        run(simulation, [10, 10])
        assert_same(first, copies)
