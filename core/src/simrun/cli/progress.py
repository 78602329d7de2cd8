"""Progress of a run: a bar on a terminal, plain lines in a log. An observer plugin."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from simrun.hookspecs import hookimpl
from simrun.records import ChunkCommitted, RunStarted
from simrun.units import format_bytes, format_duration

LINE_SECONDS = 2.0


@contextmanager
def progress() -> Iterator[Progress]:
    """An observer that shows a run on stderr; the terminal is as before when it is left."""
    console = Console(stderr=True, highlight=False)
    observer = Bar(console) if console.is_terminal else Progress(console)
    observer.begin()
    try:
        yield observer
    finally:
        observer.stop()


class Progress:
    """Plain lines: what is planned, every two seconds how far it is, and what happens.

    Parameters
    ----------
    console : rich.console.Console

    Attributes
    ----------
    start : int
        The step that the run went on from.
    opening : float
        Seconds before the first step: building, compiling, planning.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._recent: deque[tuple[float, int]] = deque(maxlen=20)  # (seconds, step)
        self._shown = 0.0
        self._began = time.monotonic()
        self.start = 0
        self.opening = 0.0

    @hookimpl
    def simrun_run_started(self, record: RunStarted) -> None:
        """Show the plan in a line, and the notes."""
        plan = record.plan
        self.start = plan.start
        self.opening = time.monotonic() - self._began
        self._budget = plan.budget
        self._recent.append((0.0, plan.start))
        limit = plan.budget.host
        self._say(
            f"{'going on with steps' if plan.start else 'steps'} {plan.start + 1:,} to "
            f"{plan.end:,} in chunks of {plan.chunk:,}; memory up to {format_bytes(plan.peak_host)}"
            + (f" of {format_bytes(limit)}" if limit else "")
            + f"; {format_bytes(plan.output_bytes)} of samples into {record.output}"
        )
        for note in record.notes:
            self._say(f"note: {note}")

    @hookimpl
    def simrun_chunk_committed(self, record: ChunkCommitted) -> None:
        """Show how far it is, and what has happened."""
        for message in record.messages:
            self._say(message)
        if record.step > self._recent[-1][1]:
            self._recent.append((record.seconds, record.step))
            self._show(record)

    def begin(self) -> None:
        """The model is being opened: no news for a log."""

    def stop(self) -> None:
        """Nothing more will come."""

    def _say(self, message: str) -> None:
        self._console.print(message, markup=False, soft_wrap=True)

    def _show(self, record: ChunkCommitted) -> None:
        now = time.monotonic()
        if now - self._shown >= LINE_SECONDS or record.step == record.end:
            self._shown = now
            self._say(
                f"step {record.step:,} of {record.end:,} ({record.step / record.end:.0%}), "
                f"{self._speed(record)}, {self._memory(record)}, "
                f"{format_bytes(record.written)} written"
            )

    def _speed(self, record: ChunkCommitted, waited: float = 0.0) -> str:
        (before, start), (now, stop) = self._recent[0], self._recent[-1]
        rate = (stop - start) / max(now - before, 1e-9)
        left = max((record.end - record.step) / rate - waited, 0)
        remaining = f", {format_duration(left)} left" if record.step < record.end else ""
        return f"{rate:,.{1 if rate < 10 else 0}f} steps/s{remaining}"

    def _memory(self, record: ChunkCommitted) -> str:
        parts = [_share("memory", record.host_bytes, self._budget.host)]
        if record.device_bytes is not None:
            parts.append(_share("device", record.device_bytes, self._budget.device))
        return ", ".join(parts)


class Bar(Progress):
    """A bar that moves, with the same facts in a second line."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._record: ChunkCommitted | None = None
        self._spinner = Spinner("dots")
        self._live = Live(self, console=console, refresh_per_second=4, transient=True)

    def begin(self) -> None:
        """Show that something happens."""
        self._live.start(refresh=True)

    @hookimpl
    def simrun_run_started(self, record: RunStarted) -> None:
        """Show the plan above the bar."""
        super().simrun_run_started(record)

    @hookimpl
    def simrun_chunk_committed(self, record: ChunkCommitted) -> None:
        """Move the bar."""
        super().simrun_chunk_committed(record)

    def stop(self) -> None:
        """Take the bar away."""
        self._live.stop()

    def _show(self, record: ChunkCommitted) -> None:
        self._shown, self._record = time.monotonic(), record

    def __rich__(self) -> Any:
        """What is on the screen now; drawn four times a second."""
        record = self._record
        if record is None:
            seconds = int(time.monotonic() - self._began)
            what = "the first chunk is running" if self.opening else "opening the model"
            self._spinner.update(text=f"{what} ({seconds} s)")
            return self._spinner
        speed = self._speed(record, time.monotonic() - self._shown)
        line = Table.grid(padding=(0, 1))
        line.add_row(
            f"step {record.step:,} of {record.end:,}",
            ProgressBar(record.end, record.step, width=24),
            f"{record.step / record.end:.0%}",
            speed,
        )
        facts = f"{self._memory(record)}, {format_bytes(record.written)} written"
        return Group(line, Text(f"{facts}, chunks of {record.chunk:,}", style="dim"))


def _share(what: str, used: int, budget: int | None) -> str:
    return f"{what} {format_bytes(used)}" + (f" of {format_bytes(budget)}" if budget else "")
