"""The whole extension surface: every hook that a plugin may implement.

A plugin is a module named by an entry point of the group ``simrun``. It implements hooks
with ``simrun.hookimpl`` and lists its arguments without defaults (pluggy would never pass a
defaulted one). Unknown hook names and defaulted arguments are refused at registration.

``docs/hooks.md`` is made of these docstrings (``scripts/hook_reference.py``); its examples run.
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
    """Offer simulators.

    Called once, of every plugin that a run selects, before the config is validated; also by
    ``simrun plugins``. Import nothing heavy here: an entry names its parts as ``"module:name"``.

    Raises
    ------
    PluginError
        Whatever is raised here, or anything returned that is no `AdapterEntry`, is reported with
        the plugin's distribution. Only the run that selects it fails.

    Examples
    --------
    >>> @simrun.hookimpl
    ... def simrun_adapters():
    ...     return [AdapterEntry("walk", "a random walk", "walk:Settings", "walk:Walk")]
    """


@hookspec
def simrun_sinks() -> Iterable[SinkEntry]:  # type: ignore[empty-body]
    """Offer storage back ends.

    Called as `simrun_adapters` is.

    Raises
    ------
    PluginError
        As for `simrun_adapters`.

    Examples
    --------
    >>> @simrun.hookimpl
    ... def simrun_sinks():
    ...     return [SinkEntry("text", "a line a step", "lab_text:Sink", "lab_text:Reader")]
    """


@hookspec(firstresult=True)
def simrun_estimate_memory(simulation: Simulation, steps: int) -> MemoryEstimate:  # type: ignore[empty-body]
    """Estimate what a chunk of ``steps`` steps needs; None leaves it to the next plugin.

    Called by the planner once or twice before a run, when the model is open. By default the
    adapter is asked (`Simulation.estimate_memory`). The core adds the process and the writer.

    Raises
    ------
    Exception
        Anything; it ends the run before it starts.

    Examples
    --------
    >>> class Cautious:
    ...     @simrun.hookimpl
    ...     def simrun_estimate_memory(self, simulation, steps):
    ...         estimate = simulation.estimate_memory(steps)
    ...         return estimate.with_item(MemoryItem("my lab's margin", "host", fixed=50 << 20))
    """


@hookspec(firstresult=True)
def simrun_execute_chunk(simulation: Simulation, chunk: Chunk) -> ProbeBlock:  # type: ignore[empty-body]
    """Execute a chunk; None leaves it to the next plugin. Wrappers are welcome.

    Called by the engine for every chunk, and again with a shorter one after memory ran out. By
    default the adapter is asked (`Simulation.execute`).

    Raises
    ------
    Exception
        Anything is handled as if the adapter had raised it: an out-of-memory error is recovered
        from (the simulation is restored first), any other ends the run with exit code 4.

    Examples
    --------
    >>> class Watch:
    ...     seconds = 0.0
    ...
    ...     @simrun.hookimpl(wrapper=True)
    ...     def simrun_execute_chunk(self, simulation, chunk):
    ...         begin = time.perf_counter()
    ...         block = yield
    ...         self.seconds += time.perf_counter() - begin
    ...         return block
    """


@hookspec(firstresult=True)
def simrun_recover_oom(event: OOMEvent) -> Decision:  # type: ignore[empty-body]
    """Decide what to do when memory has run out; None leaves it to the next plugin.

    Called by the engine after the failed chunk has been undone and its memory given back. By
    default `simrun.recovery.decide`: halve down to a floor, then the fallback device, then stop.
    A decision that can't be carried out, and a `Retry` after 60 failures of one step, stops the
    run too, resumable.

    Raises
    ------
    Exception
        Anything; it ends the run. To stop resumably return `Abort` instead.

    Examples
    --------
    >>> class Careful:
    ...     @simrun.hookimpl
    ...     def simrun_recover_oom(self, event):
    ...         steps = event.chunk.steps // 4
    ...         return Retry(steps) if steps else Abort("not even one step fits")
    """


@hookspec
def simrun_run_started(record: RunStarted) -> None:
    """The plan is made and the output opened; the first chunk follows.

    Called by the session, of every plugin, each isolated from the others.

    Raises
    ------
    Exception
        Reported once, in the run's summary; the run goes on.

    Examples
    --------
    >>> class Announce:
    ...     @simrun.hookimpl
    ...     def simrun_run_started(self, record):
    ...         print(f"{record.plan.end:,} steps into {record.output}")
    """


@hookspec
def simrun_chunk_committed(record: ChunkCommitted) -> None:
    """Everything up to ``record.step`` is safe. Called often: return quickly.

    Called by the engine, in its own thread, after commits: about once a second,
    more seldom where a commit takes long.

    Raises
    ------
    Exception
        As for `simrun_run_started`.

    Examples
    --------
    >>> class Ticker:
    ...     @simrun.hookimpl
    ...     def simrun_chunk_committed(self, record):
    ...         print(f"{record.step / record.end:.0%}")
    """


@hookspec
def simrun_run_ended(record: RunEnded) -> None:
    """The run is over, finished or not.

    Called by the session, once, also when the run failed.

    Raises
    ------
    Exception
        As for `simrun_run_started`.

    Examples
    --------
    >>> class Mail:
    ...     @simrun.hookimpl
    ...     def simrun_run_ended(self, record):
    ...         print(f"to: lab@example.org\\n\\n{record.status} at step {record.step}")
    """
