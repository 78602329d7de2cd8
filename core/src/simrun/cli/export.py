"""``simrun export``."""

from __future__ import annotations

import click


@click.command("export")
@click.argument("run", metavar="RUN")
@click.argument("target", metavar="OUT.{h5,zarr,npz,csv}")
@click.option("--probe", "probes", multiple=True, metavar="NAME", help="Only this one; repeatable.")
def export_command(run: str, target: str, probes: tuple[str, ...]) -> None:
    """Convert a run into one file, in bounded memory."""
    from simrun import api

    api.export(run, target, probes)
    click.echo(f"wrote {target}")
