"""The engine's process may die; the run goes on."""

import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import crash_child
import numpy as np
import pytest
import toy_plugin

import simrun
from simrun.supervisor import Death, is_the_same, judge, oom_kills, supervise

# a run of the toy that misbehaves the first times it is started
CHILD = """
import ctypes, os, pathlib, signal, sys, time
sys.path[:0] = {paths!r}
import crash_child, simrun, toy_plugin
folder, kind, times = pathlib.Path({folder!r}), {kind!r}, {times}
marks = len(list(folder.glob("started*")))
(folder / f"started{{marks}}").write_text(" ".join(sys.argv[1:]))

class Misbehave:
    @simrun.hookimpl(tryfirst=True)
    def simrun_execute_chunk(self, simulation, chunk):
        if chunk.start <= 30 < chunk.stop and marks < times:
            while kind == "hang":
                time.sleep(1)
            if kind == "segfault":
                ctypes.string_at(0)
            if kind.startswith("/"):
                # a memory cgroup: the kernel kills who takes more than it allows
                pathlib.Path(kind, "cgroup.procs").write_text(str(os.getpid()))
                taken = [bytearray(10 << 20) for _ in range(200)]
            os.kill(os.getpid(), getattr(signal, kind))

arguments = sys.argv[1:]
limit = int(arguments[1]) if arguments else None
config = crash_child.config(folder)
ended = simrun.run(config, plugins=[toy_plugin, Misbehave()], chunk_limit=limit)
sys.exit(0 if ended.status == "done" else 75)
"""

PATHS = [str(Path(module.__file__).parent) for module in (crash_child, toy_plugin)]


