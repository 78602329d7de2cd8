"""The whole chunk loop with the toy simulator: the promises of `simrun.run`."""

import json
import os

import numpy as np
import pytest

import simrun
from simrun.errors import (
    BudgetError,
    ConfigError,
    OutOfMemoryError,
    OutputExistsError,
    SimulationError,
)
from simrun.records import Fallback, Retry


def whole(project, tmp_path, name="whole", **changes):
    """The samples of one undisturbed chunk."""
    simrun.run(project(**changes, chunk=1000, output={"path": name}))
    with simrun.open_run(tmp_path / name) as run:
        return {probe.name: np.array(run[probe.name]) for probe in run.probes}


def samples(path):
    with simrun.open_run(path) as run:
        return {probe.name: np.array(run[probe.name]) for probe in run.probes}


def same(a, b):
    assert a.keys() == b.keys()
    for name in a:
        assert a[name].dtype == b[name].dtype
        assert np.array_equal(a[name], b[name]), name


PROBES = [
    {"name": "x", "object": "x"},
    {"name": "every7", "object": "x", "sample_every": 7},
    {"name": "mean", "object": "x", "sample_every": "10 ms", "reduce": "mean"},
    {"name": "step", "object": "step", "sample_every": 2.5},
]


@pytest.mark.parametrize("chunk", [1, 7, 64, 1000])
def test_chunks_leave_no_trace_in_the_samples(project, tmp_path, chunk):
    one = whole(project, tmp_path, probes=PROBES)
    ended = simrun.run(project(chunk=chunk, probes=PROBES))
    assert (ended.status, ended.step) == ("done", 100)
    same(samples(tmp_path / "out"), one)
    assert one["step"].tolist() == [n for n in range(1, 101) if n % 2.5 < 1]


def test_memory_that_runs_out_is_recovered_from(project, tmp_path):
    one = whole(project, tmp_path, probes=PROBES)
    seen = []

    class Watch:
        @simrun.hookimpl
        def simrun_chunk_committed(self, record):
            seen.extend(record.messages)

    config = project(chunk=64, probes=PROBES, toy={"memory_limit": 5})
    ended = simrun.run(config, observers=[Watch()])
    assert ended.status == "done"
    same(samples(tmp_path / "out"), one)
    assert [m for m in seen if "trying again" in m] == [
        f"out of host memory in a chunk of {a} steps after step 0: trying again with {b}"
        for a, b in [(64, 32), (32, 16), (16, 8), (8, 4)]
    ]
    assert "trying again with 4" in (tmp_path / "out" / "run.log").read_text()


def test_the_fallback_device_is_the_last_resort(project, tmp_path):
    one = whole(project, tmp_path)
    config = project(chunk=16, toy={"alignment": 8, "memory_limit": 5, "fallback": True})
    assert simrun.run(config).status == "done"
    same(samples(tmp_path / "out"), one)
    assert "fallback" in (tmp_path / "out" / "run.log").read_text()


def test_out_of_memory_for_good_explains_and_keeps_what_was_committed(project, tmp_path):
    class Policy:
        """Fails after two good chunks, whatever their length."""

        calls = 0

        @simrun.hookimpl(tryfirst=True)
        def simrun_execute_chunk(self, simulation, chunk):
            self.calls += 1
            if self.calls > 2:
                raise MemoryError("no room for 10 bytes")

    with pytest.raises(OutOfMemoryError) as caught:
        simrun.run(project(chunk=20), plugins=[Policy()])
    text = str(caught.value)
    for part in (
        "host memory ran out after step 40",
        "largest: process",
        "no room for 10 bytes",
        "sample_every",
    ):
        assert part in text, text
    assert caught.value.exit_code == 75
    with simrun.open_run(tmp_path / "out") as run:
        assert (run.status, run.step) == ("stopped", 40)
    # the same command goes on
    assert simrun.run(project(chunk=20)).status == "done"
    same(samples(tmp_path / "out"), whole(project, tmp_path))


def test_a_recovery_policy_of_ones_own(project, tmp_path):
    class Careful:
        @simrun.hookimpl
        def simrun_recover_oom(self, event):
            return Retry(3)

    simrun.run(project(chunk=64, toy={"memory_limit": 5}), plugins=[Careful()])
    assert "trying again with 3" in (tmp_path / "out" / "run.log").read_text()
    same(samples(tmp_path / "out"), whole(project, tmp_path))


