"""``simrun plugins`` and ``simrun schema``."""

from __future__ import annotations

import json

import click


@click.command("plugins")
@click.option("--json", "as_json", is_flag=True, help="For programs.")
def plugins_command(as_json: bool) -> None:
    """List the installed simulators, sinks and observers."""
    from dataclasses import asdict

    from simrun.cli import tables
    from simrun.plugins import describe

    rows = describe()
    if as_json:
        click.echo(json.dumps([asdict(row) for row in rows], indent=1))
    else:
        tables.show(tables.plugin_table(rows))


@click.command("schema")
@click.argument("name")
@click.option("--whole", is_flag=True, help="Of a whole config file, not only the own section.")
def schema_command(name: str, whole: bool) -> None:
    """Print the JSON schema of a plugin's part of the config."""
    from pydantic import BaseModel

    from simrun.adapter import resolve
    from simrun.config import config_model, output_model
    from simrun.errors import PluginError
    from simrun.plugins import select

    try:
        selection = select(name, "npy")
    except PluginError as no_adapter:
        try:
            sink = select(None, name).sink
        except PluginError:
            raise no_adapter from None
        model: type[BaseModel] = output_model(sink)
    else:
        adapter = selection.adapter
        assert adapter is not None
        model = config_model(adapter, selection.sink) if whole else resolve(adapter.config_model)
    click.echo(json.dumps(model.model_json_schema(), indent=1))
