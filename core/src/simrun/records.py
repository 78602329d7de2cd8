"""Frozen records that cross a boundary between core, adapter, sink and hook.

Conventions: a *step* is counted from 1 (the first step that a fresh simulation executes
is step 1); a range of steps ``(start, stop)`` means steps ``start+1 … stop``; sizes are
in bytes, times in seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

Where = Literal["device", "host"]
Reduce = Literal["last", "mean", "sum", "max"]


@dataclass(frozen=True, slots=True)
class ProbeSpec:
    """What a probe records.

    Parameters
    ----------
    name : str
        Unique in a run; also the name of the stored array.
    shape : tuple of int
        Shape of one sample, the minibatch axis included where there is one.
    dtype : numpy.dtype
        Type of the stored samples.
    dims : tuple of str
        Name of each axis of a sample, for example ``("minibatch", "neuron")``.
    period : float
        Sampling period in steps, at least 1. `simrun.sampling.recorded_steps` says which
        steps are recorded. ``math.inf`` records only the last step of the run.
    reduce : {"last", "mean", "sum", "max"}
        What a sample is made of: the value at the recorded step, or a reduction over the
        steps since the previous recorded one (excluded) up to it (included).
    attrs : mapping
        Further facts for the reader of the data (object label, attribute, units); JSON values.
    """

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    dims: tuple[str, ...]
    period: float = 1.0
    reduce: Reduce = "last"
    attrs: Mapping[str, Any] = field(default_factory=dict)

    @property
    def sample_bytes(self) -> int:
        """Bytes of one sample."""
        return int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize

    @property
    def bytes_per_step(self) -> float:
        """Bytes of samples per simulated step, on average."""
        return self.sample_bytes / self.period


@dataclass(frozen=True, slots=True)
class Chunk:
    """One piece of work: execute steps ``start+1 … stop``.

    Parameters
    ----------
    start, stop : int
        The range of steps; ``stop > start``.
    end : int
        Last step of the whole run (a probe with an infinite period records only this).
    capacity : int
        The longest chunk that the present plan makes, at least ``stop - start``. An adapter
        with static buffers sizes them by this, so that one program serves every chunk.
    """

    start: int
    stop: int
    end: int
    capacity: int

    @property
    def steps(self) -> int:
        """Number of steps in the chunk."""
        return self.stop - self.start


@dataclass(frozen=True, slots=True)
class ProbeBlock:
    """The samples that one chunk recorded.

    Parameters
    ----------
    start, stop : int
        The chunk's range of steps.
    samples : mapping of str to numpy.ndarray
        For each probe an array of shape ``(number of recorded steps, *probe.shape)``; the
        receiver owns it. For a probe with ``format: events`` in its `attrs` an adapter that
        finds events on its device may give them as `simrun.events.Events` instead.
    """

    start: int
    stop: int
    samples: Mapping[str, np.ndarray[Any, Any]]

    @property
    def nbytes(self) -> int:
        """Bytes of all samples."""
        return sum(array.nbytes for array in self.samples.values())


@dataclass(frozen=True, slots=True)
class MemoryItem:
    """Memory that one thing takes: ``fixed + per_step * (steps of the chunk)`` bytes.

    Parameters
    ----------
    name : str
        What takes it, for example ``"probe spikes"``.
    where : {"device", "host"}
        Whose memory it is.
    fixed : int
        Bytes whatever the chunk.
    per_step : float
        Bytes for each step of a chunk.
    resident : bool
        True for fixed bytes that are already allocated when the estimate is made.
    """

    name: str
    where: Where
    fixed: int = 0
    per_step: float = 0.0
    resident: bool = False


@dataclass(frozen=True, slots=True)
class MemoryEstimate:
    """What a chunk needs, item by item.

    Parameters
    ----------
    items : tuple of MemoryItem
    shared : bool
        True where the device's memory is the host's (a CPU): then the host's peak contains
        the device items.
    """

    items: tuple[MemoryItem, ...]
    shared: bool

    def peak(self, where: Where, steps: int) -> int:
        """Peak bytes on the device or the host for a chunk of so many steps."""
        return int(self.fixed(where) + self.per_step(where) * steps)

    def fixed(self, where: Where) -> int:
        """The part of the peak that no chunk length changes, in bytes."""
        return sum(item.fixed for item in self.items if self._counts(item, where))

    def per_step(self, where: Where) -> float:
        """The part of the peak that grows with the chunk, in bytes per step."""
        return sum(item.per_step for item in self.items if self._counts(item, where))

    def resident(self, where: Where) -> int:
        """Fixed bytes that are allocated already."""
        return sum(i.fixed for i in self.items if i.resident and self._counts(i, where))

    def with_item(self, item: MemoryItem) -> MemoryEstimate:
        """The same estimate with one more item."""
        return replace(self, items=(*self.items, item))

    def _counts(self, item: MemoryItem, where: Where) -> bool:
        return item.where == where or (where == "host" and self.shared)


@dataclass(frozen=True, slots=True)
class Budget:
    """The most memory that a run may use, and where the figures come from.

    ``host`` bounds the resident memory of the whole process; ``device`` what the simulation
    takes on its device. ``None``: not bounded.
    """

    host: int | None
    device: int | None
    host_source: str
    device_source: str


@dataclass(frozen=True, slots=True)
class Plan:
    """How a run will be executed, and what it will need.

    ``output_bytes`` is what the samples of the steps still to come take on the disk,
    uncompressed; ``disk_free`` is ``None`` where it couldn't be read.
    """

    start: int
    end: int
    chunk: int
    reason: str
    alignment: int
    estimate: MemoryEstimate
    budget: Budget
    output_bytes: int
    disk_free: int | None

    @property
    def peak_device(self) -> int:
        """Predicted peak of device memory, in bytes."""
        return self.estimate.peak("device", self.chunk)

    @property
    def peak_host(self) -> int:
        """Predicted peak of the process's resident memory, in bytes."""
        return self.estimate.peak("host", self.chunk)

    @property
    def chunks(self) -> int:
        """Number of chunks."""
        return -(-(self.end - self.start) // self.chunk)


@dataclass(frozen=True, slots=True)
class MemoryFailure:
    """An out-of-memory error, as an adapter recognised it.

    Parameters
    ----------
    where : {"device", "host"}
    message : str
        One line of the original error.
    requested, free : int, optional
        Bytes asked for and bytes that were free, where the error tells.
    """

    where: Where
    message: str
    requested: int | None = None
    free: int | None = None


@dataclass(frozen=True, slots=True)
class OOMEvent:
    """What `simrun_recover_oom` decides upon.

    Parameters
    ----------
    failure : MemoryFailure
    chunk : Chunk
        The chunk that failed; the simulation is at its start again.
    attempt : int
        How many times in a row memory has run out at this chunk's start, from 1.
    alignment : int
        Chunk lengths are multiples of this.
    can_fall_back : bool
        Whether the simulation has a fallback device that it isn't on yet.
    """

    failure: MemoryFailure
    chunk: Chunk
    attempt: int
    alignment: int
    can_fall_back: bool


@dataclass(frozen=True, slots=True)
class Retry:
    """Try again with chunks of this many steps."""

    chunk: int


@dataclass(frozen=True, slots=True)
class Fallback:
    """Move the simulation to its fallback device, then try again."""


@dataclass(frozen=True, slots=True)
class Abort:
    """Stop, resumable; ``why`` goes into the explanation."""

    why: str


Decision = Retry | Fallback | Abort


@dataclass(frozen=True, slots=True)
class RunStarted:
    """Handed to `simrun_run_started`."""

    plan: Plan
    probes: tuple[ProbeSpec, ...]
    dt: float | None
    output: str
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ChunkCommitted:
    """Handed to `simrun_chunk_committed`: everything up to step ``step`` is safe.

    ``host_bytes`` is the process's resident memory now, ``written`` the bytes of samples
    written so far, ``messages`` what happened since the last report (recoveries, corrections).
    """

    step: int
    end: int
    chunk: int
    written: int
    host_bytes: int
    device_bytes: int | None
    seconds: float
    messages: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RunEnded:
    """Handed to `simrun_run_ended`, and the summary of a run.

    ``status`` is ``"done"`` or ``"stopped"`` (early, resumable) or ``"failed"``;
    ``predicted_host`` and ``measured_host`` are peaks of the process's resident memory;
    ``problems`` are failures of observers; ``metrics`` what the simulation says of itself.
    """

    status: Literal["done", "stopped", "failed"]
    reason: str
    step: int
    end: int
    seconds: float
    written: int
    predicted_host: int
    measured_host: int
    predicted_device: int
    measured_device: int | None
    output: str
    problems: tuple[str, ...] = ()
    metrics: Mapping[str, float] = field(default_factory=dict)
