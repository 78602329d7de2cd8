"""The adapter under simrun's engine: the same bits in every chunk, resumes, memory, bad input."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import simrun
from simrun.errors import ConfigError, SimulationError

HERE = Path(__file__).parent
STEPS = 70
NOISY = {
    "tile": [32, 16], "r_on": 1e3, "r_off": 1e5, "source_resistance": 5, "line_resistance": 2,
    "dac": {"bits": 8}, "adc": {"bits": 6, "overflow": 0.01}, "read_noise": 0.02,
    "variability": {"sigma": 0.1}, "stuck": {"open": 0.01},
}  # fmt: skip
PLAIN = {"tile": [32, 32], "r_on": 1e3, "r_off": 1e5, "source_resistance": 5, "line_resistance": 2}


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A folder with the networks and data; call it for a config."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SIMRUN_IN_PROCESS", "1")
    shutil.copy(HERE / "crossbar_networks.py", tmp_path / "networks.py")
    rng = np.random.default_rng(0)
    np.save("x.npy", rng.standard_normal((STEPS, 1, 10, 10)).astype("f4"))
    np.savez("t.npz", labels=rng.integers(0, 10, STEPS))
    sys.modules.pop("networks", None)

    def config(output="out", crossbar=PLAIN, settings=None, **changes):
        section = {"inputs": "x.npy", "targets": "t.npz:labels", "crossbar": crossbar,
                   "micro_batch": 16, "calibration_samples": 40, "threads": 1}  # fmt: skip
        return {
            "plugin": "torch_crossbar", "model": "networks.py:small", "steps": "all", "seed": 1,
            "probes": [{"name": "y", "object": "output"}], "output": {"path": output},
            "torch_crossbar": section | (settings or {}),
        } | changes  # fmt: skip

    return config


def samples(path):
    with simrun.open_run(path) as run:
        return {probe.name: run[probe.name][:] for probe in run.probes}


PROBES = [
    {"name": "y", "object": "output"},
    {"name": "hidden", "object": "7", "sample_every": 3},
    {"name": "amperes", "object": "6", "attribute": "tile_currents", "sample_every": 10},
]


@pytest.mark.parametrize("crossbar", [PLAIN, NOISY], ids=["plain", "noisy"])
def test_every_chunking_gives_the_same_bits(project, crossbar):
    probes = [*PROBES]
    if crossbar is NOISY:
        probes.append({"name": "beyond", "object": "0", "attribute": "saturation"})
    whole = simrun.run(project("whole", crossbar, probes=probes, chunk=STEPS))
    wanted = samples("whole")
    assert wanted["y"].shape == (STEPS, 10)
    assert wanted["hidden"].shape == (STEPS // 3, 50)
    # of the linear layer 128 x 50: rows of tiles, crossbars, groups, positions, columns
    assert wanted["amperes"].shape == (7, 4, 2, 1, 1, 50)
    for chunk in (7, 16, 33):
        ended = simrun.run(project(f"c{chunk}", crossbar, probes=probes, chunk=chunk))
        found = samples(f"c{chunk}")
        for name in wanted:
            assert np.array_equal(found[name], wanted[name]), (chunk, name)
        assert ended.metrics == whole.metrics
    assert set(whole.metrics) == {
        "accuracy", "accuracy, ideal network", "agreement with the ideal network",
        "relative error to the ideal network",
    }  # fmt: skip


def test_what_is_recorded_is_the_network_by_hand(project):
    """The adapter's outputs are those of the library's functions."""
    from simrun_torch_crossbar import CrossbarConfig, calibrate, patch_model, tune

    crossbar = PLAIN | {"adc": {"bits": 6}, "seed": 9}
    project()
    import networks

    torch.manual_seed(3)
    net = networks.small()
    torch.save(net.state_dict(), "w.pt")
    ended = simrun.run(project(crossbar=crossbar, settings={"weights": "w.pt"}))
    patched = patch_model(net.eval(), CrossbarConfig(**crossbar))
    x = torch.from_numpy(np.load("x.npy"))
    calibrate(patched, x[:40], batch=16)
    tune(patched, x[:40], batch=16)
    with torch.no_grad():
        wanted, ideal = patched(x), net(x)
    found = samples("out")["y"]
    # other batches: last bits, which 6 bits of ADC now and then turn into a step
    assert np.median(np.abs(found - wanted.numpy())) < 1e-5
    right = (found.argmax(1) == np.load("t.npz")["labels"]).mean()
    assert ended.metrics["accuracy"] == pytest.approx(right)
    error = np.linalg.norm(found - ideal.numpy()) / np.linalg.norm(ideal.numpy())
    assert ended.metrics["relative error to the ideal network"] == pytest.approx(error, rel=1e-5)


def test_a_stopped_run_goes_on(project):
    simrun.run(project("whole", NOISY))
    first = simrun.run(project("out", NOISY, chunk=16), max_hours=1e-9)
    assert first.status == "stopped"
    assert 0 < first.step < STEPS
    second = simrun.run(project("out", NOISY, chunk=16))
    assert second.status == "done"
    assert np.array_equal(samples("out")["y"], samples("whole")["y"])
    again = simrun.run(project("out", NOISY, chunk=16))
    assert again.metrics == second.metrics, "kept in the manifest"


@pytest.mark.parametrize("sink", ["hdf5", "zarr"])
def test_other_sinks(project, sink):
    pytest.importorskip(f"simrun_storage_{sink}")
    simrun.run(project("npy"))
    simrun.run(project() | {"output": {"path": "other", "sink": sink}})
    assert np.array_equal(samples("other")["y"], samples("npy")["y"])


def test_a_dataset_and_other_files_are_the_same_data(project):
    import h5py
    from safetensors.torch import save_file

    config = project()
    import networks

    pairs = [networks.pairs()[k] for k in range(STEPS)]
    x, t = np.stack([np.asarray(p[0]) for p in pairs]), np.array([p[1] for p in pairs])
    np.savez("both.npz", x=x, t=t)
    with h5py.File("both.h5", "w") as file:
        file["x"], file["t"] = x, t
    torch.manual_seed(3)
    net = networks.small()
    torch.save(net.state_dict(), "w.pt")
    save_file(net.state_dict(), "w.safetensors")
    found = []
    for k, settings in enumerate([
        {"inputs": None, "targets": None, "dataset": "networks.py:pairs", "weights": "w.pt"},
        {"inputs": "both.npz:x", "targets": "both.npz:t", "weights": "w.safetensors"},
        {"inputs": "both.h5:x", "targets": "both.h5:t", "weights": "w.pt"},
    ]):  # fmt: skip
        ended = simrun.run(project(f"o{k}", settings=settings))
        found.append((samples(f"o{k}")["y"], ended.metrics))
    for y, metrics in found[1:]:
        assert np.array_equal(y, found[0][0])
        assert metrics == found[0][1]
    assert config["steps"] == "all"


OOM = """
import json, resource, sys
import numpy as np
import simrun
import torch
from simrun_torch_crossbar import solving

