"""A run may be killed at any instant, as often as anyone likes: the engine with each sink."""

import random
import re
import shutil
import time

import crash_child
import numpy as np
import pytest
import toy_plugin

import simrun
from fork_server import Server

SINKS = ["npy", "hdf5", "zarr"]
CALLS = "write,pwrite64,rename,renameat,renameat2,ftruncate,unlink,unlinkat,mkdir,link,fsync"


@pytest.fixture(scope="module")
def server():
    server = Server(crash_child.__file__)
    yield server
    server.close()


@pytest.fixture(params=SINKS)
def sink(request):
    crash_child.sink_class(request.param)  # small files here as well
    return request.param


def read(folder):
    with simrun.open_run(folder / "out") as run:
        return run.status, run.step, {p.name: np.array(run[p.name]) for p in run.probes}


def read_plain(folder, sink):
    """What a program that knows nothing of simrun sees."""
    data = folder / "out" / "data"
    names = [probe["name"] for probe in crash_child.PROBES]
    if sink == "hdf5":
        import h5py

        with h5py.File(data / "probes.h5") as file:
            return {name: file[name][()] for name in names}
    if sink == "zarr":
        import zarr

        group = zarr.open_group(data / "probes.zarr", mode="r")
        return {name: group[name][...] for name in names}
    return {name: np.load(data / f"{name}.npy") for name in names}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed")
    toy_plugin.write_model(folder)
    crash_child.run(folder)
    return read(folder)[2]


@pytest.fixture
def folder(tmp_path):
    toy_plugin.write_model(tmp_path)
    return tmp_path


def check_committed_part(folder, sink, undisturbed):
    """What is committed is the beginning of the undisturbed samples, for any reader."""
    if not (folder / "out" / "manifest.json").exists():
        return
    _, step, samples = read(folder)
    assert len(samples["step"]) == step
    plain = read_plain(folder, sink) if step else {}
    for name, committed in samples.items():
        assert np.array_equal(committed, undisturbed[name][: len(committed)]), name
        if step:
            assert len(plain[name]) >= len(committed)
            assert np.array_equal(plain[name], undisturbed[name][: len(plain[name])]), name


def check_finished(folder, sink, undisturbed):
    assert crash_child.run(folder, sink).status == "done"
    status, step, samples = read(folder)
    assert (status, step) == ("done", crash_child.STEPS)
    plain = read_plain(folder, sink)
    for name, expected in undisturbed.items():
        assert np.array_equal(samples[name], expected), name
        assert np.array_equal(plain[name], expected), name
    with simrun.open_run(folder / "out") as run:
        assert run.verify() == []


@pytest.mark.parametrize("point", crash_child.POINTS)
def test_killed_at_a_labelled_point(folder, sink, server, undisturbed, point):
    count = 1 if point in ("after sink finish", "before tidy") else 3
    assert server(folder=str(folder), sink=sink, point=point, count=count)[0] == -9
    check_committed_part(folder, sink, undisturbed)
    check_finished(folder, sink, undisturbed)


@pytest.mark.slow
@pytest.mark.parametrize("point", crash_child.POINTS)
def test_killed_at_each_passage_of_a_labelled_point(
    folder, sink, server, undisturbed, point, record_count
):
    count = 1
    while server(folder=str(folder), sink=sink, point=point, count=count)[0] == -9:
        check_committed_part(folder, sink, undisturbed)
        check_finished(folder, sink, undisturbed)
        shutil.rmtree(folder / "out")
        count += 1
    assert count > 1
    record_count(count - 1)


def test_killed_at_random_times_again_and_again(folder, sink, server, undisturbed):
    kills_at_random(folder, sink, server, undisturbed, rounds=3, seed=1)


@pytest.mark.slow
def test_killed_at_500_random_times(folder, sink, server, undisturbed, record_count):
    record_count(kills_at_random(folder, sink, server, undisturbed, rounds=500, seed=2))


def kills_at_random(folder, sink, server, undisturbed, rounds, seed):
    rng = random.Random(seed)
    for _ in range(2):  # the server may still have to start
        begin = time.monotonic()
        server(folder=str(folder), sink=sink)
        seconds = time.monotonic() - begin
        shutil.rmtree(folder / "out")
    killed = 0
    while killed < rounds:
        wait = rng.uniform(0, seconds)
        killed += server(folder=str(folder), sink=sink, seconds=wait)[0] == -9
        check_committed_part(folder, sink, undisturbed)
        if (folder / "out").exists() and rng.random() < 0.3:
            check_finished(folder, sink, undisturbed)
            shutil.rmtree(folder / "out")
    check_finished(folder, sink, undisturbed)
    return killed


needs_strace = pytest.mark.skipif(shutil.which("strace") is None, reason="strace isn't installed")


@needs_strace
def test_killed_at_a_system_call(folder, sink, server, undisturbed):
    kill_at_calls(folder, sink, server, undisturbed, 2)


@needs_strace
@pytest.mark.slow
def test_killed_at_every_third_system_call(folder, sink, server, undisturbed, record_count):
    record_count(kill_at_calls(folder, sink, server, undisturbed, None))


def kill_at_calls(folder, sink, server, undisturbed, kills):
    """Kill at calls spread evenly over a whole run's: strace counts each kind in each thread."""
    log = folder / "calls"

    def traced(*arguments):
        return server(folder=str(folder), sink=sink, strace=arguments)[0]

    assert traced("-e", f"trace={CALLS}", "-o", str(log)) == 0
    shutil.rmtree(folder / "out")
    calls = re.findall(r"^(\d+) +(\w+)\(", log.read_text(), re.MULTILINE)
    places = [
        (name, calls[: i + 1].count((thread, name))) for i, (thread, name) in enumerate(calls)
    ]
    kills = len(places) // 3 if kills is None else kills
    killed = 0
    for index in range(kills):
        name, when = places[(2 * index + 1) * len(places) // (2 * kills)]
        inject = f"inject={name}:signal=SIGKILL:when={when}"
        status = traced("-e", f"trace={name}", "-e", inject, "-o", "/dev/null")
        assert status in (0, -9)  # how the threads share the calls differs a little
        killed += status == -9
        check_committed_part(folder, sink, undisturbed)
        check_finished(folder, sink, undisturbed)
        shutil.rmtree(folder / "out")
    assert killed > 0.9 * kills
    return killed
