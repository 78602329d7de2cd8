"""Converts a run into one file, by a stream: memory doesn't depend on the run's length."""

from __future__ import annotations

import csv
import shutil
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from simrun.adapter import resolve
from simrun.errors import ConfigError, OutputExistsError
from simrun.reading import Run
from simrun.records import ProbeBlock, ProbeSpec
from simrun.sampling import sample_count
from simrun.sink import SinkEntry, SinkRequest

BLOCK_BYTES = 8 << 20
SINKS = {".h5": "hdf5", ".hdf5": "hdf5", ".zarr": "zarr"}
SUFFIXES = (*SINKS, ".npz", ".csv")


def check_target(target: Path) -> None:
    """Refuse a file that is there, and an ending that nothing writes."""
    if target.suffix not in SUFFIXES:
        raise ConfigError(
            f"{target}: unknown ending {target.suffix!r}", f"allowed: {', '.join(SUFFIXES)}"
        )
    if not target.parent.is_dir():
        raise ConfigError(f"{target}: there is no folder {target.parent}", "make it first")
    if target.exists():
        raise OutputExistsError(f"{target} exists", "choose another name; nothing is overwritten")


def convert(run: Run, target: Path, probes: Sequence[ProbeSpec], sink: SinkEntry | None) -> None:
    """Write a run's committed samples into a new file.

    Parameters
    ----------
    run : Run
    target : pathlib.Path
        ``.npz`` (an array and its times for each probe) or ``.csv`` (a column for each value), or
        what ``sink`` writes. It appears only when it is complete.
    probes : sequence of ProbeSpec
    sink : SinkEntry or None
        For the endings of `SINKS`.
    """
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}.") as folder:
        if sink is not None:
            made = _by_sink(run, Path(folder), probes, sink)
        else:
            made = Path(folder) / "made"
            (_npz if target.suffix == ".npz" else _csv)(run, made, probes)
        shutil.move(made, target)


def _by_sink(run: Run, folder: Path, probes: Sequence[ProbeSpec], entry: SinkEntry) -> Path:
    request = SinkRequest(folder, tuple(probes), run.dt, durable=False)
    sink = resolve(entry.sink)(request)
    try:
        per_step = sum(probe.bytes_per_step for probe in probes)
        steps = max(int(BLOCK_BYTES / per_step), 1) if per_step else run.step
        for start in range(0, run.step, steps):
            sink.append(_block(run, probes, start, min(start + steps, run.step)))
            sink.commit()
        sink.finish()
        sink.tidy()
    finally:
        sink.close()
    return folder / entry.product


def _block(run: Run, probes: Sequence[ProbeSpec], start: int, stop: int) -> ProbeBlock:
    samples = {}
    for probe in probes:
        first = sample_count(probe.period, 0, start, run.end)
        count = sample_count(probe.period, start, stop, run.end)
        samples[probe.name] = np.array(run[probe.name][first : first + count])
    return ProbeBlock(start, stop, samples)


def _rows(run: Run, probe: ProbeSpec, row_bytes: int) -> Iterator[np.ndarray[Any, Any]]:
    """Blocks of a probe's samples; ``row_bytes`` of all that is read side by side with it."""
    rows = max(BLOCK_BYTES // max(row_bytes, 1), 1)
    for start in range(0, run.samples(probe.name), rows):
        # opened anew each time: the pages of a memory map count as this process's until it goes
        yield np.array(run[probe.name][start : start + rows])


def _npz(run: Run, path: Path, probes: Sequence[ProbeSpec]) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for probe in probes:
            shape = (run.samples(probe.name), *probe.shape)
            description = {
                "descr": np.lib.format.dtype_to_descr(probe.dtype),
                "fortran_order": False,
                "shape": shape,
            }
            with archive.open(f"{probe.name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array_header_1_0(member, description)
                for rows in _rows(run, probe, probe.sample_bytes):
                    member.write(np.ascontiguousarray(rows).tobytes())
            with archive.open(f"{probe.name}_time.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, run.times(probe.name))


def _csv(run: Run, path: Path, probes: Sequence[ProbeSpec]) -> None:
    if len({probe.period for probe in probes}) > 1:
        by_period: dict[float, list[str]] = {}
        for probe in probes:
            by_period.setdefault(probe.period, []).append(probe.name)
        kinds = "; ".join(", ".join(names) for names in by_period.values())
        raise ConfigError(
            f"a CSV file has one time column, and these are sampled at different times: {kinds}",
            "choose probes of one period by --probe, or another format",
        )
    times = run.times(probes[0].name)
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["time", *(c for probe in probes for c in _columns(probe))])
        position = 0
        row_bytes = sum(probe.sample_bytes for probe in probes)
        for parts in zip(*(_rows(run, probe, row_bytes) for probe in probes), strict=True):
            flat = np.concatenate([part.reshape(len(part), -1) for part in parts], axis=1)
            for row in flat:
                writer.writerow([repr(float(times[position])), *row.tolist()])
                position += 1


def _columns(probe: ProbeSpec) -> list[str]:
    if not probe.shape:
        return [probe.name]
    return [f"{probe.name}[{','.join(map(str, index))}]" for index in np.ndindex(*probe.shape)]
