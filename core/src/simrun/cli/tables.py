"""What the commands show on stdout: tables of a plan, a run, the plugins."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from simrun.records import MemoryEstimate, Plan, ProbeSpec, RunEnded, Where
from simrun.sampling import sample_count
from simrun.units import format_bytes, format_duration

if TYPE_CHECKING:
    from simrun.api import PlanReport
    from simrun.plugins import PluginInfo

PAGE = 100  # columns, where there is no terminal


def show(content: RenderableType) -> None:
    """Print to stdout."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = PAGE
    console.print(content)


def plan_tables(report: PlanReport) -> RenderableType:
    """The plan: what is run, what it takes, what takes it."""
    plan = report.plan
    steps = plan.end - plan.start
    facts = {
        "output": str(report.output),
        "steps": f"{plan.start + 1:,} to {plan.end:,}{_model_time(plan.end, report.dt)}",
        "chunk": f"{_steps(plan.chunk)}, {plan.chunks:,} in all: {plan.reason}",
        "device": report.device + (": its memory is the host's" if plan.estimate.shared else ""),
    }
    if not plan.estimate.shared or plan.budget.device is not None:
        facts["device memory"] = _peak(plan, "device", plan.budget.device_source)
    free = "unknown" if plan.disk_free is None else format_bytes(plan.disk_free)
    facts |= {
        "host memory": _peak(plan, "host", plan.budget.host_source),
        "disk": f"{format_bytes(plan.output_bytes)} of samples, {free} free",
        "in one piece": _unchunked(plan, steps),
    }
    notes = [Text(f"note: {note}") for note in report.notes]
    return Group(_facts(facts), *notes, _memory_table(plan), _probe_table(report.probes, plan))


def run_summary(ended: RunEnded, start: int, opening: float) -> RenderableType:
    """How a run went, and where its samples are.

    Parameters
    ----------
    ended : RunEnded
    start : int
        The step that it went on from.
    opening : float
        Seconds before its first step.
    """
    reason = f" ({ended.reason})" if ended.reason else ""
    facts = {"status": f"{ended.status}{reason}, step {ended.step:,} of {ended.end:,}"}
    if ended.measured_host:
        rate = (ended.step - start) / max(ended.seconds - opening, 1e-9)
        facts["time"] = (
            f"{format_duration(ended.seconds)}, {format_duration(opening)} of them to open the "
            f"model, then {rate:,.0f} steps/s"
        )
        facts["host memory"] = _compared(ended.measured_host, ended.predicted_host)
    if ended.measured_device is not None:
        facts["device memory"] = _compared(ended.measured_device, ended.predicted_device)
    facts |= _metrics(ended.metrics)
    if ended.written:
        facts["written"] = format_bytes(ended.written)
    facts["output"] = _short(ended.output)
    if ended.status == "stopped":
        facts["go on"] = "by the same command"
    facts["look"] = f"simrun inspect {shlex.quote(_short(ended.output))}"
    facts["read"] = f"simrun.open_run({_short(ended.output)!r})  # in Python"
    for number, problem in enumerate(ended.problems, start=1):
        facts[f"problem {number}"] = problem
    return _facts(facts)


def run_contents(facts: Mapping[str, Any]) -> RenderableType:
    """What ``simrun inspect`` shows."""
    table = _table("probe", "sample", "type", "every", ">samples", ">bytes")
    for probe in facts["probes"]:
        table.add_row(
            probe["name"],
            _shape(probe["shape"], probe["dims"]),
            probe["dtype"],
            _every(probe["period"], probe["reduce"]),
            f"{probe['samples']:,}",
            format_bytes(probe["bytes"]),
        )
    path, dt = facts["path"], facts["dt"]
    head = {
        "run": path,
        "status": f"{facts['status']}, step {facts['step']:,} of {facts['end']:,}"
        + _model_time(facts["step"], dt),
        "simulator": f"{facts['plugin']}, {facts['model']}",
        "sink": facts["sink"],
    } | _metrics(facts["metrics"])
    return Group(_facts(head), table, Text(f"read it in Python: simrun.open_run({path!r})"))


def plugin_table(rows: Sequence[PluginInfo]) -> RenderableType:
    """What ``simrun plugins`` shows."""
    table = _table("name", "kind", "summary", "distribution")
    for row in rows:
        good = row.status == "ok"
        table.add_row(
            row.name,
            row.kind if good else "broken",
            row.summary if good else row.status,
            f"{row.distribution} {row.version}",
            style=None if good else "red",
        )
    return table