@pytest.mark.parametrize(
    ("decision", "words"),
    [
        (lambda event: Retry(event.chunk.steps), "60 attempts failed, with 64 steps at last"),
        (lambda event: Retry(0), "asked for a chunk of 0 steps"),
        (lambda event: Fallback(), "a fallback device, and there is none"),
        (lambda event: 7, "returned 7, not Retry, Fallback or Abort"),
    ],
)
def test_a_recovery_policy_that_leads_nowhere_ends(project, tmp_path, decision, words):
    class Policy:
        @simrun.hookimpl
        def simrun_recover_oom(self, event):
            return decision(event)

    with pytest.raises(OutOfMemoryError, match=words):
        simrun.run(project(chunk=64, toy={"memory_limit": 5}), plugins=[Policy()])
    # what was begun goes on with a better policy
    simrun.run(project(chunk=64, toy={"memory_limit": 5}))
    same(samples(tmp_path / "out"), whole(project, tmp_path))


def test_a_failing_observer_never_harms_the_run(project, tmp_path):
    class Broken:
        @simrun.hookimpl
        def simrun_chunk_committed(self, record):
            raise RuntimeError("the notifier is down")

    ended = simrun.run(project(), observers=[Broken()])
    assert ended.status == "done"
    assert ended.problems == (
        "plugin Broken failed in simrun_chunk_committed: RuntimeError: the notifier is down",
    )


def test_a_simulation_that_fails_keeps_its_samples(project, tmp_path):
    with pytest.raises(SimulationError, match="RuntimeError: told to fail at step 35"):
        simrun.run(project(chunk=10, toy={"fail_at": 35}))
    with simrun.open_run(tmp_path / "out") as run:
        assert (run.status, run.step) == ("failed", 30)
        assert len(run["x"]) == 30
    assert "in execute" in (tmp_path / "out" / "run.log").read_text()  # the traceback


def test_max_hours_stops_and_the_same_call_goes_on(project, tmp_path):
    config = project(chunk=10, toy={"seconds_per_step": 0.005})
    ended = simrun.run(config, max_hours=0.1 / 3600)
    assert ended.status == "stopped"
    assert 0 < ended.step < 100
    assert "time limit" in ended.reason
    assert simrun.run(config).status == "done"
    same(samples(tmp_path / "out"), whole(project, tmp_path))


def test_a_finished_run_is_left_alone_and_can_be_extended(project, tmp_path):
    simrun.run(project(probes=PROBES))
    before = (tmp_path / "out" / "data" / "x.npy").stat().st_mtime_ns
    processes = json.loads((tmp_path / "out" / "provenance.json").read_text())
    assert [entry["device"] for entry in processes] == ["CPU"]
    again = simrun.run(project(probes=PROBES))
    assert (again.status, again.reason) == ("done", "it was done before")
    assert (tmp_path / "out" / "data" / "x.npy").stat().st_mtime_ns == before
    assert simrun.run(project(probes=PROBES, steps=250)).step == 250
    same(samples(tmp_path / "out"), whole(project, tmp_path, probes=PROBES, steps=250))


def test_the_plan_changes_nothing(project, tmp_path):
    report = simrun.plan(project(chunk=10))
    assert report.plan.chunk == 10
    assert [probe.name for probe in report.probes] == ["x"]
    assert not (tmp_path / "out").exists()


def test_times_are_in_seconds(project, tmp_path):
    simrun.run(project(probes=PROBES))
    with simrun.open_run(tmp_path / "out") as run:
        assert run.times("every7").tolist() == [n * 0.001 for n in range(7, 101, 7)]
        data = run.to_xarray()
        assert data["every7"].dims == ("time_every7", "unit")
        assert data["x"].dims == ("time", "unit")
        assert data["time"].attrs["units"] == "s"
        assert float(data["mean"].sel(time_mean=0.02)[0]) == run["mean"][1, 0]
        with pytest.raises(KeyError, match="did you mean 'every7'"):
            run["evry7"]


def test_a_run_can_be_read_while_it_runs(project, tmp_path):
    lengths = []

    class Look:
        @simrun.hookimpl
        def simrun_chunk_committed(self, record):
            with simrun.open_run(tmp_path / "out") as run:
                lengths.append((run.step, len(run["x"])))
                assert run.status in ("running", "done")

    config = project(steps=300, chunk=50, toy={"seconds_per_step": 0.01})
    simrun.run(config, observers=[Look()])
    assert len(lengths) > 1
    assert all(step == length for step, length in lengths)


def test_all_the_steps_that_there_is_data_for(project, tmp_path):
    (tmp_path / "data.txt").write_text("line\n" * 42)
    toy = {"data": "data.txt"}
    assert simrun.plan(project(steps="all", toy=toy)).plan.end == 42
    assert simrun.run(project(steps=42, toy=toy)).step == 42
    for length in ({"steps": 43}, {"steps": None, "duration": "43 ms"}):
        with pytest.raises(ConfigError, match=r"43 steps are asked for, and .*data.txt has 42"):
            simrun.plan(project(toy=toy, **length))
    with pytest.raises(ConfigError, match="'all'; allowed: a number"):
        simrun.plan(project(steps="all"))


