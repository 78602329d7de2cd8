"""Byte sizes and durations as people write them, and back. Pure functions."""

from __future__ import annotations

import math
import re
from decimal import Decimal

_QUANTITY = re.compile(r"\s*([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,3})?)\s*([A-Za-zµμ]*)\s*")
_BYTES = {"": 1, "b": 1}
for _power, _letter in enumerate("kmgtp", start=1):
    _BYTES[f"{_letter}b"] = 1000**_power
    _BYTES[f"{_letter}ib"] = 1024**_power
_SECONDS = {
    "ns": Decimal("1e-9"), "us": Decimal("1e-6"), "µs": Decimal("1e-6"), "μs": Decimal("1e-6"),
    "ms": Decimal("1e-3"), "s": Decimal(1), "min": Decimal(60), "h": Decimal(3600),
    "d": Decimal(86400),
}  # fmt: skip
_DURATION = "a duration with its unit, such as 50 ms, 8 s, 10 min or 2 h"
#: Whole numbers up to this are exact in float64, in which sampling periods are computed.
MAX_STEPS = 2**53


def parse_bytes(value: int | str) -> int:
    """Number of bytes in ``4GiB``, ``512 MiB``, ``1.5GB`` (powers of 1000) or a plain number.

    Returns
    -------
    int
        At least 1.

    Raises
    ------
    ValueError
        Not a size, or less than one byte.
    """
    error = _wrong(value, "a size such as 512MiB or 4GiB (powers of 1024), or 4GB (of 1000)")
    size = value
    if isinstance(size, str):
        number, unit = _split(size, error)
        if unit and unit in "kKmMgGtTpP":
            letter = unit.upper()
            raise _wrong(value, f"{number}{letter}iB (of 1024) or {number}{letter}B (of 1000)")
        if unit.lower() not in _BYTES:
            raise error
        size = int(Decimal(number) * _BYTES[unit.lower()])
    if isinstance(size, bool) or not isinstance(size, int):
        raise error
    if size < 1:
        raise _wrong(value, "at least one byte")
    return size


def format_bytes(value: float) -> str:
    """A size in three digits and a binary unit: ``1.50 GiB``; ``12 B``."""
    sign, value = ("-" if value < 0 else ""), abs(value)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if value < 999.5 or unit == "TiB":
            break
        value /= 1024
    if unit == "B":
        return f"{sign}{value:.3g} B"
    digits = 2 if value < 9.995 else 1 if value < 99.95 else 0
    return f"{sign}{value:,.{digits}f} {unit}"


def parse_duration(value: str) -> float:
    """Seconds in ``8 s``, ``50 ms``, ``10 min`` (also ns, us, h, d).

    The result is the float64 next to the decimal number: ``"35 ms"`` is ``0.035``.

    Raises
    ------
    ValueError
        Not a duration, no unit, or not positive.
    """
    number, unit = _split(str(value), error := _wrong(value, _DURATION))
    if not unit and not isinstance(value, bool):
        raise _wrong(value, f"a duration with its unit, such as {number} s or {number} ms")
    if unit not in _SECONDS:
        raise error
    seconds = float(Decimal(number) * _SECONDS[unit])
    if not 0 < seconds < math.inf:
        raise _wrong(value, "more than nothing")
    return seconds


def format_duration(seconds: float) -> str:
    """A duration for people: ``850 ms``, ``12.3 s``, ``4 min 05 s``, ``3 h 20 min``."""
    if seconds < 1:
        return f"{seconds * 1000:.3g} ms"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours < 48 else f"{hours // 24} d {hours % 24} h"


def parse_steps(value: float | str, dt: float | None) -> float:
    """Number of steps, not always whole, in a number or in a duration of model time.

    A duration is divided by ``dt`` in float64, as nengo divides ``sample_every / dt``; so the
    result can be a rounding error off a whole number, exactly where nengo's is.

    Parameters
    ----------
    value : int, float or str
        Steps, or a duration such as ``"10 ms"``.
    dt : float or None
        Seconds of model time per step; None where steps have no duration.

    Returns
    -------
    float
        At least 1.

    Raises
    ------
    ValueError
        Neither steps nor a duration, a duration without dt, or less than one step.
    """
    error = _wrong(value, "a number of steps, or a duration such as 10 ms")
    if isinstance(value, str):
        _, unit = _split(value, error)
        if unit and dt is None:
            raise _wrong(value, "a number of steps; here a step has no duration")
        steps = parse_duration(value) / dt if unit and dt is not None else float(value)
        if unit and steps < 1:
            raise _wrong(value, f"at least one step, which is {dt!r} s long")
    elif isinstance(value, bool) or not isinstance(value, (int, float)):
        raise error
    else:
        steps = value
    if not 1 <= steps <= MAX_STEPS:
        raise _wrong(value, "at least 1 step and at most 2**53")
    return float(steps)


def _split(text: str, error: ValueError) -> tuple[str, str]:
    match = _QUANTITY.fullmatch(text) if len(text) < 100 else None
    if match is None:
        raise error
    return match[1], match[2]


def _wrong(found: object, allowed: str) -> ValueError:
    return ValueError(f"found {found!r:.80}; allowed: {allowed}")
