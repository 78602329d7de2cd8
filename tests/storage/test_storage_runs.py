"""The sinks under the real engine, with a toy simulator."""

import h5py
import numpy as np
import pytest
import toy_plugin
import xarray as xr

import simrun

PROBES = [
    {"name": "x", "object": "x"},
    {"name": "every7", "object": "x", "sample_every": 7},
    {"name": "mean", "object": "x", "sample_every": "10 ms", "reduce": "mean"},
    {"name": "step", "object": "step", "sample_every": 2.5},
]


@pytest.fixture
def config(tmp_path, tmp_path_factory, monkeypatch):
    """A function that returns the config of a run of the toy."""
    folder = toy_plugin.install(tmp_path_factory.mktemp("site"), {"toy": "toy_plugin"})
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setenv("SIMRUN_IN_PROCESS", "1")
    monkeypatch.chdir(tmp_path)
    toy_plugin.write_model(tmp_path)

    def make(output, **changes):
        return {
            "plugin": "toy", "model": "model.py:build", "steps": 100, "probes": PROBES,
            "output": output,
        } | changes  # fmt: skip

    return make


def read(path):
    with simrun.open_run(path) as run:
        return {probe.name: np.array(run[probe.name]) for probe in run.probes}


@pytest.mark.parametrize("sink", ["hdf5", "zarr"])
@pytest.mark.parametrize("chunk", [7, 1000])
def test_a_run_and_its_extension_equal_the_default_sinks(config, sink, chunk, tmp_path):
    simrun.run(config({"path": "npy"}, steps=150))
    wanted = read(tmp_path / "npy")
    for steps in (100, 150):
        ended = simrun.run(config({"path": "out", "sink": sink}, steps=steps, chunk=chunk))
        assert (ended.status, ended.step) == ("done", steps)
    found = read(tmp_path / "out")
    for name, array in wanted.items():
        assert found[name].dtype == array.dtype
        assert np.array_equal(found[name], array), name
    data = tmp_path / "out" / "data"
    opened = (
        xr.open_dataset(data / "probes.h5", engine="h5netcdf")
        if sink == "hdf5"
        else xr.open_zarr(data / "probes.zarr")
    )
    with opened:
        for name, array in wanted.items():
            assert np.array_equal(opened[name], array), name
        assert opened.attrs["provenance"]
    if sink == "hdf5":
        assert [p.name for p in data.rglob("*.h5")] == ["probes.h5"]
        with h5py.File(data / "probes.h5") as file:
            assert not file["x"].is_virtual


@pytest.mark.parametrize(
    ("output", "message"),
    [
        ({"sink": "hdf5", "compression": "lzma"}, r"compression.*gzip"),
        ({"sink": "hdf5", "level": 12}, "level"),
        ({"sink": "zarr", "compresion": "zstd"}, "did you mean compression"),
    ],
)
def test_wrong_options_are_refused_before_the_run(config, output, message, tmp_path):
    with pytest.raises(simrun.errors.ConfigError, match=message):
        simrun.run(config({"path": "out", **output}))
    assert not (tmp_path / "out").exists()
