"""Builds Zarr's bytes in memory, by Zarr: the group's metadata, and shards.

Nothing here touches a store. A shard holds whole rows and is the unit that is written.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import google_crc32c
import numcodecs
import numpy as np
import zarr
import zarr.codecs
import zarr.storage
from zarr.core.buffer import Buffer

from simrun.layout import Column, Layout, chunk_shape

# rows are read by chunks and written by shards; all columns' shards together are of this size,
# shared out by their rates, so that what a commit rewrites of the last ones is bounded
CHUNK_BYTES = 256 << 10
SHARDS_BYTES = 16 << 20
SMALLEST_SHARD = 64 << 10
EVENTS_SHARD = 4 << 20


class Grid:
    """How a column is cut into chunks and shards, and its codecs.

    Parameters
    ----------
    column : Column
    shard_rows : int
        Rows of a shard.
    compression : str
    level : int
    """

    def __init__(self, column: Column, shard_rows: int, compression: str, level: int) -> None:
        self.column = column
        self.shard_rows = shard_rows
        self.dtype = column.dtype.newbyteorder("=")
        chunk = chunk_shape(column.shape, column.dtype.itemsize, CHUNK_BYTES)
        # as many rows in a chunk as divide a shard
        rows = max(n for n in range(1, min(chunk[0], shard_rows) + 1) if shard_rows % n == 0)
        inner = tuple(-(-max(n, 1) // c) * c for n, c in zip(column.shape, chunk[1:], strict=True))
        self.chunk_rows = rows
        self._chunk = (rows, *chunk[1:])
        self._shard = (shard_rows, *inner)
        self._codec, self._encoder = _codecs(compression, level, self.dtype.itemsize)

    def create(self, group: zarr.Group, name: str, rows: int, fill: Any) -> None:
        """Create the array in a group."""
        group.create_array(
            name,
            shape=(rows, *self.column.shape),
            chunks=self._chunk,
            shards=self._shard,
            fill_value=fill,
            dimension_names=self.column.dims,
            attributes=dict(self.column.attrs),
            dtype=self.dtype,
            compressors=self._codec,
            chunk_key_encoding={"name": "default", "separator": "."},
        )

    def encode(self, rows: np.ndarray[Any, Any]) -> list[bytes]:
        """The chunks of rows, encoded, in C order; the last rows of a chunk may be missing."""
        whole = -(-len(rows) // self.chunk_rows)
        padded = rows
        if rows.shape != (whole * self.chunk_rows, *self._shard[1:]):
            padded = np.zeros((whole * self.chunk_rows, *self._shard[1:]), self.dtype)
            padded[(slice(len(rows)), *map(slice, self.column.shape))] = rows
        chunks = []
        for index in np.ndindex(whole, *self._chunks_across()):
            place = (slice(i * n, (i + 1) * n) for i, n in zip(index, self._chunk, strict=True))
            data = np.ascontiguousarray(padded[tuple(place)])
            # Zarr's codecs do the same, a hundred times slower for small chunks
            chunks.append(bytes(self._encoder.encode(data) if self._encoder else data.tobytes()))
        return chunks

    def shard(self, chunks: Sequence[bytes]) -> list[bytes]:
        """A shard of encoded chunks, C order, in parts; those that follow are missing.

        The format of Zarr's ``sharding_indexed`` codec, index at the end: offset and size of
        each chunk as little-endian uint64, all bits set for a missing one, then its CRC-32C.
        """
        count = self.shard_rows // self.chunk_rows * math.prod(self._chunks_across())
        index = np.full((count, 2), 2**64 - 1, "<u8")
        sizes = np.array([len(chunk) for chunk in chunks], "<u8")
        index[: len(chunks), 0] = np.cumsum(sizes) - sizes
        index[: len(chunks), 1] = sizes
        tail = index.tobytes()
        return [*chunks, tail, google_crc32c.value(tail).to_bytes(4, "little")]

    def _chunks_across(self) -> list[int]:
        return [n // c for n, c in zip(self._shard[1:], self._chunk[1:], strict=True)]

    def key(self, shard: int) -> str:
        """Key of a shard below the array's."""
        return ".".join(["c", str(shard), *("0" for _ in self.column.shape)])

    @property
    def empty(self) -> bool:
        """Whether a row has no element, so that there is nothing to store."""
        return 0 in self.column.shape


