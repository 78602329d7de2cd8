"""What streaming samples to a sink costs a simulation, and what checkpoints cost it.

    python benchmarks/streaming.py [--sink hdf5] [--gigabytes 4] [--probed 10000] [FOLDER]

One run of the large network, whose sink stores the samples of every other stretch of some
seconds and drops those of the stretches between, so that what else the machine does falls on
both alike. Two figures: the median, over the pairs of neighbouring stretches, of the time a step
takes with storing over the time without; and, which other work on the machine doesn't touch, the
processor time that the sink takes in its thread over that of the whole process meanwhile.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
import time
from pathlib import Path

import simrun
from simrun.adapter import resolve
from simrun.engine import Engine
from simrun.plugins import select
from simrun.sink import Sink, SinkEntry
from simrun.units import format_bytes
from simrun.writer import Writer

HERE = Path(__file__).parent
STRETCH = 4.0  # seconds


class Stretches:
    """Which stretch the run is in, and how many steps each has done in how many seconds."""

    def __init__(self):
        self.storing = False
        self.done = []  # (storing, seconds per step)
        self.stored = 0
        self.finish_seconds = float("nan")  # until the run has ended
        self.begin = None
        self.sink_cpu = self.cpu = 0.0  # seconds, of the storing stretches

    @simrun.hookimpl(wrapper=True)
    def simrun_execute_chunk(self, simulation, chunk):
        now = time.perf_counter()
        if self.begin is None:
            self.begin, self.first, self.cpu_begin = now, chunk.start, time.process_time()
        elif now - self.begin > STRETCH:
            self.done.append((self.storing, (now - self.begin) / (chunk.start - self.first)))
            if self.storing:
                self.cpu += time.process_time() - self.cpu_begin
            # the next chunk overlaps with the storing of the last: it counts for neither
            self.storing, self.begin = not self.storing, None
        return (yield)


class EveryOther(Sink):
    """Hands the blocks of the storing stretches to a sink, and drops the others."""

    def __init__(self, sink, stretches):
        self.sink, self.stretches = sink, stretches

    def append(self, block):
        if self.stretches.storing:
            self.stretches.stored += block.nbytes
            begin = time.thread_time()
            self.sink.append(block)
            self.stretches.sink_cpu += time.thread_time() - begin

    def commit(self):
        begin = time.thread_time()
        record = self.sink.commit()
        if self.stretches.storing:
            self.stretches.sink_cpu += time.thread_time() - begin
        return record

    def finish(self):
        begin = time.perf_counter()
        record = self.sink.finish()
        self.stretches.finish_seconds = time.perf_counter() - begin
        return record

    def tidy(self):
        self.sink.tidy()

    def close(self):
        self.sink.close()


def timed(owner, name, spent):
    """Add the seconds that a method takes to a list."""
    original = getattr(owner, name)

    def wrapped(self, *args, **kwargs):
        begin = time.perf_counter()
        try:
            return original(self, *args, **kwargs)
        finally:
            spent.append(time.perf_counter() - begin)

    setattr(owner, name, wrapped)


def main(arguments):
    stretches, folder = Stretches(), Path(tempfile.mkdtemp(dir=arguments.folder))
    inner = select(None, arguments.sink).sink

    class Plugin:
        @simrun.hookimpl
        def simrun_sinks(self):
            def sink(request):
                return EveryOther(resolve(inner.sink)(request), stretches)

            return [SinkEntry("every_other", "", sink, inner.reader, inner.config_model)]

    engine, writer = [], []
    timed(Engine, "_checkpoint_if_due", engine)
    timed(Writer, "_commit", writer)
    per_step = 4 * arguments.probed
    begin = time.perf_counter()
    output = {"path": str(folder / "run"), "sink": "every_other"}
    if arguments.compression is not None:
        output["compression"] = arguments.compression
    config = {
        "plugin": "nengo_dl",
        "model": f"{HERE / 'networks.py'}:large",
        "model_args": {"probed": arguments.probed},
        "steps": int(2 * arguments.gigabytes * 1e9 / per_step),
        "output": output,
    }
    ended = simrun.run(config, plugins=[Plugin(), stretches])
    seconds = time.perf_counter() - begin
    shutil.rmtree(folder)
    ratios = [
        (one if storing else other) / (other if storing else one)
        for (storing, one), (_, other) in zip(stretches.done, stretches.done[1:], strict=False)
    ]
    without = statistics.median(s for storing, s in stretches.done if not storing)
    print(
        f"{arguments.sink}: {format_bytes(stretches.stored)} stored of {ended.step} steps, "
        f"{arguments.probed} neurons probed, {1e3 * without:.2f} ms a step without storing\n"
        f"storing costs {statistics.median(ratios) - 1:+.2%} "
        f"(median of {len(ratios)} pairs; quartiles "
        f"{', '.join(f'{q - 1:+.2%}' for q in statistics.quantiles(ratios, n=4)[::2])})\n"
        f"the sink's share of the processor time: {stretches.sink_cpu / stretches.cpu:.2%} "
        f"({stretches.sink_cpu:.2f} s of {stretches.cpu:.0f} s)\n"
        f"checkpoints: {sum(engine):.2f} s of the loop's {seconds:.0f} s "
        f"({sum(engine) / seconds:.2%}), in the writer's thread with all commits "
        f"{sum(writer):.2f} s\n"
        f"the end (one file of all, compressed): {stretches.finish_seconds:.1f} s"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", nargs="?", default=".")
    parser.add_argument("--sink", default="hdf5")
    parser.add_argument("--compression")
    parser.add_argument("--gigabytes", type=float, default=4.0)
    parser.add_argument("--probed", type=int, default=10_000)
    main(parser.parse_args())
