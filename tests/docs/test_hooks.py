"""Every hook is documented, its example runs, and some test uses it."""

import re
import runpy
from pathlib import Path

import numpy as np
import pytest
import toy_plugin

import simrun
from simrun import hookspecs

ROOT = Path(__file__).parents[2]
HOOKS = [name for name in vars(hookspecs) if name.startswith("simrun_")]


def test_the_reference_is_made_of_the_code():
    made = runpy.run_path(str(ROOT / "scripts" / "hook_reference.py"))["reference"]()
    page = (ROOT / "docs" / "hooks.md").read_text()
    assert page == made, "run python scripts/hook_reference.py"
    for name in HOOKS:
        assert page.count(f"\n## {name}\n") == 1


@pytest.mark.parametrize("name", HOOKS)
def test_some_test_implements_it(name):
    tests = (path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    assert any(re.search(rf"def {name}\(|\b{name}=", text) for text in tests)


def test_the_examples_run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    toy_plugin.write_model(tmp_path)
    names: dict = {}
    for code in re.findall(r"```python\n(.*?)```", (ROOT / "docs/hooks.md").read_text(), re.DOTALL):
        exec(code, names)
    classes = [names[n] for n in ("Cautious", "Watch", "Careful", "Announce", "Ticker", "Mail")]
    examples = [kind() for kind in classes]
    config = {
        "plugin": "toy",
        "model": "model.py:build",
        "steps": 100,
        "chunk": 64,
        "toy": {"memory_limit": 20},
        "probes": [{"name": "x", "object": "x"}],
        "output": {"path": "out"},
    }
    margin = simrun.plan(config, plugins=[toy_plugin, examples[0]]).plan
    assert any(item.name == "my lab's margin" for item in margin.estimate.items)
    ended = simrun.run(config, plugins=[toy_plugin, *examples])
    assert ended.status == "done"
    assert not ended.problems
    assert examples[1].seconds > 0
    printed = capsys.readouterr().out
    assert "100 steps into" in printed
    assert "done at step 100" in printed
    simrun.run(config | {"output": {"path": "plain"}}, plugins=[toy_plugin])
    with simrun.open_run("out") as out, simrun.open_run("plain") as plain:
        assert np.array_equal(out["x"], plain["x"])
    # a quarter of 64 fits 20 steps
    log = (tmp_path / "out" / "run.log").read_text()
    assert "16" in log
    assert names["simrun_adapters"]()[0].name == "walk"
    assert names["simrun_sinks"]()[0].name == "text"