def shard_rows(layout: Layout) -> dict[str, int]:
    """Rows of a shard for each column."""
    rates = {c.name: c.rate * c.row_bytes for c in layout.columns if c.rate is not None}
    total = sum(rates.values()) or 1.0
    rows = {}
    for column in layout.columns:
        share = rates[column.name] / total if column.name in rates else 0.0
        target = max(int(SHARDS_BYTES * share), SMALLEST_SHARD)
        if column.rate is None:
            target = EVENTS_SHARD
        most = max(target // max(column.row_bytes, 1), 1)
        chunk = chunk_shape(column.shape, column.dtype.itemsize, CHUNK_BYTES)[0]
        rows[column.name] = max(most // chunk, 1) * chunk if most >= chunk else most
    return rows


class Metadata:
    """The ``zarr.json`` of the group and of each node in it, for given numbers of rows.

    Parameters
    ----------
    grids : mapping of str to Grid
    fills : mapping of str to scalar
        Fill values that aren't zero.
    attrs : mapping
        Attributes of the group.
    """

    def __init__(
        self, grids: Mapping[str, Grid], fills: Mapping[str, Any], attrs: Mapping[str, Any]
    ) -> None:
        objects: dict[str, Buffer] = {}
        root = zarr.create_group(zarr.storage.MemoryStore(objects), attributes=dict(attrs))
        for name in grids:
            if (parent := name.rpartition("/")[0]) and parent not in root:
                root.create_group(parent)
        for name, grid in grids.items():
            grid.create(root, name, 0, fills.get(name, grid.dtype.type(0)))
        found = {key: json.loads(value.to_bytes()) for key, value in objects.items()}
        self._group = found.pop("zarr.json")
        self._nodes = {key.removesuffix("/zarr.json"): node for key, node in found.items()}

    def root(self, rows: Mapping[str, int]) -> bytes:
        """The group's ``zarr.json``, which holds the metadata of all nodes."""
        nodes = {
            name: node if node["node_type"] == "array" else {**node, **_consolidated({})}
            for name, node in self._sized(rows).items()
        }
        return _json({**self._group, **_consolidated(nodes)})

    def nodes(self, rows: Mapping[str, int]) -> dict[str, bytes]:
        """Key and content of the ``zarr.json`` of each node below the group."""
        return {f"{name}/zarr.json": _json(node) for name, node in self._sized(rows).items()}

    def _sized(self, rows: Mapping[str, int]) -> dict[str, Any]:
        for name, count in rows.items():
            self._nodes[name]["shape"][0] = count
        return self._nodes


def _consolidated(nodes: Mapping[str, Any]) -> dict[str, Any]:
    """Consolidated metadata as zarr-python writes and reads it."""
    inline = {"kind": "inline", "must_understand": False, "metadata": nodes}
    return {"consolidated_metadata": inline}


def _json(value: Any) -> bytes:
    return json.dumps(value).encode()


def _codecs(compression: str, level: int, itemsize: int) -> tuple[Any, Any]:
    """Zarr's codec, for the metadata, and numcodecs' encoder of the same format."""
    if compression == "zstd":
        # with a checksum of its own: any reader notices damage
        return (
            zarr.codecs.ZstdCodec(level=level, checksum=True),
            numcodecs.Zstd(level=level, checksum=True),
        )
    if compression == "gzip":
        return zarr.codecs.GzipCodec(level=level), numcodecs.GZip(level=level)
    if compression == "blosc":
        return (
            zarr.codecs.BloscCodec(cname="zstd", clevel=level, typesize=itemsize),
            numcodecs.Blosc(cname="zstd", clevel=level),
        )
    return None, None
