"""Pure: what to do when memory has run out."""

from __future__ import annotations

from simrun.planning import align
from simrun.records import Abort, Decision, Fallback, OOMEvent, Retry

MAX_ATTEMPTS = 60
"""At one step. Halving the longest chunk takes fewer, also once more on a fallback device."""


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
    if steps > event.alignment:
        return Retry(align(steps // 2, event.alignment))
    if event.can_fall_back:
        return Fallback()
    return Abort(f"even a chunk of {steps} step{'s' if steps > 1 else ''} doesn't fit")


def checked(decision: object, event: OOMEvent) -> Decision:
    """A decision, whoever made it, that can be carried out and comes to an end.

    A chunk is made a multiple of the alignment. What can't be done, and a retry after
    `MAX_ATTEMPTS` failures of the same step, becomes an `Abort` that says so.
    """
    if isinstance(decision, Retry):
        if decision.chunk < 1:
            return Abort(f"simrun_recover_oom asked for a chunk of {decision.chunk} steps")
        if event.attempt >= MAX_ATTEMPTS:
            return Abort(f"{event.attempt} attempts failed, with {event.chunk.steps} steps at last")
        return Retry(align(decision.chunk, event.alignment))
    if isinstance(decision, Fallback) and not event.can_fall_back:
        return Abort("simrun_recover_oom asked for a fallback device, and there is none")
    if isinstance(decision, Fallback | Abort):
        return decision
    return Abort(f"simrun_recover_oom returned {decision!r}, not Retry, Fallback or Abort")
