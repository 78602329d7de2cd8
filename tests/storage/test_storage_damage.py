"""Damaged files and full disks: never wrong data without a word, and earlier commits stay."""

import json
import os
import random
import resource
import shutil
import subprocess
from pathlib import Path

import pytest
from storage_cases import (
    END,
    PROBES,
    block,
    check_plain,
    check_reader,
    classes,
    equal,
    kept,
    make_small,
    manifest,
    request,
    run,
    samples,
)

from simrun.errors import SimrunError, SinkError

SINKS = ["hdf5", "zarr"]


@pytest.fixture(autouse=True)
def small(monkeypatch):
    import simrun_storage_hdf5.sink as hdf5
    import simrun_storage_zarr.layout as zarr

    for module in (hdf5, zarr):
        for name in [n for n in vars(module) if n.isupper()]:
            monkeypatch.setattr(module, name, getattr(module, name))
    make_small()


def half_a_run(name, directory, first=30):
    """Two commits of a run that then died; returns (step, record) of both."""
    sink = classes(name)[0](request(directory))
    commits = []
    for start, stop in ((0, first), (first, 48)):
        for at in range(start, stop, 3):
            sink.append(block(at, at + 3))
        commits.append((stop, json.loads(json.dumps(sink.commit()))))
    sink.close()
    return commits


def newest(name, directory, record):
    """The file that the last commit wrote to, and a place in it with samples."""
    if name == "hdf5":
        path = directory / "data" / "segments" / record["segments"][-1]["name"]
        import h5py

        with h5py.File(path) as file:
            return path, file["spikes"].id.get_offset()
    entry = record["arrays"]["spikes"]
    path = directory / "data" / "probes.zarr" / "spikes" / f"c.{len(entry['xxh3']) - 1}.0.0"
    return path, 12


