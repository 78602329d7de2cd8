"""Reads what the HDF5 sink has committed, while the run goes on or after it."""

# ruff: noqa: D102 - what the methods do is said in simrun.sink
from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np

from simrun.errors import SinkError
from simrun.layout import Layout, is_events
from simrun.rows import Dense, Joined, Rows
from simrun.sink import Reader, SinkRequest
from simrun_storage_hdf5 import segment
from simrun_storage_hdf5.record import EMPTY, SEGMENTS, check_final, check_format


class Hdf5Reader(Reader):
    """Reads the parts that a commit's record names; rows beyond it are never seen.

    Raises
    ------
    SinkError
        A file that the record names is missing or can't be opened.
    """

    def __init__(self, request: SinkRequest) -> None:
        record = request.committed or EMPTY
        check_format(record)
        self._directory = request.directory
        self._record = record
        self._dt = request.dt
        self._probes = {probe.name: probe for probe in request.probes}
        self._layout = Layout(request.probes, request.dt)
        self._columns = {column.name: column for column in self._layout.columns}
        final = record["final"]
        self._final = _open(check_final(request.directory, final)) if final is not None else None
        self._segments = []
        for entry in record["segments"]:
            part = segment.open_committed(
                request.directory / SEGMENTS, self._layout.columns, entry, writable=False
            )
            self._segments.append(part)

    def array(self, name: str) -> Rows:
        probe = self._probes[name]
        group = self._layout.names[name]
        if not is_events(probe):
            return self.column(group)
        axes = self._layout.event_axes(name)
        return Dense(lambda c: self.column(f"{group}/{c}"), axes, probe.shape, probe.dtype)

    def events(self, name: str) -> tuple[np.ndarray[Any, Any], ...]:
        """The events of a probe with ``format: events``.

        Returns
        -------
        tuple of numpy.ndarray
            Step of each event (int64), its position along each axis of a sample (int32), and
            its value.
        """
        group = self._layout.names[name]
        time = self.column(f"{group}/time")[:]
        step = time if self._dt is None else np.rint(time / self._dt).astype(np.int64)
        axes = self._layout.event_axes(name)
        return (step, *(self.column(f"{group}/{c}")[:] for c in (*axes, "value")))

    def verify(self) -> list[str]:
        found: list[str] = []
        final = self._record["final"]
        try:
            if final is not None:
                path = check_final(self._directory, final)
                if segment.file_hash(path) != final["xxh3"]:
                    found.append(f"{path}: differs from what was committed (checksum)")
        except SinkError as error:
            found.append(error.message)
        for entry in self._record["segments"]:
            try:
                part = segment.open_committed(
                    self._directory / SEGMENTS, self._layout.columns, entry, writable=False
                )
            except SinkError as error:
                found.append(error.message)
                continue
            found += segment.problems(part, entry)
            part.close()
        return found

    def close(self) -> None:
        for part in self._segments:
            part.close()
        if self._final is not None:
            self._final.close()

    def column(self, name: str) -> Rows:
        """The committed rows of a column (see `simrun.layout`)."""
        column = self._columns[name]
        parts: list[tuple[Any, int]] = [(s.array(column), s.rows[name]) for s in self._segments]
        if self._final is not None:
            parts.insert(0, (self._final[name], self._record["final"]["rows"][name]))
        return Joined(parts, column.shape, column.dtype)


def _open(path: Path) -> h5py.File:
    try:
        return h5py.File(path, "r")
    except OSError as error:
        raise SinkError(
            f"{path} can't be opened ({error})", "restore the file from a backup"
        ) from None
