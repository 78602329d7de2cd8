"""``simrun inspect``."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

import click

from simrun.errors import DamagedError

if TYPE_CHECKING:
    from simrun.reading import Run


@click.command("inspect")
@click.argument("run", metavar="RUN")
@click.option("--json", "as_json", is_flag=True, help="For programs.")
@click.option("--verify", is_flag=True, help="Read everything and compare with the checksums.")
def inspect_command(run: str, as_json: bool, verify: bool) -> None:
    """Show what a run has recorded, also while it runs."""
    from simrun import api
    from simrun.cli import tables

    opened = api.open_run(run)
    try:
        if as_json:
            click.echo(json.dumps(facts(run, opened), indent=1))
        else:
            tables.show(tables.run_contents(facts(run, opened)))
        if verify:
            _verify(opened)
    finally:
        opened.close()


def _verify(run: Run) -> None:
    problems = run.verify()
    if problems:
        raise DamagedError(
            f"{len(problems)} of the run's files are damaged:\n" + "\n".join(problems),
            "restore them from a backup, or run again into another folder",
        )
    click.echo("verified: every checksum agrees")


def facts(path: str, run: Run) -> dict[str, Any]:
    """What is known of a run, as JSON values."""
    return {
        "path": path,
        "status": run.status,
        "step": run.step,
        "end": run.end,
        "dt": run.dt,
        "plugin": run.manifest["identity"]["plugin"],
        "model": run.manifest["identity"]["model"],
        "sink": run.manifest["sink"]["name"],
        "metrics": run.manifest.get("metrics", {}),
        "probes": [
            {
                "name": probe.name,
                "samples": (samples := run.samples(probe.name)),
                "shape": list(probe.shape),
                "dims": list(probe.dims),
                "dtype": str(probe.dtype),
                "period": None if math.isinf(probe.period) else probe.period,
                "reduce": probe.reduce,
                "bytes": samples * probe.sample_bytes,
                "attrs": dict(probe.attrs),
            }
            for probe in run.probes
        ],
    }
