"""``simrun completion``."""

from __future__ import annotations

import click
from click.shell_completion import CompletionItem, get_completion_class

SHELLS = ("bash", "zsh", "fish")


@click.command("completion")
@click.argument("shell", type=click.Choice(SHELLS))
def completion_command(shell: str) -> None:
    """Print a script that completes simrun's commands, options and plugins with Tab.

    For bash: simrun completion bash > ~/.local/share/bash-completion/completions/simrun
    """
    from simrun.cli import main

    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(kind(main, {}, "simrun", "_SIMRUN_COMPLETE").source())


def plugin_names(
    ctx: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """The installed plugins whose names begin so; nothing is imported."""
    from simrun.discovery import discovered

    return [
        CompletionItem(plugin.name, help=plugin.distribution)
        for plugin in discovered()
        if plugin.name.startswith(incomplete)
    ]
