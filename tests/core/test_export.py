import csv

import numpy as np
import pytest

import simrun
from simrun import api, memory
from simrun.errors import ConfigError, OutputExistsError

PROBES = [
    {"name": "x", "object": "x"},
    {"name": "step", "object": "step"},
    {"name": "thin", "object": "x", "sample_every": 7},
]


@pytest.fixture
def run(project, tmp_path):
    simrun.run(project(probes=PROBES, chunk=9))
    with simrun.open_run(tmp_path / "out") as opened:
        yield opened


def test_npz(run, tmp_path):
    api.export(tmp_path / "out", tmp_path / "all.npz")
    with np.load(tmp_path / "all.npz") as arrays:
        for name in ("x", "step", "thin"):
            assert np.array_equal(arrays[name], run[name])
            assert np.array_equal(arrays[f"{name}_time"], run.times(name))


def test_csv(run, tmp_path):
    api.export(tmp_path / "out", tmp_path / "some.csv", ["x", "step"])
    with (tmp_path / "some.csv").open() as file:
        head, *rows = csv.reader(file)
    assert head == ["time", "x[0]", "x[1]", "x[2]", "step"]
    values = np.array(rows, float)  # repr of a float64 reads back exactly
    assert np.array_equal(values[:, 0], run.times("x"))
    assert np.array_equal(values[:, 1:4], run["x"])
    assert np.array_equal(values[:, 4], run["step"])
    with pytest.raises(ConfigError, match="one time column"):
        api.export(tmp_path / "out", tmp_path / "all.csv")
    assert not (tmp_path / "all.csv").exists()


@pytest.mark.parametrize("ending", [".h5", ".zarr"])
def test_files_of_the_storage_plugins(run, tmp_path, ending):
    target = tmp_path / f"all{ending}"
    api.export(tmp_path / "out", target)
    if ending == ".h5":
        import h5py as library
    else:
        import zarr as library
    opened = library.open(target) if ending == ".zarr" else library.File(target)
    for name in ("x", "step", "thin"):
        assert np.array_equal(np.asarray(opened[name]), run[name])
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".all")] == []


def test_what_is_there_is_not_overwritten(run, tmp_path):
    (tmp_path / "all.npz").touch()
    with pytest.raises(OutputExistsError):
        api.export(tmp_path / "out", tmp_path / "all.npz")
    with pytest.raises(ConfigError, match=r"unknown ending '\.xls'"):
        api.export(tmp_path / "out", tmp_path / "all.xls")
    with pytest.raises(ConfigError, match="did you mean 'thin'"):
        api.export(tmp_path / "out", tmp_path / "a.npz", ["thinn"])


def test_memory_does_not_depend_on_the_length(project, tmp_path):
    simrun.run(project(model_args={"n": 20_000}, steps=1000))  # 153 MiB of samples
    memory.return_large_blocks()
    memory.reset_peak()
    before = memory.resident()
    api.export(tmp_path / "out", tmp_path / "all.npz")
    # blocks of 8 MiB: one mapped, two copied, one as bytes
    assert memory.peak_resident() - before < 60 << 20
