"""Each sink against the contract: what was committed is read back exactly, whenever, by anyone."""

import itertools
import json

import numpy as np
import pytest
from storage_cases import (
    END,
    PROBES,
    block,
    check_plain,
    check_reader,
    classes,
    equal,
    make_small,
    manifest,
    plain,
    request,
    run,
    samples,
    spec,
)

from simrun.errors import SinkError
from simrun.records import ProbeBlock

SINKS = ["npy", "hdf5", "zarr"]


@pytest.fixture(autouse=True)
def small(monkeypatch):
    import simrun_storage_hdf5.sink as hdf5
    import simrun_storage_zarr.layout as zarr

    for module, names in ((hdf5, ("SMALLEST", "LARGEST")), (zarr, (
        "CHUNK_BYTES", "SHARDS_BYTES", "SMALLEST_SHARD", "EVENTS_SHARD",
    ))):  # fmt: skip
        for name in names:  # monkeypatch puts them back
            monkeypatch.setattr(module, name, getattr(module, name))
    make_small()


def through_json(record):
    return json.loads(json.dumps(record))


@pytest.mark.parametrize("name", SINKS)
def test_every_commit_can_be_read_while_the_run_goes_on(name, tmp_path):
    sink = classes(name)[0](request(tmp_path))
    records = []
    for start in range(0, END, 3):
        sink.append(block(start, start + 3))
        records.append((start + 3, through_json(sink.commit())))
        check_plain(name, tmp_path, start + 3)
    for step, record in records:
        if name != "npy":  # numpy's header moves on: an older record's file is longer
            check_reader(name, tmp_path, step, record)
    records.append((END, through_json(sink.finish())))
    sink.tidy()
    sink.close()
    check_reader(name, tmp_path, *records[-1])
    check_plain(name, tmp_path, END)


@pytest.mark.parametrize("name", SINKS)
@pytest.mark.parametrize("tidy", [True, False])
def test_what_follows_the_record_is_discarded_and_nothing_before_it(name, tidy, tmp_path):
    sink = classes(name)[0](request(tmp_path))
    records = {}
    for start in range(0, END, 6):
        sink.append(block(start, start + 6))
        records[start + 6] = through_json(sink.commit())
    sink.finish()  # its record is lost: the process died before the manifest named it
    sink.close()
    for step in (60, 36, 6):
        again = classes(name)[0](request(tmp_path, records[step]))
        check_plain(name, tmp_path, step)
        assert len(plain(name, tmp_path)["spikes"]) == step
        check_reader(name, tmp_path, step, records[step])
        # other chunks than before; what is discarded mustn't show through
        for start, stop in itertools.pairwise(range(step, step + 5)):
            again.append(block(start, stop))
        check_reader(name, tmp_path, step + 4, through_json(again.commit()))
        again.close()
    last = classes(name)[0](request(tmp_path, records[6]))
    last.append(block(6, END))
    record = through_json(last.finish())
    if tidy:
        last.tidy()
    last.close()
    check_reader(name, tmp_path, END, record)
    check_plain(name, tmp_path, END)


@pytest.mark.parametrize("name", SINKS)
def test_a_finished_run_goes_on_and_its_last_record_holds_until_the_next(name, tmp_path):
    record, at = None, 0
    for end in (20, 44, END):
        sink = classes(name)[0](request(tmp_path, record))
        if record is not None:
            sink.append(block(at, at + 1))
            sink.commit()  # lost
            sink.close()
            sink = classes(name)[0](request(tmp_path, record))
            check_reader(name, tmp_path, at, record)
            check_plain(name, tmp_path, at)
        for start in range(at, end, 4):
            sink.append(block(start, min(start + 4, end)))
        sink.commit()
        check_plain(name, tmp_path, end)
        if record is not None:
            check_reader(name, tmp_path, at, record) if name != "npy" else None
        record, at = through_json(sink.finish()), end
        check_reader(name, tmp_path, end, record)
        sink.tidy()
        check_reader(name, tmp_path, end, record)
        sink.close()
    check_plain(name, tmp_path, END)


@pytest.mark.parametrize("name", SINKS)
def test_finishing_twice_is_finishing_once(name, tmp_path):
    run(name, tmp_path)
    content = {p: p.read_bytes() for p in sorted((tmp_path / "data").rglob("*")) if p.is_file()}
    before = (tmp_path / "manifest.json").read_bytes()
    run(name, tmp_path)
    assert (tmp_path / "manifest.json").read_bytes() == before
    after = {p: p.read_bytes() for p in sorted((tmp_path / "data").rglob("*")) if p.is_file()}
    assert after == content


