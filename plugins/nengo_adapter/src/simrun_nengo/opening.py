"""Opens a simulation by nengo's reference simulator: from the request to a built network."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, cast

import nengo

from simrun.adapter import OpenRequest
from simrun.errors import ConfigError, OutOfMemoryError, SimulationError
from simrun.models import call_model
from simrun_nengo import inputs, networks
from simrun_nengo.inputs import FileInput
from simrun_nengo.networks import NamedProbe
from simrun_nengo.ordering import ordered
from simrun_nengo.settings import Probe, Settings
from simrun_nengo.simulation import NengoSimulation


@dataclass(frozen=True)
class Model:
    """The user's network, with its probes and inputs, before it is built.

    Parameters
    ----------
    network : nengo.Network
    labels : mapping
        The name of each object.
    named : list of NamedProbe
    fed : list of FileInput
    notes : list of str
    """

    network: nengo.Network
    labels: dict[Any, str]
    named: list[NamedProbe]
    fed: list[FileInput]
    notes: list[str]


def open_simulation(request: OpenRequest) -> NengoSimulation:
    """Build a network (the factory of the nengo adapter).

    Raises
    ------
    ConfigError
        What the config got wrong: probes, inputs, settings of another simulator.
    SimulationError
        The model's code raised, or nengo can't build the network.
    OutOfMemoryError
        The network itself doesn't fit.
    """
    settings: Settings = request.settings
    if settings.device.startswith("gpu"):
        raise ConfigError(
            f"nengo.device: found {settings.device!r}; allowed: auto or cpu",
            "nengo's own simulator runs on the CPU; nengo_dl and nengo_ocl use a GPU",
        )
    model = read_model(request, "nengo")
    with building(), precision(settings.dtype), ordered():
        simulator = nengo.Simulator(
            model.network, dt=settings.dt, seed=request.seed, progress_bar=False
        )
    facts = {
        "dtype": str(simulator.signals[simulator.model.time].dtype),
        "dt": settings.dt,
        "minibatch_size": settings.minibatch_size,
        "seed": simulator.seed,
        **{p: version(p) for p in ("nengo", "numpy", "simrun-nengo")},
    }
    return NengoSimulation(simulator, model, facts, settings.minibatch_size is not None)


def read_model(request: OpenRequest, section: str) -> Model:
    """Call the model's function, and add what the config asks for to its network.

    Parameters
    ----------
    section : str
        The adapter's section of the config.

    Raises
    ------
    ConfigError, SimulationError
    """
    settings: Settings = request.settings
    _refuse(settings, section)
    returned = call_model(request.model, request.base, request.model_args)
    network, own_probes = networks.split_model(returned, request.model)
    if network.seed is None:
        # nengo would draw one, and another process that goes on with the run another one
        network.seed = 0 if request.seed is None else request.seed
    labels = networks.object_labels(network)
    requests = cast(Sequence[Probe], request.probes)
    named = networks.name_probes(network, own_probes, requests, settings.dt)
    where = f"{section}.inputs"
    fed = inputs.override(network, labels, settings.inputs, request.base, where)
    return Model(network, labels, named, fed, _without_effect(settings, section))


@contextmanager
def building() -> Iterator[None]:
    """Says what it means when a network can't be built."""
    try:
        yield
    except MemoryError as error:
        message = str(error) or "MemoryError"
    except Exception as error:
        raise SimulationError(
            f"model: nengo can't build it: {type(error).__name__}: {error}"
        ) from error
    else:
        return
    raise OutOfMemoryError(
        f"the network itself doesn't fit: memory ran out while it was built ({message})",
        "use a smaller network, or float32",
    )


@contextmanager
def precision(dtype: str | None) -> Iterator[None]:
    """Build with this type; None: with what nengo is set to."""
    before = nengo.rc.get("precision", "bits")
    if dtype is not None:
        nengo.rc.set("precision", "bits", dtype.removeprefix("float"))
    try:
        yield
    finally:
        nengo.rc.set("precision", "bits", before)


def _refuse(settings: Settings, section: str) -> None:
    if settings.minibatch_size not in (None, 1):
        raise ConfigError(
            f"{section}.minibatch_size: found {settings.minibatch_size}; allowed: 1",
            "this simulator simulates one network at a time: use nengo_dl, or a run for each",
        )
    if settings.load_params is not None:
        raise ConfigError(
            f"{section}.load_params: weights that nengo-dl saved can't be loaded here",
            "use nengo_dl, or build the network with them (nengo_dl.Simulator.freeze_params)",
        )


def _without_effect(settings: Settings, section: str) -> list[str]:
    keys = ("compile", "unroll_simulation", "threads")
    given = [
        key for key in keys if getattr(settings, key) != type(settings).model_fields[key].default
    ]
    return [f"{section}.{key} is for nengo_dl and has no effect here" for key in given]
