"""Where samples first aren't finite. Pure, and cheap: a sum over samples that are in the cache."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from simrun.events import Events
from simrun.records import ProbeBlock, ProbeSpec
from simrun.sampling import recorded_steps


def first_not_finite(
    block: ProbeBlock, probes: Sequence[ProbeSpec], end: int
) -> Iterator[tuple[str, int]]:
    """For each probe with a NaN or an infinite value in a block: its name and the first such step.

    Parameters
    ----------
    end : int
        The run's last step.
    """
    for probe in probes:
        samples = block.samples[probe.name]
        row = _events_row(samples) if isinstance(samples, Events) else _row(samples)
        if row is not None:
            steps = recorded_steps(probe.period, block.start, block.stop, end)
            yield probe.name, int(steps[row])


def _row(samples: np.ndarray[Any, Any]) -> int | None:
    if samples.dtype.kind not in "fc" or _finite_sum(samples):
        return None
    rows = np.flatnonzero(~np.isfinite(samples.reshape(len(samples), -1)).all(axis=1))
    return int(rows[0]) if len(rows) else None


def _events_row(events: Events) -> int | None:
    if events.value.dtype.kind not in "fc" or _finite_sum(events.value):
        return None
    found = np.flatnonzero(~np.isfinite(events.value))
    return int(np.searchsorted(np.cumsum(events.count), found[0], "right")) if len(found) else None


def _finite_sum(values: np.ndarray[Any, Any]) -> bool:
    """False where a value isn't finite, or where the sum overflows."""
    with np.errstate(all="ignore"):
        return bool(np.isfinite(values.sum()))
