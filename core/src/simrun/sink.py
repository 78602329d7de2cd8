"""The contract between the core and a storage back end.

A storage package offers `SinkEntry` records by the hook `simrun_sinks`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from pydantic import BaseModel

from simrun.records import ProbeBlock, ProbeSpec


@dataclass(frozen=True, slots=True)
class SinkRequest:
    """What a sink is opened with.

    Parameters
    ----------
    directory : pathlib.Path
        The run's ``data`` folder; it exists. A sink writes nowhere else.
    probes : tuple of ProbeSpec
    dt : float or None
        Seconds of model time per step.
    durable : bool
        True: what `Sink.commit` returned survives a power cut (fsync). False: it survives
        the death of the process.
    committed : mapping or None
        What the last commit returned, when a run goes on; None for a new one.
    options : mapping
        Keys of the config's ``output`` section that the core doesn't know.
    attrs : mapping
        Facts for the reader of the data (provenance), JSON values; stored with the samples
        where the format has a place for them.
    """

    directory: Path
    probes: tuple[ProbeSpec, ...]
    dt: float | None
    durable: bool
    committed: Mapping[str, Any] | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    attrs: Mapping[str, Any] = field(default_factory=dict)


class Sink(ABC):
    """Stores probe samples, append only. One thread at a time calls it.

    Laws
    ----
    1. After `commit` has returned, the samples appended before it survive the death of the
       process at any instant, and, when ``durable``, a power cut.
    2. Opening with ``committed`` discards everything that came after that commit, and nothing
       before it.
    3. Committed samples can be read while the run goes on.
    """

    @abstractmethod
    def append(self, block: ProbeBlock) -> None:
        """Take a block; blocks come in order and without gaps."""

    @abstractmethod
    def commit(self) -> Mapping[str, Any]:
        """Make all appended samples safe; return what a later open needs, as JSON values."""

    def finish(self) -> Mapping[str, Any]:
        """Called once, after the last commit of a run that reached its end."""
        return self.commit()

    def tidy(self) -> None:  # noqa: B027 - optional
        """Remove what only earlier records name; called once the record of `finish` is durable."""

    @abstractmethod
    def close(self) -> None:
        """Release files; what wasn't committed may be lost."""


class LazyArray(Protocol):
    """What a reader returns for a probe: indexed like a numpy array, read on demand."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape, the first axis time."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the samples."""

    def __getitem__(self, key: Any) -> Any:
        """Read a part, as numpy's basic indexing has it."""


class Reader(ABC):
    """Reads what a sink has committed."""

    @abstractmethod
    def array(self, name: str) -> LazyArray:
        """The committed samples of a probe, first axis time. `KeyError` for another name."""

    def events(self, name: str) -> tuple[np.ndarray[Any, Any], ...]:
        """Step, position along each axis, and value of each event of a probe stored as events.

        `KeyError` for a probe that isn't; the default has none.
        """
        raise KeyError(f"probe {name!r} holds no events")

    def verify(self) -> list[str]:
        """Read everything committed and compare with its checksums; problems, one text each."""
        return []

    def close(self) -> None:  # noqa: B027 - optional
        """Release files."""


@dataclass(frozen=True, slots=True)
class SinkEntry:
    """A storage back end that a plugin offers.

    Parameters
    ----------
    name : str
        The value of ``output.sink`` in a config.
    summary : str
        One line.
    sink : callable or str
        ``sink(request: SinkRequest) -> Sink``, or ``"module:name"``.
    reader : callable or str
        ``reader(request: SinkRequest) -> Reader``; ``committed`` is never None here.
    config_model : pydantic model class or str, optional
        Validates the sink's own keys of the ``output`` section; None: it has none.
    product : str
        Name, in the sink's folder, of the one file or folder that a finished run is; for
        ``simrun export``. Empty: there are several.
    working_bytes : int
        Most bytes that the sink takes beyond the block that it stores. It is given no more than
        8 MiB of samples at a time (more only where one step has more).
    """

    name: str
    summary: str
    sink: Callable[[SinkRequest], Sink] | str
    reader: Callable[[SinkRequest], Reader] | str
    config_model: type[BaseModel] | str | None = None
    product: str = ""
    working_bytes: int = 0
