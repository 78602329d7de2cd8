"""The Python interface: `plan`, `run` and `open_run`. Wiring only."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from simrun import export as exporting
from simrun import memory, models, planning, provenance
from simrun.adapter import AdapterEntry, OpenRequest, Simulation, resolve
from simrun.config import RunConfig, located, plugin_names, validate
from simrun.document import Document, load_document
from simrun.engine import Engine
from simrun.errors import (
    ConfigError,
    ResumableError,
    SimrunError,
    SimulationError,
    SinkError,
)
from simrun.folder import RunFolder
from simrun.interrupts import StopRequest, stop_on_signals
from simrun.journal import Journal
from simrun.plugins import Selection, notify, select
from simrun.reading import Run
from simrun.records import ChunkCommitted, Plan, ProbeSpec, RunEnded, RunStarted
from simrun.runlog import RunLog
from simrun.sink import Reader, Sink, SinkRequest
from simrun.supervisor import show_life
from simrun.units import parse_bytes, parse_steps
from simrun.writer import Writer

Config = str | Path | Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class PlanReport:
    """What `plan` returns: the plan and the facts that its table shows."""

    plan: Plan
    probes: tuple[ProbeSpec, ...]
    dt: float | None
    notes: tuple[str, ...]
    output: Path
    device: str


def plan(
    config: Config,
    *,
    overrides: Iterable[str] = (),
    plugin: str | None = None,
    budget: str | int | None = None,
    output: str | Path | None = None,
    steps: int | None = None,
    plugins: Sequence[Any] = (),
) -> PlanReport:
    """Say what a run will need, without running it. The model is built; nothing is written.

    Parameters
    ----------
    config : path or mapping
        A YAML file, or its content as a dict (relative paths then start from the current
        folder).
    overrides : iterable of str
        ``"key.path=value"``, as ``--set`` on the command line.
    plugin : str, optional
        Adapter; overrides the config's.
    budget : str or int, optional
        Memory budget (``"8GiB"`` or bytes) of the simulation's device, which on a CPU is the
        host.
    output : path, optional
        The run's folder; overrides the config's.
    steps : int, optional
        Overrides the config's steps or duration.
    plugins : sequence
        Further plugins, as modules or objects.

    Raises
    ------
    ConfigError, PluginError, SimulationError
    BudgetError
        The run can't fit the budget or the disk.
    """
    setup = _configure(config, overrides, plugin, budget, output, steps, plugins)
    with _opened(setup) as simulation:
        made = _make_plan(setup, simulation, setup.end(simulation))
        return PlanReport(
            made,
            simulation.probes,
            simulation.dt,
            simulation.notes,
            setup.output,
            simulation.device,
        )


def check(
    config: Config,
    *,
    overrides: Iterable[str] = (),
    plugin: str | None = None,
    budget: str | int | None = None,
    output: str | Path | None = None,
    steps: int | None = None,
    plugins: Sequence[Any] = (),
) -> Path:
    """Check everything that can be checked without building the model.

    Parameters and errors are those of `plan`.

    Returns
    -------
    pathlib.Path
        The run's folder.
    """
    setup = _configure(config, overrides, plugin, budget, output, steps, plugins)
    setup.folder().check()
    return setup.output


def run(
    config: Config,
    *,
    overrides: Iterable[str] = (),
    plugin: str | None = None,
    budget: str | int | None = None,
    output: str | Path | None = None,
    steps: int | None = None,
    plugins: Sequence[Any] = (),
    max_hours: float | None = None,
    observers: Sequence[Any] = (),
    chunk_limit: int | None = None,
) -> RunEnded:
    """Run a simulation, or go on with one that was begun in the same folder.

    Parameters
    ----------
    config, overrides, plugin, budget, output, steps, plugins
        As for `plan`.
    max_hours : float, optional
        Stop, resumable, after the chunk in which this time has passed.
    observers : sequence
        Objects or modules that implement the hooks ``simrun_run_started``,
        ``simrun_chunk_committed`` or ``simrun_run_ended``.
    chunk_limit : int, optional
        Plan no longer chunks than this (the supervisor asks for it after a kill for memory).

    Returns
    -------
    RunEnded
        ``status`` is ``"done"``, or ``"stopped"`` after a signal or the time limit.

    Raises
    ------
    ConfigError, PluginError, SimulationError
    BudgetError
        The run can't fit the budget or the disk; nothing was started.
    OutOfMemoryError, SinkError
        Stopped early; what was committed is safe, and the same call goes on from there.
    """
    begin = time.monotonic()
    setup = _configure(config, overrides, plugin, budget, output, steps, (*plugins, *observers))
    folder = setup.folder()
    folder.check()
    stop = StopRequest(None if max_hours is None else max_hours * 3600)
    with stop_on_signals(stop), _opened(setup) as simulation:
        end = setup.end(simulation)
        with folder.locked():
            journal = folder.journal(simulation.probes, simulation.dt, end)
            if journal.step >= end and journal.manifest["status"] == "done":
                return _nothing_to_do(setup, simulation, journal, begin)
            _resume(simulation, journal)
            made = _make_plan(setup, simulation, end)
            if chunk_limit is not None and chunk_limit < made.chunk:
                limit = planning.align(chunk_limit, made.alignment)
                made = planning.with_chunk(made, limit)
            return _execute(setup, simulation, journal, made, stop, begin)


def open_run(path: str | Path, *, plugins: Sequence[Any] = ()) -> Run:
    """Open a run's folder for reading: finished, stopped, or still running.

    Parameters
    ----------
    path : path
        The folder that ``output.path`` named.
    plugins : sequence
        Modules that offer the run's sink, where it isn't installed as a plugin.

    Raises
    ------
    ConfigError
        Not a run, or a damaged one.
    PluginError
        The plugin of the run's sink is missing.
    """

    def open_reader(name: str, request: SinkRequest) -> Reader:
        selection = select(None, name, extra=plugins)
        return resolve(selection.sink.reader)(request)  # type: ignore[no-any-return]

    return Run(Path(path), open_reader)


def export(path: str | Path, target: str | Path, probes: Sequence[str] = ()) -> None:
    """Convert a run's committed samples into one file, by a stream.

    Parameters
    ----------
    path : path
        The run's folder.
    target : path
        A new file; its ending says what: ``.h5``, ``.zarr``, ``.npz`` or ``.csv``.
    probes : sequence of str
        Left out: all.

    Raises
    ------
    ConfigError
        Not a run, no such probe, or an ending that nothing writes.
    OutputExistsError
        The target exists.
    PluginError
        The plugin for that ending isn't installed.
    """
    target = Path(target)
    exporting.check_target(target)
    name = exporting.SINKS.get(target.suffix)
    sink = None if name is None else select(None, name).sink
    with open_run(path) as opened:
        try:
            chosen = [opened.probe(each) for each in probes] or list(opened.probes)
        except KeyError as error:
            raise ConfigError(str(error.args[0])) from None
        exporting.export(opened, target, chosen, sink)


@dataclass(frozen=True, slots=True)
class _Setup:
    """Everything known before the simulation is opened."""

    document: Document
    config: RunConfig
    selection: Selection
    adapter: AdapterEntry
    budget: int | None

    @property
    def output(self) -> Path:
        return self.config.output.path

    def end(self, simulation: Simulation) -> int:
        """The run's last step."""
        if self.config.steps is not None:
            return self.config.steps
        if simulation.dt is None or self.config.duration is None:
            raise ConfigError(
                "duration: the steps of this simulation have no duration", "give `steps` instead"
            )
        try:
            return round(parse_steps(self.config.duration, simulation.dt))
        except ValueError as error:
            raise ConfigError(f"duration: {error}", "give a longer one, or `steps`") from None

    def folder(self) -> RunFolder:
        """The run's folder, with what must not change from one process to the next."""
        source = models.fingerprint(self.config.model, self.document.base)
        return RunFolder(
            self.output,
            {**self.config.identity(), "source of the model (sha256)": source},
            {"name": self.selection.sink.name, "options": self.config.sink_options()},
            self.config.output.durability == "power",
        )


