"""The sink: whole shards as they fill, the last ones again at each commit, then the metadata.

What a plain reader sees is decided by one object, the group's ``zarr.json``: it holds the
metadata of all arrays (Zarr's consolidated metadata) and is replaced in one step, after the
samples that it tells of are safe. So arrays never have lengths of different commits, and never
rows that aren't there. The nodes' own ``zarr.json``, for readers that don't know consolidated
metadata, are written at the end of the run and removed before a finished run goes on: among
themselves they are always of one length, too.

The last shard of an array is rewritten until it is full, in one step and with what it held: the
rows that an earlier record names are always there. Checksums are of rows, not of objects, so
that they hold for every record.
"""

# ruff: noqa: D102 - what the methods do is said in simrun.sink
from __future__ import annotations

import errno
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import xxhash
import zarr

from simrun.durability import write_atomic
from simrun.errors import OutputExistsError, SimrunError, SinkError
from simrun.layout import Layout
from simrun.records import ProbeBlock
from simrun.sink import Sink, SinkRequest
from simrun_storage_zarr.layout import Grid, Metadata, shard_rows
from simrun_storage_zarr.options import Options
from simrun_storage_zarr.store import Content, Store, open_store

FORMAT = 1
FOLDER = "probes.zarr"
MARKER = "remote.json"
HINT = "restore it from a backup, or start anew with another output.path"


class ZarrSink(Sink):
    """Writes Zarr v3; see the module.

    A commit's record holds for each array its rows, the rows of a shard, and a checksum
    (xxh3-64) of the rows of each shard.

    Raises
    ------
    OutputExistsError
        A new run, and the store at ``url`` isn't empty.
    SinkError
        Shards that ``request.committed`` names are missing, or the last is damaged
        (`ZarrReader.verify` reads all).
    """

    def __init__(self, request: SinkRequest) -> None:
        options = Options.model_validate(dict(request.options))
        self._layout = Layout(request.probes, request.dt)
        record = request.committed
        check_format(record)
        arrays = record["arrays"] if record else {}
        sizes = shard_rows(self._layout)
        self._columns: dict[str, _Column] = {}
        for column in self._layout.columns:
            entry = arrays.get(column.name, {"rows": 0, "xxh3": []})
            rows = entry.get("shard", sizes[column.name])
            grid = Grid(column, rows, options.compression, options.level)
            self._columns[column.name] = _Column(grid, entry)
        self._step = int(record["step"]) if record else 0
        self._attrs = {"creator": "simrun", "dt": request.dt, **request.attrs}
        self._metadata = self._new_metadata()
        folder = request.directory / FOLDER
        self._store = open_store(folder, options.url, options.storage_options, request.durable)
        with explained(self._store.where):
            found = self._store.keys()
            if record is None:
                self._begin(request, options.url, found)
            else:
                self._go_on(found)

    def append(self, block: ProbeBlock) -> None:
        with explained(self._store.where):
            if self._nodes:
                # the nodes' metadata would tell of the old end
                self._store.delete(sorted(self._nodes))
                self._nodes = set()
            rows = {name: column.rows for name, column in self._columns.items()}
            known = self._fills()
            for name, piece in self._layout.split(block, rows).items():
                self._store.put(self._columns[name].append(piece))
            if self._fills().keys() != known.keys():
                self._metadata = self._new_metadata()
            self._step = block.stop

    def commit(self) -> Mapping[str, Any]:
        with explained(self._store.where):
            objects: dict[str, Content] = {}
            for column in self._columns.values():
                objects |= column.unstored()
            self._store.put(objects)
            self._show()
        arrays = {name: column.record() for name, column in self._columns.items()}
        return {"format": FORMAT, "step": self._step, "arrays": arrays}

    def finish(self) -> Mapping[str, Any]:
        record = self.commit()
        with explained(self._store.where):
            nodes = self._metadata.nodes(self._rows())
            self._nodes = set(nodes)
            self._store.put(nodes)
        return record

    def close(self) -> None:
        """Nothing is held open."""

    def _begin(self, request: SinkRequest, url: str | None, found: set[str]) -> None:
        """Start an empty store."""
        if url is not None:
            marker = request.directory / MARKER
            wanted = json.dumps({"url": url}).encode()
            # without the marker, what is there isn't left by an earlier start of this run
            if found and not (marker.is_file() and marker.read_bytes() == wanted):
                raise OutputExistsError(
                    f"output.url: {url} isn't empty",
                    "choose another URL, or remove what is there yourself",
                )
            write_atomic(marker, wanted, request.durable)
        self._store.delete(sorted(found))
        self._nodes: set[str] = set()
        self._show()

    def _go_on(self, found: set[str]) -> None:
        """Trim the store to the record, and take up the last shards."""
        self._nodes = {key for key in found if key.endswith("/zarr.json")}
        needed = {"zarr.json", *self._nodes}
        for column in self._columns.values():
            keys = column.keys()
            if missing := [] if column.may_lack_shards else sorted(keys - found):
                raise SinkError(f"{self._store.where}: {missing[0]} is missing", HINT)
            needed |= keys
        self._show()
        group = open_group(self._store)
        for name, column in self._columns.items():
            column.load(group[name], self._store.where)
            if not column.stored:  # what is there holds only what came after the record
                needed -= {column.tail_key}
        self._store.delete(sorted(found - needed))

    def _show(self) -> None:
        self._store.put({"zarr.json": self._metadata.root(self._rows())})

    def _rows(self) -> dict[str, int]:
        return {name: column.rows for name, column in self._columns.items()}

    def _fills(self) -> dict[str, Any]:
        return {n: c.fill for n, c in self._columns.items() if c.fill is not None}

    def _new_metadata(self) -> Metadata:
        grids = {name: column.grid for name, column in self._columns.items()}
        return Metadata(grids, self._fills(), self._attrs)