@pytest.fixture
def folder(tmp_path):
    toy_plugin.write_model(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed")
    toy_plugin.write_model(folder)
    crash_child.run(folder)
    return read(folder)


def read(folder):
    with simrun.open_run(folder / "out") as run:
        return {probe.name: np.array(run[probe.name]) for probe in run.probes}


def supervised(folder, kind, times=1, **settings):
    code = CHILD.format(paths=PATHS, folder=str(folder), kind=kind, times=times)
    lines = []
    returned = supervise([sys.executable, "-c", code], folder / "out", lines.append, **settings)
    return returned, lines


def starts(folder):
    return [path.read_text() for path in sorted(folder.glob("started*"))]


@pytest.mark.parametrize("kind", ["segfault", "SIGABRT"])
def test_a_crash_in_native_code_is_survived(folder, undisturbed, kind):
    returned, lines = supervised(folder, kind, times=2)
    assert returned == 0
    assert len(lines) == 2
    assert "crashed in native code" in lines[0]
    # the writer runs beside
    assert re.search("starting again from step (25|30) with chunks of at most 2 steps$", lines[0])
    assert starts(folder) == ["", "--chunk-limit 2", "--chunk-limit 1"]
    for name, expected in undisturbed.items():
        assert np.array_equal(read(folder)[name], expected)


def test_a_crash_every_time_ends_with_75(folder, undisturbed):
    returned, lines = supervised(folder, "SIGSEGV", times=99, restarts=2)
    assert returned == 75
    assert len(starts(folder)) == 3
    assert re.search("giving up after 2 restarts; step (25|29|30) is committed", lines[-1])
    # the reason gone, the same command goes on
    assert supervised(folder, "SIGSEGV", times=0)[0] == 0
    assert np.array_equal(read(folder)["x"], undisturbed["x"])


def test_what_crashes_before_anything_is_committed_is_tried_twice(folder):
    """As a native library does that has too little memory for the network itself."""
    code = f"import ctypes, pathlib; pathlib.Path({str(folder)!r}, 'started' + str(len(list("
    code += f"pathlib.Path({str(folder)!r}).glob('started*'))))).touch(); ctypes.string_at(0)"
    lines = []
    assert supervise([sys.executable, "-c", code], folder / "out", lines.append) == 75
    assert len(starts(folder)) == 2
    first, second = lines
    assert first.endswith("(SIGSEGV); starting again from step 0")
    assert "as the time before; giving up after 1 restart: nothing was committed" in second
    assert "--in-process" in second


CRASH, MEMORY = Death("crash", True), Death("memory", True, memory=True)


@pytest.mark.parametrize(
    ("one", "two", "same"),
    [
        ((CRASH, 0, None), (CRASH, 0, None), True),
        ((CRASH, 0, None), (CRASH, 0, 50), True),  # shorter chunks didn't help
        ((CRASH, 0, None), (CRASH, 10, None), False),  # it came further
        ((CRASH, 10, None), (CRASH, 10, 50), False),  # something else was tried
        ((CRASH, 10, 1), (CRASH, 10, 1), True),
        ((CRASH, 0, None), (MEMORY, 0, None), False),
        ((MEMORY, 0, None), (MEMORY, 0, 50), False),
        ((MEMORY, 0, 1), (MEMORY, 0, 1), True),
        ((MEMORY, 0, None), (MEMORY, 0, None), True),  # before there was a plan
    ],
)
def test_when_a_third_death_is_certain(one, two, same):
    assert is_the_same(one, two) == same


def test_a_hang_is_noticed(folder, undisturbed):
    returned, lines = supervised(folder, "hang", heartbeat_seconds=8.0)
    assert returned == 0
    assert "finished no chunk for too long" in lines[0]
    assert np.array_equal(read(folder)["x"], undisturbed["x"])


def test_a_kill_that_was_meant_is_obeyed(folder):
    returned, lines = supervised(folder, "SIGKILL")
    assert returned == 75
    (line,) = lines
    assert line.startswith("the engine was killed by SIGKILL; giving up; step ")
    assert line.endswith(" is committed, the same command goes on from there")


@pytest.fixture
def small_cgroup():
    """A memory cgroup of 150 MB, where this machine lets one be made."""
    own = next(
        (line for line in Path("/proc/self/cgroup").read_text().splitlines() if ":memory:" in line),
        None,
    )
    if own is None:
        pytest.skip("no memory cgroup of version 1 to make a group in")
    group = Path("/sys/fs/cgroup/memory") / own.split(":")[2].lstrip("/") / f"simrun{os.getpid()}"
    try:
        group.mkdir()
        (group / "memory.limit_in_bytes").write_text(str(150_000_000))
    except OSError as error:
        pytest.skip(f"no memory cgroup can be made here: {error}")
    yield group
    group.rmdir()


def test_a_kill_for_memory_is_followed_by_shorter_chunks(folder, undisturbed, small_cgroup):
    returned, lines = supervised(folder, str(small_cgroup))
    assert returned == 0
    assert "the kernel killed the engine because memory ran out; starting again" in lines[0]
    assert lines[0].endswith("with chunks of at most 2 steps")
    assert starts(folder) == ["", "--chunk-limit 2"]
    assert np.array_equal(read(folder)["x"], undisturbed["x"])


def test_an_error_of_the_childs_own_is_passed_on(tmp_path):
    assert supervise([sys.executable, "-c", "raise SystemExit(4)"], tmp_path, print) == 4


def test_sigterm_is_passed_on(tmp_path):
    code = (
        "import signal, sys, time, pathlib\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(75))\n"
        f"pathlib.Path({str(tmp_path / 'ready')!r}).touch()\n"
        "time.sleep(60)"
    )

    def send():
        while not (tmp_path / "ready").exists():
            time.sleep(0.05)
        signal.raise_signal(signal.SIGTERM)

    thread = threading.Thread(target=send)
    previous = signal.signal(signal.SIGTERM, lambda *_: None)
    try:
        thread.start()
        assert supervise([sys.executable, "-c", code], tmp_path, print) == 75
    finally:
        thread.join()
        assert signal.signal(signal.SIGTERM, previous) is not previous


@pytest.mark.parametrize(
    ("returncode", "oom", "hung", "death"),
    [
        (0, False, False, None),
        (75, True, False, None),
        (
            -9,
            True,
            False,
            Death("the kernel killed the engine because memory ran out", True, memory=True),
        ),
        (-9, False, False, Death("the engine was killed by SIGKILL", False)),
        (-11, True, False, Death("the engine crashed in native code (SIGSEGV)", True)),
        (-15, False, False, Death("the engine was killed by SIGTERM", False)),
        (
            -9,
            False,
            True,
            Death("the engine finished no chunk for too long and was killed", True),
        ),
    ],
)
def test_what_an_end_means(returncode, oom, hung, death):
    assert judge(returncode, oom, hung) == death


def test_the_kernels_counters(tmp_path):
    (tmp_path / "job").mkdir()
    (tmp_path / "job" / "memory.events").write_text("low 0\noom 4\noom_kill 2\n")
    (tmp_path / "cgroup").write_text("0::/job\n")
    (tmp_path / "vmstat").write_text("nr_free 1\noom_kill 5\n")
    assert oom_kills(tmp_path / "cgroup", tmp_path, tmp_path / "vmstat") == 7
    assert oom_kills(tmp_path / "none", tmp_path, tmp_path / "none") == 0


def test_a_second_process_on_one_output_is_refused(folder):
    child = subprocess.Popen(
        [
            sys.executable,
            "-c",
            CHILD.format(
                paths=PATHS,
                folder=str(folder),
                kind="hang",
                times=9,
            ),
        ]
    )
    try:
        while not (folder / "out" / "manifest.json").exists():
            time.sleep(0.05)
        with pytest.raises(simrun.errors.OutputExistsError, match="another simrun process"):
            crash_child.run(folder)
    finally:
        child.kill()
        child.wait()
    assert crash_child.run(folder).status == "done"
