import json
import math

import numpy as np
import pytest

from simrun import checksums
from simrun.errors import ConfigError, DamagedError
from simrun.records import ProbeBlock, ProbeSpec
from simrun.sink import SinkRequest
from simrun.sinks.npy import NpyReader, NpySink

PROBES = (
    ProbeSpec("v", (3,), np.dtype("f4"), ("neuron",), attrs={"units": "mV"}),
    ProbeSpec("scalar", (), np.dtype("f8"), (), period=2.0),
    ProbeSpec("bits", (2, 2), np.dtype("bool"), ("minibatch", "neuron")),
    ProbeSpec("big", (2,), np.dtype(">i4"), ("x",)),
    ProbeSpec("none", (0,), np.dtype("f4"), ("x",)),
    ProbeSpec("last", (2,), np.dtype("f4"), ("x",), period=math.inf),
)


def block(start, stop):
    rng = np.random.default_rng(start)
    samples = {}
    for probe in PROBES:
        n = (
            0
            if math.isinf(probe.period)
            else stop // int(probe.period) - start // int(probe.period)
        )
        samples[probe.name] = (100 * rng.standard_normal((n, *probe.shape))).astype(probe.dtype)
    return ProbeBlock(start, stop, samples)


def request(path, committed=None, probes=PROBES):
    return SinkRequest(path, probes, 0.001, False, committed)


def whole(name, *blocks):
    return np.concatenate([b.samples[name] for b in blocks])


def test_numpy_reads_the_committed_samples_while_the_file_grows(tmp_path):
    sink, a, b, c = NpySink(request(tmp_path)), block(0, 10), block(10, 13), block(13, 20)
    sink.append(a)
    record = sink.commit()
    sink.append(b)  # not committed: not seen
    for name in ("v", "scalar", "bits", "big", "none", "last"):
        found = np.load(tmp_path / f"{name}.npy", mmap_mode="r")
        assert found.dtype == a.samples[name].dtype
        assert np.array_equal(found, a.samples[name])
    sink.append(c)
    later = sink.commit()
    sink.close()
    reader = NpyReader(request(tmp_path, later))
    for probe in PROBES:
        assert np.array_equal(np.load(tmp_path / f"{probe.name}.npy"), whole(probe.name, a, b, c))
        assert np.array_equal(reader.array(probe.name), whole(probe.name, a, b, c))
    assert json.loads(json.dumps(later)) == later
    # an older commit stays readable
    assert np.array_equal(NpyReader(request(tmp_path, record)).array("v"), a.samples["v"])


def test_reopening_discards_what_came_after_the_commit(tmp_path):
    sink, a, b = NpySink(request(tmp_path)), block(0, 10), block(10, 15)
    sink.append(a)
    record = sink.commit()
    sink.append(block(10, 30))
    sink.commit()
    sink.close()
    sink = NpySink(request(tmp_path, record))
    sink.append(b)
    record = sink.commit()
    sink.close()
    for probe in PROBES:
        assert np.array_equal(np.load(tmp_path / f"{probe.name}.npy"), whole(probe.name, a, b))
    assert NpyReader(request(tmp_path, record)).verify() == []


def test_lost_bytes_are_told_not_filled_in(tmp_path):
    sink = NpySink(request(tmp_path))
    sink.append(block(0, 10))
    record = sink.commit()
    sink.close()
    path = tmp_path / "v.npy"
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(DamagedError, match="5 committed bytes are missing"):
        NpySink(request(tmp_path, record))
    with pytest.raises(DamagedError, match="shorter"):
        NpyReader(request(tmp_path, record)).array("v")
    assert any("v.npy" in problem for problem in NpyReader(request(tmp_path, record)).verify())


def test_verify_finds_every_flipped_bit(tmp_path):
    sink = NpySink(request(tmp_path))
    sink.append(block(0, 10))
    record = sink.commit()
    sink.close()
    path = tmp_path / "v.npy"
    good = path.read_bytes()
    for position in range(128, len(good), 7):
        bad = bytearray(good)
        bad[position] ^= 1 << (position % 8)
        path.write_bytes(bad)
        (problem,) = NpyReader(request(tmp_path, record)).verify()
        assert problem == f"{path}: checksum differs (bytes 0 to 120 of the data)"
        with pytest.raises(DamagedError, match=r"v\.npy: the last samples aren't what was"):
            NpySink(request(tmp_path, record))


def test_many_commits_have_few_checksums_and_each_part_its_own(tmp_path, monkeypatch):
    """The record grows with the logarithm of the data, and says which part is damaged."""
    monkeypatch.setattr(checksums, "LEAF", 64)
    probe = ProbeSpec("x", (3,), np.dtype("f4"), ("x",))
    samples = np.random.default_rng(0).random((500, 3), np.float32)
    record, start, lengths = None, 0, [1, 7, 2, 30, 60, 100, 300]
    for length in lengths:
        for count in (length // 2, length - length // 2):  # by two commits, then a new process
            sink = NpySink(request(tmp_path, record, (probe,)))
            rows = samples[start : start + count]
            sink.append(ProbeBlock(start, start + count, {"x": rows}))
            record, start = json.loads(json.dumps(sink.commit())), start + count
            sink.close()
    assert start == 500
    file = record["files"]["x"]
    assert file["bytes"] == (tmp_path / "x.npy").stat().st_size
    assert [each["bytes"] for each in file["checksums"]] == [4096, 1024, 512, 256, 64, 48]
    # the same as by one commit
    (tmp_path / "once").mkdir()
    sink = NpySink(request(tmp_path / "once", probes=(probe,)))
    sink.append(ProbeBlock(0, 500, {"x": samples}))
    assert sink.commit() == record
    sink.close()
    reader = NpyReader(request(tmp_path, record, (probe,)))
    assert reader.verify() == []
    content = bytearray((tmp_path / "x.npy").read_bytes())
    content[128 + 4096 + 5] ^= 1
    (tmp_path / "x.npy").write_bytes(content)
    (problem,) = reader.verify()
    assert "bytes 4096 to 5120" in problem


def test_the_record_of_another_version_is_refused(tmp_path):
    NpySink(request(tmp_path)).close()
    old = {"v": {"samples": 3, "crc32": 1}}
    for kind in (NpySink, NpyReader):
        with pytest.raises(DamagedError, match="format None of the npy sink, this is format 2"):
            kind(request(tmp_path, old))


def test_the_description_beside_the_arrays(tmp_path):
    NpySink(request(tmp_path)).close()
    described = json.loads((tmp_path / "probes.json").read_text())
    assert described["dt_seconds"] == 0.001
    assert described["probes"]["v"] == {
        "file": "v.npy",
        "sample_shape": [3],
        "dims": ["time", "neuron"],
        "dtype": "<f4",
        "period_steps": 1.0,
        "reduce": "last",
        "units": "mV",
    }
    assert described["probes"]["last"]["period_steps"] is None


def test_events_are_refused(tmp_path):
    spikes = ProbeSpec("spikes", (3,), np.dtype("f4"), ("neuron",), attrs={"format": "events"})
    with pytest.raises(ConfigError, match="npy stores no events, as probe 'spikes'"):
        NpySink(request(tmp_path, probes=(spikes,)))
