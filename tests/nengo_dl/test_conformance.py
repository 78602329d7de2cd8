"""The nengo_dl adapter keeps the laws of adapters: one small network, in both ways to execute."""

from pathlib import Path

import pytest
from open_nets import one_piece

from simrun.errors import ConfigError
from simrun.testing import AdapterSuite


class Conformance(AdapterSuite):
    units = 12
    folder = Path(__file__).parent
    config = {
        "plugin": "nengo_dl",
        "model": "nets_for_nengo_dl.py:pes",
        "seed": 1,
        "probes": [{"name": "spikes", "object": "pre.neurons", "sample_every": 4}],
    }
    expected_probes = {
        "post": ((1,), "f4", ("dimension",), 1),
        "weights": ((1, 20), "f4", ("post", "pre"), 10),
        "spikes": ((20,), "f4", ("neuron",), 4),
    }
    # `heavy` is left out: test_memory measures peaks, of larger networks
    bad = {
        "an unknown way": ({"nengo_dl": {"compile": "jit"}}, ConfigError, ["compile", "graph"]),
        "no length": ({"nengo_dl": {"dt": 0}}, ConfigError, ["nengo_dl.dt", "greater than 0"]),
    }


class TestGraph(Conformance):
    config = Conformance.config | {"nengo_dl": {"compile": "graph"}}

    def reference(self, steps):
        import nengo
        import nets_for_nengo_dl

        net = nets_for_nengo_dl.pes()
        with net:
            nengo.Probe(net.ensembles[0].neurons, sample_every=0.004)
        return dict(zip(self.expected_probes, one_piece(net, steps), strict=True))


@pytest.mark.slow  # the other tests of this folder are about this path
class TestXla(Conformance):
    config = Conformance.config | {"nengo_dl": {"compile": "xla"}}

    def reference(self, steps):
        # compiled arithmetic is rounded otherwise; test_invariance_xla compares with a tolerance
        return None
