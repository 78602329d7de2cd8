"""nengo-dl's own tests, by its own loop and by simrun's: counts, and every test that differs.

    pip install "pytest<9" pytest-rng pytest-allclose pytest-plt    # what those tests want
    python scripts/nengo_dl_suite.py [FILE …]

Each file of ``nengo_dl.tests`` runs three times: as it is, and with ``Simulator.run_steps``
executed by simrun's program, as a graph and as XLA. Where the program can't be used (a network
that XLA doesn't compile), nengo-dl's loop is, and the call is counted as such.

The same file is the pytest plugin that does it. It also gives back what the tests expect of older
releases: ``pytest.warns(None)``, ``numpy.in1d``.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import warnings
from collections import Counter
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest

FILES = (
    "neurons", "processes", "learning_rules", "op_builders", "transforms", "nengo_tests",
    "tensor_node",
)  # fmt: skip
PATHS = ("nengo-dl", "graph", "xla")


def main(files):
    found, calls = {}, {}
    tests = Path(find_spec("nengo").origin).parents[1]
    with tempfile.TemporaryDirectory() as folder:
        for path in PATHS:
            report = Path(folder, f"{path}.json")
            names = [f"nengo_dl.tests.test_{name}" for name in files or FILES]
            command = [
                sys.executable, "-m", "pytest", "-q", "-p", "nengo_dl_suite", "--no-header",
                "--tb=no", "-W", "ignore", "-p", "no:cacheprovider", "-c", os.devnull,
                "-o", "nengo_simloader=nengo_dl.tests.make_test_sim",
                "--continue-on-collection-errors", "--rootdir", str(tests), "--pyargs", *names,
            ]  # fmt: skip
            here = str(Path(__file__).parent)
            places = os.pathsep.join(filter(None, [here, os.environ.get("PYTHONPATH")]))
            environment = os.environ | {
                "SIMRUN_PATH": path, "SIMRUN_REPORT": str(report), "PYTHONPATH": places,
            }  # fmt: skip
            subprocess.run(command, env=environment, cwd=folder, check=False)
            found[path], calls[path] = json.loads(report.read_text())
    print("\n| path | passed | failed | skipped | run_steps by simrun | by nengo-dl |")
    print("|---|---|---|---|---|---|")
    for path in PATHS:
        counts = Counter(outcome for outcome, _ in found[path].values())
        ours, theirs = calls[path]["ours"], sum(calls[path]["theirs"].values())
        row = (counts[x] for x in ("passed", "failed", "skipped"))
        print(f"| {path} |", *(f"{n} |" for n in row), f"{ours} | {theirs} |")
    print("\nBy nengo-dl's loop in the XLA run, since:")
    for why, count in Counter(calls["xla"]["theirs"]).most_common():
        print(f"- {count}: {why}")
    print("\nOther outcomes than nengo-dl's own:")
    for test, (outcome, _) in found["nengo-dl"].items():
        for path in PATHS[1:]:
            other, text = found[path].get(test, ("missing", ""))
            if other != outcome:
                print(f"- {test} by {path}: {outcome} → {other}: {text}")
    print("\nFailures by nengo-dl itself:")
    for test, (outcome, text) in found["nengo-dl"].items():
        if outcome == "failed":
            print(f"- {test}: {text}")


# -- the pytest plugin -----------------------------------------------------------------------

_OUTCOMES: dict[str, tuple[str, str]] = {}
_CALLS = {"ours": 0, "theirs": Counter()}


def pytest_configure(config):
    import numpy as np

    from simrun_nengo_dl.compat import load_nengo_dl

    load_nengo_dl()
    np.in1d = np.isin
    warns = pytest.warns
    pytest.warns = lambda kind=Warning, *args, **kwargs: (
        _recorded() if kind is None else warns(kind, *args, **kwargs)
    )
    path = os.environ.get("SIMRUN_PATH", "nengo-dl")
    if path != "nengo-dl":
        from nengo_dl.simulator import Simulator

        Simulator.predict_on_batch = _predict(Simulator.predict_on_batch, path == "xla")


@contextmanager
def _recorded():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield caught


def pytest_addoption(parser):
    for name, default in (
        ("--dtype", "float32"), ("--unroll-simulation", 1), ("--device", None),
        ("--inference-only", False),
    ):  # fmt: skip
        parser.addoption(name, default=default)


def pytest_runtest_logreport(report):
    if report.when == "call" or report.outcome != "passed":
        lines = [x for x in str(report.longreprtext).splitlines() if x.startswith("E ")]
        _OUTCOMES[report.nodeid] = report.outcome, (lines or [""])[0][2:200].strip()


def pytest_sessionfinish():
    target = os.environ.get("SIMRUN_REPORT")
    if target:
        Path(target).write_text(json.dumps([_OUTCOMES, _CALLS]))


def _predict(theirs, xla):
    """``Simulator.predict_on_batch`` by simrun's program, where it serves ``run_steps``."""

    def predict_on_batch(self, x=None, n_steps=None, stateful=False, **kwargs):
        why = "not called by run_steps"
        if sys._getframe(1).f_code.co_name == "run_steps":
            program, why = _program(self, xla, n_steps)
        if why:
            _CALLS["theirs"][why] += 1
            return theirs(self, x, n_steps=n_steps, stateful=stateful, **kwargs)
        _CALLS["ours"] += 1
        return _run(self, program, x, n_steps, stateful)

    return predict_on_batch


