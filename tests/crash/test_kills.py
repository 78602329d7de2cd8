"""A run may be killed at any instant, as often as anyone likes."""

import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import crash_child
import numpy as np
import pytest
import toy_plugin

import simrun

CHILD = Path(crash_child.__file__)
SYSCALLS = ("write", "pwrite64", "rename", "openat", "ftruncate", "unlink", "mkdir", "fsync")


def start(folder, *arguments):
    return subprocess.Popen([sys.executable, str(CHILD), str(folder), "npy", *arguments])


def read(folder):
    with simrun.open_run(folder / "out") as run:
        return run.status, run.step, {p.name: np.array(run[p.name]) for p in run.probes}


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


def check_committed_part(folder, undisturbed):
    """What a plain reader sees after the kill is the beginning of the undisturbed samples."""
    if not (folder / "out" / "manifest.json").exists():
        return 0
    _, step, samples = read(folder)
    assert len(samples["step"]) == step
    for name, committed in samples.items():
        assert np.array_equal(committed, undisturbed[name][: len(committed)]), name
        if len(committed):
            plain = np.load(folder / "out" / "data" / f"{name}.npy", mmap_mode="r")
            assert np.array_equal(plain[: len(committed)], committed)
    return step


def check_finished(folder, undisturbed):
    status, step, samples = read(folder)
    assert (status, step) == ("done", crash_child.STEPS)
    for name, expected in undisturbed.items():
        assert np.array_equal(samples[name], expected), name
        assert np.array_equal(np.load(folder / "out" / "data" / f"{name}.npy"), expected)


def counts(point):
    # a sample of the passages; each point is passed once or several times a chunk
    return [1, 2, 5] if point != "inside sink commit" else [1, 6, 22]


@pytest.mark.parametrize(
    ("point", "count"), [(point, n) for point in crash_child.POINTS for n in counts(point)]
)
def test_killed_at_a_labelled_point(folder, undisturbed, point, count):
    assert start(folder, point, str(count)).wait(60) == -signal.SIGKILL
    check_committed_part(folder, undisturbed)
    crash_child.run(folder)
    check_finished(folder, undisturbed)


def test_killed_at_random_times_again_and_again(folder, undisturbed):
    kills_at_random(folder, undisturbed, rounds=2, seed=1)


@pytest.mark.slow
def test_killed_at_500_random_times(folder, undisturbed):
    kills_at_random(folder, undisturbed, rounds=500, seed=2)


def kills_at_random(folder, undisturbed, rounds, seed):
    rng = random.Random(seed)
    killed = 0
    while killed < rounds:
        child = start(folder)
        time.sleep(rng.uniform(0.2, 0.9))
        child.kill()
        killed += child.wait(60) == -signal.SIGKILL
        check_committed_part(folder, undisturbed)
        if (folder / "out").exists() and rng.random() < 0.2:
            crash_child.run(folder)
            check_finished(folder, undisturbed)
            shutil.rmtree(folder / "out")
    crash_child.run(folder)
    check_finished(folder, undisturbed)


def kill_at_system_call(folder, name, k):
    """Kill the run at a thread's k-th such call on its output; False: there were fewer."""
    trace = ["strace", "-f", "-qq", "-o", "/dev/null", "-P", str(folder / "out")]
    for file in (
        "manifest.json",
        "manifest.json.new",
        "data/x.npy",
        "data/thin.npy",
        "data/mean.npy",
        "data/step.npy",
        "data/probes.json",
        "state",
        "state/5.npz",
        "state/10.npz",
        "data",
    ):
        trace += ["-P", str(folder / "out" / file)]
    trace += ["-e", f"trace={name}", "-e", f"inject={name}:signal=SIGKILL:when={k}"]
    done = subprocess.run([*trace, sys.executable, str(CHILD), str(folder), "npy"], timeout=120)
    return done.returncode != 0


needs_strace = pytest.mark.skipif(shutil.which("strace") is None, reason="strace isn't installed")


@needs_strace
@pytest.mark.parametrize(
    ("name", "k"),
    [
        ("write", 1),
        ("write", 30),
        ("pwrite64", 2),
        ("pwrite64", 19),
        ("rename", 1),
        ("rename", 8),
        ("openat", 12),
        ("ftruncate", 2),
        ("unlink", 1),
        ("mkdir", 2),
    ],
)
def test_killed_at_a_system_call(folder, undisturbed, name, k):
    assert kill_at_system_call(folder, name, k)
    check_committed_part(folder, undisturbed)
    crash_child.run(folder)
    check_finished(folder, undisturbed)


@needs_strace
@pytest.mark.slow
def test_killed_at_every_system_call(folder, undisturbed):
    kills = 0
    for name in SYSCALLS:
        k = 1
        while kill_at_system_call(folder, name, k):
            check_committed_part(folder, undisturbed)
            crash_child.run(folder)
            check_finished(folder, undisturbed)
            shutil.rmtree(folder / "out")
            kills, k = kills + 1, k + 1
        shutil.rmtree(folder / "out", ignore_errors=True)
    assert kills > 100
