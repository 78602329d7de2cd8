"""Segments: HDF5 files that are complete from the start and are filled from outside.

A segment is created with contiguous datasets that have room for more rows than there are,
closed, and renamed into place. From then on its HDF5 metadata never changes: rows are written
by position into the room of their dataset, behind those that earlier commits name. So there is
no instant at which the file can't be opened, and nothing committed is ever written again. The
room takes no disk space until it is filled (the file is sparse).
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import xxhash

from simrun.durability import replace, sync_file
from simrun.errors import SinkError
from simrun.layout import Column
from simrun.rows import Rows
from simrun_storage_hdf5.record import HINT

READ_BYTES = 8 << 20


class Segment:
    """An open segment. Rows of a column are bytes ``offset + row * row_bytes`` of the file.

    Parameters
    ----------
    path : pathlib.Path
        An existing segment.
    columns : sequence of Column
    rows : mapping of str to int
        Rows that count, for each column.
    writable : bool
    """

    def __init__(
        self, path: Path, columns: Sequence[Column], rows: Mapping[str, int], writable: bool
    ) -> None:
        self.path = path
        self.rows = dict(rows)
        self._columns = columns
        self._hashes = {column.name: xxhash.xxh3_64() for column in columns}
        self._offset: dict[str, int | None] = {}
        self._room: dict[str, int] = {}
        with h5py.File(path, "r") as file:
            for column in columns:
                dataset = file[column.name]
                self._offset[column.name] = dataset.id.get_offset()
                self._room[column.name] = dataset.shape[0]
        self._file = os.open(path, os.O_RDWR if writable else os.O_RDONLY)
        self._dirty = False
        self._metadata = self._hash_metadata()

    def fits(self, pieces: Mapping[str, np.ndarray[Any, Any]]) -> bool:
        """Whether there is room for all these rows."""
        return all(self.rows[n] + len(piece) <= self._room[n] for n, piece in pieces.items())

    def array(self, column: Column) -> Rows:
        """The rows that count, read from the file: HDF5's own buffers may lag behind it."""
        return _Stored(self._file, self._offset[column.name], self.rows[column.name], column)

    def append(self, pieces: Mapping[str, np.ndarray[Any, Any]]) -> None:
        """Write rows behind those that count, and count them."""
        for column in self._columns:
            piece = pieces[column.name]
            offset = self._offset[column.name]
            if piece.nbytes and offset is not None:
                data = memoryview(piece.reshape(-1).view(np.uint8))
                self._write(data, offset + self.rows[column.name] * column.row_bytes)
                self._hashes[column.name].update(data)
            self.rows[column.name] += len(piece)
        self._dirty = True

    def sync(self) -> None:
        """Return when all rows are on stable storage."""
        if self._dirty:
            sync_file(self._file)
        self._dirty = False

    def record(self) -> dict[str, Any]:
        """What a commit says of this segment: name, size, rows and checksum of each column."""
        return {
            "name": self.path.name,
            "bytes": os.fstat(self._file).st_size,
            "metadata_xxh3": self._metadata,
            "rows": dict(self.rows),
            "xxh3": {name: hash_.hexdigest() for name, hash_ in self._hashes.items()},
        }

    def read_hashes(self) -> None:
        """Compute the checksums of the rows that count from the file."""
        for column in self._columns:
            hash_ = self._hashes[column.name] = xxhash.xxh3_64()
            offset = self._offset[column.name]
            if offset is None:
                continue
            end = offset + self.rows[column.name] * column.row_bytes
            self._hash(hash_, offset, end)

    def close(self) -> None:
        """Release the file."""
        os.close(self._file)

    def _hash_metadata(self) -> str:
        """Checksum of everything that isn't room for rows, which never changes."""
        hash_ = xxhash.xxh3_64()
        rooms = [
            (offset, offset + self._room[column.name] * column.row_bytes)
            for column in self._columns
            if (offset := self._offset[column.name]) is not None
        ]
        size = os.fstat(self._file).st_size
        begin = 0
        for start, end in [*sorted(rooms), (size, size)]:
            self._hash(hash_, begin, start)
            begin = end
        return hash_.hexdigest()

    def _hash(self, hash_: xxhash.xxh3_64, start: int, end: int) -> None:
        while start < end:
            data = os.pread(self._file, min(READ_BYTES, end - start), start)
            if not data:
                break  # shorter than it should be: the checksum will say so
            hash_.update(data)
            start += len(data)

    def _write(self, data: memoryview, offset: int) -> None:
        while data:
            written = os.pwrite(self._file, data, offset)
            data, offset = data[written:], offset + written


