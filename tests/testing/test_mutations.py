"""Each fault of a good adapter and of a good sink is caught by the kit, by the test it should be.

A child pytest for each kind runs, of every mutation's suite, the one test that must fail.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
PROGRAM = """
import importlib, json, sys
import pytest

name = sys.argv[1]
module = importlib.import_module(name)
nodes = [f"{module.__file__}::{suite}::{test}" for suite, test in module.CAUGHT.items()]
found = {}

class Notes:
    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item, call):
        report = yield
        if call.when == "call":
            kind = call.excinfo.type.__name__ if call.excinfo else None
            found[item.cls.__name__] = kind, str(call.excinfo.value)[:300] if kind else ""
        return report

pytest.main(["-q", "--no-header", "--tb=no", "-p", "no:cacheprovider", *nodes], plugins=[Notes()])
print("\\nRESULT" + json.dumps([module.CAUGHT, found]))
"""


@pytest.mark.parametrize("kind", ["mutations_adapter", "mutations_sink"])
def test_every_mutation_is_caught(kind, record_count):
    path = os.pathsep.join([str(HERE), *sys.path])
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, kind],
        env=os.environ | {"PYTHONPATH": path}, cwd=HERE, capture_output=True, text=True,
        timeout=500,
    )  # fmt: skip
    lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT")]
    assert lines, done.stdout + done.stderr
    expected, found = json.loads(lines[0].removeprefix("RESULT"))
    assert len(expected) >= 20
    missed = {
        name: (test, found.get(name, "not run"))
        for name, test in expected.items()
        # not by a slip of the mutation itself: that would be another error
        if found.get(name, [None])[0] not in ("AssertionError", "Failed", "DamagedError")
    }
    assert not missed, missed
    record_count(len(expected))
