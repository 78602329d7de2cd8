"""What the suite doesn't ask of the nengo adapter: files, faults, reproducible builds."""

import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import nets_for_nengo
import numpy as np
import pytest

import simrun
from simrun.errors import ConfigError, PluginError, SimulationError
from simrun.records import Chunk
from simrun.setup import configure, opened

MODEL = Path(nets_for_nengo.__file__)


@contextmanager
def simulation(network, **changes):
    config = {"plugin": "nengo", "model": f"{MODEL}:{network}", "steps": 1, "seed": 1}
    with opened(configure(config | {"output": {"path": "never-written"}} | changes)) as found:
        yield found


def execute(found, *lengths):
    blocks = []
    for length in lengths:
        chunk = Chunk(found.step, found.step + length, sum(lengths), length)
        blocks.append(found.execute(chunk))
    names = [probe.name for probe in found.probes]
    return {name: np.concatenate([block.samples[name] for block in blocks]) for name in names}


def test_input_nodes_take_values_from_files(tmp_path):
    first = np.random.default_rng(0).normal(size=(9, 2))
    second = np.arange(12.0).reshape(1, 12, 1)
    np.save(tmp_path / "first.npy", first)
    np.savez(tmp_path / "more.npz", second=second)
    files = {"first": f"{tmp_path}/first.npy", "second": f"{tmp_path}/more.npz:second"}
    with simulation("inputs", nengo={"inputs": files}) as found:
        assert found.available[0] == 9
        assert {path.name for path in found.sources} == {"first.npy", "more.npz"}
        samples = execute(found, 4, 1, 4)
    np.testing.assert_array_equal(samples["first"], first)
    np.testing.assert_array_equal(samples["second"][:, 0], np.arange(9.0))


def test_what_comes_from_a_file_is_what_a_function_would_give(tmp_path):
    probes = [{"name": "value", "object": "cells", "synapse": 0.01}]
    np.save(tmp_path / "second.npy", np.arange(1, 31)[:, None] * 0.001)
    with simulation("inputs", probes=probes) as found:
        expected = execute(found, 30)
    files = {"second": f"{tmp_path}/second.npy"}
    with simulation("inputs", probes=probes, nengo={"inputs": files}) as found:
        samples = execute(found, 7, 23)
    np.testing.assert_array_equal(samples["value"], expected["value"])


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (np.zeros((5, 3)), "it must be"),
        (np.full((5, 2), "a"), "numbers are needed"),
        (None, "no file"),
    ],
)
def test_files_that_dont_fit(tmp_path, values, words):
    if values is not None:
        np.save(tmp_path / "x.npy", values)
    inputs = {"first": f"{tmp_path}/x.npy"}
    with pytest.raises(ConfigError, match=words), simulation("inputs", nengo={"inputs": inputs}):
        pass


def test_a_file_that_isnt_finite(tmp_path):
    np.save(tmp_path / "x.npy", np.array([[0.0, 0], [0, 0], [0, np.inf]]))
    inputs = {"first": f"{tmp_path}/x.npy"}
    with simulation("inputs", nengo={"inputs": inputs}) as found:
        execute(found, 2)
        with pytest.raises(SimulationError, match="isn't finite in step 3"):
            execute(found, 1)


@pytest.mark.parametrize("value", ["nan", "inf", "text"])
def test_a_node_that_returns_nonsense_is_named(value):
    with (
        simulation("returning", model_args={"value": value}) as found,
        pytest.raises(SimulationError, match=r"node bad failed at t = 0.004 s"),
    ):
        execute(found, 10)


def test_a_node_that_raises_is_named():
    with (
        simulation("failing") as found,
        pytest.raises(SimulationError, match=r"node bad failed at t = 0.005 s.*ZeroDivision"),
    ):
        execute(found, 10)


def test_a_minibatch_of_one_has_its_axis():
    with simulation("everything") as found:
        expected = execute(found, 6)["own"]
    with simulation("everything", nengo={"minibatch_size": 1}) as found:
        assert found.probes[0].dims == ("minibatch", "neuron")
        np.testing.assert_array_equal(execute(found, 6)["own"], expected[:, None])


def test_settings_of_nengo_dl_without_effect_are_noted():
    with simulation("inputs", nengo_dl={"compile": "xla", "threads": 2}) as found:
        assert [note.split()[0] for note in found.notes] == ["nengo.compile", "nengo.threads"]


def test_it_says_what_stops_a_rollback():
    with simulation("with_a_generator") as found:
        assert any("can't be rolled back" in note and "generator" in note for note in found.notes)
        assert found.save_state() is None
        snapshot = found.snapshot()
        with pytest.raises(SimulationError, match="node counting uses a generator"):
            found.restore(snapshot)


def test_a_state_of_another_network_is_refused():
    with simulation("everything") as found:
        state = found.save_state()
    with (
        simulation("everything", model_args={"n": 13}) as found,
        pytest.raises(SimulationError, match="another network"),
    ):
        found.load_state(state)


def test_each_process_builds_the_same():
    """nengo's own optimizer doesn't: it merges and orders operators by their addresses."""
    program = (
        "import zlib, nengo, nets_for_nengo, numpy\n"
        "from simrun_nengo.ordering import ordered\n"
        "net = nets_for_nengo.many(6, 5)\n"
        "with net: probes = [nengo.Probe(each) for each in net.ensembles]\n"
        "with ordered(), nengo.Simulator(net, progress_bar=False) as sim:\n"
        "    sim.run_steps(20)\n"
        "    data = numpy.array([sim.data[probe] for probe in probes])\n"
        "    order = [str(op).partition(' at 0x')[0] for op in sim.step_order]\n"
        "    print(len(order), zlib.crc32(data.tobytes()))\n"
    )
    results = {
        subprocess.run(
            # memory laid out differently
            [sys.executable, "-c", f"padding = [object() for _ in range({1000 * i})]\n{program}"],
            capture_output=True,
            text=True,
            check=True,
            env={"PYTHONPATH": str(MODEL.parent), "OMP_NUM_THREADS": "1", "HOME": "/nonexistent"},
        ).stdout
        for i in range(3)
    }
    assert len(results) == 1, results


def test_without_nengo_ocl_its_plugin_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "nengo_ocl", None)
    monkeypatch.delitem(sys.modules, "simrun_nengo.ocl_opening", raising=False)
    config = {"plugin": "nengo_ocl", "model": f"{MODEL}:lif", "steps": 1}
    with pytest.raises(PluginError, match=r"pip install 'simrun-nengo\[ocl\]'"):
        simrun.plan(config | {"output": {"path": str(tmp_path / "out")}})
