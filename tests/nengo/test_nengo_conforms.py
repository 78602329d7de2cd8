"""The nengo adapter passes simrun's own suite, against nengo's reference simulator."""

import nengo
import nets_for_nengo
import numpy as np

from simrun.errors import ConfigError
from simrun.testing import AdapterSuite
from simrun_nengo.ordering import ordered

PROBES = [
    {"name": "value", "object": "cells", "synapse": 0.01},
    {"name": "voltage", "object": "adaptive.neurons", "attribute": "voltage", "sample_every": 3},
    {"name": "sum", "object": "python", "sample_every": 2.5, "reduce": "sum"},
    {"name": "rate", "object": "poisson.neurons", "sample_every": "5 ms", "reduce": "mean"},
    {"name": "peak", "object": "signal", "sample_every": 4, "reduce": "max"},
    {"name": "weights", "object": "learned", "attribute": "weights", "sample_every": 6},
    {"name": "raster", "object": "adaptive.neurons", "format": "events"},
    {"name": "echo", "object": "echo"},
]


class TestNengo(AdapterSuite):
    config = {
        "plugin": "nengo",
        "model": "nets_for_nengo.py:everything",
        "seed": 3,
        "probes": PROBES,
        "output": {"sink": "hdf5"},
    }
    expected_probes = {
        "own": ((12,), "f8", ("neuron",), 1),
        "value": ((2,), "f8", ("dimension",), 1),
        "voltage": ((12,), "f8", ("neuron",), 3),
        "sum": ((3,), "f8", ("dimension",), 2.5),
        "rate": ((12,), "f8", ("neuron",), 5),
        "peak": ((1,), "f8", ("dimension",), 4),
        "weights": ((1, 12), "f8", ("post", "pre"), 6),
        "raster": ((12,), "f8", ("neuron",), 1),
        "echo": ((1,), "f8", ("dimension",), 1),
    }
    heavy = (
        {
            "model": "nets_for_nengo.py:wide",
            "probes": [{"name": "spikes", "object": "cells.neurons"}],
            "output": {"sink": "npy"},
        },
        2000,
    )
    bad = {
        "minibatches": (
            {"nengo": {"minibatch_size": 2}},
            ConfigError,
            ["minibatch_size", "nengo_dl"],
        ),
        "weights of nengo-dl": ({"nengo": {"load_params": "x.npz"}}, ConfigError, ["load_params"]),
        "a GPU": ({"nengo": {"device": "gpu"}}, ConfigError, ["device", "cpu"]),
        "no time": ({"nengo": {"dt": 0}}, ConfigError, ["nengo.dt"]),
        "no input": (
            {"nengo": {"inputs": {"stimuls": "a.npy"}}},
            ConfigError,
            ["did you mean stim"],
        ),
        "no such attribute": (
            {"probes": [{"name": "x", "object": "cells", "attribute": "voltage"}]},
            ConfigError,
            ["probes", "cells.neurons"],
        ),
    }

    def reference(self, steps):
        net = nets_for_nengo.everything()
        objects = {thing.label: thing for thing in (*net.ensembles, *net.nodes, *net.connections)}
        with net:
            probes = {"own": net.probes[0]}
            for each in PROBES:
                name, _, neurons = each["object"].partition(".")
                target = objects[name].neurons if neurons else objects[name]
                # every step of the simulator's, sampled and reduced here
                probes[each["name"]] = nengo.Probe(
                    target, each.get("attribute"), synapse=each.get("synapse")
                )
        with ordered(), nengo.Simulator(net, seed=3, progress_bar=False) as simulator:
            simulator.run_steps(steps)
            data = {name: simulator.data[probe] for name, probe in probes.items()}
        for each in PROBES:
            period = self.expected_probes[each["name"]][3]
            recorded = [n for n in range(1, steps + 1) if n % period < 1]
            data[each["name"]] = np.array(
                [
                    _reduced(data[each["name"]][a:b], each.get("reduce", "last"))
                    for a, b in zip([0, *recorded], recorded, strict=False)
                ]
            )
        return data


def _reduced(rows, how):
    total = rows[0]
    for row in rows[1:]:
        total = np.maximum(total, row) if how == "max" else total + row
    return {"last": rows[-1], "max": total, "sum": total, "mean": total / len(rows)}[how]
