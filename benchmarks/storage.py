"""Raw write rate of the sinks against `dd` with the same fsyncs, and what a commit costs.

``python benchmarks/storage.py [FOLDER]``: in rounds, so that what else the machine does falls on
each alike; medians, and ratios to dd of the same round. The samples are random bytes (nothing
compresses), the disk is that of FOLDER (default: the current one).
"""

from __future__ import annotations

import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from simrun.records import ProbeBlock, ProbeSpec
from simrun.sink import SinkRequest
from simrun.sinks.npy import NpySink
from simrun_storage_hdf5.sink import Hdf5Sink
from simrun_storage_zarr.sink import ZarrSink

NEURONS = 4096
STEPS = 2048  # of a block: 32 MiB
BLOCKS = 16  # each with a commit
ROUNDS = 4

PROBE = ProbeSpec("voltage", (NEURONS,), np.dtype("f4"), ("neuron",))
RANDOM = np.random.default_rng(0).integers(0, 256, STEPS * NEURONS * 4, dtype=np.uint8)
MIB = RANDOM.nbytes >> 20
BLOCK = RANDOM.view("f4").reshape(STEPS, NEURONS)
SINKS = {
    "npy": (NpySink, {}),
    "hdf5": (Hdf5Sink, {"compression": "none"}),
    "zarr": (ZarrSink, {"compression": "none"}),
}


def dd(folder: Path, durable: bool) -> tuple[float, float]:
    """Seconds of dd for the same bytes, synced after each block where durable; and of processor."""
    source = folder / "source"  # read again and again: it stays in the page cache
    source.write_bytes(RANDOM.tobytes())
    flags = ["conv=notrunc,fsync"] if durable else ["conv=notrunc"]
    seconds, cpu = 0.0, children_cpu()
    for block in range(BLOCKS):
        begin = time.perf_counter()
        done = subprocess.run(
            # blocks of a MiB suit dd best: they stay in the processor's cache
            ["dd", f"if={source}", f"of={folder / 'copy'}", "bs=1M", f"count={MIB}",
             f"seek={block * MIB}", *flags],
            check=True, capture_output=True, text=True, env={"LC_ALL": "C"},
        )  # fmt: skip
        # dd's own time, without the start of the process
        own = [part for part in done.stderr.split(",") if part.strip().endswith(" s")]
        seconds += float(own[0].split()[0]) if own else time.perf_counter() - begin
    return seconds, children_cpu() - cpu


def children_cpu() -> float:
    """Processor seconds of all processes that were started and have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def sink(folder: Path, name: str, durable: bool) -> tuple[float, float]:
    """Seconds to append and commit all blocks; and of processor."""
    factory, options = SINKS[name]
    store = factory(SinkRequest(folder, (PROBE,), 0.001, durable, options=options))
    begin, cpu = time.perf_counter(), time.process_time()
    for number in range(BLOCKS):
        store.append(ProbeBlock(number * STEPS, (number + 1) * STEPS, {"voltage": BLOCK}))
        store.commit()
    seconds, cpu = time.perf_counter() - begin, time.process_time() - cpu
    store.close()
    return seconds, cpu


def small_commit(folder: Path, name: str, probes: int) -> float:
    """Median seconds of a commit of 100 samples of each of so many small probes."""
    factory, options = SINKS[name]
    specs = tuple(ProbeSpec(f"p{i}", (64,), np.dtype("f4"), ("neuron",)) for i in range(probes))
    store = factory(SinkRequest(folder, specs, 0.001, False, options=options))
    times = []
    for number in range(20):
        data = {spec.name: BLOCK[:100, :64] for spec in specs}
        store.append(ProbeBlock(number * 100, (number + 1) * 100, data))
        begin = time.perf_counter()
        store.commit()
        times.append(time.perf_counter() - begin)
    store.close()
    return statistics.median(times)


def main(place: Path) -> None:
    """Print the figures."""
    print(f"{BLOCKS} blocks of {RANDOM.nbytes >> 20} MiB, a commit after each; {ROUNDS} rounds")
    for durable in (False, True):
        rates: dict[str, list[float]] = {name: [] for name in ("dd", *SINKS)}
        work: dict[str, list[float]] = {name: [] for name in rates}
        for _ in range(ROUNDS):
            for name, found in rates.items():
                folder = Path(tempfile.mkdtemp(dir=place))
                seconds, cpu = dd(folder, durable) if name == "dd" else sink(folder, name, durable)
                found.append(BLOCKS * RANDOM.nbytes / seconds / 1e6)
                work[name].append(cpu)
                shutil.rmtree(folder)
                os.sync()  # the next starts with nothing left to write
        print(f"durability: {'power' if durable else 'process'}")
        for name, found in rates.items():
            ratio = statistics.median(a / b for a, b in zip(found, rates["dd"], strict=True))
            cpu = statistics.median(work[name])
            print(
                f"  {name:5} {statistics.median(found):8.0f} MB/s   {ratio:5.0%} of dd"
                f"   {cpu:5.2f} s of processor"
            )
    print("a small commit, without fsync, ms:")
    for name in SINKS:
        row = []
        for probes in (1, 4, 16):
            folder = Path(tempfile.mkdtemp(dir=place))
            row.append(f"{1e3 * small_commit(folder, name, probes):6.1f} ({probes} probes)")
            shutil.rmtree(folder)
        print(f"  {name:5} {'  '.join(row)}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "."))