class _Column:
    """One array: its last shard in memory, and the checksums of all.

    The values of events are mostly all the same. The first becomes the array's fill value, and
    a shard that holds nothing else isn't stored.
    """

    def __init__(self, grid: Grid, entry: Mapping[str, Any]) -> None:
        self.grid = grid
        self.rows = int(entry["rows"])
        self.may_lack_shards = grid.column.name.endswith("/value")
        self.fill: Any = None
        if entry.get("fill") is not None:
            self.fill = np.frombuffer(bytes.fromhex(entry["fill"]), grid.dtype)[0]
        full = self.rows // grid.shard_rows
        self._hashes = list(entry["xxh3"][:full])
        self._wanted = entry["xxh3"][full:]
        self._start_shard()

    def _start_shard(self) -> None:
        self._hash = xxhash.xxh3_64()
        self._chunks: list[bytes] = []  # whole ones of the last shard, encoded
        self._rest = np.empty((0, *self.grid.column.shape), self.grid.dtype)  # rows after them
        self._used = 0
        self._dirty = False
        self.stored = False  # whether the last shard is more than the fill value

    def append(self, piece: np.ndarray[Any, Any]) -> dict[str, Content]:
        """Take rows; returns the shards that they filled."""
        objects: dict[str, Content] = {}
        piece = np.ascontiguousarray(piece, self.grid.dtype)
        if self.may_lack_shards and self.fill is None and len(piece):
            self.fill = piece[0]
        while len(piece):
            part = piece[: self.grid.shard_rows - self._used]
            piece = piece[len(part) :]
            self._take(part)
            if self._used == self.grid.shard_rows:
                objects |= self.unstored()
                self._hashes.append(self._hash.hexdigest())
                self._start_shard()
        return objects

    def _take(self, part: np.ndarray[Any, Any]) -> None:
        data = raw(part)
        self._hash.update(data)
        self._used += len(part)
        self.rows += len(part)
        self._dirty = True
        if self.may_lack_shards and not self.stored:
            self.stored = data != self.fill.tobytes() * len(part)
        else:
            self.stored = True
        if self.grid.empty:
            return
        rows = np.concatenate([self._rest, part]) if len(self._rest) else part
        whole = len(rows) // self.grid.chunk_rows * self.grid.chunk_rows
        if whole:
            self._chunks += self.grid.encode(rows[:whole])
        self._rest = rows[whole:].copy()

    def unstored(self) -> dict[str, Content]:
        """The last shard, where it isn't stored as it is."""
        if not self._dirty or not self.stored or self.grid.empty:
            return {}
        self._dirty = False
        rest = self.grid.encode(self._rest) if len(self._rest) else []
        return {self.tail_key: self.grid.shard([*self._chunks, *rest])}

    def load(self, array: Any, where: str) -> None:
        """Check the last shard, and take it up where it isn't full.

        Raises
        ------
        SinkError
            Its rows aren't what was committed.
        """
        hashes = [*self._hashes, *self._wanted]
        if not hashes:
            return
        shard = len(hashes) - 1
        first = shard * self.grid.shard_rows
        try:
            part = np.ascontiguousarray(array[first : self.rows])
        except OSError:
            raise
        except Exception as error:  # whatever a codec says of damaged bytes
            raise SinkError(f"{where}: {self._key(shard)} is damaged ({error})", HINT) from None
        if xxhash.xxh3_64(raw(part)).hexdigest() != hashes[-1]:
            raise SinkError(
                f"{where}: the last rows of {self.grid.column.name!r} ({self._key(shard)}) "
                "aren't what was committed",
                HINT,
            )
        if self._wanted:
            self.rows = first
            self._take(part)
            self._dirty = False

    def record(self) -> dict[str, Any]:
        """What a commit says of this array."""
        hashes = [*self._hashes, *([self._hash.hexdigest()] if self._used else [])]
        entry = {"rows": self.rows, "shard": self.grid.shard_rows, "xxh3": hashes}
        if self.fill is not None:
            entry["fill"] = self.fill.tobytes().hex()
        return entry

    def keys(self) -> set[str]:
        """Keys of the shards that hold the rows."""
        if self.grid.empty:
            return set()
        return {self._key(shard) for shard in range(-(-self.rows // self.grid.shard_rows))}

    @property
    def tail_key(self) -> str:
        """Key of the last shard."""
        return self._key(len(self._hashes))

    def _key(self, shard: int) -> str:
        return f"{self.grid.column.name}/{self.grid.key(shard)}"


def raw(rows: np.ndarray[Any, Any]) -> memoryview:
    """The bytes of contiguous rows."""
    return memoryview(rows.reshape(-1).view(np.uint8))


def open_group(store: Store) -> zarr.Group:
    """Open the group as its ``zarr.json`` tells."""
    return zarr.open_group(store.for_reading(), mode="r", use_consolidated=True)


def check_format(record: Mapping[str, Any] | None) -> None:
    """Refuse the record of another version."""
    if record is not None and record.get("format") != FORMAT:
        raise SinkError(
            f"the samples are in format {record.get('format')!r} of the zarr sink, this is "
            f"format {FORMAT}",
            "use the version of simrun-storage-zarr that wrote them",
        )


@contextmanager
def explained(where: str) -> Iterator[None]:
    """Turn errors of the disk and of object stores into `SinkError`."""
    try:
        yield
    except SimrunError:
        raise
    except Exception as error:
        if not isinstance(error, OSError) and type(error).__module__.partition(".")[0] not in (
            "botocore", "aiobotocore", "aiohttp", "gcsfs", "adlfs", "azure", "fsspec",
        ):  # fmt: skip
            raise
        number = getattr(error, "errno", None)
        raise SinkError(
            f"{where}: {getattr(error, 'strerror', None) or error}",
            _HINTS.get(number, _HINTS[None]),
        ) from error


_HINTS = {
    errno.ENOSPC: "make room on this disk, then run the same command again; what was committed "
    "is safe",
    errno.EDQUOT: "your quota is used up: remove files, then run the same command again",
    errno.EFBIG: "the file system or `ulimit -f` allows no larger files: raise the limit, then "
    "run the same command again",
    errno.EACCES: "the folder must be writable by you; then run the same command again",
    None: "what was committed is safe; mend the store, then run the same command again",
}
