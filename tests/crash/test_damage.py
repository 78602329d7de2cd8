"""What is damaged on the disk is repaired from or told, never read as if it were right."""

import random
import shutil

import crash_child
import numpy as np
import pytest
import toy_plugin

import simrun
from simrun.errors import DamagedError, SimrunError

# nothing is read from these
HARMLESS = ("run.log", "run.lock", "config.resolved.yaml", "provenance.json", "probes.json")


@pytest.fixture(scope="module")
def begun(tmp_path_factory):
    """A folder with a run stopped at its sixtieth step, and the samples of an undisturbed one."""
    folder = tmp_path_factory.mktemp("begun")
    toy_plugin.write_model(folder)
    crash_child.run(folder)
    config = crash_child.config(folder) | {"steps": 100, "output": {"path": str(folder / "whole")}}
    simrun.run(config, plugins=[toy_plugin])
    return folder


@pytest.fixture
def stopped(begun, tmp_path):
    """A copy of the stopped run, the config that goes on with it, and the right samples."""
    shutil.copytree(begun / "out", tmp_path / "out")
    config = crash_child.config(begun) | {"steps": 100, "output": {"path": str(tmp_path / "out")}}
    whole = {
        probe["name"]: np.load(begun / "whole" / "data" / f"{probe['name']}.npy")
        for probe in crash_child.PROBES
    }
    return tmp_path / "out", config, whole


def damage(rng, folder):
    """Do something to one of the run's files, as a bad disk would; say what."""
    files = sorted(p for p in folder.rglob("*") if p.is_file() and p.name not in HARMLESS)
    path, how = rng.choice(files), rng.choice(["cut", "flip", "remove", "empty", "zero"])
    content = bytearray(path.read_bytes())
    if how == "remove":
        path.unlink()
    elif how == "empty":
        path.write_bytes(b"")
    elif how == "cut":
        path.write_bytes(content[: rng.randrange(len(content))])
    elif how == "flip":
        content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
        path.write_bytes(content)
    else:
        start = rng.randrange(len(content))
        end = min(start + 512, len(content))
        content[start:end] = bytes(end - start)
        path.write_bytes(content)
    return f"{how} {path.relative_to(folder)}"


SEEDS = [*range(30), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(30, 240))]


@pytest.mark.parametrize("seed", SEEDS)
def test_random_damage_never_gives_wrong_samples(stopped, seed):
    folder, config, whole = stopped
    what = damage(random.Random(seed), folder)
    try:
        simrun.run(config, plugins=[toy_plugin])
        with simrun.open_run(folder) as run:
            right = all(np.array_equal(run[name], samples) for name, samples in whole.items())
            found = run.verify()
    except SimrunError:
        return  # refused, with an explanation
    # a wrong sample may only remain where `verify` tells of it
    assert right or found, what


def test_a_damaged_state_is_replaced_by_the_one_before(stopped):
    folder, config, whole = stopped
    newest = folder / "state" / "60.npz"
    newest.write_bytes(newest.read_bytes()[:-10])
    assert simrun.run(config, plugins=[toy_plugin]).status == "done"
    assert np.array_equal(np.load(folder / "data" / "x.npy"), whole["x"])


def test_any_flipped_bit_of_the_manifest_is_noticed(stopped):
    folder = stopped[0]
    path = folder / "manifest.json"
    good = path.read_bytes()
    for position in range(0, len(good), 17):
        bad = bytearray(good)
        bad[position] ^= 1 << (position % 7)
        path.write_bytes(bad)
        try:
            manifest = simrun.open_run(folder).manifest
        except SimrunError:
            continue
        # white space between the values may change without harm
        path.write_bytes(good)
        assert manifest == simrun.open_run(folder).manifest


def test_a_missing_file_of_samples_is_told(stopped):
    folder, config, _ = stopped
    (folder / "data" / "x.npy").unlink()
    with pytest.raises(DamagedError, match=r"x\.npy is missing"):
        simrun.run(config, plugins=[toy_plugin])
