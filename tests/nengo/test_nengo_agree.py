"""The simulators of the family on the same networks, by configs that differ in one word."""

from pathlib import Path

import numpy as np
import pytest

import simrun
from simrun.errors import ConfigError

MODEL = Path(__file__).parent / "nets_for_nengo.py"
PROBES = [
    {"name": "spikes", "object": "cells.neurons"},
    {"name": "value", "object": "cells", "synapse": 0.01},
]
STEPS = 1000


def run(folder, plugin, network, dtype):
    config = {
        "plugin": plugin,
        "model": f"{MODEL}:{network}",
        "steps": STEPS,
        "seed": 1,
        "probes": PROBES,
        "nengo": {"dtype": dtype},
        "output": {"path": str(folder / f"{plugin}-{network}-{dtype}")},
    }
    ended = simrun.run(config)
    assert ended.status == "done"
    with simrun.open_run(config["output"]["path"]) as found:
        return {name: np.array(found[name][:]) for name in ("spikes", "value")}


@pytest.mark.parametrize(
    ("other", "network", "dtype", "tolerance"),
    [
        # float64 sums in another order; values are of the order of 1
        ("nengo_dl", "lif", "float64", 1e-13),
        ("nengo_dl", "recurrent", "float64", 1e-13),
        # a value is a filtered sum of 50 decoders of up to 1e-2 times spikes of 1000: float32's
        # 6e-8 of its largest terms, a few times over
        ("nengo_dl", "recurrent", "float32", 5e-6),
        ("nengo_ocl", "lif", "float32", 5e-6),
        ("nengo_ocl", "recurrent", "float32", 5e-6),
    ],
)
def test_spikes_are_those_of_the_reference_simulator(
    tmp_path, record_count, other, network, dtype, tolerance
):
    pytest.importorskip({"nengo_dl": "simrun_nengo_dl"}.get(other, other))
    ours = run(tmp_path, "nengo", network, dtype)
    theirs = run(tmp_path, other, network, dtype)
    count = int((ours["spikes"] > 0).sum())
    assert count > STEPS
    record_count(f"{count} spikes of {other} identical")
    assert ours["spikes"].shape == theirs["spikes"].shape
    np.testing.assert_array_equal(ours["spikes"] > 0, theirs["spikes"] > 0)
    np.testing.assert_allclose(ours["value"], theirs["value"], rtol=0, atol=tolerance)
    # 1 / dt in float32 is 999.99994, or 1000, by where it is rounded
    np.testing.assert_allclose(ours["spikes"], theirs["spikes"], rtol=1e-7)


def test_the_sections_have_the_same_keys():
    from simrun_nengo import settings as here
    from simrun_nengo_dl import settings as there

    assert set(here.Settings.model_fields) == set(there.Settings.model_fields)
    assert set(here.OclSettings.model_fields) == set(there.Settings.model_fields)


def test_one_section_at_a_time(tmp_path):
    config = {"plugin": "nengo", "model": f"{MODEL}:lif", "steps": 5, "output": {"path": "x"}}
    with pytest.raises(ConfigError, match="given beside `nengo`"):
        simrun.plan(config | {"nengo": {}, "nengo_dl": {}})
