"""Reads what the Zarr sink has committed, while the run goes on or after it."""

# ruff: noqa: D102 - what the methods do is said in simrun.sink
from __future__ import annotations

from typing import Any

import numpy as np
import xxhash
import zarr

from simrun.columnar import ColumnReader
from simrun.errors import SinkError
from simrun.rows import Joined, Rows
from simrun.sink import SinkRequest
from simrun_storage_zarr.options import Options
from simrun_storage_zarr.sink import FOLDER, HINT, check_format, explained, open_group, raw
from simrun_storage_zarr.store import open_store


class ZarrReader(ColumnReader):
    """Reads arrays up to the rows that a commit's record names."""

    def __init__(self, request: SinkRequest) -> None:
        super().__init__(request)
        check_format(request.committed)
        options = Options.model_validate(dict(request.options))
        self._arrays = request.committed["arrays"] if request.committed else {}
        self._columns = {column.name: column for column in self.layout.columns}
        self._store = open_store(
            request.directory / FOLDER, options.url, options.storage_options, durable=False
        )
        self._group: zarr.Group | None = None

    def column(self, name: str) -> Rows:
        column = self._columns[name]
        rows = self._arrays[name]["rows"] if self._arrays else 0
        return Joined([(self._open(name, rows), rows)], column.shape, column.dtype)

    def verify(self) -> list[str]:
        found = []
        for name, entry in self._arrays.items():
            size = entry["shard"]
            try:
                array = self._open(name, entry["rows"])
            except SinkError as error:
                found.append(error.message)
                continue
            for shard, wanted in enumerate(entry["xxh3"]):
                rows = (shard * size, min((shard + 1) * size, entry["rows"]))
                where = f"{self._store.where}: rows {rows[0]} to {rows[1]} of {name!r}"
                try:
                    data = np.ascontiguousarray(array[rows[0] : rows[1]])
                except Exception as error:  # whatever a codec says of damaged bytes
                    found.append(f"{where} can't be read ({error})")
                    continue
                if xxhash.xxh3_64(raw(data)).hexdigest() != wanted:
                    found.append(f"{where} aren't what was committed (checksum)")
        return found

    def _open(self, name: str, rows: int) -> Any:
        where = self._store.where
        try:
            with explained(where):
                if self._group is None:
                    self._group = open_group(self._store)
                array = self._group[name]
                found = array.shape[0]
        except SinkError:
            raise
        except Exception as error:  # whatever Zarr says of damaged or missing metadata
            raise SinkError(f"{where}: {name!r} can't be opened ({error})", HINT) from None
        if found < rows:
            raise SinkError(f"{where}: {name!r} has {found} rows, {rows} were committed", HINT)
        return _Steady(array)


class _Steady:
    """An array of which the writer replaces the last shard again and again.

    Zarr opens a shard twice, for its index and for its chunks; between the two it may have been
    replaced. Then neither checksum nor decompression agree, and reading again helps.
    """

    def __init__(self, array: Any) -> None:
        self._array = array

    def __getitem__(self, key: slice) -> Any:
        for _ in range(4):
            try:
                return self._array[key]
            except Exception:  # whatever a codec says of half a shard
                continue
        return self._array[key]
