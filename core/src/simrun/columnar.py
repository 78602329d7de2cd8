"""A reader for storage back ends that keep the columns of `simrun.layout`."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np

from simrun.layout import Layout, is_events
from simrun.rows import Dense, Rows
from simrun.sink import Reader, SinkRequest


class ColumnReader(Reader):
    """Gives probes from columns; a back end adds `column`."""

    def __init__(self, request: SinkRequest) -> None:
        self.layout = Layout(request.probes, request.dt)
        self._dt = request.dt
        self._probes = {probe.name: probe for probe in request.probes}

    @abstractmethod
    def column(self, name: str) -> Rows:
        """The committed rows of a column (see `simrun.layout`)."""

    def array(self, name: str) -> Rows:
        """The dense samples of a probe, also of one that is stored as events."""
        probe = self._probes[name]
        group = self.layout.names[name]
        if not is_events(probe):
            return self.column(group)
        axes = self.layout.event_axes(name)
        return Dense(lambda c: self.column(f"{group}/{c}"), axes, probe.shape, probe.dtype)

    def events(self, name: str) -> tuple[np.ndarray[Any, Any], ...]:
        """The events of a probe with ``format: events``.

        Returns
        -------
        tuple of numpy.ndarray
            Step of each event (int64), its position along each axis of a sample (int32), and
            its value.

        Raises
        ------
        KeyError
            No such probe, or it isn't stored as events.
        """
        if not is_events(self._probes[name]):
            raise KeyError(f"probe {name!r} is stored dense: index array({name!r})")
        group = self.layout.names[name]
        time = self.column(f"{group}/time")[:]
        # step * dt, rounded once: dividing and rounding gives the step back exactly
        step = time if self._dt is None else np.rint(time / self._dt).astype(np.int64)
        axes = self.layout.event_axes(name)
        return (step, *(self.column(f"{group}/{axis}")[:] for axis in (*axes, "value")))
