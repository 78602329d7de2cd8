"""The whole extension surface: every hook that a plugin may implement.

A plugin is a module named by an entry point of the group ``simrun``. It implements hooks
with ``simrun.hookimpl`` and lists its arguments without defaults (pluggy would never pass a
defaulted one). Unknown hook names and defaulted arguments are refused at registration.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import pluggy

if TYPE_CHECKING:
    from simrun.adapter import AdapterEntry, Simulation
    from simrun.records import (
        Chunk,
        ChunkCommitted,
        Decision,
        MemoryEstimate,
        OOMEvent,
        ProbeBlock,
        RunEnded,
        RunStarted,
    )
    from simrun.sink import SinkEntry

#: A plugin's module may say ``SIMRUN_HOOKS = 1``, the version that it was written for: a simrun
#: with other hooks then refuses it by name, in place of calling it wrongly.
VERSION = 1

hookspec = pluggy.HookspecMarker("simrun")
hookimpl = pluggy.HookimplMarker("simrun")


@hookspec
def simrun_adapters() -> Iterable[AdapterEntry]:  # type: ignore[empty-body]
    """Offer simulators. Called when the plugin is selected; import nothing heavy here."""


@hookspec
def simrun_sinks() -> Iterable[SinkEntry]:  # type: ignore[empty-body]
    """Offer storage back ends. Called when the plugin is selected."""


@hookspec(firstresult=True)
def simrun_estimate_memory(simulation: Simulation, steps: int) -> MemoryEstimate:  # type: ignore[empty-body]
    """Estimate what a chunk of ``steps`` steps needs; None leaves it to the next plugin.

    By default the adapter is asked (`Simulation.estimate_memory`).
    """


@hookspec(firstresult=True)
def simrun_execute_chunk(simulation: Simulation, chunk: Chunk) -> ProbeBlock:  # type: ignore[empty-body]
    """Execute a chunk; None leaves it to the next plugin. Wrappers are welcome.

    By default the adapter is asked (`Simulation.execute`). An error is handled as if the
    adapter had raised it.
    """


@hookspec(firstresult=True)
def simrun_recover_oom(event: OOMEvent) -> Decision:  # type: ignore[empty-body]
    """Decide what to do when memory has run out; None leaves it to the next plugin.

    By default `simrun.recovery.decide`: halve down to a floor, then the fallback device,
    then stop. The simulation has been restored to the start of the chunk already.
    """


@hookspec
def simrun_run_started(record: RunStarted) -> None:
    """The plan is made and the output opened; the first chunk follows."""


@hookspec
def simrun_chunk_committed(record: ChunkCommitted) -> None:
    """Everything up to ``record.step`` is safe. Called often: return quickly."""


@hookspec
def simrun_run_ended(record: RunEnded) -> None:
    """The run is over, finished or not. An error here or in the other two observers is
    reported once and never harms the run."""
