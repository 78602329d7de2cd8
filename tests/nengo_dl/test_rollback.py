"""A chunk that failed, or was executed in vain, leaves nothing behind."""

import sys

import numpy as np
import pytest
from open_nets import assert_same, open_net, run

from simrun.errors import SimulationError

CASES = [
    ("lif", "graph"),
    ("pes", "graph"),
    ("processes", "graph"),
    ("stateful_node", "graph"),
    ("triangle", "graph"),
    ("stochastic", "graph"),
    ("pes", "xla"),
    ("processes", "xla"),
]


@pytest.mark.parametrize(("name", "mode"), CASES)
def test_restore_goes_back_exactly(name, mode):
    simulation = open_net(name, compile=mode)
    run(simulation, [9])
    snapshot = simulation.snapshot()
    expected = run(simulation, [20])
    for lengths in ([20], [3, 17]):
        simulation.restore(snapshot)
        assert simulation.step == 9
        assert_same(run(simulation, lengths), expected)
    assert any(np.ptp(array) > 0 for array in expected.values())


@pytest.mark.parametrize("when", [1, 10, 20])
def test_a_memory_error_in_a_node_function(when, tmp_path):
    """The chunk dies in the middle of the loop, after other functions have been called."""
    (tmp_path / "net.py").write_text(
        "import nets_for_nengo_dl as nets, nengo\n"
        "class Fails:\n"
        "    at = None\n"
        "    def __call__(self, t, x):\n"
        "        if self.at is not None and round(t * 1000) == self.at:\n"
        "            raise MemoryError('no more')\n"
        "        return x\n"
        "fails = Fails()\n"
        "def build():\n"
        "    net = nets.stateful_node()\n"
        "    with net:\n"
        "        node = nengo.Node(fails, size_in=2, size_out=2, label='fails')\n"
        "        nengo.Connection(net.ensembles[0], node)\n"
        "        nengo.Probe(node, label='failing')\n"
        "    return net\n"
    )
    simulation = open_net("net.py:build", base=tmp_path, compile="graph")
    expected = run(simulation, [20])
    simulation = open_net("net.py:build", base=tmp_path, compile="graph")
    fails = sys.modules["simrun_model_net"].fails
    snapshot = simulation.snapshot()
    fails.at = when
    with pytest.raises(Exception) as caught:  # noqa: PT011 - TensorFlow's or Python's own
        run(simulation, [20])
    failure = simulation.memory_failure(caught.value)
    assert failure is not None
    assert failure.where == "host"
    del caught
    simulation.restore(snapshot)
    simulation.release()
    fails.at = None
    assert_same(run(simulation, [8, 12]), expected)


def write(tmp_path, function):
    (tmp_path / "net.py").write_text(
        "import nengo, numpy as np\n"
        f"{function}\n"
        "def build(size_in=1):\n"
        "    with nengo.Network(seed=0) as net:\n"
        "        source = nengo.Node([1.0])\n"
        "        node = nengo.Node(f, size_in=size_in, size_out=1, label='the culprit')\n"
        "        if size_in:\n"
        "            nengo.Connection(source, node, synapse=None)\n"
        "        nengo.Probe(node)\n"
        "    return net\n"
    )


@pytest.mark.parametrize("size_in", [0, 1])
@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("raise KeyError('lost')", "KeyError: 'lost'"),
        ("return None", "returned None"),
        ("return float('nan')", "invalid value"),
        ("return 'text'", "invalid"),
        ("return [0.5, 0.5]", "size"),
    ],
)
def test_a_failing_node_is_named(tmp_path, size_in, body, message):
    arguments = "t, x" if size_in else "t"
    write(
        tmp_path,
        f"def f({arguments}):\n    if t > 0.0055:\n        {body}\n    return 0.5",
    )
    simulation = open_net("net.py:build", base=tmp_path, args={"size_in": size_in})
    run(simulation, [3], end=100)
    with pytest.raises(SimulationError) as caught:
        run(simulation, [7], end=100)
    assert "the culprit" in str(caught.value)
    assert message in str(caught.value)
    assert "t = 0.006" in str(caught.value)
    assert simulation.step == 3


def test_state_that_cannot_be_copied_is_announced(tmp_path):
    write(
        tmp_path,
        "def numbers():\n    while True:\n        yield 1.0\nsource = numbers()\n"
        "def f(t, x):\n    return next(source)",
    )
    simulation = open_net("net.py:build", base=tmp_path)
    assert any("generator" in note and "rolled back" in note for note in simulation.notes)
    snapshot = simulation.snapshot()
    run(simulation, [2], end=9)
    with pytest.raises(SimulationError, match="generator"):
        simulation.restore(snapshot)
