"""The files as other programs see them: names, dimensions, units, compression, object stores."""

import json
import re
import shutil
import subprocess
import sys

import h5py
import numpy as np
import pytest
import xarray as xr
import zarr
from storage_cases import (
    DT,
    END,
    PROBES,
    block,
    check_plain,
    check_reader,
    classes,
    equal,
    manifest,
    request,
    run,
    samples,
    spec,
)

from simrun.errors import ConfigError, OutputExistsError
from simrun.records import ProbeBlock

SINKS = ["hdf5", "zarr"]


def open_xarray(name, directory, group=None):
    data = directory / "data"
    if name == "hdf5":
        return xr.open_dataset(data / "probes.h5", engine="h5netcdf", group=group)
    return xr.open_zarr(data / "probes.zarr", group=group)


@pytest.mark.parametrize("name", SINKS)
@pytest.mark.parametrize("finished", [False, True])
def test_xarray_finds_dimensions_times_and_units(name, finished, tmp_path):
    if finished:
        run(name, tmp_path)
    else:
        sink = classes(name)[0](request(tmp_path))
        sink.append(block(0, END))
        sink.commit()
    with open_xarray(name, tmp_path) as data:
        assert data.attrs["dt"] == DT
        assert data.spikes.dims == ("time", "minibatch", "neuron")
        # 5 neurons there, 7 here; every 10th step
        assert data.voltage.dims == ("time_voltage", "voltage_neuron")
        assert data.flag.dims == ("time", "flag_neuron")
        assert data.square.dims == ("time_square", "x", "square_x")
        assert data.time.attrs["units"] == "s"
        assert data.voltage.attrs["units"] == "V"
        assert data.spikes.attrs["object"] == "a.neurons"
        assert np.array_equal(data.time, np.arange(1, END + 1) * DT)
        assert np.array_equal(data.time_voltage, np.arange(10, END + 1, 10) * DT)
        assert np.array_equal(data.time_last, [END * DT])
        for probe in PROBES:
            if probe.name in data:
                assert equal(data[probe.name].values, samples(probe, 0, END)), probe.name
        assert data.spikes.sel(time=0.012, method="nearest").shape == (2, 5)
    if name == "hdf5" or finished:
        with open_xarray(name, tmp_path, "raster") as events:
            dense = samples(PROBES[6], 0, END)
            assert events.neuron.dims == events.minibatch.dims == events.value.dims == ("event",)
            found = np.zeros_like(dense)
            row = np.rint(events.time.values / DT).astype(int) - 1
            found[row, events.minibatch.values, events.neuron.values] = events.value.values
            assert equal(found, dense)
            assert events.end.values[-1] == events.sizes["event"] == np.count_nonzero(dense)


@pytest.mark.parametrize("name", SINKS)
def test_steps_without_duration_have_a_step_coordinate(name, tmp_path):
    from dataclasses import replace

    asked = replace(request(tmp_path), dt=None)
    sink = classes(name)[0](asked)
    sink.append(block(0, 20, end=20))
    record = sink.finish()
    sink.tidy()
    sink.close()
    with open_xarray(name, tmp_path) as data:
        assert data.voltage.dims[0] == "step_voltage"
        assert data.step_voltage.dtype == np.int64
        assert np.array_equal(data.step_voltage, [10, 20])
    reader = classes(name)[1](replace(asked, committed=record))
    steps, *_ = reader.events("raster")
    assert set(steps) <= set(range(1, 21))
    reader.close()


@pytest.mark.parametrize("name", SINKS)
def test_names_that_collide_get_out_of_each_others_way(name, tmp_path):
    probes = (
        spec("time", (2,), "f4", ("time",)),
        spec("neuron", (3,), "f4", ("neuron",)),
        spec("a/b", (4,), "f4", ("event",), period=2.0),
        spec("größe .x", (3, 3), "f4", ("value", "value"), attrs={"format": "events"}),
    )
    data = {p.name: np.ones((4 if p.period == 1 else 2, *p.shape), "f4") for p in probes}
    sink = classes(name)[0](request(tmp_path, probes=probes))
    sink.append(ProbeBlock(0, 4, data))
    record = sink.finish()
    sink.tidy()
    sink.close()
    reader = classes(name)[1](request(tmp_path, record, probes=probes))
    for probe, wanted in data.items():
        assert equal(reader.array(probe)[:], wanted)
    reader.close()
    with open_xarray(name, tmp_path) as found:
        assert found["time"].dims == ("time_", "time_time")
        assert found["a_b"].dims == ("time_a_b", "a_b_event")
    with pytest.raises(ConfigError, match="same name"):
        classes(name)[0](request(tmp_path / "b", probes=(probes[2], spec("a_b", (), "f4", ()))))


