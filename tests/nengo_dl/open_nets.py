"""Opens simulations by the adapter's own factory, and runs nengo-dl itself beside them."""

import warnings
from pathlib import Path

import numpy as np

from simrun.adapter import OpenRequest
from simrun.records import Chunk
from simrun_nengo.settings import Probe
from simrun_nengo_dl.settings import Settings

HERE = Path(__file__).parent


def open_net(name, *probes, base=HERE, seed=1, args=None, **settings):
    """A simulation of a function of nets_for_nengo_dl.py, or of FILE:FUNCTION under ``base``."""
    from simrun_nengo_dl.opening import open_simulation

    model = name if ":" in name else f"nets_for_nengo_dl.py:{name}"
    requests = tuple(Probe(**probe) for probe in probes)
    return open_simulation(
        OpenRequest(model, args or {}, Path(base), seed, requests, Settings(**settings))
    )


def run(simulation, lengths, end=None, capacity=None):
    """Execute chunks of these lengths; the samples of all of them, joined.

    The capacity is the one that XLA has compiled for already, if it isn't given.
    """
    start = simulation.step
    end = start + sum(lengths) if end is None else end
    capacity = capacity or max(*lengths, 1, simulation._program.usual_capacity())
    blocks = []
    for length in lengths:
        step = simulation.step
        blocks.append(simulation.execute(Chunk(step, step + length, end, capacity)))
    return {
        probe.name: np.concatenate([block.samples[probe.name] for block in blocks])
        for probe in simulation.probes
    }


def split(steps, length):
    """Lengths of the chunks that ``steps`` make."""
    return [min(length, steps - i) for i in range(0, steps, length)]


def one_piece(net, steps, **kwargs):
    """What nengo-dl's own run_steps records: {position of the probe: samples, time first}."""
    from simrun_nengo_dl.compat import load_nengo_dl

    nengo_dl = load_nengo_dl()
    with net:
        if nengo_dl.config.get_setting(net, "inference_only") is None:
            nengo_dl.configure_settings(inference_only=True)
    data = kwargs.pop("data", None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with nengo_dl.Simulator(net, progress_bar=False, seed=1, **kwargs) as simulator:
            simulator.run_steps(steps, data=data)
            found = [simulator.data[probe] for probe in net.all_probes]
    if kwargs.get("minibatch_size") is not None:
        found = [array.swapaxes(0, 1) for array in found]
    return found


def assert_same(one, other, names=None):
    for name in names or one:
        np.testing.assert_array_equal(one[name], other[name], err_msg=name)
