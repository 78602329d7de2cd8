"""Reads what the HDF5 sink has committed, while the run goes on or after it."""

# ruff: noqa: D102 - what the methods do is said in simrun.sink
from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py

from simrun.columnar import ColumnReader
from simrun.errors import SinkError
from simrun.rows import Joined, Rows
from simrun.sink import SinkRequest
from simrun_storage_hdf5 import segment
from simrun_storage_hdf5.record import EMPTY, HINT, SEGMENTS, check_final, check_format
from simrun_storage_hdf5.segment import Segment


class Hdf5Reader(ColumnReader):
    """Reads the parts that a commit's record names; rows beyond it are never seen.

    Nothing is opened before it is needed: then `SinkError` says which file is missing or damaged.
    """

    def __init__(self, request: SinkRequest) -> None:
        super().__init__(request)
        record = request.committed or EMPTY
        check_format(record)
        self._directory = request.directory
        self._record = record
        self._columns = {column.name: column for column in self.layout.columns}
        self._final: h5py.File | None = None
        self._segments: list[Segment] = []

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
                    self._directory / SEGMENTS, self.layout.columns, entry, writable=False
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
        self._final, self._segments = None, []

    def column(self, name: str) -> Rows:
        self._open()
        column = self._columns[name]
        parts: list[tuple[Any, int]] = [(s.array(column), s.rows[name]) for s in self._segments]
        if self._final is not None:
            try:
                first = self._final[name]
            except Exception as error:  # whatever HDF5 makes of damaged metadata
                where = self._final.filename
                raise SinkError(f"{where}: {name!r} can't be read ({error})", HINT) from None
            parts.insert(0, (first, self._record["final"]["rows"][name]))
        return Joined(parts, column.shape, column.dtype)

    def _open(self) -> None:
        final = self._record["final"]
        if final is not None and self._final is None:
            self._final = _open(check_final(self._directory, final))
        for entry in self._record["segments"][len(self._segments) :]:
            self._segments.append(
                segment.open_committed(
                    self._directory / SEGMENTS, self.layout.columns, entry, writable=False
                )
            )


def _open(path: Path) -> h5py.File:
    try:
        return h5py.File(path, "r")
    except OSError as error:
        raise SinkError(
            f"{path} can't be opened ({error})", "restore the file from a backup"
        ) from None
