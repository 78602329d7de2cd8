"""simrun against nengo-dl's run_steps and nengo's own simulator, in one run.

    python benchmarks/nengo_dl_speed.py [--rounds 5] [NETWORK …]

Medians of interleaved rounds, and of the ratios within a round; tables go to the standard output.
`simrun` is the engine's whole loop with its samples on disk; `run_steps` keeps them in memory and
writes nothing.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
import tempfile
import time
import warnings
from dataclasses import replace
from pathlib import Path

import networks

from simrun import memory, planning
from simrun.adapter import OpenRequest
from simrun.engine import Engine
from simrun.interrupts import StopRequest
from simrun.journal import Journal, new_manifest
from simrun.plugins import select
from simrun.sink import SinkRequest
from simrun.sinks.npy import NpySink
from simrun.writer import Writer
from simrun_nengo_dl.compat import load_nengo_dl
from simrun_nengo_dl.opening import open_simulation
from simrun_nengo_dl.settings import Settings

STEPS = {"small": 1000, "medium": 1000, "large": 1000}
CHUNKS = {"small": (100, 10, 1), "medium": (100, 10, 1), "large": (100, 10, 1)}
FEW = {"small": 100, "medium": 50, "large": 20}  # steps that are timed one by one, and scaled
HERE = Path(__file__).parent


class Peer:
    """nengo-dl's or nengo's own simulator."""

    def __init__(self, simulator, **arguments):
        self.simulator, self.arguments = simulator, arguments

    def time(self, chunk, steps):
        begin = time.perf_counter()
        for _ in range(steps // chunk):
            self.simulator.run_steps(chunk, **self.arguments)
        seconds = time.perf_counter() - begin
        for probe in self.simulator.model.probes:  # or its memory grows from round to round
            store = getattr(self.simulator, "_probe_outputs", self.simulator.model.params)
            store[probe].clear()
        return seconds


class Ours:
    """The engine's loop over an open simulation, from its present state."""

    def __init__(self, name, compile):
        self.selection = select("nengo_dl", "npy")
        self.hook = self.selection.manager.hook
        self.compiled = 0
        self.simulation = open_simulation(
            OpenRequest(f"networks.py:{name}", {}, HERE, 1, (), Settings(compile=compile))
        )

    def plan(self, steps, chunk=None):
        simulation = self.simulation
        preferred = planning.preferred_chunk(simulation.probes, 1)
        # XLA compiles for the length that is estimated
        estimate = simulation.estimate_memory(chunk or preferred)
        estimate = planning.complete(
            estimate, simulation.probes, memory.resident(), self.selection.sink
        )
        budget = memory.find_budget(None, None, "CPU", True)
        end = simulation.step + steps
        return planning.make_plan(
            simulation.step, end, estimate, budget, simulation.probes, 1, chunk, None
        )

    def time(self, chunk, steps):
        """Seconds of the engine's loop over ``steps`` steps, compiled before."""
        chunk = min(chunk or self.plan(steps).chunk, steps)
        if chunk != self.compiled:
            self._run(chunk, chunk)
            self.compiled = chunk
        return self._run(chunk, steps)

    def _run(self, chunk, steps):
        simulation = self.simulation
        plan = replace(self.plan(steps, chunk), chunk=chunk)
        folder = Path(tempfile.mkdtemp())
        try:
            (folder / "data").mkdir()
            sink = NpySink(SinkRequest(folder / "data", simulation.probes, 0.001, False))
            manifest = new_manifest(identity={}, end=plan.end) | {"step": simulation.step}
            writer = Writer(sink, Journal(folder, manifest, False), simulation.probes, plan.end)
            stop = StopRequest()
            engine = Engine(
                simulation, plan, writer, self.hook, stop, lambda _: None, lambda: None, 1e9
            )
            begin = time.perf_counter()
            engine.run()
            seconds = time.perf_counter() - begin
            writer.close()
        finally:
            shutil.rmtree(folder)
        return seconds


class Lengths:
    """simrun's path for each chunk length: XLA compiles for one at a time."""

    def __init__(self, name, compile):
        self.name, self.compile, self.opened = name, compile, {}

    def time(self, chunk, steps):
        if chunk is None:
            chunk = next(iter(self.opened.values())).plan(steps).chunk
        shared = chunk if self.compile != "graph" else 0
        if shared not in self.opened:
            self.opened[shared] = Ours(self.name, self.compile)
        return self.opened[shared].time(chunk, steps)


def compare(name, rounds):
    import nengo

    nengo_dl = load_nengo_dl()
    steps = STEPS[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = getattr(networks, name)()
        with theirs:
            nengo_dl.configure_settings(inference_only=True)
        runners = {
            "run_steps": Peer(
                nengo_dl.Simulator(theirs, progress_bar=False, seed=1), progress_bar=False
            ),
            "nengo": Peer(
                nengo.Simulator(getattr(networks, name)(), progress_bar=False), progress_bar=False
            ),
            "simrun graph": Lengths(name, "graph"),
            "simrun xla": Lengths(name, "xla"),
        }
    few = FEW[name]
    chunks = [steps, *CHUNKS[name]]
    times: dict[tuple[str, object], list[float]] = {}
    for turn in range(rounds + 1):
        print(f"{name}: round {turn} of {rounds}", file=sys.stderr, flush=True)
        for label, runner in runners.items():
            lengths = [steps] if label == "nengo" else chunks
            for chunk in [*lengths, None] if label.startswith("simrun") else lengths:
                timed = few if chunk == 1 else steps
                seconds = runner.time(chunk, timed) * steps / timed
                if turn:  # the first round warms up
                    times.setdefault((label, chunk), []).append(seconds)

    def ratio(one, other):
        """Median over the rounds of how many times longer ``one`` took."""
        pairs = zip(times[one], times[other], strict=True)
        return statistics.median(a / b for a, b in pairs)

    def cell(label, chunk):
        if (label, chunk) not in times:
            return "–"
        peer = ("run_steps", chunk if ("run_steps", chunk) in times else steps)
        median = statistics.median(times[label, chunk])
        return f"{median:.3f} s ({ratio(peer, (label, chunk)):.1f}×)"

    print(f"\n## {name}: {steps} steps, {rounds} rounds\n")
    print("| chunk | nengo-dl run_steps | nengo | simrun graph | simrun xla |")
    print("|---|---|---|---|---|")
    for chunk in [*chunks, None]:
        row = "one piece" if chunk == steps else "as planned" if chunk is None else str(chunk)
        print(f"| {row} |", " | ".join(cell(label, chunk) for label in runners), "|")
    print()
    for label in ("simrun graph", "simrun xla"):
        against = ", ".join(
            f"{chunk or 'as planned'}: {ratio((label, chunk), (label, steps)):.2f}"
            for chunk in [*chunks[1:], None]
        )
        print(f"{label} against its own one piece: {against}")
    print(f"simrun xla {ratio(('nengo', steps), ('simrun xla', None)):.1f}× nengo, as planned")
    fixed = {
        label: statistics.median(
            (a - b) / (steps / chunks[-1] - 1) * 1e3
            for a, b in zip(times[label, chunks[-1]], times[label, steps], strict=True)
        )
        for label in ("run_steps", "simrun graph", "simrun xla")
    }
    print("Fixed cost of a chunk boundary:", ", ".join(f"{k} {v:.2f} ms" for k, v in fixed.items()))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*", default=list(STEPS))
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    print("Times, and in brackets how many times faster than run_steps at the same chunk length")
    print("(`as planned`: than run_steps in one piece).")
    for each in given.names or list(STEPS):
        compare(each, given.rounds)