def test_a_file_or_module_that_changed_is_found_when_the_run_goes_on(project, tmp_path):
    (tmp_path / "neighbour.py").write_text("size = 3\n")
    model = (tmp_path / "model.py").read_text()
    (tmp_path / "model.py").write_text("import neighbour\n" + model)
    (tmp_path / "data.txt").write_text("line\n" * 100)

    def run():
        return simrun.run(project(chunk=10, toy={"data": "data.txt"}), max_hours=1e-9)

    assert run().step == 10
    for name, change in (("neighbour.py", "size = 4\n"), ("data.txt", "other\n" * 100)):
        before = (tmp_path / name).read_text()
        (tmp_path / name).write_text(change)
        with pytest.raises(OutputExistsError, match=f"another content of {name}"):
            run()
        (tmp_path / name).write_text(before)
    assert run().step == 20


def test_a_plan_over_the_budget_is_shown_all_the_same(project):
    with pytest.raises(BudgetError) as caught:
        simrun.plan(project(steps=1000, probes=PROBES), budget="1MiB")
    report = caught.value.report
    assert [probe.name for probe in report.probes] == ["x", "every7", "mean", "step"]
    assert report.plan.chunk == 1
    assert "too long for the host budget" in report.plan.reason


def test_a_run_is_extended_by_what_is_asked_for(project, tmp_path):
    one = whole(project, tmp_path, steps=180, probes=PROBES)
    config = project(probes=PROBES, chunk=16)
    with pytest.raises(ConfigError, match=r"extend: there is no run in .*out yet"):
        simrun.run(config, extend=50)
    simrun.run(config)
    assert simrun.run(config, extend=50).step == 150
    # the same again, as a duration
    assert simrun.run(config, extend="30 ms").step == 180
    same(samples(tmp_path / "out"), one)
    with pytest.raises(OutputExistsError, match=r"ask for more .*or for these \(--steps 180\)"):
        simrun.run(config)
    with pytest.raises(ConfigError, match="extend: given beside steps"):
        simrun.run(config, extend=1, steps=200)
    with pytest.raises(ConfigError, match="extend: found '5 parsec'"):
        simrun.run(config, extend="5 parsec")


def test_an_extension_that_was_interrupted_is_gone_on_with(project, tmp_path):
    one = whole(project, tmp_path, steps=150, probes=PROBES)
    config = project(probes=PROBES, chunk=10)
    simrun.run(config)
    failing = project(probes=PROBES, chunk=10)

    class Full:
        @simrun.hookimpl(tryfirst=True)
        def simrun_execute_chunk(self, simulation, chunk):
            if chunk.start >= 120:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        simrun.run(failing, extend=50, plugins=[Full()])
    with simrun.open_run(tmp_path / "out") as run:
        assert (run.end, run.status) == (150, "running")
        assert 100 <= run.step <= 120
    assert simrun.run(config, extend=50).step == 150  # not 170
    same(samples(tmp_path / "out"), one)


@pytest.fixture
def no_locks(monkeypatch):
    """As on a network file system without a lock manager."""
    import errno
    import fcntl

    def refuse(descriptor, how):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)


def test_without_locks_the_run_says_that_it_cannot_tell(project, tmp_path, no_locks):
    config, seen = project(), []

    class Watch:
        @simrun.hookimpl
        def simrun_run_started(self, record):
            seen.extend(record.notes)

    assert simrun.run(config, observers=[Watch()]).status == "done"
    assert any("has no locks (No locks available), so that simrun can't tell" in n for n in seen)
    # it said that it was gone; one that still lives has just renewed the time
    os.utime(tmp_path / "out" / "run.lock")
    with pytest.raises(OutputExistsError, match=r"can't tell .* writes here; one did \d s ago"):
        simrun.run(config, steps=150)
    os.utime(tmp_path / "out" / "run.lock", (0, 0))
    assert simrun.run(config, steps=150).status == "done"
    assert simrun.run(config, steps=160).status == "done"


@pytest.mark.parametrize(
    ("checkpoint", "saved"),
    [
        ({}, [100]),
        ({"every_bytes": "1 kB"}, [45, 90, 100]),
        ({"every": "1 us"}, list(range(5, 101, 5))),
    ],
)
def test_states_are_saved_by_time_and_by_bytes(project, monkeypatch, checkpoint, saved):
    """A step has 24 bytes of samples, a chunk 120: 1 kB is passed at every ninth chunk."""
    from simrun.journal import Journal

    steps = []
    original = Journal._write_state

    def recording(self, step, state):
        steps.append(step)
        return original(self, step, state)

    monkeypatch.setattr(Journal, "_write_state", recording)
    simrun.run(project(chunk=5, checkpoint=checkpoint))
    assert steps == saved
