"""From a config to an opened simulation and a plan: what planning and running share."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from simrun import memory, models, planning
from simrun.adapter import AdapterEntry, OpenRequest, Simulation, resolve
from simrun.config import RunConfig, located, plugin_names, validate
from simrun.document import Document, load_document
from simrun.errors import ConfigError, SimrunError, SimulationError
from simrun.folder import RunFolder
from simrun.plugins import Selection, select
from simrun.records import Plan
from simrun.units import parse_bytes, parse_steps

Config = str | Path | Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Setup:
    """Everything known before the simulation is opened."""

    document: Document
    config: RunConfig
    selection: Selection
    adapter: AdapterEntry
    budget: int | None

    @property
    def output(self) -> Path:
        """The run's folder."""
        return self.config.output.path

    def end(self, simulation: Simulation) -> int:
        """The run's last step.

        Raises
        ------
        ConfigError
            The steps have no duration, or there isn't data for so many.
        """
        end = self._asked_for(simulation)
        if simulation.available is not None and end > simulation.available[0]:
            most, why = simulation.available
            key = "steps" if self.config.duration is None else "duration"
            raise ConfigError(
                f"{key}: {end} steps are asked for, and {why} has {most}",
                "run fewer steps, or give more data",
            )
        return end

    def _asked_for(self, simulation: Simulation) -> int:
        if self.config.steps == "all":
            if simulation.available is None:
                raise ConfigError(
                    "steps: found 'all'; allowed: a number, as nothing ends this simulation",
                    "write `steps: 8000` or `duration: 8 s`",
                )
            return simulation.available[0]
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


def configure(
    config: Config,
    *,
    overrides: Iterable[str] = (),
    plugin: str | None = None,
    budget: str | int | None = None,
    output: str | Path | None = None,
    steps: int | None = None,
    plugins: Sequence[Any] = (),
) -> Setup:
    """Read and validate a config, and import the plugins that it selects.

    The parameters are those of `simrun.api.plan`.

    Raises
    ------
    ConfigError, PluginError
    """
    document = load_document(config, overrides, plugin=plugin, output=output, steps=steps)
    try:
        limit = None if budget is None else parse_bytes(budget)
    except ValueError as error:
        raise ConfigError(f"--budget: {error}") from None
    names = plugin_names(document)
    selection = select(names.plugin, names.sink, names.observers, extra=plugins)
    assert selection.adapter is not None
    validated = validate(document, selection.adapter, selection.sink)
    return Setup(document, validated, selection, selection.adapter, limit)


def _open(adapter: AdapterEntry, request: OpenRequest) -> Simulation:
    factory = resolve(adapter.factory)
    try:
        simulation: Simulation = factory(request)
    except SimrunError:
        raise
    except (Exception, SystemExit) as error:
        what = f"{adapter.name}, opening the model,"
        raise SimulationError(models.blame(what, error)) from error
    return simulation


@contextmanager
def opened(setup: Setup) -> Iterator[Simulation]:
    """The simulation that a config describes; closed at the end."""
    config = setup.config
    request = OpenRequest(
        config.model,
        config.model_args,
        setup.document.base,
        config.seed,
        config.probes,
        config.settings,
        config.memory.host,
        config.memory.device if setup.budget is None else setup.budget,
    )
    with located(setup.document):
        simulation = _open(setup.adapter, request)
    try:
        with located(setup.document):
            yield simulation
    finally:
        simulation.close()


def make_plan(setup: Setup, simulation: Simulation, end: int) -> Plan:
    """Estimate, for the chunk length that is best, then for the one that the plan chooses.

    Raises
    ------
    BudgetError
        The run can't fit the budget or the disk.
    """
    config, hook = setup.config, setup.selection.manager.hook
    sink = setup.selection.sink
    resolve(sink.sink)  # its libraries count as the process's

    def attempt(steps: int) -> Plan:
        """A plan by the estimate for chunks of so many steps."""
        estimate = hook.simrun_estimate_memory(simulation=simulation, steps=steps)
        memory.trim()
        estimate = planning.complete(estimate, simulation.probes, memory.resident(), sink)
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
