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
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from simrun.checksums import Checksums, finished
from simrun.durability import sync_directory, sync_file, write_atomic
from simrun.errors import ConfigError, DamagedError
from simrun.records import ProbeBlock, ProbeSpec
from simrun.sink import Reader, Sink, SinkRequest

FORMAT = 2
READ_BYTES = 16 << 20
RESTORE = "restore the file from a backup, or start anew with another output.path"


class NpySink(Sink):
    """Writes each probe to ``NAME.npy``.

    The record of a commit holds for each probe its file, with the file's size, the number of
    samples and their checksums (see `simrun.checksums`).

    Raises
    ------
    ConfigError
        A probe is to be stored as events.
    DamagedError
        What ``request.committed`` names is missing, too short, or differs in its last bytes
        (`NpyReader.verify` reads all).
    """

    def __init__(self, request: SinkRequest) -> None:
        for probe in request.probes:
            if probe.attrs.get("format") == "events":
                raise ConfigError(
                    f"output.sink: npy stores no events, as probe {probe.name!r} asks for",
                    "choose `sink: hdf5` or `sink: zarr`, or leave out `format: events`",
                )
        self._durable = request.durable
        files = _files(request.committed)
        self._columns = [
            _Column(request.directory, probe, files.get(probe.name)) for probe in request.probes
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
        files = {column.name: column.commit(self._durable) for column in self._columns}
        return {"format": FORMAT, "files": files}

    def close(self) -> None:
        """Close the files."""
        for column in self._columns:
            column.close()


class NpyReader(Reader):
    """Memory maps of the committed samples."""

    def __init__(self, request: SinkRequest) -> None:
        self._directory = request.directory
        self._files = _files(request.committed)
        self._probes = {probe.name: probe for probe in request.probes}

    def array(self, name: str) -> np.ndarray[Any, Any]:
        """A read-only memory map of a probe's committed samples."""
        probe, samples = self._probes[name], self._files[name]["samples"]
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
        for name, record in self._files.items():
            try:
                data = self.array(name)
            except DamagedError as error:
                problems.append(error.message)
                continue
            found, begin = Checksums(), 0
            rows = max(READ_BYTES // max(self._probes[name].sample_bytes, 1), 1)
            for start in range(0, len(data), rows):
                found.update(_bytes(data[start : start + rows]))
            for wanted, read in zip(record["checksums"], found.record(), strict=True):
                if wanted != read:
                    path, end = _path(self._directory, self._probes[name]), begin + wanted["bytes"]
                    problems.append(
                        f"{path}: checksum differs (bytes {begin} to {end} of the data)"
                    )
                begin += wanted["bytes"]
        return problems


class _Column:
    """One growing ``.npy`` file."""

    def __init__(
        self, directory: Path, probe: ProbeSpec, committed: Mapping[str, Any] | None
    ) -> None:
        self.name = probe.name
        self._probe = probe
        path = _path(directory, probe)
        if committed and not path.is_file():
            raise DamagedError(f"{path} is missing", RESTORE)
        self._samples = committed["samples"] if committed else 0
        header = _header(probe, self._samples)
        # unbuffered: a block is one large write
        self._file: BinaryIO = path.open("r+b" if committed else "w+b", buffering=0)
        self._end = len(header) + self._samples * probe.sample_bytes
        missing = self._end - os.fstat(self._file.fileno()).st_size
        if committed and missing > 0:
            raise DamagedError(f"{path}: {missing} committed bytes are missing", RESTORE)
        self._checksums = self._checked(committed["checksums"] if committed else [])
        if missing:  # nothing is written where nothing changes
            self._file.truncate(self._end)
        if os.pread(self._file.fileno(), len(header), 0) != header:
            self._write(header, 0)
        self._file.seek(self._end)

    def _checked(self, record: list[dict[str, Any]]) -> Checksums:
        """The checksums to go on with; the last range is read again, and compared."""
        checksums = Checksums(finished(record))
        begin = self._end - sum(each["bytes"] for each in record[len(finished(record)) :])
        for data in _read(self._file.fileno(), begin, self._end):
            checksums.update(data)
        if checksums.record() != record:
            raise DamagedError(
                f"{self._file.name}: the last samples aren't what was committed (checksum)", RESTORE
            )
        return checksums

    def append(self, samples: np.ndarray[Any, Any]) -> None:
        # the bytes of the probe's own type, whatever the byte order that an adapter delivers
        data = _bytes(np.asarray(samples, self._probe.dtype))
        self._checksums.update(data)
        self._samples += len(samples)
        self._end += len(data)
        while data:
            data = data[self._file.write(data) :]

    def commit(self, durable: bool) -> dict[str, Any]:
        if durable:
            sync_file(self._file.fileno())
        self._write(_header(self._probe, self._samples), 0)
        if durable:
            sync_file(self._file.fileno())
        return {
            "file": f"{self.name}.npy",
            "bytes": self._end,
            "samples": self._samples,
            "checksums": self._checksums.record(),
        }

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


def _files(record: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """What a commit's record says of each probe; of none where there is no commit."""
    if not record:
        return {}
    if record.get("format") != FORMAT:
        raise DamagedError(
            f"the samples are in format {record.get('format')!r} of the npy sink, this is format "
            f"{FORMAT}",
            "use the version of simrun that wrote them",
        )
    files: Mapping[str, Any] = record["files"]
    return files


def _read(descriptor: int, begin: int, end: int) -> Iterator[memoryview]:
    """The bytes of a range of a file."""
    while begin < end and (data := os.pread(descriptor, min(READ_BYTES, end - begin), begin)):
        yield memoryview(data)
        begin += len(data)


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
