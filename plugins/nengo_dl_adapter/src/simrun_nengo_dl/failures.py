"""What went wrong in a chunk: memory, or a function of the user's model."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any

from simrun.errors import SimulationError
from simrun.records import Chunk, MemoryFailure

_SHAPE = re.compile(r"shape\[([\d,\s]*)\] and type (\w+)")
_BYTES = re.compile(r"allocat\w*\D{0,20}?(\d+(?:\.\d+)?)\s*([KMGT]i?B|bytes|B)?", re.IGNORECASE)
_UNITS = {"": 1, "b": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}
_SIZES = {"float": 4, "double": 8, "int32": 4, "int64": 8, "bool": 1, "half": 2}


def out_of_memory(error: BaseException) -> MemoryFailure | None:
    """Recognise an out-of-memory error: by its type first, by its message second."""
    import tensorflow as tf

    message = _telling_line(str(error)) or type(error).__name__
    if isinstance(error, MemoryError):
        return MemoryFailure("host", message, _requested(str(error)))
    if isinstance(error, tf.errors.ResourceExhaustedError):
        return MemoryFailure("device", message, _requested(str(error)))
    text = str(error).lower()
    if isinstance(error, tf.errors.OpError) and (
        "out of memory" in text or "resource_exhausted" in text or "resource exhausted" in text
    ):
        return MemoryFailure("device", message, _requested(str(error)))
    return None


def _requested(message: str) -> int | None:
    """Bytes that were asked for, where the message tells."""
    if match := _SHAPE.search(message):
        size = _SIZES.get(match[2], 4)
        for number in match[1].split(","):
            size *= int(number) if number.strip() else 1
        return size
    if match := _BYTES.search(message):
        return round(float(match[1]) * _UNITS[(match[2] or "")[:1].lower()])
    return None


def _telling_line(message: str) -> str:
    """TensorFlow tells where a node was defined before it tells what happened."""
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    told = [line for line in lines if "OOM" in line or "memory" in line.lower()]
    return (told or lines or [""])[0]


class Faults:
    """Remembers which of the user's functions raised; TensorFlow passes on only a text."""

    def __init__(self) -> None:
        self._last: tuple[str, float | None, BaseException] | None = None

    def clear(self) -> None:
        """Forget the last chunk's."""
        self._last = None

    def happened(self) -> bool:
        """Whether a function of the model has raised."""
        return self._last is not None

    def watch(self, function: Callable[..., Any], label: str, timed: bool) -> Callable[..., Any]:
        """The same function, noted with its label when it raises.

        Parameters
        ----------
        function : callable
        label : str
            The node or connection that it belongs to.
        timed : bool
            Whether its first argument is the time in seconds.
        """

        @functools.wraps(function, updated=())
        def watched(*args: Any) -> Any:
            try:
                return function(*args)
            except Exception as error:
                if self._last is None:
                    self._last = (label, float(args[0]) if timed and args else None, error)
                raise

        return watched

    def explain(self, error: BaseException, chunk: Chunk) -> SimulationError:
        """An error for the user: which node, when, what."""
        where = f"in steps {chunk.start + 1} to {chunk.stop}"
        if self._last is not None:
            label, time, cause = self._last
            if time is not None:
                where = f"at t = {time:.9g} s"
            return SimulationError(
                f"{label} failed {where}: {type(cause).__name__}: {cause}",
                "the function belongs to the model; nothing of this chunk was kept",
            )
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        told = next(
            (line for line in lines if "SimulationError:" in line), lines[0] if lines else ""
        )
        return SimulationError(f"TensorFlow failed {where}: {told}")