def _configure(
    config: Config,
    overrides: Iterable[str],
    plugin: str | None,
    budget: str | int | None,
    output: str | Path | None,
    steps: int | None,
    plugins: Sequence[Any],
) -> _Setup:
    document = load_document(config, overrides, plugin=plugin, output=output, steps=steps)
    try:
        limit = None if budget is None else parse_bytes(budget)
    except ValueError as error:
        raise ConfigError(f"--budget: {error}") from None
    names = plugin_names(document)
    selection = select(names.plugin, names.sink, names.observers, extra=plugins)
    assert selection.adapter is not None
    validated = validate(document, selection.adapter, selection.sink)
    return _Setup(document, validated, selection, selection.adapter, limit)


def _open(adapter: AdapterEntry, request: OpenRequest) -> Simulation:
    factory = resolve(adapter.factory)
    try:
        return factory(request)  # type: ignore[no-any-return]
    except SimrunError:
        raise
    except (Exception, SystemExit) as error:
        what = f"{adapter.name}, opening the model,"
        raise SimulationError(models.blame(what, error)) from error


@contextmanager
def _opened(setup: _Setup) -> Iterator[Simulation]:
    config = setup.config
    request = OpenRequest(
        config.model,
        config.model_args,
        setup.document.base,
        config.seed,
        config.probes,
        config.settings,
    )
    with located(setup.document):
        simulation = _open(setup.adapter, request)
    try:
        with located(setup.document):
            yield simulation
    finally:
        simulation.close()