def health(found: Mapping[str, Any]) -> RenderableType:
    """What ``simrun doctor`` shows."""
    facts = {key: found[key] for key in ("simrun", "python", "platform")}
    for limit in found["memory"]:
        facts[f"memory, {limit['limit']}"] = format_bytes(limit["bytes"])
    for gpu in found["gpus"]:
        facts[f"GPU {gpu['name']}"] = (
            f"{format_bytes(gpu['free'])} free of {format_bytes(gpu['total'])}"
        )
    if not found["gpus"]:
        facts["GPU"] = "none that NVIDIA's driver knows"
    facts["disk here"] = (
        "unknown" if found["disk"] is None else f"{format_bytes(found['disk'])} free"
    )
    plugins = _table("plugin", "kind", "distribution", "state")
    for plugin in found["plugins"]:
        plugins.add_row(
            plugin["name"],
            plugin["kind"],
            f"{plugin['distribution']} {plugin['version']}",
            plugin["problem"] or "good",
            style="red" if plugin["problem"] else None,
        )
    missing = _table("not installed", "get it by")
    for item in found["missing"]:
        missing.add_row(item["what"], item["how"])
    return Group(_facts(facts), plugins, *([missing] if found["missing"] else []))


def _metrics(metrics: Mapping[str, float]) -> dict[str, str]:
    return {name: f"{value:.5g}" for name, value in metrics.items()}


def _memory_table(plan: Plan) -> Table:
    estimate, chunk = plan.estimate, plan.chunk
    table = _table("memory", "where", ">fixed", ">per step", f">chunk of {chunk:,}")
    for item in sorted(estimate.items, key=lambda i: -(i.fixed + i.per_step * chunk)):
        table.add_row(
            item.name,
            "host" if estimate.shared else item.where,
            format_bytes(item.fixed) if item.fixed else "",
            format_bytes(item.per_step) if item.per_step else "",
            format_bytes(item.fixed + item.per_step * chunk),
        )
    for where in _places(estimate):
        table.add_row(
            "peak",
            where,
            format_bytes(estimate.fixed(where)),
            format_bytes(estimate.per_step(where)),
            format_bytes(estimate.peak(where, chunk)),
            style="bold",
        )
    return table


def _probe_table(probes: Iterable[ProbeSpec], plan: Plan) -> Table:
    table = _table("probe", "sample", "type", "every", ">per step", ">samples", ">in all")
    for probe in probes:
        samples = sample_count(probe.period, plan.start, plan.end, plan.end)
        table.add_row(
            probe.name,
            _shape(probe.shape, probe.dims),
            str(probe.dtype),
            _every(None if math.isinf(probe.period) else probe.period, probe.reduce),
            format_bytes(probe.bytes_per_step),
            f"{samples:,}",
            format_bytes(samples * probe.sample_bytes),
        )
    return table


def _facts(facts: Mapping[str, str]) -> Table:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bold", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in facts.items():
        grid.add_row(name, Text(value))
    return grid


def _table(*columns: str) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        right = column.startswith(">")
        table.add_column(
            column.removeprefix(">"),
            justify="right" if right else "left",
            no_wrap=right or column in ("every", "where"),
            overflow="fold",
        )
    return table


def _places(estimate: MemoryEstimate) -> tuple[Where, ...]:
    return ("host",) if estimate.shared else ("device", "host")


def _peak(plan: Plan, where: Where, source: str) -> str:
    budget = plan.budget.device if where == "device" else plan.budget.host
    peak = format_bytes(plan.estimate.peak(where, plan.chunk))
    if budget is None:
        return f"peak {peak}, no budget"
    return f"peak {peak} of {format_bytes(budget)} ({source})"


def _unchunked(plan: Plan, steps: int) -> str:
    """What a run in one chunk would take."""
    parts = []
    for where in _places(plan.estimate):
        budget = plan.budget.device if where == "device" else plan.budget.host
        needed = plan.estimate.peak(where, steps)
        over = budget is not None and needed > budget
        parts.append(f"{format_bytes(needed)} on the {where}{', over the budget' if over else ''}")
    return "it would take " + "; ".join(parts)


def _compared(measured: int, predicted: int) -> str:
    if not predicted:
        return f"peak {format_bytes(measured)}"
    difference = measured / predicted - 1
    return f"peak {format_bytes(measured)}, predicted {format_bytes(predicted)} ({difference:+.0%})"


def _model_time(steps: int, dt: float | None) -> str:
    return "" if dt is None else f", {steps * dt:,.6g} s of model time (dt {format_duration(dt)})"


def _shape(shape: Sequence[int], dims: Sequence[str]) -> str:
    if not shape:
        return "scalar"
    return " × ".join(f"{size:,} {dim}" for size, dim in zip(shape, dims, strict=True))


def _steps(steps: int) -> str:
    return f"{steps:,} step{'s' * (steps != 1)}"


def _every(period: float | None, reduce: str) -> str:
    if period is None:
        return "the end"
    steps = "step" if period == 1 else f"{period:,g} steps"
    return steps if reduce == "last" else f"{steps}, {reduce}"


def _short(path: str) -> str:
    """Relative to the current folder where that is shorter."""
    try:
        return str(Path(path).relative_to(Path.cwd()))
    except ValueError:
        return path
