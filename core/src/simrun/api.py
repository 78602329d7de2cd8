"""The Python interface: `plan`, `run` and `open_run`. Wiring only."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from simrun import conversion, models, planning, session
from simrun.adapter import resolve
from simrun.errors import BudgetError, ConfigError
from simrun.interrupts import StopRequest, stop_on_signals
from simrun.journal import probe_to_json
from simrun.plugins import select
from simrun.reading import Run
from simrun.records import Plan, ProbeSpec, RunEnded
from simrun.setup import Config, configure, make_plan, opened
from simrun.sink import Reader, SinkRequest


@dataclass(frozen=True, slots=True)
class PlanReport:
    """What `plan` returns: the plan and the facts that its table shows."""

    plan: Plan
    probes: tuple[ProbeSpec, ...]
    dt: float | None
    notes: tuple[str, ...]
    output: Path
    device: str

    def to_json(self) -> dict[str, Any]:
        """Everything as JSON values; sizes in bytes, lengths in steps."""
        plan, estimate = self.plan, self.plan.estimate
        budget = plan.budget
        items = [
            {"name": i.name, "where": i.where, "fixed": i.fixed, "per_step": i.per_step}
            for i in estimate.items
        ]
        return {
            "output": str(self.output),
            "device": self.device,
            "dt": self.dt,
            "start": plan.start,
            "end": plan.end,
            "chunk": plan.chunk,
            "reason": plan.reason,
            "notes": list(self.notes),
            "peak": {"host": plan.peak_host, "device": plan.peak_device},
            "budget": {"host": budget.host, "device": budget.device},
            "memory": items,
            "samples": plan.output_bytes,
            "disk_free": plan.disk_free,
            "probes": [probe_to_json(probe) for probe in self.probes],
        }


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
        The run can't fit the budget or the disk; its ``report`` is the plan that doesn't.
    """
    setup = configure(
        config,
        overrides=overrides,
        plugin=plugin,
        budget=budget,
        output=output,
        steps=steps,
        plugins=plugins,
    )
    with opened(setup) as simulation:

        def report(made: Plan) -> PlanReport:
            return PlanReport(
                made,
                simulation.probes,
                simulation.dt,
                simulation.notes,
                setup.output,
                simulation.device,
            )

        try:
            return report(make_plan(setup, simulation, setup.end(simulation)))
        except BudgetError as error:
            if error.plan is not None:
                error.report = report(error.plan)
            raise


def check(config: Config, **options: Any) -> Path:
    """Check everything that can be checked without building the model.

    Parameters and errors are those of `plan`.

    Returns
    -------
    pathlib.Path
        The run's folder.
    """
    setup = configure(config, **options)
    setup.folder().check()
    return setup.output


def extended(config: Config, extend: str | int, **options: Any) -> int:
    """The last step of a run that is to be longer by ``extend``; see `run`.

    Parameters and errors are those of `plan`.
    """
    if options.get("steps") is not None:
        raise ConfigError("extend: given beside steps", "keep one of them: steps counts from 0")
    return configure(config, **options).folder().extended(extend)


def run(
    config: Config,
    *,
    overrides: Iterable[str] = (),
    plugin: str | None = None,
    budget: str | int | None = None,
    output: str | Path | None = None,
    steps: int | None = None,
    extend: str | int | None = None,
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
    extend : int or str, optional
        Go on with a finished run for so many more steps, or such a duration of model time; in
        place of ``steps``. An unfinished run goes on to the end that it was begun with, so that
        the same call resumes an extension that was interrupted.
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
    options: dict[str, Any] = {
        "overrides": tuple(overrides),
        "plugin": plugin,
        "budget": budget,
        "output": output,
        "steps": steps,
        "plugins": (*plugins, *observers),
    }
    if extend is not None:
        options["steps"] = extended(config, extend, **options)
    setup = configure(config, **options)
    folder = setup.folder()
    folder.check()
    stop = StopRequest(None if max_hours is None else max_hours * 3600)
    with stop_on_signals(stop), opened(setup) as simulation:
        end = setup.end(simulation)
        with folder.locked() as notes:
            sources = models.sources(setup.document.base, simulation.sources)
            journal = folder.journal(simulation.probes, simulation.dt, end, sources)
            if journal.step >= end and journal.manifest["status"] == "done":
                return session.nothing_to_do(setup, simulation, journal, begin)
            session.resume(simulation, journal)
            made = make_plan(setup, simulation, end)
            if chunk_limit is not None and chunk_limit < made.chunk:
                limit = planning.align(chunk_limit, made.alignment)
                made = planning.with_chunk(made, limit)
            return session.execute(setup, simulation, journal, made, stop, begin, notes)


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
        reader: Reader = resolve(selection.sink.reader)(request)
        return reader

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
    conversion.check_target(target)
    name = conversion.SINKS.get(target.suffix)
    sink = None if name is None else select(None, name).sink
    with open_run(path) as opened:
        try:
            chosen = [opened.probe(each) for each in probes] or list(opened.probes)
        except KeyError as error:
            raise ConfigError(str(error.args[0])) from None
        conversion.convert(opened, target, chosen, sink)