def _make_plan(setup: _Setup, simulation: Simulation, end: int) -> Plan:
    config, hook = setup.config, setup.selection.manager.hook

    def attempt(steps: int) -> Plan:
        """A plan by the estimate for chunks of so many steps."""
        estimate = hook.simrun_estimate_memory(simulation=simulation, steps=steps)
        memory.trim()
        estimate = planning.complete(estimate, simulation.probes, memory.resident())
        host, device = config.memory.host, config.memory.device
        if setup.budget is not None:
            host, device = (setup.budget, device) if estimate.shared else (host, setup.budget)
        return planning.make_plan(
            simulation.step,
            end,
            estimate,
            memory.find_budget(host, device, simulation.device, estimate.shared),
            simulation.probes,
            simulation.alignment,
            config.chunk,
            memory.disk_free(setup.output),
        )

    preferred = planning.preferred_chunk(simulation.probes, simulation.alignment)
    typical = min(config.chunk or preferred, preferred, end - simulation.step)
    made = attempt(max(typical, 1))
    # an estimate may hold for its own length of chunk only
    return made if made.chunk == typical else attempt(made.chunk)


def _resume(simulation: Simulation, journal: Journal) -> None:
    """Put the simulation where the journal's newest intact state was saved, if there is one."""
    state = journal.load_state()
    if state is None:
        return
    step, arrays = state
    simulation.load_state(arrays)
    if simulation.step != step:
        raise SimulationError(f"the state of step {step} loads as step {simulation.step}")


def _nothing_to_do(
    setup: _Setup, simulation: Simulation, journal: Journal, begin: float
) -> RunEnded:
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
    )


def _execute(
    setup: _Setup,
    simulation: Simulation,
    journal: Journal,
    made: Plan,
    stop: StopRequest,
    begin: float,
) -> RunEnded:
    """Open the output, run the engine, tell the observers."""
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
    writer = Writer(sink, journal)
    problems: dict[str, str] = {}

    def tell(hook: str, record: Any) -> None:
        for name, error in notify(manager, hook, record):
            problems.setdefault(name, f"plugin {name} failed in {hook}: {error}")

    def report(record: ChunkCommitted) -> None:
        tell("simrun_chunk_committed", record)

    started = RunStarted(made, simulation.probes, simulation.dt, str(directory), simulation.notes)
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
    return ended("done", "") if finished else ended("stopped", stop.reason)


def _open_sink(
    setup: _Setup, simulation: Simulation, journal: Journal, facts: Mapping[str, Any]
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
    return resolve(setup.selection.sink.sink)(request)  # type: ignore[no-any-return]


def _facts(setup: _Setup, simulation: Simulation) -> dict[str, Any]:
    """Where the samples come from."""
    return provenance.collect(setup.document.base, simulation.device, simulation.provenance())


def _write_facts(setup: _Setup, facts: Mapping[str, Any]) -> None:
    """The config as it was understood, and the provenance: an entry for each process."""
    import yaml

    resolved = yaml.safe_dump(setup.config.resolved(), sort_keys=False, allow_unicode=True)
    (setup.output / "config.resolved.yaml").write_text(resolved, encoding="utf-8")
    path = setup.output / "provenance.json"
    try:
        before = json.loads(path.read_bytes())
    except (OSError, ValueError):
        before = []
    path.write_text(json.dumps([*before, facts], indent=1), encoding="utf-8")
