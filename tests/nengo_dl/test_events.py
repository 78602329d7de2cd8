"""Probes with ``format: events``: found by the adapter on its device, stored by the sinks."""

import numpy as np
import pytest
from open_nets import HERE, open_net, split

import simrun
from simrun.events import Events, decode, encode
from simrun.records import Chunk

STEPS = 40
OBJECTS = {
    "spikes": {"object": "exc.neurons"},
    "third": {"object": "exc.neurons", "sample_every": 3},
    "summed": {"object": "exc.neurons", "sample_every": 2.5, "reduce": "sum"},
    "voltage": {"object": "exc.neurons", "attribute": "voltage"},
    "silent": {"object": "exc.neurons", "attribute": "refractory_time", "sample_every": "1 s"},
}


def pairs():
    """Each of them twice: dense, and as events."""
    for name, probe in OBJECTS.items():
        yield {"name": f"{name}_dense", **probe}
        yield {"name": f"{name}_events", **probe, "format": "events"}


@pytest.mark.parametrize(
    ("length", "settings"),
    [
        (STEPS, {"compile": "graph"}),
        (7, {"compile": "graph", "minibatch_size": 3}),
        (1, {"compile": "graph", "dtype": "float64"}),
        (7, {"compile": "xla", "minibatch_size": 2}),
    ],
)
def test_events_are_those_of_the_dense_samples(length, settings, monkeypatch):
    import simrun_nengo_dl.events

    monkeypatch.setattr(simrun_nengo_dl.events, "SLAB", 60)  # several looks at each chunk
    simulation = open_net("lif", *pairs(), **settings)
    specs = {probe.name: probe for probe in simulation.probes}
    found = dict.fromkeys(OBJECTS, 0)
    for steps in split(STEPS, length):
        start = simulation.step
        samples = simulation.execute(Chunk(start, start + steps, STEPS, length)).samples
        for name in OBJECTS:
            dense, events = samples[f"{name}_dense"], samples[f"{name}_events"]
            spec = specs[f"{name}_events"]
            if not isinstance(events, Events):  # more than an eighth of the values
                assert np.count_nonzero(events) * 8 > events.size
                assert np.array_equal(events, dense)
                continue
            found[name] += len(events.index)
            assert events.value.dtype == spec.dtype == dense.dtype
            assert decode(events, spec.shape, spec.dtype).tobytes() == dense.tobytes()
            expected = encode(dense)
            assert np.array_equal(events.count, expected.count)
            assert np.array_equal(events.index, expected.index)
    assert found["spikes"] > 0
    assert found["silent"] == 0


def test_what_takes_many_values_stays_dense():
    simulation = open_net("lif", *pairs(), compile="graph")
    samples = simulation.execute(Chunk(0, STEPS, STEPS, STEPS)).samples
    assert isinstance(samples["spikes_events"], Events)
    assert isinstance(samples["voltage_events"], np.ndarray)


@pytest.mark.parametrize("sink", ["hdf5", "zarr"])
def test_a_run_stores_them_and_gives_them_back(sink, tmp_path):
    config = {
        "plugin": "nengo_dl",
        "model": f"{HERE / 'nets_for_nengo_dl.py'}:lif",
        "seed": 1,
        "steps": STEPS,
        "chunk": 9,
        "probes": list(pairs()),
        "output": {"path": str(tmp_path / "out"), "sink": sink},
        "nengo_dl": {"minibatch_size": 2, "compile": "graph"},
    }
    assert simrun.run(config).status == "done"
    with simrun.open_run(tmp_path / "out") as run:
        assert run.verify() == []
        for name in OBJECTS:
            dense = np.array(run[f"{name}_dense"])
            assert np.array(run[f"{name}_events"]).tobytes() == dense.tobytes(), name
        steps, minibatch, neuron, value = run.events("spikes_events")
        dense = np.array(run["spikes_dense"])
        assert len(steps) == np.count_nonzero(dense) > 0
        assert np.array_equal(dense[steps - 1, minibatch, neuron], value)
        with pytest.raises(KeyError, match="holds no events"):
            run.events("spikes_dense")


def test_a_sink_without_events_refuses_before_the_run(tmp_path):
    config = {
        "plugin": "nengo_dl",
        "model": f"{HERE / 'nets_for_nengo_dl.py'}:lif",
        "steps": STEPS,
        "probes": [{"name": "raster", "object": "exc.neurons", "format": "events"}],
        "output": {"path": str(tmp_path / "out")},
        "nengo_dl": {"compile": "graph"},
    }
    with pytest.raises(simrun.errors.ConfigError, match="npy stores no events"):
        simrun.run(config)
    assert not (tmp_path / "out" / "manifest.json").exists()