class _Stored(Rows):
    """Rows of a column of a segment."""

    def __init__(self, file: int, offset: int | None, rows: int, column: Column) -> None:
        super().__init__((rows, *column.shape), column.dtype)
        self._file = file
        self._offset = offset or 0
        self._row_bytes = column.row_bytes

    def read(self, start: int, stop: int) -> np.ndarray[Any, Any]:
        out = np.empty((stop - start, *self.shape[1:]), self.dtype)
        data = memoryview(out.reshape(-1).view(np.uint8))
        offset = self._offset + start * self._row_bytes
        while data:
            count = os.preadv(self._file, [data], offset)
            if count == 0:
                raise SinkError("a segment is shorter than what was committed", HINT)
            data, offset = data[count:], offset + count
        return out


def create(path: Path, columns: Sequence[Column], room: Mapping[str, int], durable: bool) -> None:
    """Make a segment with room for so many rows of each column."""
    temporary = path.with_name(path.name + ".new")
    with h5py.File(temporary, "w") as file:
        layout = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        layout.set_layout(h5py.h5d.CONTIGUOUS)
        layout.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
        layout.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
        links = h5py.h5p.create(h5py.h5p.LINK_CREATE)
        links.set_create_intermediate_group(True)
        for column in columns:
            h5py.h5d.create(
                file.id,
                column.name.encode(),
                h5py.h5t.py_create(column.dtype, logical=True),
                h5py.h5s.create_simple((room[column.name], *column.shape)),
                layout,
                links,
            )
    if durable:
        sync_path(temporary)
    replace(temporary, path, durable)


def open_committed(
    directory: Path, columns: Sequence[Column], record: Mapping[str, Any], writable: bool
) -> Segment:
    """Open a segment as a commit's record names it.

    Raises
    ------
    SinkError
        Missing, of another size, or no segment. (The content is checked by `problems`.)
    """
    path = directory / record["name"]
    try:
        size = path.stat().st_size
    except FileNotFoundError:
        raise SinkError(f"{path}: a committed segment is missing", HINT) from None
    if size != record["bytes"]:
        raise SinkError(f"{path}: {size} bytes, but {record['bytes']} were committed", HINT)
    try:
        segment = Segment(path, columns, record["rows"], writable)
    except PermissionError:
        raise
    except Exception as error:  # whatever HDF5 makes of damaged metadata
        raise SinkError(f"{path}: damaged ({error})", HINT) from None
    if segment.record()["metadata_xxh3"] != record["metadata_xxh3"]:
        segment.close()
        raise SinkError(f"{path}: damaged (its description of the data has changed)", HINT)
    return segment


def problems(segment: Segment, record: Mapping[str, Any]) -> list[str]:
    """Read all rows that count and compare them with the record's checksums."""
    segment.read_hashes()
    found = segment.record()["xxh3"]
    return [
        f"{segment.path}: the samples of {name!r} differ from what was committed "
        f"(checksum {found[name]}, should be {wanted})"
        for name, wanted in record["xxh3"].items()
        if found[name] != wanted
    ]


def file_hash(path: Path) -> str:
    """Checksum (xxh3-64) of a whole file."""
    hash_ = xxhash.xxh3_64()
    with path.open("rb", buffering=0) as file:
        while data := file.read(READ_BYTES):
            hash_.update(data)
    return hash_.hexdigest()


def sync_path(path: Path) -> None:
    """Put a closed file on stable storage."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        sync_file(descriptor)
    finally:
        os.close(descriptor)
