"""``simrun doctor``."""

from __future__ import annotations

import json
from pathlib import Path

import click

from simrun.errors import EXIT_DONE, EXIT_PLUGIN


@click.command("doctor")
@click.option("--json", "as_json", is_flag=True, help="For programs.")
def doctor_command(as_json: bool) -> int:
    """Show versions, memory limits, devices, and what is missing for which plugin.

    Every simulator is imported, which takes a while. Exit code 3 when one of them can't be.
    """
    from simrun import doctor
    from simrun.cli import tables

    found = doctor.examine(Path.cwd())
    if as_json:
        click.echo(json.dumps(found, indent=1))
    else:
        tables.show(tables.health(found))
    return EXIT_PLUGIN if any(plugin["problem"] for plugin in found["plugins"]) else EXIT_DONE