def _program(simulator, xla, n_steps):
    """The program of a simulator, made when it is first asked for; or why there is none."""
    if not hasattr(simulator, "simrun_program"):
        simulator.simrun_program = _make(simulator, xla, n_steps)
    return simulator.simrun_program


def _make(simulator, xla, n_steps):
    import tensorflow as tf

    from simrun_nengo.networks import NamedProbe
    from simrun_nengo_dl import operators
    from simrun_nengo_dl.inputs import InputNode
    from simrun_nengo_dl.loop import Loop
    from simrun_nengo_dl.probes import make_recordings
    from simrun_nengo_dl.program import Program

    graph = simulator.tensor_graph
    network = simulator.model.toplevel
    if network is None:
        return None, "a model without a network"
    if not simulator.stateful:
        return None, "stateful=False"
    builder = graph.op_builder
    before, signals = builder.op_builds, graph.signals.__class__
    ahead = operators.install(graph, xla=xla)
    why = operators.why_not_xla(graph) if xla else []
    named = [
        NamedProbe(f"probe{i}", probe, "", 1.0, "last")
        for i, probe in enumerate(simulator.model.probes)
    ]
    recordings = make_recordings(graph, named, True)
    nodes = [InputNode(node, graph.io_names[node]) for node in graph.invariant_inputs]
    program = Program(Loop(graph, recordings, nodes, (), ahead, xla=xla))
    if not why:
        try:
            program.prepare(n_steps, program.initial_state())
            graph.build_post()
        except (tf.errors.OpError, ValueError, TypeError) as error:
            why = [f"TensorFlow: {str(error).splitlines()[0][:120]}"]
    if why:
        builder.op_builds, graph.signals.__class__ = before, signals
        return None, "; ".join(sorted({line.split(": ", 1)[-1] for line in why}))
    return program, None


def _run(simulator, program, x, n_steps, stateful):
    import numpy as np
    import tensorflow as tf
    from nengo_dl.config import get_setting

    graph = simulator.tensor_graph
    data = simulator._generate_inputs(x, n_steps=n_steps)
    simulator._check_data(data, n_steps=n_steps, batch_size=simulator.minibatch_size)
    first = simulator.n_steps
    arrays = [
        np.ascontiguousarray(np.asarray(data[graph.io_names[node]]).swapaxes(0, 1), graph.dtype)
        for node in graph.invariant_inputs
        if node.size_out
    ]
    arrays += [process.rows(first, n_steps) for process in program.ahead]
    rows = (n_steps,) * len(simulator.model.probes)
    result = program.run(
        n_steps, n_steps, program.initial_state(), [tf.constant(a) for a in arrays],
        np.zeros((n_steps, 0), np.int32), rows,
    )  # fmt: skip
    # what a learning rule changes stays changed, as in nengo-dl, whatever `stateful`
    count = len(program._state_keys)
    variables = [graph.saved_state[key] for key in program._state_keys] if stateful else []
    variables += [graph.base_params[key] for key in program._learned_keys]
    values = result.state[0 if stateful else count :]
    for variable, value in zip(variables, values, strict=True):
        variable.assign(value)
    if stateful:
        simulator._update_steps()
    found = {}
    for probe, buffer in zip(simulator.model.probes, result.buffers, strict=True):
        values = np.array(buffer)
        signal = graph.signals[graph.model.sig[probe]["in"]]
        if not signal.minibatched:
            values = np.repeat(values[:, None], simulator.minibatch_size, 1)
        values = values.swapaxes(0, 1)
        if not get_setting(simulator.model, "keep_history", default=True, obj=probe):
            values = values[:, -1:]
        found[probe] = values
    return found


if __name__ == "__main__":
    main(sys.argv[1:])