@pytest.mark.parametrize("compression", ["gzip", "none", "zstd", "blosc2"])
def test_hdf5_compression(compression, tmp_path):
    if compression in ("zstd", "blosc2"):
        pytest.importorskip("hdf5plugin")
    run("hdf5", tmp_path, options={"compression": compression, "level": 3})
    check_reader("hdf5", tmp_path, *manifest(tmp_path))
    check_plain("hdf5", tmp_path, END)
    with h5py.File(tmp_path / "data" / "probes.h5") as file:
        filters = file["spikes"].id.get_create_plist()
        codes = {filters.get_filter(i)[0] for i in range(filters.get_nfilters())}
        wanted = {"gzip": 1, "zstd": 32015, "blosc2": 32026}.get(compression)
        assert (wanted in codes) if wanted else not codes
    files = [p.name for p in (tmp_path / "data").rglob("*")]
    assert sorted(files) == ["probes.h5", "segments"]  # one ordinary file, nothing left


@pytest.mark.parametrize("compression", ["zstd", "blosc", "gzip", "none"])
def test_zarr_compression(compression, tmp_path):
    run("zarr", tmp_path, options={"compression": compression, "level": 3})
    check_reader("zarr", tmp_path, *manifest(tmp_path), compression=compression)
    check_plain("zarr", tmp_path, END)


def test_hdf5_final_file_can_be_moved_alone(tmp_path):
    run("hdf5", tmp_path)
    (tmp_path / "elsewhere").mkdir()
    moved = (tmp_path / "data" / "probes.h5").rename(tmp_path / "elsewhere" / "p.h5")
    with h5py.File(moved) as file:
        assert equal(file["spikes"][:], samples(PROBES[0], 0, END))
        assert not any(item.is_virtual for item in file.values() if hasattr(item, "is_virtual"))


