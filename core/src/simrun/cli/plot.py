"""``simrun plot``."""

from __future__ import annotations

from pathlib import Path

import click

from simrun.errors import OutputExistsError


@click.command("plot")
@click.argument("run", metavar="RUN")
@click.argument("probes", metavar="[PROBE]...", nargs=-1)
@click.option("--out", metavar="FILE", help="A new .png, .svg or .pdf; left out: RUN/plot.png.")
@click.option("--from", "start", type=float, default=0.0, metavar="S", help="Model time, seconds.")
@click.option("--to", "stop", type=float, metavar="S", help="Model time, seconds.")
def plot_command(
    run: str, probes: tuple[str, ...], out: str | None, start: float, stop: float | None
) -> None:
    """Draw what a run has recorded: a raster of spikes, lines, or a heat map."""
    from simrun import api, plotting

    target = Path(run) / "plot.png" if out is None else Path(out)
    if out is not None and target.exists():
        raise OutputExistsError(f"{target} exists", "choose another name; nothing is overwritten")
    with api.open_run(run) as opened:
        plotting.draw(opened, probes, target, start, stop)
    click.echo(f"drew {target}")
