"""The nengo_ocl adapter passes simrun's own suite, on PoCL; where nengo-ocl is installed.

Slow: OpenCL compiles a hundred kernels for each simulation. `test_nengo_agree` is the sample.
"""

import nengo
import nets_for_nengo
import numpy as np
import pytest

from simrun.errors import ConfigError
from simrun.testing import AdapterSuite

nengo_ocl = pytest.importorskip("nengo_ocl")
pytestmark = pytest.mark.slow


class TestNengoOcl(AdapterSuite):
    config = {
        "plugin": "nengo_ocl",
        "model": "nets_for_nengo.py:for_ocl",
        "seed": 3,
        "probes": [
            {"name": "value", "object": "cells", "synapse": 0.01},
            {"name": "sum", "object": "python", "sample_every": 2.5, "reduce": "sum"},
            {"name": "rate", "object": "cells.neurons", "sample_every": 5, "reduce": "mean"},
            {"name": "echo", "object": "echo"},
        ],
    }
    expected_probes = {
        "own": ((12,), "f4", ("neuron",), 1),
        "value": ((2,), "f4", ("dimension",), 1),
        "sum": ((2,), "f4", ("dimension",), 2.5),
        "rate": ((12,), "f4", ("neuron",), 5),
        "echo": ((1,), "f4", ("dimension",), 1),
    }
    heavy = (
        {
            "model": "nets_for_nengo.py:wide",
            "model_args": {"n": 20000},
            "probes": [{"name": "spikes", "object": "cells.neurons"}],
        },
        1200,
    )
    bad = {
        "minibatches": ({"nengo_ocl": {"minibatch_size": 2}}, ConfigError, ["minibatch_size"]),
        "float64": ({"nengo_ocl": {"dtype": "float64"}}, ConfigError, ["float32"]),
        "no such GPU": ({"nengo_ocl": {"device": "gpu:99"}}, ConfigError, ["device", "OpenCL"]),
    }

    def reference(self, steps):
        import nengo_ocl.planners

        from simrun_nengo.ocl_compat import Simulator
        from simrun_nengo.ocl_opening import find_device
        from simrun_nengo.opening import precision
        from simrun_nengo.ordering import ordered

        pyopencl = pytest.importorskip("pyopencl")
        net = nets_for_nengo.for_ocl()
        with net:
            probes = {
                "own": net.probes[0],
                "value": nengo.Probe(net.cells, synapse=0.01),
                "sum": nengo.Probe(net.python),
                "rate": nengo.Probe(net.cells.neurons),
                "echo": nengo.Probe(net.echo),
            }
        with (
            precision("float32"),
            ordered(nengo_ocl.planners),
            Simulator(
                net, seed=3, context=pyopencl.Context([find_device("auto")]), progress_bar=False
            ) as simulator,
        ):
            simulator.run_steps(steps, progress_bar=False)
            data = {name: np.array(simulator.data[probe]) for name, probe in probes.items()}
        for name, period in (("sum", 2.5), ("rate", 5)):
            recorded = [n for n in range(1, steps + 1) if n % period < 1]
            sums = [_sum(data[name][a:b]) for a, b in zip([0, *recorded], recorded, strict=False)]
            data[name] = np.array(sums)
        data["rate"] /= np.float32(5)
        return data


def _sum(rows):
    total = rows[0]
    for row in rows[1:]:
        total = total + row
    return total
