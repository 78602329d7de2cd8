"""The npy sink keeps the laws of sinks; read by numpy alone."""

import numpy as np

from simrun.testing import SinkSuite


class TestNpy(SinkSuite):
    sink = "npy"

    def read(self, data, probe):
        return np.load(data / f"{probe.name}.npy")