@pytest.mark.parametrize("name", SINKS)
def test_a_run_without_samples(name, tmp_path):
    sink = classes(name)[0](request(tmp_path))
    first = through_json(sink.commit())
    check_reader(name, tmp_path, 0, first)
    check_plain(name, tmp_path, 0)
    record = through_json(sink.finish())
    sink.tidy()
    sink.close()
    check_reader(name, tmp_path, 0, record)
    assert all(len(array) == 0 for array in plain(name, tmp_path).values())


@pytest.mark.parametrize("name", SINKS)
def test_the_reader_indexes_like_numpy(name, tmp_path):
    run(name, tmp_path)
    step, record = manifest(tmp_path)
    reader = classes(name)[1](request(tmp_path, record))
    keys = [
        3, -1, slice(2, 9), slice(None, None, 7), slice(None, None, -1), (slice(None), 1),
        (Ellipsis, 2), (5, 1, 2), [4, 1, 60], np.arange(END) % 5 == 0, slice(9, 3), (-3, Ellipsis),
    ]  # fmt: skip
    for probe in ("spikes",) if name == "npy" else ("spikes", "raster"):
        whole = samples(next(p for p in PROBES if p.name == probe), 0, step)
        array = reader.array(probe)
        for key in keys:
            assert np.array_equal(np.asarray(array[key]), whole[key]), (probe, key)
        assert equal(np.asarray(array), whole)
        with pytest.raises(IndexError):
            array[END]
    with pytest.raises(KeyError):
        reader.array("spike")
    reader.close()


@pytest.mark.parametrize("name", ["hdf5", "zarr"])
def test_events_are_given_back_as_events(name, tmp_path):
    run(name, tmp_path)
    step, record = manifest(tmp_path)
    reader = classes(name)[1](request(tmp_path, record))
    for probe in PROBES:
        if probe.attrs.get("format") != "events":
            continue
        dense = samples(probe, 0, step)
        steps, *index, value = reader.events(probe.name)
        rebuilt = np.zeros_like(dense)
        rebuilt[(steps - 1, *index)] = value
        assert equal(rebuilt, dense)
        assert steps.dtype == np.int64
        assert all(axis.dtype == np.int32 for axis in index)
    with pytest.raises(KeyError, match="stored dense"):
        reader.events("spikes")


def every_bit_pattern(shape, dtype):
    data = np.zeros((40, *shape), dtype)
    if data.size and data.dtype.kind != "b":
        noise = np.random.default_rng(0).integers(0, 256, data.nbytes, dtype=np.uint8)
        data = noise.view(dtype).reshape(data.shape).copy()
    data[10:30] = 0  # whole chunks of nothing
    if data.dtype.kind in "fc":
        data[3:9] = -0.0  # a chunk that compares equal to nothing, and isn't
    return data


@pytest.mark.parametrize("name", ["hdf5", "zarr"])
@pytest.mark.parametrize("form", ["dense", "events"])
def test_every_type_is_exact_to_the_bit(name, form, tmp_path):
    dtypes = ["f4", "f8", "f2", ">f4", ">i4", "i1", "u8", "?", "c16"]
    shapes = [(), (3,), (2, 0), (2, 3)]
    data, probes = {}, []
    for dtype, shape in itertools.product(dtypes, shapes):
        probe = spec(f"{dtype}{shape}", shape, dtype, "xyz"[: len(shape)], attrs={"format": form})
        probes.append(probe)
        data[probe.name] = every_bit_pattern(shape, dtype)
    sink = classes(name)[0](request(tmp_path, probes=tuple(probes)))
    for start in range(0, 40, 8):
        # the other byte order: the sink stores the probe's type
        pieces = {
            n: a[start : start + 8].astype(a.dtype.newbyteorder("S")) for n, a in data.items()
        }
        sink.append(ProbeBlock(start, start + 8, pieces))
    for record in (through_json(sink.commit()), through_json(sink.finish())):
        reader = classes(name)[1](request(tmp_path, record, probes=tuple(probes)))
        for probe in probes:
            found = reader.array(probe.name)[:]
            assert found.dtype == probe.dtype
            assert found.tobytes() == data[probe.name].tobytes(), probe
        assert reader.verify() == []
        reader.close()
    sink.close()


@pytest.mark.parametrize("name", ["hdf5", "zarr"])
def test_a_record_of_another_version_is_refused(name, tmp_path):
    run(name, tmp_path)
    record = {**manifest(tmp_path)[1], "format": 99}
    for cls in classes(name):
        with pytest.raises(SinkError, match="format 99"):
            cls(request(tmp_path, record))
