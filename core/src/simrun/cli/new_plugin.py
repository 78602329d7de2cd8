"""``simrun new-plugin``: a package that installs, and passes its own conformance tests."""

from __future__ import annotations

import re
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from string import Template

import click

from simrun import __version__
from simrun.errors import ConfigError, OutputExistsError

ENDING = ".in"


@click.command("new-plugin")
@click.argument("kind", type=click.Choice(["adapter", "sink"]))
@click.argument("name")
@click.option(
    "--into",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path(),
    help="Make the package's folder in there; left out: in the current folder.",
)
def new_plugin_command(kind: str, name: str, into: Path) -> None:
    """Write a package with a simulator or a sink that works, to begin from."""
    folder = write(kind, name, into)
    click.echo(f"wrote {folder}; next:\n  cd {folder}\n  pip install -e '.[test]'\n  pytest")


def write(kind: str, name: str, into: Path) -> Path:
    """Make the package's folder, which it returns.

    Parameters
    ----------
    kind : {"adapter", "sink"}
    name : str
        Of the plugin, as a config will have it; the package is ``simrun_NAME``.
    into : pathlib.Path
        The folder to make it in.

    Raises
    ------
    ConfigError
        The name can't be one.
    OutputExistsError
        The package's folder exists.
    """
    _check(kind, name)
    distribution = f"simrun-{name.replace('_', '-')}"
    folder = into / distribution
    if folder.exists():
        raise OutputExistsError(f"{folder} exists", "choose another name, or --into")
    values = {
        "name": name,
        "package": f"simrun_{name}",
        "distribution": distribution,
        "class": "".join(part.title() for part in name.split("_")),
        "version": __version__,
    }
    _copy(files("simrun.cli") / "templates" / kind, folder, values)
    return folder


def _check(kind: str, name: str) -> None:
    from simrun.config import OutputConfig, RunConfig

    if not re.fullmatch(r"[a-z]([a-z0-9]|_(?!_|$))*", name):
        raise ConfigError(
            f"NAME: found {name!r}; allowed: small letters, digits and single _, such as my_lab"
        )
    taken = {*RunConfig.model_fields, *OutputConfig.model_fields, "simrun", "npy"}
    if name in taken:
        raise ConfigError(f"NAME: {name!r} has a meaning in every config", f"try my_{name}")


def _copy(source: Traversable, target: Path, values: dict[str, str]) -> None:
    target.mkdir(parents=True)
    for entry in source.iterdir():
        name = values["package"] if entry.name == "PACKAGE" else entry.name.removesuffix(ENDING)
        if entry.is_dir():
            _copy(entry, target / name, values)
        elif entry.name.endswith(ENDING):
            text = Template(entry.read_text(encoding="utf-8")).substitute(values)
            (target / name).write_text(text, encoding="utf-8")
