"""What the storage tests share: probes of every kind, their samples, a run without an engine."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np

from simrun.durability import write_atomic
from simrun.records import ProbeBlock, ProbeSpec
from simrun.sampling import recorded_steps
from simrun.sink import SinkRequest

DT = 0.001
END = 66
CHUNK = 3


def spec(name, shape, dtype, dims, **kwargs):
    return ProbeSpec(name, shape, np.dtype(dtype), dims, **kwargs)


PROBES = (
    spec("spikes", (2, 5), "f4", ("minibatch", "neuron"), attrs={"object": "a.neurons"}),
    spec("voltage", (7,), ">f8", ("neuron",), period=10.0, attrs={"units": "V"}),
    spec("fraction", (), "i2", (), period=2.5),
    spec("flag", (3,), "?", ("neuron",)),
    spec("nothing", (0,), "f4", ("none",)),
    spec("last", (4,), "f8", ("weight",), period=math.inf),
    spec("raster", (2, 5), "f4", ("minibatch", "neuron"), attrs={"format": "events"}),
    spec("graded", (6,), "f4", ("neuron",), attrs={"format": "events"}),
    spec("square", (2, 2), "u1", ("x", "x"), period=2.0),
)


def samples(probe, start, stop, end=END):
    """A probe's samples: a function of the absolute step alone."""
    steps = recorded_steps(probe.period, start, stop, end)
    name, shape, dtype = probe.name, probe.shape, probe.dtype.str
    rows = [_sample(name, shape, dtype, int(step)) for step in steps]
    return np.stack(rows) if rows else np.zeros((0, *shape), probe.dtype)


@cache
def _sample(name, shape, dtype, step):
    values = np.random.default_rng([step, len(name)]).random(shape)
    if name == "raster":
        values = np.where(values < 0.1, 1000.0, 0.0)
    elif name == "graded":
        values = np.where(values < 0.1, values, np.where(values > 0.9, -0.0, 0.0))
    else:
        values = values * 100 - (0 if np.dtype(dtype).kind in "u?b" else 50)
    return np.asarray(values, dtype)


def block(start, stop, probes=PROBES, end=END):
    return ProbeBlock(start, stop, {p.name: samples(p, start, stop, end) for p in probes})


def request(directory, record=None, *, probes=PROBES, durable=False, **options):
    data = Path(directory) / "data"
    data.mkdir(parents=True, exist_ok=True)
    return SinkRequest(data, probes, DT, durable, record, options)


def make_small():
    """Segments and shards so small that a run of a few samples has several."""
    import simrun_storage_hdf5.sink as hdf5
    import simrun_storage_zarr.layout as zarr

    hdf5.SMALLEST, hdf5.LARGEST = 1024, 4096
    zarr.CHUNK_BYTES, zarr.SHARDS_BYTES = 128, 2048
    zarr.SMALLEST_SHARD, zarr.EVENTS_SHARD = 256, 512


def classes(name):
    """The sink's and the reader's class."""
    if name == "hdf5":
        from simrun_storage_hdf5.reader import Hdf5Reader
        from simrun_storage_hdf5.sink import Hdf5Sink

        return Hdf5Sink, Hdf5Reader
    if name == "zarr":
        from simrun_storage_zarr.reader import ZarrReader
        from simrun_storage_zarr.sink import ZarrSink

        return ZarrSink, ZarrReader
    from simrun.sinks.npy import NpyReader, NpySink

    def dense_only(cls):
        return lambda asked: cls(replace(asked, probes=kept(name, asked.probes)))

    return dense_only(NpySink), dense_only(NpyReader)


def kept(name, probes):
    """Those probes that the sink stores: npy knows no events."""
    return tuple(p for p in probes if name != "npy" or p.attrs.get("format") != "events")


def manifest(directory):
    """Step and record of the last commit; (0, None) before the first."""
    path = Path(directory) / "manifest.json"
    if not path.exists():
        return 0, None
    content = json.loads(path.read_text())
    return content["step"], content["data"]


def run(name, directory, *, end=END, durable=False, every=2, options=None):
    """What the engine does with a sink: go on from the manifest to the end."""
    directory = Path(directory)
    step, record = manifest(directory)

    def commit(data):
        content = json.dumps({"step": step, "data": data}).encode()
        write_atomic(directory / "manifest.json", content, durable)

    sink = classes(name)[0](request(directory, record, durable=durable, **(options or {})))
    chunks = 0
    while step < end:
        stop = min(step + CHUNK, end)
        sink.append(block(step, stop))
        step, chunks = stop, chunks + 1
        if chunks % every == 0:
            commit(sink.commit())
    commit(sink.finish())
    sink.tidy()
    sink.close()


def plain(name, directory):
    """The samples of dense probes as an ordinary reader of the format sees them."""
    data = Path(directory) / "data"
    names = [p.name for p in PROBES if p.attrs.get("format") != "events"]
    if name == "hdf5":
        import h5py

        with h5py.File(data / "probes.h5") as file:
            return {n: file[n][()] for n in names}
    if name == "zarr":
        import zarr

        group = zarr.open_group(data / "probes.zarr", mode="r")
        return {n: group[n][...] for n in names}
    return {n: np.load(data / f"{n}.npy") for n in names}


def equal(found, wanted):
    """Bit for bit, whatever the byte order."""
    found = np.asarray(found)
    native = found.astype(found.dtype.newbyteorder("="))
    expected = wanted.astype(wanted.dtype.newbyteorder("="))
    return (
        found.shape == wanted.shape
        and native.dtype == expected.dtype
        and native.tobytes() == expected.tobytes()
    )


def check_reader(name, directory, step, record, end=END, probes=PROBES, **options):
    """The record's samples are exactly those up to ``step``, and verify."""
    reader = classes(name)[1](request(directory, record, probes=probes, **options))
    for probe in kept(name, probes):
        array = reader.array(probe.name)
        assert equal(array[:], samples(probe, 0, step, end)), (probe.name, step)
        assert array.dtype == probe.dtype
    assert reader.verify() == []
    reader.close()


def check_plain(name, directory, step):
    """A plain reader sees at least what was committed, nothing false, all of one commit."""
    found = plain(name, directory)
    rows = {n: len(array) for n, array in found.items()}
    if name == "npy":  # one file for each probe: each is right on its own
        ends = dict.fromkeys(found, END)
    else:
        seen = rows["spikes"]
        assert seen >= step
        ends = dict.fromkeys(found, seen)
    for probe in PROBES:
        if probe.name in found and name == "npy":
            assert equal(found[probe.name], samples(probe, 0, END)[: rows[probe.name]])
            assert rows[probe.name] >= len(samples(probe, 0, step))
        elif probe.name in found:
            assert equal(found[probe.name], samples(probe, 0, ends[probe.name])), probe.name
