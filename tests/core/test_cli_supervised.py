"""The command line as users call it: with the supervisor between."""

import signal
import subprocess
import sys
import time

import numpy as np
import psutil
import pytest

import simrun

SLOW = {"seconds_per_step": 0.01}


@pytest.fixture
def simrun_command(project, monkeypatch):
    monkeypatch.delenv("SIMRUN_IN_PROCESS")

    def start(*arguments):
        return subprocess.Popen(
            [sys.executable, "-m", "simrun", *map(str, arguments)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    return start


def whole(project, tmp_path):
    simrun.run(project(steps=400, output={"path": "whole"}))
    return np.load(tmp_path / "whole" / "data" / "x.npy")


def wait_for_commit(folder):
    while not (folder / "manifest.json").exists() or simrun.open_run(folder).step == 0:
        time.sleep(0.05)


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGUSR1"])
def test_a_signal_stops_after_the_chunk_and_the_same_command_goes_on(
    project, tmp_path, simrun_command, name
):
    config = project(steps=400, chunk=10, toy=SLOW)
    process = simrun_command(config)
    wait_for_commit(tmp_path / "out")
    process.send_signal(getattr(signal, name))
    if name == "SIGINT":  # a terminal sends it to the child as well
        (child,) = psutil.Process(process.pid).children()
        child.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=60)
    assert process.returncode == 75, errors
    assert name in output
    with simrun.open_run(tmp_path / "out") as run:
        assert run.status == "stopped"
        assert 0 < run.step < 400
        assert run.step % 10 == 0
        assert len(run["x"]) == run.step
    process = simrun_command(config)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    assert np.array_equal(np.load(tmp_path / "out" / "data" / "x.npy"), whole(project, tmp_path))


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="prctl")
def test_the_engine_stops_when_the_supervisor_is_killed(project, tmp_path, simrun_command):
    config = project(steps=400, chunk=10, toy=SLOW)
    process = simrun_command(config)
    wait_for_commit(tmp_path / "out")
    (child,) = psutil.Process(process.pid).children()
    process.kill()
    process.wait()
    psutil.wait_procs([child], timeout=60)
    with simrun.open_run(tmp_path / "out") as run:
        assert run.status == "stopped"
    process = simrun_command(config)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    assert np.array_equal(np.load(tmp_path / "out" / "data" / "x.npy"), whole(project, tmp_path))


def test_options_reach_the_child(project, tmp_path, simrun_command):
    config = project(steps=400)
    process = simrun_command(
        config,
        "--set",
        "probes.0.name=y y".replace(" ", "_"),
        "--output",
        tmp_path / "a b",
        "--steps",
        30,
        "--budget",
        "3GiB",
        "--plugin",
        "toy",
        "--max-hours",
        1,
    )
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    with simrun.open_run(tmp_path / "a b") as run:
        assert (run.status, run.step) == ("done", 30)
        assert run.samples("y_y") == 30
    assert "of 3.00 GiB" in errors


def test_an_error_in_the_config_starts_no_child(project, tmp_path, simrun_command):
    process = simrun_command(project(steps=-1))
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 2
    assert errors.count("steps") >= 1
    assert not (tmp_path / "out").exists()


def test_an_extension_is_worked_out_once(project, tmp_path, simrun_command):
    """By the supervisor: a child that is started again mustn't add it once more."""
    config = project(duration="50 ms", steps=None)
    assert simrun_command(config).wait(60) == 0
    assert simrun_command(config, "--extend", "30 ms").wait(60) == 0
    with simrun.open_run(tmp_path / "out") as run:
        assert (run.step, run.end, run.status) == (80, 80, "done")
    simrun.run(project(steps=80, output={"path": "whole"}))
    whole = np.load(tmp_path / "whole" / "data" / "x.npy")
    assert np.array_equal(np.load(tmp_path / "out" / "data" / "x.npy"), whole)
    process = simrun_command(config, "--extend", "soon")
    assert "extend: found 'soon'" in process.communicate(timeout=60)[1]
    assert process.returncode == 2
