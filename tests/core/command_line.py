"""The command line, called in this process and in one of its own."""

from __future__ import annotations

import subprocess
import sys

from click.testing import CliRunner

from simrun.cli import main


def invoke(*arguments, code=0):
    result = CliRunner().invoke(main, [str(argument) for argument in arguments])
    assert result.exit_code == code, result.output
    return result


def python(*arguments, **keywords):
    return subprocess.run(
        [sys.executable, *map(str, arguments)], capture_output=True, text=True, **keywords
    )


def start(*arguments, **keywords):
    """The real program in a process of its own."""
    code = "from simrun.cli import main; main()"
    return subprocess.Popen([sys.executable, "-c", code, *map(str, arguments)], **keywords)
