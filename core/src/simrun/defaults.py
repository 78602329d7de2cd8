"""The core's own plugin: the npy sink and the default of each hook that decides."""

from __future__ import annotations

from collections.abc import Iterable

from simrun import recovery
from simrun.adapter import Simulation
from simrun.hookspecs import hookimpl
from simrun.records import Chunk, Decision, MemoryEstimate, OOMEvent, ProbeBlock
from simrun.sink import SinkEntry


@hookimpl
def simrun_sinks() -> Iterable[SinkEntry]:
    """The npy sink."""
    return [
        SinkEntry(
            "npy",
            "one memory-mappable .npy file per probe, readable while it grows (default)",
            "simrun.sinks.npy:NpySink",
            "simrun.sinks.npy:NpyReader",
        )
    ]


@hookimpl(trylast=True)
def simrun_estimate_memory(simulation: Simulation, steps: int) -> MemoryEstimate:
    """Ask the adapter."""
    return simulation.estimate_memory(steps)


@hookimpl(trylast=True)
def simrun_execute_chunk(simulation: Simulation, chunk: Chunk) -> ProbeBlock:
    """Ask the adapter."""
    return simulation.execute(chunk)


@hookimpl(trylast=True)
def simrun_recover_oom(event: OOMEvent) -> Decision:
    """Halve, then fall back, then stop."""
    return recovery.decide(event)
