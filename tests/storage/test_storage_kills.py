"""SIGKILL at every change of the file system, at random times, at system calls: nothing is lost.

After each kill the committed part opens with a plain reader and with ours; the run that goes on
from the manifest ends with the data of an undisturbed one.
"""

import random
import re
import shutil
from pathlib import Path

import pytest
from storage_cases import END, check_plain, check_reader, make_small, manifest, run

from fork_server import Server

CHILD = Path(__file__).with_name("storage_child.py")
SINKS = ["npy", "hdf5", "zarr"]


@pytest.fixture(scope="module")
def server():
    server = Server(CHILD)
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


def check_killed(sink, directory):
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
def test_killed_at_changes_of_the_file_system(sink, server, tmp_path):
    changes = count_changes(sink, server, tmp_path)
    # the first and the last moments, and a sample between
    chosen = random.Random(changes).sample(range(1, changes + 1), 3)
    for number in sorted({2, changes, *chosen}):
        kill(sink, server, tmp_path, number)


@pytest.mark.slow
@pytest.mark.parametrize("sink", SINKS)
def test_killed_at_every_change_of_the_file_system(sink, server, tmp_path, record_count):
    changes = count_changes(sink, server, tmp_path)
    # zarr writes each array anew at each commit: hundreds of times the same
    chosen = range(1, changes + 1, 3 if sink == "zarr" else 1)
    for number in chosen:
        kill(sink, server, tmp_path, number)
    record_count(f"{len(chosen)} of {changes}")


def count_changes(sink, server, tmp_path):
    (tmp_path / "whole").mkdir()
    status, (changes, _) = server(sink=sink, directory=str(tmp_path / "whole"), durable=True)
    assert status == 0
    check_reader(sink, tmp_path / "whole", *manifest(tmp_path / "whole"))
    return changes


def kill(sink, server, tmp_path, number):
    directory = tmp_path / f"{number}"
    directory.mkdir()
    status, _ = server(sink=sink, directory=str(directory), durable=True, kill_at=number)
    assert status == -9
    check_killed(sink, directory)
    shutil.rmtree(directory)


@pytest.mark.parametrize("sink", SINKS)
def test_killed_again_and_again_at_random_times(sink, server, tmp_path):
    kill_at_random_times(sink, server, tmp_path, 3)


@pytest.mark.slow
@pytest.mark.parametrize("sink", SINKS)
def test_killed_again_and_again_at_500_random_times(sink, server, tmp_path, record_count):
    record_count(kill_at_random_times(sink, server, tmp_path, 500))


def kill_at_random_times(sink, server, tmp_path, kills):
    (tmp_path / "whole").mkdir()
    _, (_, seconds) = server(sink=sink, directory=str(tmp_path / "whole"))
    choose = random.Random(kills)
    killed = number = 0
    while killed < kills:
        number += 1
        assert number < 5 * kills + 20
        directory = tmp_path / f"{number}"
        directory.mkdir()
        # several kills in one run, the last at its end or after
        for _ in range(3):
            wait = choose.uniform(0, seconds)
            status, _ = server(sink=sink, directory=str(directory), seconds=wait)
            killed += status == -9
            assert status in (0, -9)
            step, record = manifest(directory)
            if record is not None:
                check_reader(sink, directory, step, record)
        check_killed(sink, directory)
        shutil.rmtree(directory)
    return killed


CALLS = "write,pwrite64,rename,renameat,renameat2,fsync,unlink,unlinkat,ftruncate,mkdir,link"
needs_strace = pytest.mark.skipif(shutil.which("strace") is None, reason="strace isn't installed")


@needs_strace
@pytest.mark.parametrize("sink", SINKS)
def test_killed_at_system_calls(sink, server, tmp_path):
    kill_at_calls(sink, server, tmp_path, 3)


@needs_strace
@pytest.mark.slow
@pytest.mark.parametrize("sink", SINKS)
def test_killed_at_every_fourth_system_call(sink, server, tmp_path, record_count):
    record_count(kill_at_calls(sink, server, tmp_path, None))


def kill_at_calls(sink, server, tmp_path, kills):
    """Kill at calls spread evenly over a whole run's; strace counts each kind by itself."""
    log = tmp_path / "calls"

    def traced(directory, *arguments):
        directory.mkdir()
        job = {"sink": sink, "directory": str(directory), "durable": True}
        return server(**job, strace=arguments)[0]

    assert traced(tmp_path / "whole", "-e", f"trace={CALLS}", "-o", str(log)) == 0
    names = re.findall(r"^\d+ +(\w+)\(", log.read_text(), re.MULTILINE)
    places = [(name, names[: index + 1].count(name)) for index, name in enumerate(names)]
    kills = len(places) // 4 if kills is None else kills
    assert len(places) >= kills
    killed = 0
    for index in range(kills):
        name, when = places[(2 * index + 1) * len(places) // (2 * kills)]
        directory = tmp_path / f"{name}-{when}"
        inject = f"inject={name}:signal=SIGKILL:when={when}"
        status = traced(directory, "-e", f"trace={name}", "-e", inject, "-o", "/dev/null")
        # the last write is the answer to the server
        assert status == -9 or (index == kills - 1 and name == "write"), (name, when)
        killed += status == -9
        check_killed(sink, directory)
        shutil.rmtree(directory)
    return killed
