"""A saved state is taken up exactly, by the same model opened again in another process."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from open_nets import assert_same, open_net, run

from simrun.errors import SimulationError

CASES = ["stateful_node-graph", "triangle-graph", "processes-xla", "stochastic-xla", "bcm_oja-xla"]


def save(folder):
    """In another process: run each case for 11 steps and save."""
    for case in CASES:
        name, mode = case.split("-")
        simulation = open_net(name, compile=mode)
        run(simulation, [4, 7], end=100)
        np.savez(folder / f"{case}.npz", **simulation.save_state())


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("states")
    code = f"import test_resume, pathlib; test_resume.save(pathlib.Path({str(folder)!r}))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=Path(__file__).parent, text=True, capture_output=True,
        timeout=500, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return folder


@pytest.mark.parametrize("case", CASES)
def test_another_process_goes_on_exactly(saved, case):
    name, mode = case.split("-")
    simulation = open_net(name, compile=mode)
    begin = simulation.snapshot()
    whole = run(simulation, [11, 20], end=100, capacity=20)
    simulation.restore(begin)
    with np.load(saved / f"{case}.npz") as state:
        simulation.load_state(dict(state))
    assert simulation.step == 11
    found = run(simulation, [20], end=100)
    assert_same(found, {k: v[len(v) - len(found[k]) :] for k, v in whole.items()})
    assert any(np.ptp(array) > 0 for array in found.values())


def test_the_state_of_another_network_is_refused(saved):
    with np.load(saved / "triangle-graph.npz") as archive:
        state = dict(archive)
    with pytest.raises(SimulationError, match="other weights"):
        open_net("triangle", compile="graph", seed=1, dtype="float64").load_state(
            state | {"parameters": np.array(1)}
        )
    with pytest.raises(SimulationError, match="other weights"):
        open_net("lif", compile="graph").load_state(state)


def test_what_stands_in_the_way_is_said_before(tmp_path):
    (tmp_path / "net.py").write_text(
        "import nengo\n"
        "def source():\n"
        "    while True:\n"
        "        yield 1.0\n"
        "values = source()\n"
        "def build():\n"
        "    with nengo.Network(seed=0) as net:\n"
        "        nengo.Probe(nengo.Node(lambda t: next(values), size_out=1))\n"
        "    return net\n"
    )
    simulation = open_net("net.py:build", base=tmp_path, compile="graph")
    assert any("new process" in note and "generator" in note for note in simulation.notes)
    assert simulation.save_state() is None
