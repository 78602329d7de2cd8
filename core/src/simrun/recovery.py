"""Pure: what to do when memory has run out."""

from __future__ import annotations

from simrun.planning import align
from simrun.records import Abort, Decision, Fallback, OOMEvent, Retry

MAX_ATTEMPTS = 30


def decide(event: OOMEvent) -> Decision:
    """Halve the chunk down to the alignment, then the fallback device, then stop.

    Parameters
    ----------
    event : OOMEvent

    Returns
    -------
    Retry, Fallback or Abort
    """
    steps = event.chunk.steps
    if steps > event.alignment and event.attempt < MAX_ATTEMPTS:
        return Retry(align(steps // 2, event.alignment))
    if event.can_fall_back:
        return Fallback()
    return Abort(f"even a chunk of {steps} step{'s' if steps > 1 else ''} doesn't fit")
