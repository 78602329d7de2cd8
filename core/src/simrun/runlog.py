"""An observer that writes ``run.log`` in the run's folder: one line per event, with the time."""

from __future__ import annotations

import traceback
from datetime import UTC, datetime
from pathlib import Path

from simrun.hookspecs import hookimpl
from simrun.records import ChunkCommitted, RunEnded, RunStarted
from simrun.units import format_bytes


class RunLog:
    """Appends to a log file; a resumed run goes on in the same file.

    Parameters
    ----------
    path : pathlib.Path
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    @hookimpl
    def simrun_run_started(self, record: RunStarted) -> None:
        """Log the plan."""
        plan = record.plan
        self._write(
            f"start: steps {plan.start + 1} to {plan.end}, chunk {plan.chunk} "
            f"({plan.reason}), predicted peak {format_bytes(plan.peak_host)} on the host"
        )
        for note in record.notes:
            self._write(f"note: {note}")

    @hookimpl
    def simrun_chunk_committed(self, record: ChunkCommitted) -> None:
        """Log what happened; a commit alone is not worth a line."""
        for message in record.messages:
            self._write(message)

    @hookimpl
    def simrun_run_ended(self, record: RunEnded) -> None:
        """Log the end."""
        reason = f" ({record.reason})" if record.reason else ""
        self._write(
            f"{record.status}{reason}: step {record.step} of {record.end} after "
            f"{record.seconds:.1f} s, peak {format_bytes(record.measured_host)} on the host"
        )
        for name, value in record.metrics.items():
            self._write(f"{name}: {value:.5g}")

    def trace(self, error: BaseException) -> None:
        """Log where an error came from: the message on the terminal has one line of it."""
        for line in "".join(traceback.format_exception(error)).splitlines():
            self._write(f"  {line}")

    def _write(self, line: str) -> None:
        with self._path.open("a", encoding="utf-8") as file:
            file.write(f"{datetime.now(UTC).isoformat(timespec='seconds')} {line}\n")
