"""The toy simulator passes the kit; a plugin's test file needs no more than this."""

import numpy as np
import toy_plugin

from simrun.errors import ConfigError
from simrun.testing import AdapterSuite


class TestToy(AdapterSuite):
    plugins = (toy_plugin,)
    config = {
        "plugin": "toy",
        "model": "model_for_kit.py:build",
        "seed": 7,
        "probes": [
            {"name": "x", "object": "x"},
            {"name": "number", "object": "step", "sample_every": 3},
            {"name": "mean", "object": "x", "sample_every": 2.5, "reduce": "mean"},
        ],
    }
    expected_probes = {
        "x": ((3,), "f8", ("unit",), 1),
        "number": ((), "f8", (), 3),
        "mean": ((3,), "f8", ("unit",), 2.5),
    }
    # 8 kB a step, in numpy: half of what the process takes
    heavy = ({"model_args": {"n": 1000}, "probes": [{"name": "x", "object": "x"}]}, 4000)
    bad = {
        "no step": ({"toy": {"dt": 0}}, ConfigError, ["toy.dt", "greater than 0"]),
        "a wrong period": (
            {"probes": [{"name": "x", "object": "x", "sample_every": "2 us"}]},
            ConfigError,
            ["probes.0.sample_every"],
        ),
    }

    def reference(self, steps):
        state, x = [np.uint64(7 + i) for i in range(3)], np.empty((steps, 3))
        for row in x:
            for i in range(3):
                with np.errstate(over="ignore"):
                    state[i] = state[i] * np.uint64(6364136223846793005) + np.uint64(
                        1442695040888963407
                    )
                row[i] = int(state[i] >> np.uint64(11)) / 2**53
        recorded = [n for n in range(1, steps + 1) if n % 2.5 < 1]
        edges = zip([0, *recorded], recorded, strict=False)
        means = [_left_to_right(x[a:b]) / (b - a) for a, b in edges]
        return {"x": x, "number": np.arange(3.0, steps + 1, 3), "mean": np.array(means)}


def _left_to_right(rows):
    total = rows[0]
    for row in rows[1:]:
        total = total + row
    return total
