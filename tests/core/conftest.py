"""The toy simulator, installed as a real plugin, and a folder with a config for it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import yaml

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))  # for `import toy_plugin`

import toy_plugin  # noqa: E402


@pytest.fixture(autouse=True)
def in_process(monkeypatch):
    """The engine runs in the test's process; tests of the supervisor undo this."""
    monkeypatch.setenv("SIMRUN_IN_PROCESS", "1")


@pytest.fixture
def installed(tmp_path_factory, monkeypatch):
    """A folder on sys.path, as site-packages is, with the toy installed in it."""
    folder = toy_plugin.install(tmp_path_factory.mktemp("site"), {"toy": "toy_plugin"})
    for place in (HERE, folder):
        monkeypatch.syspath_prepend(str(place))
        monkeypatch.setenv("PYTHONPATH", str(place), prepend=":")
    return folder


@pytest.fixture
def project(tmp_path, installed, monkeypatch):
    """The current folder of the test: a model and a config of 100 steps for the toy.

    Call it with changes of the config; it returns the config's path.
    """
    monkeypatch.chdir(tmp_path)
    toy_plugin.write_model(tmp_path)

    def write(**changes) -> Path:
        config = {
            "plugin": "toy",
            "model": "model.py:build",
            "steps": 100,
            "probes": [{"name": "x", "object": "x"}],
            "output": {"path": "out"},
        } | changes
        path = tmp_path / "config.yaml"
        path.write_text(yaml.safe_dump({k: v for k, v in config.items() if v is not None}))
        return path

    return write
