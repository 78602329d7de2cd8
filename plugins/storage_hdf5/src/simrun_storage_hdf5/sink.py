"""The sink: appends to segments, commits, and merges them into one file at the end.

Files in the run's ``data`` folder:

- ``probes.h5``: all committed samples for any HDF5 reader, always. Virtual until the end.
- ``segments/0001.h5`` …: where samples are written (see `segment`).
- ``segments/final-1.h5``: the merged file from `finish` until `tidy`, which moves it over
  ``probes.h5`` and removes the segments. When a finished run goes on it is there again, as the
  first part of what follows.

So whatever the record before names stays, untouched, until a later record is durable.
"""

# ruff: noqa: D102 - what the methods do is said in simrun.sink
from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace as replace_fields
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np

from simrun.durability import replace, sync_directory
from simrun.errors import SinkError
from simrun.layout import Layout
from simrun.records import ProbeBlock
from simrun.sink import Sink, SinkRequest
from simrun_storage_hdf5 import segment
from simrun_storage_hdf5.files import write_ordinary, write_virtual
from simrun_storage_hdf5.options import Options
from simrun_storage_hdf5.reader import Hdf5Reader
from simrun_storage_hdf5.record import (
    EMPTY,
    FORMAT,
    HINT,
    PROBES,
    SEGMENTS,
    check_final,
    check_format,
    rows_of,
)
from simrun_storage_hdf5.segment import Segment

# room of a new segment: as many bytes as there are already, within these bounds
SMALLEST, LARGEST = 16 << 20, 1 << 30


