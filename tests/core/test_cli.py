from __future__ import annotations

import json
import re
import resource
import signal
import subprocess

import numpy as np
import pytest
from command_line import invoke, python, start
from toy_plugin import install

import simrun
from simrun import api, memory
from simrun.units import format_bytes

HEAVY = {"torch", "tensorflow", "nengo", "nengo_dl", "h5py", "zarr", "xarray", "scipy", "jax"}
COSTLY = HEAVY | {"numpy", "pydantic", "yaml", "rich", "psutil", "pynvml"}


# -- start-up


def imported_by(*arguments):
    code = (
        "import sys\nfrom simrun.cli import main\n"
        f"try: main({list(arguments)!r})\nexcept SystemExit as end: assert end.code == 0, end\n"
        "print(*sys.modules, file=sys.stderr)"
    )
    done = python("-c", code)
    assert done.returncode == 0, done.stderr
    return {name.partition(".")[0] for name in done.stderr.split()}


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["plan", "--help"], []])
def test_help_imports_nothing_costly(arguments):
    assert not imported_by(*arguments) & COSTLY


def test_listing_plugins_imports_no_simulator_and_no_storage(installed):
    modules = imported_by("plugins")
    assert "toy_plugin" in modules
    assert not modules & HEAVY


def test_import_simrun_imports_no_simulator_and_no_storage():
    done = python("-c", "import simrun, sys; simrun.run; print(*sys.modules)")
    assert not {name.partition(".")[0] for name in done.stdout.split()} & HEAVY


def test_help_is_quick():
    def seconds(*arguments):
        # the processor's time, and the least of several: on a busy machine the wall clock
        # would measure the others
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        assert python(*arguments).returncode == 0
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    code = "import sys; sys.argv = ['simrun', '--help']; from simrun.cli import main; main()"
    helped = min(seconds("-c", code) for _ in range(5))
    assert helped - min(seconds("-c", "pass") for _ in range(5)) < 0.3


def test_help_shows_how_to_run():
    text = invoke("--help").stdout
    for word in ["CONFIG.yaml", "--plugin", "--budget", "--max-hours", "inspect", "schema"]:
        assert word in text
    assert max(map(len, text.splitlines())) <= 80
    assert invoke().stdout == text
    assert invoke("-h").stdout == text


def test_version():
    assert invoke("--version").stdout == f"simrun {simrun.__version__}\n"


# -- running


def test_a_run_from_the_command_line(project, tmp_path):
    result = invoke("--plugin", "toy", project(plugin=None))
    assert "done, step 100 of 100" in result.stdout
    assert "simrun.open_run('out')" in result.stdout
    assert "step 100 of 100 (100%)" in result.stderr
    assert "step 100 of 100 (100%)" not in result.stdout
    run = simrun.open_run("out")
    assert run["x"].shape == (100, 3)
    assert run.status == "done"


def test_run_may_be_said_and_the_result_is_that_of_the_python_interface(project, tmp_path):
    config = project(seed=5, toy={"dt": 0.01})
    invoke("run", config)
    simrun.run(config, output="again")
    first, second = (np.asarray(simrun.open_run(name)["x"]) for name in ("out", "again"))
    assert np.array_equal(first, second)


def test_options_override_the_config(project, tmp_path):
    config = project()
    invoke(
        config, "--set", "probes.0.sample_every=20", "--set", "model_args.n=5", "--steps", "60",
        "--output", "elsewhere", "--budget", "4GiB",
    )  # fmt: skip
    run = simrun.open_run("elsewhere")
    assert run["x"].shape == (3, 5)
    assert not (tmp_path / "out").exists()


def test_a_relative_output_starts_from_the_config_and_of_the_option_from_here(
    project, tmp_path, monkeypatch
):
    config = project()
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    invoke(config)
    assert (tmp_path / "out" / "manifest.json").exists()
    invoke(config, "--output", "out")
    assert (here / "out" / "manifest.json").exists()


def test_a_finished_run_is_not_run_again(project):
    config = project()
    invoke(config)
    assert "it was done before" in invoke(config).stdout


