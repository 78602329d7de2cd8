"""The errors that simrun raises on purpose, and the exit code of each. Imports nothing of simrun.

Every message says where the fault is, what was found, what is allowed, and what to do.
Any other exception that escapes simrun is a bug of ours.
"""

from __future__ import annotations

from typing import Any

EXIT_DONE = 0
EXIT_CONFIG = 2
EXIT_PLUGIN = 3
EXIT_SIMULATION = 4
EXIT_DAMAGED = 5
EXIT_RESUMABLE = 75  # EX_TEMPFAIL of sysexits.h: trying again is sensible


class SimrunError(Exception):
    """Base of all errors whose message is meant for the user.

    Parameters
    ----------
    message : str
        What is wrong and where.
    hint : str, optional
        What to do about it; printed on a line of its own.
    """

    exit_code = 1

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\n  {self.hint}" if self.hint else self.message


class ConfigError(SimrunError):
    """The command line, the config file, or something that it names is wrong."""

    exit_code = EXIT_CONFIG


class OutputExistsError(ConfigError):
    """The output path holds something that this run may not touch."""


class PluginError(SimrunError):
    """A plugin is missing, broken, or implements hooks wrongly."""

    exit_code = EXIT_PLUGIN


class SimulationError(SimrunError):
    """The simulation itself failed: the model's code raised, or its state is invalid."""

    exit_code = EXIT_SIMULATION


class ResumableError(SimrunError):
    """The run stopped before its end; what was committed is safe and readable."""

    exit_code = EXIT_RESUMABLE


class BudgetError(ConfigError):
    """The plan doesn't fit the memory budget or the disk; nothing was started.

    Attributes
    ----------
    plan : simrun.records.Plan or None
        The shortest that there is.
    report : simrun.api.PlanReport or None
        The same with what its table shows, when `simrun.plan` raised it.
    """

    plan: Any = None
    report: Any = None


class OutOfMemoryError(ResumableError):
    """Memory ran out and every way of recovery is used up."""


class SinkError(ResumableError):
    """Samples couldn't be stored, for example because the disk is full."""


class DamagedError(SimrunError):
    """Files of a run aren't what its manifest says."""

    exit_code = EXIT_DAMAGED