class Hdf5Sink(Sink):
    """Writes HDF5; see the module.

    A commit's record names each segment with its size, its rows and their checksums.

    Raises
    ------
    ConfigError
        The compression isn't available.
    SinkError
        What ``request.committed`` names is missing or damaged. The newest segment is read
        whole; the others are checked by size and description (`Hdf5Reader.verify` reads all).
    """

    def __init__(self, request: SinkRequest) -> None:
        self._directory = request.directory
        self._segments = request.directory / SEGMENTS
        self._durable = request.durable
        self._dataset_options = Options.model_validate(dict(request.options)).dataset_options()
        self._layout = Layout(request.probes, request.dt)
        self._attrs = {"creator": "simrun", "dt": request.dt, **request.attrs}
        record = request.committed or EMPTY
        check_format(record)
        self._request = request
        self._step = int(record["step"])
        self._final: Mapping[str, Any] | None = record["final"]
        self._sealed: list[Mapping[str, Any]] = list(record["segments"])
        self._tail: Segment | None = None
        with _explained(self._directory):
            self._segments.mkdir(exist_ok=True)
            if self._durable:
                sync_directory(self._directory)
            self._open()

    def append(self, block: ProbeBlock) -> None:
        with _explained(self._directory):
            if self._finished:
                self._bring_back()
            pieces = self._layout.split(block, self._rows())
            if self._tail is None or not self._tail.fits(pieces):
                self._seal()
                self._tail = self._new_segment(pieces, block.stop - block.start)
            self._tail.append(pieces)
            self._step = block.stop

    def commit(self) -> Mapping[str, Any]:
        if not self._finished:
            with _explained(self._directory):
                if self._tail is not None and self._durable:
                    self._tail.sync()
                self._show()
        return self._record()

    def finish(self) -> Mapping[str, Any]:
        self.commit()
        if self._finished:
            return self._record()
        number = int(re.findall(r"\d+", self._final["name"])[0]) + 1 if self._final else 1
        path = self._segments / f"final-{number}.h5"
        with _explained(self._directory):
            rows = self._rows()
            reader = Hdf5Reader(replace_fields(self._request, committed=self._record()))
            try:
                if faults := reader.verify():
                    raise SinkError(faults[0], HINT)
                write_ordinary(
                    path, self._layout, reader.column, self._attrs, self._durable,
                    self._dataset_options,
                )  # fmt: skip
            finally:
                reader.close()
            self._final = {
                "name": path.name,
                "bytes": path.stat().st_size,
                "rows": rows,
                "xxh3": segment.file_hash(path),
            }
        self.close()
        self._sealed = []
        return self._record()

    def tidy(self) -> None:
        if not self._finished:
            return
        assert self._final is not None
        with _explained(self._directory):
            merged = self._segments / self._final["name"]
            if merged.exists():
                replace(merged, self._directory / PROBES, self._durable)
            self._remove_all_but(())

    def close(self) -> None:
        if self._tail is not None:
            self._tail.close()
        self._tail = None

    @property
    def _finished(self) -> bool:
        """Whether one file holds everything."""
        return self._final is not None and not self._sealed and self._tail is None

    def _open(self) -> None:
        """Go on from the record: check what it names, remove what it doesn't."""
        if self._final is not None:
            check_final(self._directory, self._final)
        columns = self._layout.columns
        for number, entry in enumerate(self._sealed, 1):
            newest = number == len(self._sealed)
            part = segment.open_committed(self._segments, columns, entry, writable=newest)
            if not newest:
                part.close()
                continue
            self._tail = part
            if faults := segment.problems(part, entry):
                self.close()
                raise SinkError(faults[0], HINT)
        if self._tail is not None:
            self._sealed.pop()
        if self._finished:
            self.tidy()
        else:
            record = self._record()
            named = [*record["segments"], record["final"] or {"name": ""}]
            self._remove_all_but([entry["name"] for entry in named])
            self._show()

    def _bring_back(self) -> None:
        """Make the finished file the first part of what follows; `_show` then replaces it."""
        assert self._final is not None
        first, part = self._directory / PROBES, self._segments / self._final["name"]
        if part.exists():
            return
        try:
            part.hardlink_to(first)
        except OSError:  # a file system without links: then there is no probes.h5 for a moment
            replace(first, part, self._durable)
        if self._durable:
            sync_directory(self._segments)

    def _new_segment(self, pieces: Mapping[str, np.ndarray[Any, Any]], steps: int) -> Segment:
        so_far = self._rows()
        room_bytes = min(max(SMALLEST, sum(self._bytes(so_far).values())), LARGEST)
        rates = {}  # rows per step
        for column in self._layout.columns:
            here = len(pieces[column.name]) / steps
            average = so_far[column.name] / self._step if self._step else 0.0
            rates[column.name] = max(here, average) if column.rate is None else column.rate
        room_steps = room_bytes / max(sum(self._bytes(rates).values()), 1e-9)
        # whatever the rates say: what is at hand must fit
        room = {
            name: len(pieces[name]) + 16 + min(ceil(rate * room_steps), LARGEST)
            for name, rate in rates.items()
        }
        path = self._segments / f"{len(self._sealed) + 1:04}.h5"
        segment.create(path, self._layout.columns, room, self._durable)
        return Segment(path, self._layout.columns, dict.fromkeys(room, 0), writable=True)

    def _bytes(self, rows: Mapping[str, float]) -> dict[str, float]:
        return {c.name: rows[c.name] * c.row_bytes for c in self._layout.columns}

    def _seal(self) -> None:
        if self._tail is not None:
            if self._durable:
                self._tail.sync()
            self._sealed.append(self._tail.record())
            self.close()

    def _record(self) -> dict[str, Any]:
        tail = [self._tail.record()] if self._tail is not None else []
        return {
            "format": FORMAT,
            "step": self._step,
            "final": self._final,
            "segments": [*self._sealed, *tail],
        }

    def _rows(self) -> dict[str, int]:
        record = self._record()
        return {c.name: rows_of(record, c.name) for c in self._layout.columns}

    def _show(self) -> None:
        path = self._directory / PROBES
        write_virtual(path, self._layout, self._record(), self._tail, self._attrs, self._durable)

    def _remove_all_but(self, names: Any) -> None:
        for path in self._segments.iterdir():
            if path.name not in names:
                path.unlink()


@contextmanager
def _explained(directory: Path) -> Iterator[None]:
    """Turn the operating system's errors into `SinkError`."""
    try:
        yield
    except (OSError, RuntimeError) as error:
        # HDF5 reports errno in its text only, and a flush that fails as a RuntimeError
        found = re.search(r"errno = (\d+)", str(error))
        number = getattr(error, "errno", None) or (int(found[1]) if found else None)
        if isinstance(error, RuntimeError) and number is None:
            raise
        reason = os.strerror(number) if number else str(error)
        raise SinkError(f"{directory}: {reason}", _HINTS.get(number, _HINTS[None])) from error


_HINTS = {
    errno.ENOSPC: "make room on this disk, then run the same command again; what was committed "
    "is safe",
    errno.EDQUOT: "your quota is used up: remove files, then run the same command again",
    errno.EFBIG: "the file system or `ulimit -f` allows no larger files: raise the limit, then "
    "run the same command again",
    errno.EACCES: "the folder must be writable by you; then run the same command again",
    None: "what was committed is safe; mend the disk, then run the same command again",
}
