"""How the probes of a run are laid out for storage: named columns that grow by rows.

Pure; shared by the storage back ends, so that a file of one reads like a file of the other:

- A dense probe is one column of its name, with dimensions (time, *dims).
- Probes with the same sampling period share a column ``time`` (seconds, step * dt; without dt
  it is ``step``). The first period has that name, each other one ``time_PROBE``.
- A probe with ``format: events`` is a group of columns: per event ``time``, one column per axis
  of the sample, ``value``; and per sample ``end``, the number of events up to and including it.
- A dimension keeps its name wherever its size is the same; another size is ``PROBE_DIM``.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from simrun.errors import ConfigError
from simrun.events import Events, encode
from simrun.records import ProbeBlock, ProbeSpec
from simrun.sampling import recorded_steps

EVENT = "event"  # dimension of the columns that have one row per event


@dataclass(frozen=True, slots=True)
class Column:
    """An array that grows along its first axis.

    Parameters
    ----------
    name : str
        ``PROBE``, ``time`` or ``PROBE/end`` (in a group).
    dims : tuple of str
        All dimensions, the growing one first.
    shape : tuple of int
        Shape of one row.
    dtype : numpy.dtype
    rate : float or None
        Rows per step on average; None where that isn't known beforehand (events).
    attrs : mapping
        Facts for the reader of the data, JSON values.
    """

    name: str
    dims: tuple[str, ...]
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    rate: float | None
    attrs: Mapping[str, Any] = field(default_factory=dict)

    @property
    def row_bytes(self) -> int:
        """Bytes of one row."""
        return int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize


class Layout:
    """The columns of a run's probes.

    Attributes
    ----------
    columns : tuple of Column
    sizes : dict of str to int
        Size of each dimension that doesn't grow.
    names : dict of str to str
        Column or group of each probe: its name, less the slashes.

    Raises
    ------
    ConfigError
        Two probes would be stored under one name.
    """

    def __init__(self, probes: tuple[ProbeSpec, ...], dt: float | None) -> None:
        self._probes = probes
        self._dt = dt
        self.sizes: dict[str, int] = {}
        self.names = {
            probe.name: probe.name.replace("/", "_").strip(".") or "_" for probe in probes
        }
        if len(set(self.names.values())) < len(self.names):
            raise ConfigError(
                f"probes: {', '.join(self.names)}: two have the same name once a slash is "
                "written as an underscore",
                "rename one of them",
            )
        self._axis = "time" if dt is not None else "step"
        self._times: dict[float, str] = {}
        columns: list[Column] = []
        for probe in probes:
            if probe.period not in self._times:
                columns.append(self._time_column(probe))
            columns += self._event_columns(probe) if is_events(probe) else [self._dense(probe)]
        self.columns = tuple(columns)

    def split(self, block: ProbeBlock, rows: Mapping[str, int]) -> dict[str, np.ndarray[Any, Any]]:
        """The rows that a block adds to each column, contiguous and of the column's dtype.

        Parameters
        ----------
        block : ProbeBlock
        rows : mapping of str to int
            Rows that the columns have before.
        """
        pieces: dict[str, np.ndarray[Any, Any]] = {}
        for probe in self._probes:
            samples, name = block.samples[probe.name], self.names[probe.name]
            axis = self._times[probe.period]
            if axis not in pieces:
                pieces[axis] = self._times_of(probe, block, len(samples))
            if not is_events(probe):
                pieces[name] = np.ascontiguousarray(samples, probe.dtype).reshape(
                    len(samples), *probe.shape
                )
                continue
            given: Any = samples  # an adapter may have found the events already
            events = given if isinstance(given, Events) else encode(np.asarray(given, probe.dtype))
            pieces[f"{name}/end"] = rows[f"{name}/time"] + np.cumsum(events.count)
            pieces[f"{name}/time"] = np.repeat(pieces[axis], events.count)
            for axis_name, index in zip(
                self._event_axes(probe),
                np.unravel_index(events.index, probe.shape or (1,)),
                strict=False,
            ):
                pieces[f"{name}/{axis_name}"] = np.asarray(index, np.int32)
            pieces[f"{name}/value"] = np.ascontiguousarray(events.value, probe.dtype)
        return pieces

    def event_axes(self, name: str) -> tuple[str, ...]:
        """Names of the columns that say where in the sample an event is, in C order."""
        return self._event_axes(next(probe for probe in self._probes if probe.name == name))

    def _times_of(self, probe: ProbeSpec, block: ProbeBlock, samples: int) -> np.ndarray[Any, Any]:
        # a probe with an infinite period records the last step of the run, which ends the block
        if math.isinf(probe.period):
            steps = np.full(samples, block.stop, np.int64)
        else:
            steps = recorded_steps(probe.period, block.start, block.stop, block.stop)
        return steps * self._dt if self._dt is not None else steps

    def _time_column(self, probe: ProbeSpec) -> Column:
        taken = {*self.names.values(), *self._times.values()}
        wanted = f"{self._axis}_{self.names[probe.name]}" if self._times else self._axis
        name = self._times[probe.period] = _free(wanted, taken)
        return Column(name, (name,), (), self._time_dtype, 1 / probe.period, self._time_attrs)

    def _dense(self, probe: ProbeSpec) -> Column:
        return Column(
            self.names[probe.name],
            (self._times[probe.period], *self._dims(probe)),
            probe.shape,
            probe.dtype,
            1 / probe.period,
            facts(probe),
        )

    def _event_columns(self, probe: ProbeSpec) -> list[Column]:
        name, axis = self.names[probe.name], self._times[probe.period]
        event = (EVENT,)
        return [
            Column(
                f"{name}/end", (axis,), (), np.dtype(np.int64), 1 / probe.period,
                {"long_name": "number of events up to and including this sample"},
            ),
            Column(f"{name}/time", event, (), self._time_dtype, None, self._time_attrs),
            *(
                Column(
                    f"{name}/{axis_name}", event, (), np.dtype(np.int32), None,
                    {"long_name": f"index along {axis_name}, from 0", "size": size},
                )
                for axis_name, size in zip(self._event_axes(probe), probe.shape, strict=True)
            ),
            Column(f"{name}/value", event, (), probe.dtype, None, facts(probe)),
        ]  # fmt: skip

    @property
    def _time_dtype(self) -> np.dtype[Any]:
        return np.dtype(np.int64 if self._dt is None else np.float64)

    @property
    def _time_attrs(self) -> dict[str, Any]:
        if self._dt is None:
            return {"long_name": "step, from 1"}
        return {"units": "s", "long_name": "time"}

    @staticmethod
    def _event_axes(probe: ProbeSpec) -> tuple[str, ...]:
        taken = {"time", "value", "end", EVENT}
        axes: list[str] = []
        for dim in _named_dims(probe):
            axes.append(_free(dim, {*taken, *axes}))
        return tuple(axes)

    def _dims(self, probe: ProbeSpec) -> tuple[str, ...]:
        """A name for each axis of a sample, each used once in a probe and of one size."""
        dims: list[str] = []
        taken = {*self.names.values(), *self._times.values(), EVENT}
        for dim, size in zip(_named_dims(probe), probe.shape, strict=True):
            name = dim
            if name in dims or name in taken or self.sizes.get(name, size) != size:
                name = _free(f"{self.names[probe.name]}_{dim}", {*taken, *self.sizes, *dims})
            self.sizes[name] = size
            dims.append(name)
        return tuple(dims)


def is_events(probe: ProbeSpec) -> bool:
    """Whether the probe is to be stored as events (``format: events``)."""
    return probe.attrs.get("format") == "events"


def facts(probe: ProbeSpec) -> dict[str, Any]:
    """What the reader of a probe's data should know, as JSON values."""
    period: Any = "last step" if math.isinf(probe.period) else probe.period
    return {
        "long_name": probe.name, "sampling_period_steps": period, "reduce": probe.reduce,
        **probe.attrs,
    }  # fmt: skip


def chunk_shape(shape: tuple[int, ...], itemsize: int, target: int) -> tuple[int, ...]:
    """Shape of a chunk of about ``target`` bytes, rows first: whole rows where they fit."""
    inner = [max(size, 1) for size in shape]
    while math.prod(inner) * itemsize > target and max(inner) > 1:
        widest = inner.index(max(inner))
        inner[widest] = -(-inner[widest] // 2)
    return (max(target // (math.prod(inner) * itemsize), 1), *inner)


def _named_dims(probe: ProbeSpec) -> tuple[str, ...]:
    given = tuple(dim.replace("/", "_") for dim in probe.dims)
    return given + tuple(f"dim_{axis}" for axis in range(len(given), len(probe.shape)))


def _free(name: str, taken: Collection[str]) -> str:
    while name in taken:
        name += "_"
    return name