spare, config = int(sys.argv[1]), json.loads(sys.argv[2])
if spare:
    real = solving._solve_group

    def limited(*arguments):
        # the address space that is left when the solver begins
        if resource.getrlimit(resource.RLIMIT_AS)[0] == resource.RLIM_INFINITY:
            used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
            resource.setrlimit(resource.RLIMIT_AS, (used + spare, resource.RLIM_INFINITY))
        return real(*arguments)

    solving._solve_group = limited
ended = simrun.run(config)
print(json.dumps([ended.status, ended.metrics]))
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_out_of_memory_while_solving_is_recovered(project):
    """50 tiles of 128 x 128 at once ask for 110 MB where 60 are left: smaller groups, same bits."""
    changes = {"model": "networks.py:wide", "model_args": {"size": 700},
               "settings": {"inputs": "wide.npy", "micro_batch": 32},
               "crossbar": PLAIN | {"tile": [128, 128]}}  # fmt: skip
    np.save("wide.npy", np.random.default_rng(0).standard_normal((STEPS, 700)).astype("f4"))
    results = []
    for name, spare in (("free", 0), ("limited", 60_000_000)):
        config = project(name, **changes)
        done = subprocess.run(
            [sys.executable, "-c", OOM, str(spare), json.dumps(config)],
            capture_output=True, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        results.append(json.loads(done.stdout.splitlines()[-1]))
    assert results[0] == results[1]
    assert np.array_equal(samples("free")["y"], samples("limited")["y"])
    assert "out of memory solving" in done.stderr


NETWORKS = {
    "wide": ({"model": "networks.py:wide"}, (2000,), {"tile": [128, 128]}),
    "large tiles": ({"model": "networks.py:wide"}, (2000,), {"tile": [512, 512]}),
    "convolutions": ({"model": "networks.py:convolutions"}, (3, 32, 32), {}),
    "through an ADC": (
        {"model": "networks.py:convolutions"}, (3, 32, 32), {"adc": {"bits": 8}, "tile": [128, 64]},
    ),
    "watched": (
        {"model": "networks.py:deep",
         "probes": [{"name": "amperes", "object": "4", "attribute": "tile_currents"}]},
        (512,), {"mapping": "single", "tile": [64, 64], "dac": {"bits": 8}},
    ),
}  # fmt: skip
MEASURE = """
import json, sys
import simrun
ended = simrun.run(json.loads(sys.argv[1]))
print(json.dumps([ended.predicted_host, ended.measured_host]))
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@pytest.mark.parametrize("name", [
    pytest.param(name, marks=[] if name == "wide" else pytest.mark.slow)
    for name in NETWORKS
])  # fmt: skip
def test_the_peak_is_as_predicted(project, name):
    changes, shape, crossbar = NETWORKS[name]
    np.save("m.npy", np.random.default_rng(0).standard_normal((96, *shape)).astype("f4"))
    settings = {"inputs": "m.npy", "targets": None, "micro_batch": 16}
    config = project(settings=settings, crossbar=PLAIN | crossbar, **changes)
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, json.dumps(config)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    predicted, measured = json.loads(done.stdout.splitlines()[-1])
    assert 0.98 * measured <= predicted <= 1.1 * measured


def test_a_budget_makes_smaller_groups(project):
    changes = {"model": "networks.py:wide", "model_args": {"size": 700},
               "settings": {"inputs": "wide.npy", "targets": None},
               "crossbar": PLAIN | {"tile": [128, 128]}}  # fmt: skip
    np.save("wide.npy", np.random.default_rng(0).standard_normal((STEPS, 700)).astype("f4"))
    free = simrun.plan(project("free", **changes))
    solver = {i.name: i.fixed for i in free.plan.estimate.items}
    budget = free.plan.peak_host - solver["solver and tuning, beyond the rest"] // 2
    small = simrun.plan(project("small", **changes, memory={"host": budget}))
    assert small.plan.peak_host <= budget
    assert small.plan.peak_host < free.plan.peak_host


def test_the_plan_tells_what_peers_would_ask_for(project):
    report = simrun.plan(project(crossbar=PLAIN | {"tile": [128, 128]}))
    notes = "\n".join(report.notes)
    assert "6: 2 tiles of up to 128 x 50" in notes
    # 4098 inputs, a tile of 128 x 128: 4.05 MB each
    assert "would ask for 15.5 GiB" in notes
    assert {"W of all tiles", "conductances and weights"} <= {
        item.name for item in report.plan.estimate.items
    }


def test_bad_input_is_refused_by_name_and_value(project):
    torch.save({"wrong": torch.zeros(2)}, "wrong.pt")
    torch.save(torch.nn.Linear(2, 2), "whole.pt")
    np.save("short.npy", np.zeros(3, int))
    np.save("odd.npy", np.full(STEPS, 12))
    np.save("flat.npy", np.zeros((STEPS, 99), "f4"))
    cases = [
        ({"settings": {"inputs": "xx.npy"}}, "inputs: no file"),
        ({"settings": {"inputs": "t.npz:data"}}, "no array 'data'; those it has: labels"),
        ({"settings": {"targets": "short.npy"}}, "targets: 3 for 70 inputs"),
        ({"settings": {"weights": "wrong.pt"}}, r"weights: .* doesn't fit the model: .*wrong"),
        ({"settings": {"weights": "whole.pt"}}, "could run any code"),
        ({"settings": {"include": ["fc*"]}}, r"no module's name matches 'fc\*'"),
        ({"crossbar": PLAIN | {"r_on": 1e6}}, "r_on = 1e\\+06 ohm must be below r_off"),
        ({"crossbar": PLAIN | {"tile": [0, 4]}}, "tile"),
        ({"probes": [{"name": "a", "object": "fc"}]}, "no module 'fc'"),
        ({"probes": [{"name": "a", "object": "2", "attribute": "tile_currents"}]}, "is a ReLU"),
        ({"probes": [{"name": "a", "object": "0", "attribute": "saturation"}]}, "has no ADC"),
        ({"probes": [{"name": "a", "object": "0", "reduce": "mean"}]}, "reduce = 'mean'"),
        ({"steps": 71}, "71 steps are asked for, and x.npy has 70"),
        ({"settings": {"dataset": "networks.py:pairs"}}, "give either"),
        ({"model": "networks.py:Pairs"}, "returned a Pairs"),
    ]
    for changes, message in cases:
        with pytest.raises(ConfigError, match=message):
            simrun.plan(project(**changes))
    with pytest.raises(ConfigError, match="class 12, and the network has 10 outputs"):
        simrun.run(project("bad1", settings={"targets": "odd.npy"}))
    with pytest.raises(SimulationError, match="given inputs of shape"):
        simrun.plan(project("bad2", settings={"inputs": "flat.npy"}))
    x = np.load("x.npy")
    x[50, 0, 2, 3] = np.nan
    np.save("x.npy", x)
    with pytest.raises(SimulationError, match=r"x.npy: sample 50 isn't finite"):
        simrun.run(project("bad3"))
