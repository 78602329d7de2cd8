"""The default sink: one ``.npy`` file per probe, memory-mappable while it grows.

A file's header names the committed samples only: data first, then the header is rewritten in
place (numpy pads it for that), so that a reader never sees a sample that isn't there. Beside
them ``probes.json`` names shapes, types, dt and sampling periods.
"""

from __future__ import annotations

import io
import json
import math
import os
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from simrun.durability import sync_directory, sync_file, write_atomic
from simrun.errors import ConfigError, DamagedError
from simrun.records import ProbeBlock, ProbeSpec
from simrun.sink import Reader, Sink, SinkRequest

RESTORE = "restore the file from a backup, or start anew with another output.path"


class NpySink(Sink):
    """Writes each probe to ``NAME.npy``.

    The record of a commit holds for each probe the number of samples and the CRC-32 of their
    bytes, which goes on from commit to commit.
    """

    def __init__(self, request: SinkRequest) -> None:
        for probe in request.probes:
            if probe.attrs.get("format") == "events":
                raise ConfigError(
                    f"output.sink: npy stores no events, as probe {probe.name!r} asks for",
                    "choose `sink: hdf5` or `sink: zarr`, or leave out `format: events`",
                )
        self._durable = request.durable
        committed = request.committed or {}
        self._columns = [
            _Column(request.directory, probe, committed.get(probe.name)) for probe in request.probes
        ]
        description = json.dumps(describe(request.probes, request.dt), indent=1)
        write_atomic(request.directory / "probes.json", description.encode(), self._durable)
        if self._durable:
            sync_directory(request.directory)

    def append(self, block: ProbeBlock) -> None:
        """Write the block's samples behind those before."""
        for column in self._columns:
            column.append(block.samples[column.name])

    def commit(self) -> Mapping[str, Any]:
        """Make the samples safe, then let the headers name them."""
        return {column.name: column.commit(self._durable) for column in self._columns}

    def close(self) -> None:
        """Close the files."""
        for column in self._columns:
            column.close()


class NpyReader(Reader):
    """Memory maps of the committed samples."""

    def __init__(self, request: SinkRequest) -> None:
        self._directory = request.directory
        self._committed = request.committed or {}
        self._probes = {probe.name: probe for probe in request.probes}

    def array(self, name: str) -> np.ndarray[Any, Any]:
        """A read-only memory map of a probe's committed samples."""
        probe, samples = self._probes[name], self._committed[name]["samples"]
        path = _path(self._directory, probe)
        shape = (samples, *probe.shape)
        if 0 in shape:
            return np.empty(shape, probe.dtype)
        offset = len(_header(probe, samples))
        needed = offset + samples * probe.sample_bytes
        if not path.exists() or path.stat().st_size < needed:
            raise DamagedError(f"{path}: shorter than the manifest says ({needed} bytes)", RESTORE)
        return np.memmap(path, probe.dtype, "r", offset, shape)

    def verify(self) -> list[str]:
        """Problems of the committed files: read whole and compared with the checksums."""
        problems = []
        for name, record in self._committed.items():
            try:
                data = self.array(name)
            except DamagedError as error:
                problems.append(error.message)
                continue
            checksum, rows = 0, max((16 << 20) // max(self._probes[name].sample_bytes, 1), 1)
            for start in range(0, len(data), rows):
                checksum = zlib.crc32(_bytes(data[start : start + rows]), checksum)
            if checksum != record["crc32"]:
                problems.append(f"{_path(self._directory, self._probes[name])}: checksum differs")
        return problems


class _Column:
    """One growing ``.npy`` file."""

    def __init__(
        self, directory: Path, probe: ProbeSpec, committed: Mapping[str, int] | None
    ) -> None:
        self.name = probe.name
        self._probe = probe
        path = _path(directory, probe)
        if committed and not path.is_file():
            raise DamagedError(f"{path} is missing", RESTORE)
        self._samples = committed["samples"] if committed else 0
        self._checksum = committed["crc32"] if committed else 0
        header = _header(probe, self._samples)
        # unbuffered: a block is one large write
        self._file: BinaryIO = path.open("r+b" if committed else "w+b", buffering=0)
        end = len(header) + self._samples * probe.sample_bytes
        missing = end - os.fstat(self._file.fileno()).st_size
        if committed and missing > 0:
            raise DamagedError(f"{path}: {missing} committed bytes are missing", RESTORE)
        if missing:  # nothing is written where nothing changes
            self._file.truncate(end)
        if self._file.read(len(header)) != header:
            self._write(header, 0)
        self._file.seek(end)

    def append(self, samples: np.ndarray[Any, Any]) -> None:
        # the bytes of the probe's own type, whatever the byte order that an adapter delivers
        data = _bytes(np.asarray(samples, self._probe.dtype))
        self._checksum = zlib.crc32(data, self._checksum)
        self._samples += len(samples)
        while data:
            data = data[self._file.write(data) :]

    def commit(self, durable: bool) -> dict[str, int]:
        if durable:
            sync_file(self._file.fileno())
        self._write(_header(self._probe, self._samples), 0)
        if durable:
            sync_file(self._file.fileno())
        return {"samples": self._samples, "crc32": self._checksum}

    def close(self) -> None:
        self._file.close()

    def _write(self, data: bytes, offset: int) -> None:
        if os.pwrite(self._file.fileno(), data, offset) != len(data):
            raise OSError(f"short write to {self._file.name}")


def describe(probes: tuple[ProbeSpec, ...], dt: float | None) -> dict[str, Any]:
    """The content of ``probes.json``: what a reader without simrun needs."""
    return {
        "dt_seconds": dt,
        "recorded_steps": "steps n with n % period < 1, counted from 1; time = n * dt",
        "probes": {
            probe.name: {
                "file": f"{probe.name}.npy",
                "sample_shape": probe.shape,
                "dims": ("time", *probe.dims),
                "dtype": probe.dtype.str,
                "period_steps": None if math.isinf(probe.period) else probe.period,
                "reduce": probe.reduce,
                **probe.attrs,
            }
            for probe in probes
        },
    }


def _path(directory: Path, probe: ProbeSpec) -> Path:
    return directory / f"{probe.name}.npy"


def _header(probe: ProbeSpec, samples: int) -> bytes:
    """The file's header; numpy pads it such that its length doesn't depend on the samples."""
    buffer = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        buffer,
        {
            "descr": np.lib.format.dtype_to_descr(probe.dtype),
            "fortran_order": False,
            "shape": (samples, *probe.shape),
        },
    )
    return buffer.getvalue()


def _bytes(samples: np.ndarray[Any, Any]) -> memoryview:
    """The samples' bytes, without a copy where they are contiguous."""
    return np.ascontiguousarray(samples).reshape(-1).view(np.uint8).data
