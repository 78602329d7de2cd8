"""Disks that are full, read-only or strangely named; and what reaches the disk in which order."""

import os
import shutil
import subprocess
from pathlib import Path

import crash_child
import numpy as np
import pytest
import toy_plugin

import simrun
from simrun.errors import ConfigError, OutputExistsError, SinkError


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    toy_plugin.write_model(folder, n=500)
    return folder


def config(model, path, durability="process", **changes):
    output = {"path": str(path), "durability": durability}
    return crash_child.config(model) | {"output": output} | changes


def run(*arguments, **keywords):
    return simrun.run(*arguments, plugins=[toy_plugin], **keywords)


def same(a, b):
    for probe in crash_child.PROBES:
        one, other = (np.load(f / "data" / f"{probe['name']}.npy") for f in (a, b))
        assert np.array_equal(one, other)


@pytest.fixture
def small_disk(tmp_path):
    """A file system of one megabyte, where this process may mount one."""
    place = tmp_path / "disk"
    place.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(place)]
    if shutil.which("mount") is None or subprocess.run(words, capture_output=True).returncode:
        pytest.skip("no file system can be mounted here")
    yield place
    subprocess.run(["umount", str(place)], check=True)


class FillDisk:
    """Takes the rest of the disk as soon as something is committed."""

    def __init__(self, place):
        self.filler = place / "filler"

    @simrun.hookimpl
    def simrun_chunk_committed(self, record):
        if record.step >= 20 and not self.filler.exists():
            with self.filler.open("wb") as file:
                try:
                    while True:
                        file.write(bytes(512))
                        file.flush()
                except OSError:
                    pass


def test_a_full_disk_stops_at_the_last_commit_and_the_run_goes_on(model, small_disk, tmp_path):
    settings = config(model, small_disk / "out")
    filler = FillDisk(small_disk)
    with pytest.raises(SinkError) as caught:
        run(settings, observers=[filler])
    assert "No space left" in str(caught.value)
    assert caught.value.exit_code == 75
    with simrun.open_run(small_disk / "out") as begun:
        step = begun.step
        assert 20 <= step < 60
        early = np.array(begun["x"])
    filler.filler.unlink()
    assert run(settings).status == "done"
    run(config(model, tmp_path / "whole"))
    same(small_disk / "out", tmp_path / "whole")
    assert np.array_equal(np.load(tmp_path / "whole" / "data" / "x.npy")[:step], early)


def test_output_larger_than_the_disk_is_refused_before_it_begins(model, small_disk):
    from simrun.errors import BudgetError

    with pytest.raises(BudgetError, match="doesn't fit on the disk"):
        run(config(model, small_disk / "out", steps=1000))
    assert not (small_disk / "out").exists()


def test_a_read_only_disk_is_told(model, small_disk):
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    with pytest.raises(ConfigError, match="Read-only file system"):
        run(config(model, small_disk / "out"))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_may_not_be_written_is_told(model, tmp_path):
    (tmp_path / "closed").mkdir(mode=0o500)
    with pytest.raises(ConfigError, match="Permission denied"):
        run(config(model, tmp_path / "closed" / "out"))


def test_an_output_path_that_is_a_file(model, tmp_path):
    (tmp_path / "out").write_text("mine")
    with pytest.raises(OutputExistsError, match="is a file"):
        run(config(model, tmp_path / "out"))
    assert (tmp_path / "out").read_text() == "mine"


@pytest.mark.parametrize(
    "name", ["with spaces", "Übergrößenträger 神経", "/".join(["d" * 95] * 4)], ids=str.__len__
)
def test_strange_and_long_names(model, tmp_path, name):
    assert run(config(model, tmp_path / name)).status == "done"
    run(config(model, tmp_path / "whole"))
    same(tmp_path / name, tmp_path / "whole")


def test_a_name_that_is_too_long_is_told(model, tmp_path):
    with pytest.raises(ConfigError, match="File name too long"):
        run(config(model, tmp_path / ("d" * 300)))


@pytest.fixture
def recorded(monkeypatch):
    """Every write, fsync and rename of the run, in order, as (what, name of the file)."""
    events = []
    fsync, pwrite, replace = os.fsync, os.pwrite, Path.replace

    def name(descriptor):
        return Path(f"/proc/self/fd/{descriptor}").readlink().name

    def recording_fsync(descriptor):
        events.append(("fsync", name(descriptor)))
        fsync(descriptor)

    def recording_pwrite(descriptor, data, offset):
        events.append(("header", name(descriptor)))
        return pwrite(descriptor, data, offset)

    def recording_replace(self, target):
        events.append(("rename", Path(target).name))
        return replace(self, target)

    monkeypatch.setattr(os, "fsync", recording_fsync)
    monkeypatch.setattr(os, "pwrite", recording_pwrite)
    monkeypatch.setattr(Path, "replace", recording_replace)
    return events


def test_a_commit_against_power_cuts_reaches_the_disk_in_order(model, tmp_path, recorded):
    run(
        config(
            model,
            tmp_path / "out",
            probes=[{"name": "x", "object": "x"}],
            steps=10,
            durability="power",
        )
    )
    # the last commit: samples, then the header that names them, then the state, then the manifest
    last = len(recorded) - 1 - recorded[::-1].index(("rename", "manifest.json"))
    begin = last - recorded[:last][::-1].index(("rename", "manifest.json"))
    commit = recorded[begin : last + 2]
    assert [event for event in commit if "out" not in event[1]] == [
        ("fsync", "x.npy"),
        ("header", "x.npy"),
        ("fsync", "x.npy"),
        ("fsync", "10.npz.new"),
        ("rename", "10.npz"),
        ("fsync", "state"),
        ("fsync", "manifest.json.new"),
        ("rename", "manifest.json"),
    ]
    assert commit[-1] == ("fsync", "out")


def test_without_power_cuts_nothing_waits_for_the_disk(model, tmp_path, recorded):
    run(config(model, tmp_path / "out"))
    assert ("rename", "manifest.json") in recorded
    assert [event for event in recorded if event[0] == "fsync"] == []
