"""The torch_crossbar adapter keeps the laws of adapters: every non-ideality at once."""

from simrun.errors import ConfigError
from simrun.testing import AdapterSuite


class TestCrossbar(AdapterSuite):
    units = 12
    config = {
        "plugin": "torch_crossbar",
        "model": "crossbar_networks.py:small",
        "seed": 1,
        "probes": [
            {"name": "y", "object": "output"},
            {"name": "hidden", "object": "7", "sample_every": 3},
            {"name": "amperes", "object": "8", "attribute": "tile_currents", "sample_every": 10},
        ],
        "torch_crossbar": {
            "dataset": "crossbar_networks.py:pairs",
            "crossbar": {
                "tile": [32, 16], "r_on": 1e3, "r_off": 1e5, "source_resistance": 5,
                "line_resistance": 2, "dac": {"bits": 8}, "adc": {"bits": 6},
                "read_noise": 0.02, "variability": {"sigma": 0.1}, "stuck": {"open": 0.01},
            },
            "micro_batch": 2,
            "calibration_samples": 16,
            "threads": 1,
        },
    }  # fmt: skip
    expected_probes = {
        "y": ((10,), "f4", ("unit",), 1),
        "hidden": ((50,), "f4", ("unit",), 3),
        "amperes": (
            (2, 2, 1, 1, 10),
            "f4",
            ("tile_row", "crossbar", "group", "position", "column"),
            10,
        ),
    }
    bad = {
        "no resistance": (
            {"torch_crossbar": {"crossbar": {"r_on": 0}}}, ConfigError, ["crossbar", "r_on"],
        ),
        "a module that isn't there": (
            {"probes": [{"name": "y", "object": "99"}]}, ConfigError, ["probes.0", "99"],
        ),
    }  # fmt: skip
    # `heavy` is left out: test_crossbar_adapter measures peaks

    def reference(self, steps):
        # matrix products of another batch differ in the last bits, and 6 bits of ADC make steps of
        # them: test_what_is_recorded_is_the_network_by_hand compares medians
        return None