@pytest.mark.parametrize("name", SINKS)
@pytest.mark.parametrize("damage", ["flip", "torn", "missing", "empty"])
def test_a_damaged_newest_file_is_refused_and_named(name, damage, tmp_path):
    _, (_, record) = half_a_run(name, tmp_path)
    path, place = newest(name, tmp_path, record)
    content = bytearray(path.read_bytes())
    if damage == "flip":
        content[place] ^= 16
        path.write_bytes(content)
    elif damage == "missing":
        path.unlink()
    else:
        path.write_bytes(content[: len(content) // 2 if damage == "torn" else 0])
    with pytest.raises(SinkError) as caught:
        classes(name)[0](request(tmp_path, record))
    assert path.name in caught.value.message
    assert caught.value.hint
    problems = classes(name)[1](request(tmp_path, record)).verify()
    assert problems
    assert any("spikes" in text or path.name in text for text in problems)


@pytest.mark.parametrize("name", ["npy", *SINKS])
def test_random_damage_is_never_silent(name, tmp_path):
    damage_at_random(name, tmp_path, 12)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["npy", *SINKS])
def test_much_random_damage_is_never_silent(name, tmp_path, record_count):
    damage_at_random(name, tmp_path, 400)
    record_count(400)


def damage_at_random(name, tmp_path, times):
    """What isn't reported reads back exactly, and goes on exactly."""
    choose = random.Random(times)
    half_a_run(name, tmp_path / "half")
    run(name, tmp_path / "done") if (tmp_path / "done").mkdir() is None else None
    commits = {"half": half_a_run(name, tmp_path / "again")[1], "done": manifest(tmp_path / "done")}
    reported = 0
    for number in range(times):
        kind = choose.choice(["half", "done"])
        step, record = commits[kind]
        directory = tmp_path / "copy"
        shutil.copytree(tmp_path / kind, directory)
        files = sorted(p for p in (directory / "data").rglob("*") if p.is_file())
        path = choose.choice(files)
        damage(path, choose)
        reader = classes(name)[1](request(directory, record))
        if reader.verify():
            reported += 1
        else:
            for probe in kept(name, PROBES):
                assert equal(reader.array(probe.name)[:], samples(probe, 0, step)), (number, path)
        reader.close()
        try:  # to go on either refuses or continues rightly
            sink = classes(name)[0](request(directory, record))
            sink.append(block(step, step + 1)) if step < END else None
            last = sink.finish()
            sink.close()
        except SimrunError:
            last = None
        if last is not None:
            reader = classes(name)[1](request(directory, last))
            if not reader.verify():
                for probe in kept(name, PROBES):
                    found = reader.array(probe.name)[:]
                    assert equal(found, samples(probe, 0, min(step + 1, END))), (number, path)
            reader.close()
        shutil.rmtree(directory)
    assert reported > times / 5


def damage(path, choose):
    content = bytearray(path.read_bytes())
    kind = choose.choice(["flip", "flip", "flip", "torn", "missing", "zeros"])
    place = choose.randrange(len(content) or 1)
    if kind == "missing" or not content:
        path.unlink()
    elif kind == "torn":
        os.truncate(path, place)
    else:
        end = place + 1 if kind == "flip" else min(place + 64, len(content))
        for i in range(place, end):
            content[i] = content[i] ^ (1 << choose.randrange(8)) if kind == "flip" else 0
        path.write_bytes(content)


@pytest.mark.parametrize("name", SINKS)
def test_the_commit_before_survives_damage_of_the_last(name, tmp_path):
    (step, record), (_, last) = half_a_run(name, tmp_path, first=9)
    if name == "hdf5":
        assert len(last["segments"]) > len(record["segments"])
        (tmp_path / "data" / "segments" / last["segments"][-1]["name"]).unlink()
    else:
        entry, before = last["arrays"]["spikes"], record["arrays"]["spikes"]
        assert len(entry["xxh3"]) > len(before["xxh3"])
        (tmp_path / "data/probes.zarr/spikes" / f"c.{len(entry['xxh3']) - 1}.0.0").unlink()
    with pytest.raises(SinkError):
        classes(name)[0](request(tmp_path, last))
    sink = classes(name)[0](request(tmp_path, record))
    sink.append(block(step, END))
    check_reader(name, tmp_path, END, sink.finish())
    sink.close()


@pytest.fixture
def disk(tmp_path):
    """A small disk of its own; call it to give it another size or make it read-only."""
    place = tmp_path / "disk with a näme"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=200k", "tmpfs", str(place)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("may not mount a disk here")

    def change(options):
        subprocess.run(["mount", "-o", f"remount,{options}", str(place)], check=True)

    change.path = place
    yield change
    subprocess.run(["umount", "-l", str(place)], check=True)


@pytest.mark.parametrize("name", SINKS)
def test_a_full_disk(name, disk):
    (disk.path / "ballast").write_bytes(bytes(90_000))
    with pytest.raises(SinkError, match="No space left") as caught:
        run(name, disk.path, every=1)
    assert "make room" in caught.value.hint
    step, record = manifest(disk.path)
    assert step > 0
    check_reader(name, disk.path, step, record)
    check_plain(name, disk.path, step)
    disk("size=64m")
    run(name, disk.path)
    check_reader(name, disk.path, *manifest(disk.path))
    check_plain(name, disk.path, END)


@pytest.mark.parametrize("name", SINKS)
def test_a_disk_that_became_read_only(name, disk):
    disk("size=64m")
    half_a_run(name, disk.path)
    (step, record), _ = half_a_run(name, disk.path)
    disk("ro")
    with pytest.raises(SinkError, match="Read-only file system"):
        classes(name)[0](request(disk.path, record))
    reader = classes(name)[1](request(disk.path, record))
    assert equal(reader.array("spikes")[:], samples(PROBES[0], 0, step))
    reader.close()


@pytest.mark.parametrize("name", SINKS)
def test_the_limit_of_file_sizes(name, tmp_path):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1200, hard))
    try:
        with pytest.raises(SinkError, match="File too large") as caught:
            run(name, tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert "ulimit -f" in caught.value.hint
    run(name, tmp_path)
    check_reader(name, tmp_path, *manifest(tmp_path))


@pytest.mark.parametrize(("name", "path"), [("hdf5", "segments"), ("zarr", "probes.zarr")])
def test_a_file_where_a_folder_should_be(name, path, tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / path).write_text("a file")
    with pytest.raises(SinkError, match=r"File exists|Not a directory"):
        run(name, tmp_path)
    assert (tmp_path / "data" / path).read_text() == "a file"


@pytest.mark.parametrize("name", SINKS)
def test_a_folder_without_permission(name, tmp_path):
    if os.geteuid() == 0:
        pytest.skip("root may write everywhere")
    (tmp_path / "data").mkdir(mode=0o500)
    with pytest.raises(SinkError, match="Permission denied"):
        run(name, tmp_path)


@pytest.mark.parametrize("name", SINKS)
def test_fsync_comes_before_what_relies_on_it(name, tmp_path, monkeypatch):
    """Data, then its name, then what names it: seen by a recording of the calls."""
    calls = []

    def recorded(function, describe):
        def call(*args, **kwargs):
            calls.append(describe(*args))
            return function(*args, **kwargs)

        return call

    def opened(descriptor):
        return str(Path(f"/proc/self/fd/{descriptor}").readlink())

    for call in ("fsync", "pwrite"):
        monkeypatch.setattr(
            os, call, recorded(getattr(os, call), lambda fd, *_, c=call: (c, opened(fd)))
        )
    monkeypatch.setattr(
        os, "replace", recorded(os.replace, lambda a, b: ("replace", str(a), str(b)))
    )
    run(name, tmp_path, durable=True)
    unsynced, synced = set(), set()
    for index, (call, *paths) in enumerate(calls):
        if call == "pwrite":
            unsynced.add(paths[0])
        elif call == "fsync":
            unsynced.discard(paths[0])
            synced.add(paths[0])
        else:
            source, target = paths
            assert source in synced
            synced.add(target)
            assert ("fsync", target.rpartition("/")[0]) == calls[index + 1]
            if target.endswith(("manifest.json", "probes.h5", "probes.zarr/zarr.json")):
                assert not unsynced, target
    assert any(path[-1].endswith("manifest.json") for _, *path in calls)