def test_a_time_limit_stops_resumable_and_the_same_command_goes_on(project):
    config = project(chunk=10, toy={"seconds_per_step": 0.002})
    result = invoke(config, "--max-hours", "0.00001", code=75)
    assert "stopped (the time limit of 1e-05 hours)" in result.stdout
    assert "by the same command" in result.stdout
    begun = simrun.open_run("out").step
    assert begun < 100  # on a busy machine nothing at all may fit the limit
    result = invoke(config)
    assert "done, step 100 of 100" in result.stdout
    assert result.stderr.startswith(
        f"going on with steps {begun + 1} to" if begun else "steps 1 to 100"
    )
    invoke(config, "--output", "whole")
    assert np.array_equal(simrun.open_run("out")["x"], simrun.open_run("whole")["x"])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_end_the_chunk_and_stop_resumable(project, number):
    config = project(steps=100_000, chunk=50, toy={"seconds_per_step": 0.001})
    with start(config, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        for line in process.stderr:
            if line.startswith("step "):
                break
        process.send_signal(number)
        output, _ = process.communicate(timeout=30)
    assert process.returncode == 75
    assert f"stopped ({number.name})" in output
    run = simrun.open_run("out")
    assert 0 < run.step < 100_000
    assert run.step % 50 == 0
    assert np.asarray(run["x"]).shape == (run.step, 3)


def test_the_simulations_own_error_is_reported_without_our_traceback(project):
    result = invoke(project(chunk=10, toy={"fail_at": 25}), code=4)
    assert re.search(
        r"^error: the simulation, in steps 21 to 30, raised RuntimeError: told to fail at step 25 "
        r"\(at .*toy_plugin.py, line \d+\)$",
        result.stderr,
        re.MULTILINE,
    )
    assert "Traceback" not in result.output
    assert simrun.open_run("out").step == 20


def test_memory_that_runs_out_is_recovered_and_told(project):
    result = invoke(project(chunk=40, toy={"memory_limit": 10}))
    assert "out of host memory in a chunk of 40 steps" in result.stderr
    assert simrun.open_run("out").step == 100


def test_memory_that_can_not_be_recovered(project):
    result = invoke(project(chunk=8, toy={"memory_limit": 1, "alignment": 4}), code=75)
    assert "error: host memory ran out after step 0" in result.stderr
    assert "Traceback" not in result.output


def test_a_budget_that_nothing_fits(project, tmp_path):
    result = invoke(project(), "--budget", "1MiB", code=2)
    assert "error: the budget is too small" in result.stderr
    assert "1.00 MiB" in result.stderr
    assert not (tmp_path / "out").exists()


def test_a_failing_observer_is_a_line_of_the_summary(project, installed):
    (installed / "lab_bad.py").write_text(
        "import simrun\n@simrun.hookimpl\ndef simrun_chunk_committed(record): 1 / 0\n"
    )
    install(installed, {"bad": "lab_bad"}, "lab-bad")
    result = invoke(project(observers=["bad"]))
    assert "plugin bad failed in simrun_chunk_committed: ZeroDivisionError: " in result.stdout


def test_our_own_bugs_show_their_traceback(project, monkeypatch):
    def broken(*args, **keywords):
        raise KeyError("no such thing")

    monkeypatch.setattr(api, "run", broken)
    result = invoke(project(), code=1)
    assert "Traceback" in result.stderr
    assert "this is a bug in simrun" in result.stderr


def test_an_interrupt_outside_of_the_loop(project, monkeypatch):
    def interrupted(*args, **keywords):
        raise KeyboardInterrupt

    monkeypatch.setattr(api, "plan", interrupted)
    assert invoke("plan", project(), code=130).stderr.strip() == "interrupted"


def test_a_reader_that_has_enough_is_no_bug(project):
    config = project()
    with start("plan", config, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.close()
        errors = process.stderr.read()
    assert errors == b""


# -- the first argument


def test_a_config_named_like_a_command_is_given_as_a_path(project, tmp_path):
    project().rename(tmp_path / "plan")
    assert "done, step 100" in invoke("./plan").stdout


def test_a_misspelt_command_is_answered_with_the_near_one(project):
    result = invoke("inspct", "out", code=2)
    assert result.stderr.startswith("error: no command and no file 'inspct'; did you mean inspect?")


def test_a_config_wins_over_a_near_command(project, tmp_path):
    project().rename(tmp_path / "plans")
    invoke("plans")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--steps", "many", "config.yaml"], "'many' is not a valid integer"),
        (["--steps", "0", "config.yaml"], "--steps: steps: found 0; allowed: greater than"),
        (["--budget", "8G", "config.yaml"], "found '8G'; allowed: 8GiB (of 1024) or 8GB"),
        (["--max-hours", "-1", "config.yaml"], "-1.0 is not in the range"),
        (["--stps", "3", "config.yaml"], "No such option '--stps'"),
        (["--plugin"], "Option '--plugin' requires an argument"),
        (["run"], "Missing argument 'CONFIG.yaml'"),
        (["config.yaml", "other.yaml"], "unexpected extra argument"),
        (["schema"], "Missing argument 'NAME'"),
        (["config.yaml", "--set", "seed"], "--set seed: not an override"),
    ],
)
def test_faults_of_the_command_line(project, tmp_path, arguments, message):
    project()
    result = invoke(*arguments, code=2)
    assert result.stderr.startswith("error: ")
    assert message in result.stderr
    assert result.stdout == ""
    assert not (tmp_path / "out").exists()


# -- plan


