"""The command line: ``simrun CONFIG`` and its sisters. The only printing.

The commands import what they need when they are called, so that ``simrun --help`` is fast.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import click

from simrun import __version__
from simrun.cli.completion import completion_command
from simrun.cli.doctor import doctor_command
from simrun.cli.export import export_command
from simrun.cli.inspect import inspect_command
from simrun.cli.new_plugin import new_plugin_command
from simrun.cli.plot import plot_command
from simrun.cli.plugins import plugins_command, schema_command
from simrun.cli.run import plan_command, run_command
from simrun.errors import EXIT_CONFIG, SimrunError

EXIT_BUG = 1
EXIT_INTERRUPTED = 130  # as a shell reports a process that SIGINT ended


class Commands(click.Group):
    """A group whose first argument may also be a config to run."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put ``run`` in front of what doesn't begin with a command."""
        first = args[0] if args else "--help"
        if not args:
            args = ["--help"]
        elif first not in (*self.commands, "--help", "-h", "--version"):
            near = get_close_matches(first, self.commands, 1)
            if near and not first.startswith("-") and not Path(first).exists():
                raise click.UsageError(f"no command and no file {first!r}; did you mean {near[0]}?")
            args = ["run", *args]
        return super().parse_args(ctx, args)

    def format_usage(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Both ways to begin."""
        formatter.write_usage("simrun", "[OPTIONS] CONFIG.yaml", "Usage: ")
        formatter.write_usage("simrun", "COMMAND ...", "       ")

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The options of a run too: most people need no other command."""
        with formatter.section("Options of a run"):
            options = (o for o in run_command.params if isinstance(o, click.Option))
            formatter.write_dl([r for o in options if (r := o.get_help_record(ctx))])
        super().format_options(ctx, formatter)

    def main(  # type: ignore[override]  # of click's two overloads only one makes sense here
        self, args: Any = None, prog_name: str | None = None, **extra: Any
    ) -> NoReturn:
        """Run a command; errors become one message and an exit code."""
        extra["standalone_mode"] = False
        sys.exit(_guarded(partial(super().main, args, prog_name, **extra)))


def _guarded(command: Callable[[], Any]) -> int:
    try:
        return int(command() or 0)
    except SimrunError as error:
        _complain(error.message, error.hint)
        return error.exit_code
    except click.ClickException as error:
        context = getattr(error, "ctx", None)
        _complain(error.format_message(), f"see `{context.command_path} --help`" if context else "")
        return EXIT_CONFIG
    except (KeyboardInterrupt, click.Abort):
        click.echo("interrupted", err=True)
        return EXIT_INTERRUPTED
    except BrokenPipeError:  # the reader of our output has had enough: `simrun inspect | head`
        sys.stdout = None
        return EXIT_BUG
    except Exception:
        traceback.print_exc()
        click.echo(f"error: this is a bug in simrun {__version__}; please report it", err=True)
        return EXIT_BUG


def _complain(message: str, hint: str) -> None:
    first, *others = message.splitlines() or [""]
    click.echo(click.style("error: ", fg="red") + first, err=True)
    for line in [*others, *hint.splitlines()]:
        click.echo(f"  {line}", err=True)


@click.group("simrun", cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, message="simrun %(version)s")
def main() -> None:
    """Long simulations inside a fixed memory budget.

    Give a config to run it, or to go on with a run that was stopped.
    """


for _command in (
    run_command,
    plan_command,
    inspect_command,
    plot_command,
    export_command,
    plugins_command,
    schema_command,
    doctor_command,
    completion_command,
    new_plugin_command,
):
    main.add_command(_command)
