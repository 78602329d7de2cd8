"""Which steps a probe records: pure functions, the same for every adapter and sink."""

from __future__ import annotations

import math
from typing import Any

import numpy as np


def recorded_steps(period: float, start: int, stop: int, end: int) -> np.ndarray[Any, Any]:
    """Steps in ``start+1 … stop`` that a probe records.

    Step n is recorded when ``n % period < 1`` in float64 arithmetic, which is the rule of
    nengo's own simulator (``nengo/simulator.py``, ``Simulator._probe``): for a whole period
    every period-th step; for a fractional one the first step at or after each multiple. A
    period that rounding has made a little too large (0.1 + 0.1 + 0.1 s at dt = 0.1 s is
    3.0000000000000004 steps) records one step after the multiple, as nengo does. The rule
    looks at the absolute step alone, so the recorded steps don't depend on the chunks.

    Parameters
    ----------
    period : float
        Sampling period in steps, at least 1; ``math.inf`` records only step ``end``.
    start, stop : int
        Range of steps.
    end : int
        Last step of the run.

    Returns
    -------
    numpy.ndarray of int64
        Step numbers, ascending.
    """
    if math.isinf(period):
        return np.arange(end, end + 1 if start < end <= stop else end, dtype=np.int64)
    steps = np.arange(start + 1, stop + 1, dtype=np.int64)
    return steps if period == 1 else steps[steps % period < 1]


def sample_count(period: float, start: int, stop: int, end: int) -> int:
    """Number of samples that a probe records in ``start+1 … stop``."""
    if math.isinf(period):
        return int(start < end <= stop)
    if float(period).is_integer():
        return stop // int(period) - start // int(period)
    return len(recorded_steps(period, start, stop, end))
