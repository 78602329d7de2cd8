"""Opens a simulation by nengo-ocl: from the request to a network that is built on a device."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from typing import Any

from simrun.adapter import OpenRequest
from simrun.errors import ConfigError
from simrun_nengo.opening import building, precision, read_model
from simrun_nengo.ordering import ordered
from simrun_nengo.settings import OclSettings

try:
    import nengo_ocl.planners
    import pyopencl
except ModuleNotFoundError as error:
    raise ImportError(
        f"{error.name} isn't installed; nengo_ocl needs it: pip install 'simrun-nengo[ocl]'"
    ) from None

from simrun_nengo.ocl_compat import Simulator
from simrun_nengo.ocl_simulation import OclSimulation, buffered_steps

_contexts: dict[Any, Any] = {}


def open_simulation(request: OpenRequest) -> OclSimulation:
    """Build a network on an OpenCL device (the factory of the nengo_ocl adapter).

    Raises
    ------
    ConfigError
        What the config got wrong: probes, inputs, a device that isn't there.
    SimulationError
        The model's code raised, or nengo-ocl can't build the network.
    OutOfMemoryError
        The network itself doesn't fit.
    """
    settings: OclSettings = request.settings
    if settings.dtype == "float64":
        raise ConfigError(
            "nengo_ocl.dtype: found 'float64'; allowed: float32",
            "nengo-ocl computes in float32 alone; nengo and nengo_dl have float64",
        )
    device = find_device(settings.device)
    model = read_model(request, "nengo_ocl")
    for probe in model.network.all_probes:
        # nengo-ocl's own sampling counts in float32; here each step is looked at
        probe.sample_every = None
    with building(), precision("float32"), ordered(nengo_ocl.planners), _quiet():
        simulator = Simulator(
            model.network,
            dt=settings.dt,
            seed=request.seed,
            context=_context(device),
            n_prealloc_probes=buffered_steps(model.network),
            progress_bar=False,
        )
    facts = {
        "dtype": "float32",
        "dt": settings.dt,
        "minibatch_size": settings.minibatch_size,
        "seed": simulator.seed,
        "platform": f"{device.platform.name} ({device.platform.version})",
        **{p: version(p) for p in ("nengo", "nengo-ocl", "pyopencl", "numpy", "simrun-nengo")},
    }
    return OclSimulation(simulator, device, model, facts, settings.minibatch_size is not None)


def find_device(wanted: str) -> Any:
    """The OpenCL device of a config's ``device``.

    Raises
    ------
    ConfigError
        There is none, or none such.
    """
    try:
        platforms = pyopencl.get_platforms()
    except pyopencl.LogicError:
        platforms = []
    devices = [device for platform in platforms for device in platform.get_devices()]
    gpus = [d for d in devices if d.type & pyopencl.device_type.GPU]
    cpus = [d for d in devices if d.type & pyopencl.device_type.CPU]
    kind, _, number = wanted.partition(":")
    found = {"gpu": gpus, "cpu": cpus, "auto": [*gpus, *devices]}[kind]
    index = int(number or 0)
    if index >= len(found):
        there = "; ".join(f"{d.name} ({d.platform.name})" for d in devices) or "none"
        raise ConfigError(
            f"nengo_ocl.device: found {wanted!r}; devices of OpenCL here: {there}",
            "PoCL is one for CPUs: pip install 'simrun-nengo[ocl]'",
        )
    return found[index]


def _context(device: Any) -> Any:
    if device not in _contexts:
        _contexts[device] = pyopencl.Context([device])
    return _contexts[device]


@contextmanager
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        # it was made for nengo 3.1; simrun's tests run it with this one
        warnings.filterwarnings("ignore", message="This version of `nengo_ocl`")
        warnings.filterwarnings("ignore", category=pyopencl.CompilerWarning)
        yield
