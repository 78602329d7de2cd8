"""``simrun run`` and ``simrun plan``."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

import click

from simrun.cli.completion import plugin_names
from simrun.errors import EXIT_DONE, EXIT_RESUMABLE, EXIT_SIMULATION, BudgetError
from simrun.units import parse_bytes

EXIT_CODES = {"done": EXIT_DONE, "stopped": EXIT_RESUMABLE, "failed": EXIT_SIMULATION}


def _size(ctx: click.Context, parameter: click.Parameter, value: str | None) -> int | None:
    try:
        return None if value is None else parse_bytes(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def _common(command: Callable[..., Any]) -> Callable[..., Any]:
    """The argument and the options that running and planning share."""
    for decorate in reversed([
        click.argument("config", metavar="CONFIG.yaml"),
        click.option("--plugin", metavar="NAME", shell_complete=plugin_names,
                     help="The simulator, in place of the config's."),
        click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE",
                     help="Change a setting, such as probes.0.reduce=mean; repeatable."),
        click.option("--budget", callback=_size, metavar="SIZE",
                     help="Memory for the simulation, such as 8GiB; left out: what is free."),
        click.option("--output", metavar="DIR", help="The run's folder."),
        click.option("--steps", type=int, metavar="N", help="Steps in all."),
    ]):  # fmt: skip
        command = decorate(command)
    return command


@click.command("run")
@_common
@click.option(
    "--extend",
    metavar="N|TIME",
    help="Make a finished run longer: by so many steps, or such as `2 s`.",
)
@click.option(
    "--max-hours",
    type=click.FloatRange(min=0, min_open=True),
    metavar="H",
    help="Stop after so long, to go on by the same command.",
)
@click.option("--dry-run", is_flag=True, help="Only show the plan, as `simrun plan` does.")
@click.option(
    "--in-process",
    is_flag=True,
    envvar="SIMRUN_IN_PROCESS",
    help="Run without the supervisor, which restarts a crashed run; for debugging.",
)
@click.option("--chunk-limit", type=click.IntRange(1), hidden=True)  # set by the supervisor
@click.option("--deadline", type=float, hidden=True)
def run_command(
    config: str,
    extend: str | None,
    max_hours: float | None,
    dry_run: bool,
    in_process: bool,
    chunk_limit: int | None,
    deadline: float | None,
    **options: Any,
) -> int:
    """Run a config, or go on with it (`run` may be left out)."""
    if extend is not None:
        from simrun import api

        # at once, so that a restart after a crash adds nothing
        options["steps"] = api.extended(config, extend, **options)
    if dry_run:
        return _plan(config, False, options)
    if not in_process:
        return _supervised(config, max_hours, options)
    from simrun import api, supervisor
    from simrun.cli import tables
    from simrun.cli.progress import progress

    supervisor.stop_with_the_supervisor()
    if deadline is not None:
        max_hours = max(deadline - time.time(), 0) / 3600
    with progress() as observer:
        ended = api.run(
            config, max_hours=max_hours, chunk_limit=chunk_limit, observers=[observer], **options
        )
    tables.show(tables.run_summary(ended, observer.start, observer.opening))
    return EXIT_CODES[ended.status]


def _supervised(config: str, max_hours: float | None, options: dict[str, Any]) -> int:
    """Check what can be checked at once, then run in a child process whose death is survived."""
    from simrun import api
    from simrun.supervisor import supervise

    directory = api.check(config, **options)
    # faulthandler: a crash in native code then says where it was called from
    command = [sys.executable, "-X", "faulthandler", "-m", "simrun", "run", config, "--in-process"]
    for overridden in options.pop("overrides"):
        command += ["--set", overridden]
    if max_hours is not None:
        # restarts don't lengthen the time
        command += ["--deadline", str(time.time() + max_hours * 3600)]
    command += [f"--{name}={value}" for name, value in options.items() if value is not None]
    return supervise(command, directory, lambda line: click.echo(f"simrun: {line}", err=True))


@click.command("plan")
@_common
@click.option("--json", "as_json", is_flag=True, help="For programs.")
def plan_command(config: str, as_json: bool, **options: Any) -> int:
    """Show what a run would take: memory, disk, chunks."""
    return _plan(config, as_json, options)


def _plan(config: str, as_json: bool, options: dict[str, Any]) -> int:
    from simrun import api
    from simrun.cli import tables

    def show(report: api.PlanReport) -> None:
        if as_json:
            click.echo(json.dumps(report.to_json(), indent=1))
        else:
            tables.show(tables.plan_tables(report))

    try:
        report = api.plan(config, **options)
    except BudgetError as error:
        if error.report is not None:
            show(error.report)
        raise
    show(report)
    return EXIT_DONE
