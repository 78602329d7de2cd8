"""One process's part of a run: open the output, drive the engine, tell the observers."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any, Literal

from simrun import document, provenance
from simrun.adapter import Simulation, resolve
from simrun.engine import Engine
from simrun.errors import ResumableError, SimulationError, SinkError
from simrun.interrupts import StopRequest
from simrun.journal import Journal, show_life
from simrun.plugins import notify
from simrun.records import ChunkCommitted, Plan, RunEnded, RunStarted
from simrun.runlog import RunLog
from simrun.setup import Setup
from simrun.sink import Sink, SinkRequest
from simrun.writer import Writer


def resume(simulation: Simulation, journal: Journal) -> None:
    """Put the simulation where the journal's newest intact state was saved, if there is one."""
    state = journal.load_state()
    if state is None:
        return
    step, arrays = state
    simulation.load_state(arrays)
    if simulation.step != step:
        raise SimulationError(f"the state of step {step} loads as step {simulation.step}")


def nothing_to_do(setup: Setup, simulation: Simulation, journal: Journal, begin: float) -> RunEnded:
    """Report a run that is done, without executing anything."""
    # opening the sink removes what a kill at the very end may have left
    _open_sink(setup, simulation, journal, _facts(setup, simulation)).close()
    return RunEnded(
        "done",
        "it was done before",
        journal.step,
        journal.step,
        time.monotonic() - begin,
        0,
        0,
        0,
        0,
        None,
        str(journal.directory),
        metrics=journal.manifest.get("metrics", {}),
    )


def execute(
    setup: Setup,
    simulation: Simulation,
    journal: Journal,
    made: Plan,
    stop: StopRequest,
    begin: float,
    notes: tuple[str, ...] = (),
) -> RunEnded:
    """Open the output, run the engine, tell the observers; ``notes`` stand beside the adapter's."""
    directory, manager = setup.output, setup.selection.manager
    log = RunLog(directory / "run.log")
    manager.register(log, "simrun.runlog")
    try:
        facts = _facts(setup, simulation)
        _write_facts(setup, facts)
        sink = _open_sink(setup, simulation, journal, facts)
        journal.manifest["chunk"] = made.chunk
        journal.write()
    except OSError as error:
        raise SinkError(f"can't write to {directory}: {error}", "make room or mend it") from error
    writer = Writer(sink, journal, simulation.probes, made.end)
    problems: dict[str, str] = {}

    def tell(hook: str, record: Any) -> None:
        for name, error in notify(manager, hook, record):
            what = f"{type(error).__name__}: {error}"
            problems.setdefault(name, f"plugin {name} failed in {hook}: {what}")

    def report(record: ChunkCommitted) -> None:
        tell("simrun_chunk_committed", record)

    notes = (*simulation.notes, *notes)
    started = RunStarted(made, simulation.probes, simulation.dt, str(directory), notes)
    tell("simrun_run_started", started)
    engine = Engine(
        simulation,
        made,
        writer,
        manager.hook,
        stop,
        report,
        lambda: show_life(directory),
        setup.config.checkpoint.seconds,
        setup.config.checkpoint.every_bytes,
    )

    def ended(status: Literal["done", "stopped", "failed"], reason: str) -> RunEnded:
        record = RunEnded(
            status,
            reason,
            journal.step,
            made.end,
            time.monotonic() - begin,
            writer.written,
            engine.predicted_host,
            engine.measured_host,
            made.peak_device,
            engine.measured_device,
            str(directory),
            tuple(problems.values()),
            dict(simulation.metrics()),
        )
        tell("simrun_run_ended", record)
        return record

    try:
        finished = engine.run()
    except BaseException as error:
        resumable = isinstance(error, ResumableError | KeyboardInterrupt)
        if not resumable:
            log.trace(error)
            writer.checkpoint(None, "failed")
            writer.drain()
        ended("stopped" if resumable else "failed", str(error) or type(error).__name__)
        raise
    finally:
        writer.close()
    if metrics := dict(simulation.metrics()):
        journal.manifest["metrics"] = metrics
        journal.write()
    return ended("done", "") if finished else ended("stopped", stop.reason)


def _open_sink(
    setup: Setup, simulation: Simulation, journal: Journal, facts: Mapping[str, Any]
) -> Sink:
    data = setup.output / "data"
    data.mkdir(exist_ok=True)
    request = SinkRequest(
        data,
        simulation.probes,
        simulation.dt,
        journal.durable,
        journal.manifest["data"],
        setup.config.sink_options(),
        {"provenance": facts},
    )
    sink: Sink = resolve(setup.selection.sink.sink)(request)
    return sink


def _facts(setup: Setup, simulation: Simulation) -> dict[str, Any]:
    """Where the samples come from."""
    return provenance.collect(setup.document.base, simulation.device, simulation.provenance())


def _write_facts(setup: Setup, facts: Mapping[str, Any]) -> None:
    """The config as it was understood, and the provenance: an entry for each process."""
    resolved = document.dump(setup.config.resolved())
    (setup.output / "config.resolved.yaml").write_text(resolved, encoding="utf-8")
    path = setup.output / "provenance.json"
    try:
        before = json.loads(path.read_bytes())
    except (OSError, ValueError):
        before = []
    path.write_text(json.dumps([*before, facts], indent=1), encoding="utf-8")