@pytest.mark.skipif(shutil.which("h5dump") is None, reason="h5dump isn't installed")
@pytest.mark.parametrize("finished", [False, True])
def test_hdf5_by_the_tools_of_an_older_library(finished, tmp_path):
    """h5dump of HDF5 1.10, which MATLAB reads with as well: names, units and every byte."""
    if finished:
        run("hdf5", tmp_path)
    else:
        sink = classes("hdf5")[0](request(tmp_path))
        sink.append(block(0, END))
        sink.commit()
    path = tmp_path / "data" / "probes.h5"

    def h5dump(*arguments):
        words = ["h5dump", *map(str, arguments), str(path)]
        done = subprocess.run(words, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    described = h5dump("-H", "-A")
    for part in ('DATASET "spikes"', 'GROUP "raster"', 'ATTRIBUTE "units"', "DIMENSION_LIST"):
        assert part in described
    for probe in PROBES:
        wanted = samples(probe, 0, END)
        if probe.attrs.get("format") == "events" or wanted.size == 0:
            continue
        if wanted.dtype == bool:  # an enumeration, which h5dump writes as text only
            found = re.findall("TRUE|FALSE", h5dump("-d", f"/{probe.name}").split("DATA {")[1])
            assert np.array_equal(np.array(found) == "TRUE", wanted.reshape(-1))
            continue
        h5dump("-d", f"/{probe.name}", "-b", "LE", "-o", tmp_path / "bytes")
        assert (tmp_path / "bytes").read_bytes() == wanted.astype(
            wanted.dtype.newbyteorder("<")
        ).tobytes(), probe.name
    h5dump("-d", "/time", "-b", "LE", "-o", tmp_path / "bytes")
    assert np.array_equal(np.fromfile(tmp_path / "bytes"), np.arange(1, END + 1) * DT)


def test_zarr_without_consolidated_metadata_once_finished(tmp_path):
    run("zarr", tmp_path)
    group = zarr.open_group(tmp_path / "data/probes.zarr", mode="r", use_consolidated=False)
    assert equal(group["spikes"][:], samples(PROBES[0], 0, END))
    assert group["spikes"].shards is not None
    assert len({group[p.name].shape[0] for p in PROBES if p.name in "spikes flag"}) == 1
    alone = zarr.open_array(tmp_path / "data/probes.zarr/raster/end", mode="r")
    assert alone.shape == (END,)


@pytest.mark.parametrize("name", SINKS)
def test_events_of_a_large_sparse_probe_take_one_percent(name, tmp_path):
    """10 Hz at 1 ms steps: one neuron in a hundred at a step."""
    neurons, steps = 50_000, 100
    rng = np.random.default_rng(0)
    probe = spec("r", (neurons,), "f4", ("neuron",), attrs={"format": "events"})
    sink = classes(name)[0](request(tmp_path, probes=(probe,)))
    dense = []
    for start in range(0, steps, 20):
        spikes = (rng.random((20, neurons)) < 0.01).astype("f4") * 1000
        dense.append(spikes)
        sink.append(ProbeBlock(start, start + 20, {"r": spikes}))
        sink.commit()
    record = sink.finish()
    sink.tidy()
    sink.close()
    stored = sum(p.stat().st_size for p in (tmp_path / "data").rglob("*") if p.is_file())
    assert stored < 0.01 * neurons * steps * 4
    reader = classes(name)[1](request(tmp_path, record, probes=(probe,)))
    assert np.array_equal(reader.array("r")[:], np.concatenate(dense))
    reader.close()


@pytest.mark.parametrize("name", SINKS)
def test_provenance_is_stored_with_the_samples(name, tmp_path):
    from dataclasses import replace

    facts = {"git": {"commit": "abc", "changed": False}, "seed": 3, "note": "ü", "nothing": None}
    sink = classes(name)[0](replace(request(tmp_path), attrs=facts))
    sink.append(block(0, 6))
    sink.finish()
    sink.tidy()
    sink.close()
    with open_xarray(name, tmp_path) as data:
        assert data.attrs["seed"] == 3
        assert data.attrs["note"] == "ü"
        git = data.attrs["git"]
        assert (git if name == "zarr" else json.loads(git)) == facts["git"]


@pytest.mark.parametrize("name", SINKS)
def test_the_plugin_module_imports_nothing_heavy(name):
    code = (
        f"import sys, simrun_storage_{name}.plugin as p; e = p.simrun_sinks()[0]; "
        "import simrun_storage_%s.options; "
        "print(e.name, [m for m in ('h5py', 'zarr', 'xarray', 'hdf5plugin', 'fsspec') "
        "if m in sys.modules])"
    ) % name
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == f"{name} []"


# --- object stores ---------------------------------------------------------------------------


def run_remote(directory, url, storage_options):
    options = {"url": url, "storage_options": storage_options}
    directory.mkdir()
    sink = classes("zarr")[0](request(directory, **options))
    sink.append(block(0, 30))
    record = sink.commit()
    sink.append(block(30, 45))  # lost
    sink.commit()
    sink = classes("zarr")[0](request(directory, record, **options))
    check_reader("zarr", directory, 30, record, **options)
    for start in range(30, END, 12):
        sink.append(block(start, min(start + 12, END)))
        record = sink.commit()
        group = zarr.open_group(url, mode="r", storage_options=storage_options or None)
        assert equal(group["spikes"][:], samples(PROBES[0], 0, min(start + 12, END)))
    record = sink.finish()
    sink.tidy()
    sink.close()
    check_reader("zarr", directory, END, record, **options)
    assert list((directory / "data").iterdir()) in ([directory / "data/remote.json"], [])


def test_a_store_in_memory(tmp_path):
    pytest.importorskip("fsspec")
    run_remote(tmp_path / "a", f"memory://{tmp_path.name}/run", {})
    # another run may not touch it
    (tmp_path / "b").mkdir()
    with pytest.raises(OutputExistsError, match="isn't empty"):
        classes("zarr")[0](request(tmp_path / "b", url=f"memory://{tmp_path.name}/run"))


def test_a_local_store_by_url(tmp_path):
    pytest.importorskip("fsspec")
    run_remote(tmp_path / "a", f"file://{tmp_path}/store", {})
    assert (tmp_path / "store" / "zarr.json").exists()


def test_a_store_behind_an_s3_server(tmp_path, monkeypatch):
    pytest.importorskip("s3fs")
    moto = pytest.importorskip("moto.server")
    for variable in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(variable, "testing")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    server = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        options = {"client_kwargs": {"endpoint_url": f"http://{host}:{port}"}}
        import s3fs

        s3fs.S3FileSystem(**options).mkdir("lab")
        run_remote(tmp_path / "a", "s3://lab/runs/ws", options)
    finally:
        server.stop()


@pytest.mark.parametrize("url", ["nosuch://x/y", "s3:/"])
def test_a_bad_url_is_explained(url, tmp_path):
    pytest.importorskip("fsspec")
    with pytest.raises(ConfigError, match=r"output\.url"):
        classes("zarr")[0](request(tmp_path, url=url))


def test_hdf5_a_reader_that_keeps_an_old_file_open_sees_nothing_stale(tmp_path):
    """HDF5 shares its read-ahead between all handles of a process on one segment."""
    probe = spec("v", (100,), "f4", ("neuron",))
    wanted = np.arange(1, 1201, dtype="f4")[:, None] + np.zeros(100, "f4")
    sink = classes("hdf5")[0](request(tmp_path, probes=(probe,)))
    opened = []
    for start in range(0, 1200, 300):
        sink.append(ProbeBlock(start, start + 300, {"v": wanted[start : start + 300]}))
        sink.commit()
        file = h5py.File(tmp_path / "data" / "probes.h5")
        view = file["v"]
        opened.append((file, view))  # as a notebook does
        # the first new row, where the read before may have read ahead; singly, as a large read
        # goes around the buffer
        for row in (start, start + 100, start + 299):
            assert np.array_equal(view[row], wanted[row]), (start, row)
    for file, _ in opened:
        file.close()
    sink.close()
