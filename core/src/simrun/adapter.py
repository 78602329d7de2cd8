"""The contract between the core and a simulator.

An adapter package offers `AdapterEntry` records by the hook `simrun_adapters`. Its factory
turns an `OpenRequest` into a `Simulation`, which the engine then drives chunk by chunk.
"""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, field_validator

from simrun.errors import PluginError
from simrun.records import Chunk, MemoryEstimate, MemoryFailure, ProbeBlock, ProbeSpec, Reduce
from simrun.units import parse_duration, parse_steps


class ProbeRequest(BaseModel):
    """A probe that the config declares; adapters may subclass it with keys of their own."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(
        pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.\-]*$",
        max_length=200,
        description="Unique name of the probe, and of the stored array.",
    )
    object: str = Field(description="Label of what is probed, for example `exc.neurons`.")
    attribute: str | None = Field(None, description="What to record of it; left out: its output.")
    sample_every: int | float | str = Field(
        1, description="Sampling period: a number of steps, or a duration such as `10 ms`."
    )
    format: Literal["dense", "events"] = Field(
        default="dense",
        description="`events` stores only what isn't zero, for spikes (hdf5 and zarr sinks).",
    )
    reduce: Reduce = Field(
        "last", description="What a sample is made of the steps since the previous sample."
    )

    @field_validator("sample_every", mode="before")
    @classmethod
    def _is_period(cls, value: Any) -> Any:
        if isinstance(value, str) and value.strip()[-1:].isalpha():
            parse_duration(value)
        else:
            parse_steps(value, None)
        return value


@dataclass(frozen=True, slots=True)
class OpenRequest:
    """Everything that an adapter's factory needs.

    Parameters
    ----------
    model : str
        ``FILE:FUNCTION`` or ``MODULE:FUNCTION``, as the config has it; the adapter resolves
        it with `simrun.models.load_function`.
    model_args : mapping
        Keyword arguments of the function.
    base : pathlib.Path
        The folder that relative paths of the config start from.
    seed : int or None
    probes : tuple of ProbeRequest
        Instances of the entry's ``probe_model``.
    settings : pydantic.BaseModel
        The adapter's own section of the config, an instance of its ``config_model``.
    host_budget, device_budget : int or None
        Bytes that the user allows, as ``memory.host`` and ``memory.device`` (or ``--budget``,
        which on a CPU is the host's); None: what is free.
    """

    model: str
    model_args: Mapping[str, Any]
    base: Path
    seed: int | None
    probes: tuple[ProbeRequest, ...]
    settings: Any
    host_budget: int | None = None
    device_budget: int | None = None


class Simulation(ABC):
    """A live simulation. The engine is its only user; calls never overlap.

    Laws
    ----
    1. Chunk invariance: for every split of N steps into chunks the samples are, bit for bit,
       those of one chunk of N steps on the same device.
    2. Rollback: after ``restore(snapshot)`` the simulation goes on exactly as it would have
       from the moment of the snapshot, whatever `execute` did or failed to do in between.
    3. Estimate: ``estimate_memory(n)`` is within 10 % of the measured peak of a chunk of n
       steps, and never below it by more than 2 %.
    """

    #: What is recorded, in the order of declaration.
    probes: tuple[ProbeSpec, ...]
    #: Length of a step in seconds of model time; None where steps have no duration.
    dt: float | None
    #: Steps executed so far.
    step: int
    #: Chunk lengths should be multiples of this (except a run's last chunk).
    alignment: int = 1
    #: The device in words, for the plan and the provenance, for example ``"CPU"``.
    device: str
    #: Steps that there is data for, and what holds it; None where nothing ends the simulation.
    available: tuple[int, str] | None = None
    #: Files that the samples depend on (inputs, weights): another process that goes on with the
    #: run must find the same content.
    sources: tuple[Path, ...] = ()
    #: What the user should know before the run starts, one sentence each.
    notes: tuple[str, ...] = ()

    @abstractmethod
    def estimate_memory(self, steps: int) -> MemoryEstimate:
        """What a chunk of ``steps`` steps takes, item by item.

        The core adds what the process holds already beyond the items marked ``resident``,
        and the writer's queue; an adapter lists neither.
        """

    @abstractmethod
    def execute(self, chunk: Chunk) -> ProbeBlock:
        """Advance from ``chunk.start`` to ``chunk.stop`` and return what the probes recorded.

        The arrays of the block belong to the receiver: a later chunk must not touch them.
        Anything may be raised; `memory_failure` then says whether memory ran out.
        """

    @abstractmethod
    def snapshot(self) -> object:
        """The present state, for `restore` in this process; cheap, called before each chunk."""

    @abstractmethod
    def restore(self, snapshot: object) -> None:
        """Go back to a snapshot, exactly."""

    def save_state(self) -> Mapping[str, np.ndarray[Any, Any]] | None:
        """The present state for another process, as named arrays; None: it can't be saved.

        Python objects may be pickled into arrays of uint8. `notes` should name what stands
        in the way of saving before the run starts.
        """
        return None

    def load_state(self, state: Mapping[str, np.ndarray[Any, Any]]) -> None:
        """Take up a state that `save_state` returned for the same config, maybe elsewhere."""
        raise NotImplementedError

    def memory_failure(self, error: BaseException) -> MemoryFailure | None:
        """Recognise an out-of-memory error, by type first and by message second.

        The default knows ``MemoryError``.
        """
        if isinstance(error, MemoryError):
            return MemoryFailure("host", str(error) or "MemoryError")
        return None

    def release(self) -> None:  # noqa: B027 - optional
        """Give back all memory that can be made anew; called before a retry."""

    def can_fall_back(self) -> bool:
        """Whether `fall_back` would help."""
        return False

    def fall_back(self) -> None:
        """Move to the fallback device (the CPU) and go on from the present state there."""
        raise NotImplementedError

    def reset_device_peak(self) -> None:  # noqa: B027 - optional
        """Start a new measurement of the peak of device memory."""

    def device_peak(self) -> int | None:
        """Peak bytes of device memory since `reset_device_peak`; None where unknown."""
        return None

    def metrics(self) -> Mapping[str, float]:
        """Figures over all steps so far, for the run's summary, such as an accuracy."""
        return {}

    def provenance(self) -> Mapping[str, Any]:
        """Versions and settings that the samples may depend on; JSON values."""
        return {}

    def close(self) -> None:  # noqa: B027 - optional
        """Free everything. No other call follows."""


@dataclass(frozen=True, slots=True)
class AdapterEntry:
    """A simulator that a plugin offers.

    ``factory``, ``config_model`` and ``probe_model`` may be given as ``"module:name"``, so
    that the plugin's module itself imports nothing heavy.

    Parameters
    ----------
    name : str
        The value of ``plugin:`` in a config, and the name of the adapter's section.
    summary : str
        One line.
    config_model : pydantic model class or str
        Validates the adapter's section.
    factory : callable or str
        ``factory(request: OpenRequest) -> Simulation``. It may raise `ConfigError` for what
        the config got wrong and `SimulationError` for what the model's code raised.
    probe_model : pydantic model class or str
        Validates each item of ``probes``; a subclass of `ProbeRequest`.
    sections : tuple of str
        Names of simulators of the same models, whose section of a config is taken for this one's
        where this one's isn't there: a config then moves by its one word ``plugin:``.
    """

    name: str
    summary: str
    config_model: type[BaseModel] | str
    factory: Callable[[OpenRequest], Simulation] | str
    probe_model: type[ProbeRequest] | str = ProbeRequest
    sections: tuple[str, ...] = ()


def resolve(reference: Any) -> Any:
    """Import what a ``"module:name"`` string refers to; anything else is returned as it is.

    Raises
    ------
    PluginError
        The import failed, for whatever reason.
    """
    if not isinstance(reference, str):
        return reference
    module, _, name = reference.partition(":")
    try:
        return getattr(importlib.import_module(module), name)
    except (Exception, SystemExit) as error:
        raise PluginError(f"can't import {reference}: {type(error).__name__}: {error}") from error
