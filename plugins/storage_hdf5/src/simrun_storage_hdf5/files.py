"""The two forms of ``probes.h5``: a virtual file over segments, and one ordinary file.

Both have the same content: the columns of `simrun.layout` with dimension scales (those of
netCDF-4, so that xarray finds dimensions and coordinates) and attributes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import h5py

from simrun.durability import replace, write_atomic
from simrun.layout import EVENT, Column, Layout, chunk_shape
from simrun.rows import Rows
from simrun_storage_hdf5.record import SEGMENTS, rows_of
from simrun_storage_hdf5.segment import Segment, sync_path

CHUNK_BYTES = 1 << 20
READ_AHEAD_BYTES = 64 << 10  # HDF5's sieve buffer, unless a program asks for another
COPIED = ".newest"  # group of the virtual file
COPY_BYTES = 4 << 20
# netCDF-4's mark of a dimension without coordinate values
NO_VARIABLE = "This is a netCDF dimension but not a netCDF variable. %10d"


def write_virtual(
    path: Path,
    layout: Layout,
    record: Mapping[str, Any],
    tail: Segment | None,
    attrs: Mapping[str, Any],
    durable: bool,
) -> None:
    """Write a file of virtual datasets over what a record names, atomically.

    It names those files relative to itself, so that the folder can be moved. The last rows of
    ``tail``, the segment that still grows, are copied into it: HDF5 reads ahead, and a process
    that keeps one virtual file open while it reads from the next would see what it read ahead
    then, rows that weren't there yet.
    """
    parts = [record["final"], *record["segments"]] if record["final"] else record["segments"]

    def fill(file: h5py.File, column: Column) -> h5py.Dataset:
        shape = (rows_of(record, column.name), *column.shape)
        if 0 in shape:
            return file.create_dataset(column.name, shape, column.dtype)
        pieces = [(f"{SEGMENTS}/{p['name']}", column.name, p["rows"][column.name]) for p in parts]
        if tail is not None:
            rows = tail.rows[column.name]
            safe = max(rows * column.row_bytes - READ_AHEAD_BYTES, 0) // column.row_bytes
            copied = f"{COPIED}/{column.name}"
            file.create_dataset(copied, data=tail.array(column).read(safe, rows))
            pieces[-1:] = [(*pieces[-1][:2], safe), (".", copied, rows - safe)]
        return _virtual(file, column, shape, [piece for piece in pieces if piece[2]])

    # made in memory: it is a few kilobytes
    with h5py.File(path.name, "w", driver="core", backing_store=False) as file:
        _fill(file, layout, attrs, fill)
        file.flush()
        image = file.id.get_file_image()
    write_atomic(path, image, durable)


def _virtual(
    file: h5py.File,
    column: Column,
    shape: tuple[int, ...],
    pieces: Sequence[tuple[str, str, int]],
) -> h5py.Dataset:
    """A virtual dataset of pieces (file, dataset in it, rows), one after the other."""
    # h5py's VirtualLayout does the same ten times slower, and this is done at each commit
    space = h5py.h5s.create_simple(shape)
    mapping = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    origin, begin = (0,) * len(shape), 0
    for where, name, count in pieces:
        block = (count, *column.shape)
        space.select_hyperslab((begin, *origin[1:]), block)
        # a selection, not the whole: then HDF5 takes the source's extent as it is
        source = h5py.h5s.create_simple((count + 1, *column.shape))
        source.select_hyperslab(origin, block)
        mapping.set_virtual(space, where.encode(), name.encode(), source)
        begin += count
    space.select_all()
    links = h5py.h5p.create(h5py.h5p.LINK_CREATE)
    links.set_create_intermediate_group(True)
    kind = h5py.h5t.py_create(column.dtype, logical=True)
    name = column.name.encode()
    return h5py.Dataset(h5py.h5d.create(file.id, name, kind, space, mapping, links))


def write_ordinary(
    path: Path,
    layout: Layout,
    source: Callable[[str], Rows],
    attrs: Mapping[str, Any],
    durable: bool,
    dataset_options: Mapping[str, Any],
) -> None:
    """Copy columns into one self-contained file, atomically, in bounded memory.

    The values of events are mostly all the same: that value becomes the dataset's fill value,
    and a chunk that holds nothing else isn't stored.
    """

    def fill(file: h5py.File, column: Column) -> h5py.Dataset:
        rows = source(column.name)
        if 0 in rows.shape:
            return file.create_dataset(column.name, rows.shape, column.dtype)
        chunk = chunk_shape(column.shape, column.dtype.itemsize, CHUNK_BYTES)
        chunk = (min(chunk[0], len(rows)), *chunk[1:])
        fill_value = rows.read(0, 1)[0] if column.name.endswith("/value") else None
        dataset = file.create_dataset(
            column.name, rows.shape, column.dtype,
            chunks=chunk, fillvalue=fill_value, **dataset_options,
        )  # fmt: skip
        for start, stop in _slabs(len(rows), chunk[0], column.row_bytes):
            data = rows.read(start, stop)
            if fill_value is None or data.tobytes() != fill_value.tobytes() * len(data):
                dataset[start:stop] = data
        return dataset

    temporary = path.with_name(path.name + ".new")
    with h5py.File(temporary, "w") as file:
        _fill(file, layout, attrs, fill)
    if durable:
        sync_path(temporary)
    replace(temporary, path, durable)


def _fill(
    file: h5py.File,
    layout: Layout,
    attrs: Mapping[str, Any],
    fill: Callable[[h5py.File, Column], h5py.Dataset],
) -> None:
    datasets = {column.name: fill(file, column) for column in layout.columns}
    for column in layout.columns:
        _describe(datasets[column.name], column.attrs)
    _attach_scales(file, layout, datasets)
    _describe(file, attrs)


def _slabs(rows: int, chunk_rows: int, row_bytes: int) -> Iterator[tuple[int, int]]:
    """Ranges of whole chunks, of about `COPY_BYTES` each."""
    each = max(COPY_BYTES // (chunk_rows * row_bytes), 1) * chunk_rows
    for start in range(0, rows, each):
        yield start, min(start + each, rows)


def _attach_scales(file: h5py.File, layout: Layout, datasets: Mapping[str, h5py.Dataset]) -> None:
    sizes = dict(layout.sizes)
    for column in layout.columns:
        if column.dims == (EVENT,):
            sizes[_scale_name(column, EVENT)] = len(datasets[column.name])
    scales = {}
    for dim, size in sizes.items():
        scales[dim] = file.create_dataset(dim, (size,), ">f4")  # never written: takes no space
        scales[dim].make_scale(NO_VARIABLE % size)
    for column in layout.columns:
        if column.dims == (column.name,):
            scales[column.name] = datasets[column.name]
            scales[column.name].make_scale(column.name)
    for column in layout.columns:
        for axis, dim in enumerate(column.dims):
            if dim != column.name:
                scale = scales[_scale_name(column, dim)]
                h5py.h5ds.attach_scale(datasets[column.name].id, scale.id, axis)


def _scale_name(column: Column, dim: str) -> str:
    return f"{column.name.rpartition('/')[0]}/{EVENT}" if dim == EVENT else dim


def _describe(target: h5py.HLObject, attrs: Mapping[str, Any]) -> None:
    for name, value in attrs.items():
        if value is None:
            continue
        plain = isinstance(value, str | bool | int | float)
        target.attrs[name] = value if plain else json.dumps(value)
