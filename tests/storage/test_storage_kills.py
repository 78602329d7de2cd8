"""SIGKILL at every change of the file system, at random times, at system calls: nothing is lost.

After each kill the committed part opens with a plain reader and with ours; the run that goes on
from the manifest ends with the data of an undisturbed one.
"""

import json
import random
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from storage_cases import END, check_plain, check_reader, make_small, manifest, run

CHILD = Path(__file__).with_name("storage_child.py")
SINKS = ["hdf5", "zarr"]


class Server:
    """The process that forks runs."""

    def __init__(self):
        self._process = subprocess.Popen(
            [sys.executable, str(CHILD), "serve"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def __call__(self, sink, directory, **job):
        directory.mkdir(parents=True, exist_ok=True)
        line = json.dumps({"sink": sink, "directory": str(directory), **job})
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def close(self):
        self._process.stdin.close()
        self._process.wait(60)


@pytest.fixture(scope="module")
def server():
    server = Server()
    yield server
    server.close()


@pytest.fixture(autouse=True)
def small(monkeypatch):
    import simrun_storage_hdf5.sink as hdf5
    import simrun_storage_zarr.layout as zarr

    for module in (hdf5, zarr):
        for name in [n for n in vars(module) if n.isupper()]:
            monkeypatch.setattr(module, name, getattr(module, name))
    make_small()


def check_killed(sink, directory, begun=True):
    """What must hold after a kill, and once the run has gone on."""
    step, record = manifest(directory)
    if record is not None:
        check_reader(sink, directory, step, record)
        check_plain(sink, directory, step)
    run(sink, directory)
    step, record = manifest(directory)
    assert step == END
    check_reader(sink, directory, step, record)
    check_plain(sink, directory, END)
    left = [p.name for p in (directory / "data").rglob("*") if p.suffix == ".new"]
    assert left == []


@pytest.mark.parametrize("sink", SINKS)
@pytest.mark.parametrize("durable", [False, True])
def test_killed_at_changes_of_the_file_system(sink, durable, server, tmp_path):
    status, changes, _ = server(sink, tmp_path / "whole", durable=durable)
    assert status == 0
    check_reader(sink, tmp_path / "whole", *manifest(tmp_path / "whole"))
    # the first and the last moments, and a sample between
    chosen = random.Random(changes).sample(range(1, changes + 1), 4)
    for number in sorted({1, 2, changes - 1, changes, *chosen}):
        kill(sink, server, tmp_path, durable, number, after=number % 2 == 0)


@pytest.mark.slow
@pytest.mark.parametrize("sink", SINKS)
@pytest.mark.parametrize("durable", [False, True])
@pytest.mark.parametrize("after", [False, True])
def test_killed_at_every_change_of_the_file_system(sink, durable, after, server, tmp_path):
    _, changes, _ = server(sink, tmp_path / "whole", durable=durable)
    for number in range(1, changes + 1):
        kill(sink, server, tmp_path, durable, number, after)


def kill(sink, server, tmp_path, durable, number, after):
    directory = tmp_path / f"{number}"
    status, *_ = server(sink, directory, durable=durable, kill_at=number, after=after)
    assert status == -9
    check_killed(sink, directory)
    shutil.rmtree(directory)


@pytest.mark.parametrize("sink", SINKS)
def test_killed_again_and_again_at_random_times(sink, server, tmp_path):
    kill_at_random_times(sink, server, tmp_path, 6)


@pytest.mark.slow
@pytest.mark.parametrize("sink", SINKS)
def test_killed_again_and_again_at_500_random_times(sink, server, tmp_path):
    kill_at_random_times(sink, server, tmp_path, 500)


def kill_at_random_times(sink, server, tmp_path, kills):
    _, _, seconds = server(sink, tmp_path / "whole")
    choose = random.Random(kills)
    killed = number = 0
    while killed < kills:
        number += 1
        assert number < 5 * kills + 20
        directory = tmp_path / f"{number}"
        # several kills in one run, the last at its end or after
        for _ in range(3):
            status, *_ = server(sink, directory, seconds=choose.uniform(0, seconds))
            killed += status == -9
            assert status in (0, -9)
            step, record = manifest(directory)
            if record is not None:
                check_reader(sink, directory, step, record)
        check_killed(sink, directory)
        shutil.rmtree(directory)


CALLS = "write,pwrite64,rename,renameat2,fsync,unlink,ftruncate"


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
@pytest.mark.parametrize("sink", SINKS)
def test_killed_at_system_calls(sink, tmp_path):
    kill_at_calls(sink, tmp_path, 3)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
@pytest.mark.parametrize("sink", SINKS)
def test_killed_at_many_system_calls(sink, tmp_path):
    kill_at_calls(sink, tmp_path, 100)


def kill_at_calls(sink, tmp_path, kills):
    """Kill at calls spread evenly over a whole run's: strace counts each kind by itself."""
    log = tmp_path / "calls"
    assert strace(sink, tmp_path / "whole", "-e", f"trace={CALLS}", "-o", str(log)) == 0
    names = re.findall(r"^\d+ +(\w+)\(", log.read_text(), re.MULTILINE)
    places = [(name, names[: index + 1].count(name)) for index, name in enumerate(names)]
    assert len(places) >= kills
    for index in range(kills):
        name, when = places[(2 * index + 1) * len(places) // (2 * kills)]
        directory = tmp_path / f"{name}-{when}"
        inject = f"inject={name}:signal=SIGKILL:when={when}"
        status = strace(sink, directory, "-e", f"trace={name}", "-e", inject, "-o", "/dev/null")
        assert status in (-9, 137), (name, when)
        check_killed(sink, directory)


def strace(sink, directory, *arguments):
    directory.mkdir()
    return subprocess.run(
        ["strace", "-f", *arguments, sys.executable, "-B", str(CHILD), sink,
         str(directory), "durable"],
        timeout=120,
    ).returncode  # fmt: skip
