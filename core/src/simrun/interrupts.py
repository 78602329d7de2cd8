"""Turns signals and the time limit into a wish to stop after the current chunk."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

SIGNALS = ("SIGINT", "SIGTERM", "SIGUSR1")


class StopRequest:
    """Why the run should stop, or the empty string while it shouldn't.

    Parameters
    ----------
    max_seconds : float, optional
        Stop when so much time has passed.
    """

    def __init__(self, max_seconds: float | None = None) -> None:
        self._reason = ""
        #: Whether not even a first chunk is wanted: a time limit alone lets one through, so
        #: that a run which is started again and again gets on.
        self.at_once = False
        self._limit = max_seconds
        self._deadline = None if max_seconds is None else time.monotonic() + max_seconds

    @property
    def reason(self) -> str:
        """Why to stop; empty: go on."""
        if not self._reason and self._deadline is not None and time.monotonic() >= self._deadline:
            self._reason = f"the time limit of {(self._limit or 0) / 3600:g} hours"
        return self._reason

    def ask(self, reason: str) -> None:
        """Ask the run to stop."""
        self.at_once = True
        self._reason = self._reason or reason


@contextmanager
def stop_on_signals(stop: StopRequest) -> Iterator[None]:
    """While active, the first signal asks for a stop; a second SIGINT interrupts at once."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def handle(number: int, frame: Any) -> None:
        if number == signal.SIGINT and stop.reason:
            raise KeyboardInterrupt
        stop.ask(signal.Signals(number).name)

    numbers = [getattr(signal, name) for name in SIGNALS if hasattr(signal, name)]
    previous = {number: signal.signal(number, handle) for number in numbers}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
