import pytest

import simrun
from simrun.errors import ConfigError


def model(folder, value):
    folder.mkdir()
    (folder / "neighbour.py").write_text(f"N = {value}\n")
    (folder / "model.py").write_text(
        "from types import SimpleNamespace\n\nfrom neighbour import N\n\n\n"
        "def build():\n    return SimpleNamespace(n=N)\n"
    )


def test_a_model_imports_its_own_neighbours_wherever_the_config_is(project, tmp_path):
    for name, value in (("one", 1), ("two", 2), ("one again", 1)):
        folder = tmp_path / name.split()[0]
        if not folder.exists():
            model(folder, value)
        simrun.run(project(model=f"{folder.name}/model.py:build", output={"path": f"out {name}"}))
        with simrun.open_run(tmp_path / f"out {name}") as run:
            assert run["x"].shape == (100, value)


def test_a_duration_below_a_step(project):
    with pytest.raises(ConfigError, match=r"duration: .*at least one step"):
        simrun.run(project(steps=None, duration="0.1 ms"))


def test_a_run_lists_its_probes(project, tmp_path):
    simrun.run(project())
    with simrun.open_run(tmp_path / "out") as run:
        assert list(run) == ["x"]
        assert "x" in run
        assert "y" not in run
        assert len(run) == 1