def test_the_plan_shows_what_a_run_would_take(project, tmp_path):
    config = project(
        steps=None,
        duration="4 s",
        probes=[
            {"name": "all", "object": "x"},
            {"name": "rate", "object": "x", "sample_every": "100 ms", "reduce": "mean"},
        ],
        model_args={"n": 1000},
        toy={"ballast": 100_000},
    )
    text = invoke("plan", config).stdout
    assert not (tmp_path / "out").exists()
    assert re.search(r"steps +1 to 4,000, 4 s of model time \(dt 1 ms\)", text)
    assert re.search(r"device +CPU: its memory is the host's", text)
    assert re.search(r"host memory +peak .* of .* \(.*\)", text)
    assert re.search(r"disk +30.8 MiB of samples, .* free", text)  # 4000 * 8000 + 40 * 8000 bytes
    assert re.search(r"in one piece +it would take [\d.]+ [MG]iB on the host", text)
    assert re.search(r"ballast +host +97.7 KiB", text)
    assert re.search(r"all +1,000 unit +float64 +step +7.81 KiB +4,000 +30.5 MiB", text)
    assert re.search(r"rate +1,000 unit +float64 +100 steps, mean +80 B +40 +312 KiB", text)
    assert max(map(len, text.splitlines())) <= 100
    dry = invoke(config, "--dry-run").stdout
    assert dry.splitlines()[-5:] == text.splitlines()[-5:]  # the table of the probes


def test_the_plan_inside_a_budget(project):
    config = project(steps=5_000_000, toy={"ballast": 10_000})
    budget = format_bytes(memory.resident() + (20 << 20))  # of a process that has run other tests
    text = invoke("plan", config, "--budget", budget.replace(" ", "")).stdout
    assert f"of {budget} (asked for)" in text
    assert "over the budget" in text


def test_the_plan_of_a_device_with_its_own_memory(project):
    config = project(memory={"device": "1GiB"}, toy={"device": "GPU:0"})
    text = invoke("plan", config).stdout
    assert re.search(r"device memory +peak .* of 1.00 GiB \(asked for\)", text)
    assert re.search(r"in one piece +it would take .* on the device; .* on the host", text)
    assert re.search(r"peak +device", text)


# -- inspect


def test_inspect_shows_what_was_recorded(project):
    invoke(project(probes=[
        {"name": "x", "object": "x", "sample_every": 2.5},
        {"name": "clock", "object": "step", "reduce": "max", "sample_every": 50},
    ]))  # fmt: skip
    text = invoke("inspect", "out").stdout
    assert re.search(r"status +done, step 100 of 100, 0.1 s of model time", text)
    assert re.search(r"simulator +toy, model.py:build", text)
    assert re.search(r"x +3 unit +float64 +2.5 steps +40 +960 B", text)
    assert re.search(r"clock +scalar +float64 +50 steps, max +2 +16 B", text)


def test_inspect_for_programs(project):
    invoke(project(toy={"dt": None}))
    facts = json.loads(invoke("inspect", "out", "--json").stdout)
    assert facts["status"] == "done"
    assert facts["dt"] is None
    assert facts["probes"] == [
        {
            "name": "x", "samples": 100, "shape": [3], "dims": ["unit"], "dtype": "float64",
            "period": 1.0, "reduce": "last", "bytes": 2400, "attrs": {"object": "x"},
        }
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["nowhere", "."])
def test_inspect_of_what_is_no_run(project, name):
    result = invoke("inspect", name, code=2)
    assert "is not a run of simrun" in result.stderr


def test_inspect_of_a_damaged_manifest(project, tmp_path):
    invoke(project())
    (tmp_path / "out" / "manifest.json").write_text("{")
    assert "damaged" in invoke("inspect", "out", code=5).stderr


# -- plugins and schema


def test_plugins(installed):
    (installed / "lab_broken.py").write_text("import no_such_module_xyz")
    install(installed, {"lab": "lab_broken"}, "lab-thing")
    text = invoke("plugins").stdout
    assert re.search(r"toy +adapter +counts in integers, for tests +simrun-toy 1.0", text)
    assert re.search(r"lab +broken +plugin 'lab' \(lab-thing 1.0\) can't be", text)
    assert max(map(len, text.splitlines())) <= 100
    rows = {row["name"]: row for row in json.loads(invoke("plugins", "--json").stdout)}
    assert rows["toy"]["status"] == "ok"
    assert "no_such_module_xyz" in rows["lab"]["status"]
    assert invoke("--help").exit_code == 0


def test_schema(project):
    section = json.loads(invoke("schema", "toy").stdout)
    assert "ballast" in section["properties"]
    whole = json.loads(invoke("schema", "toy", "--whole").stdout)
    assert {"plugin", "steps", "toy"} <= set(whole["properties"])
    assert "durability" in json.loads(invoke("schema", "npy").stdout)["properties"]
    result = invoke("schema", "tyo", code=3)
    assert "did you mean toy?" in result.stderr
