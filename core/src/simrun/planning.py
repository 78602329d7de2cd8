"""Pure: from an estimate and a budget to a plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from simrun.errors import BudgetError
from simrun.records import (
    Budget,
    Chunk,
    MemoryEstimate,
    MemoryFailure,
    MemoryItem,
    Plan,
    ProbeSpec,
    Where,
)
from simrun.sampling import sample_count
from simrun.sink import SinkEntry
from simrun.units import format_bytes

# Past these a longer chunk gains nothing (a boundary costs about a millisecond), and a
# shorter one stops sooner, reports more often and stays in the processor's cache.
BLOCK_BYTES = 32 << 20
MAX_STEPS = 1000
WRITER = "writer queue (one block)"


def block_bytes_per_step(probes: Sequence[ProbeSpec]) -> float:
    """Bytes of samples that a step adds to a block, on average."""
    return sum(probe.bytes_per_step for probe in probes)


def preferred_chunk(probes: Sequence[ProbeSpec], alignment: int) -> int:
    """Chunk length, in steps, that is best as long as memory doesn't matter."""
    per_step = block_bytes_per_step(probes)
    steps = MAX_STEPS if per_step == 0 else min(MAX_STEPS, int(BLOCK_BYTES / per_step))
    return align(steps, alignment)


def align(steps: int, alignment: int) -> int:
    """The largest multiple of ``alignment`` up to ``steps``, at least one."""
    return max(steps // alignment, 1) * alignment


def complete(
    estimate: MemoryEstimate, probes: Sequence[ProbeSpec], resident: int, sink: SinkEntry
) -> MemoryEstimate:
    """Add what the adapter can't know: the process itself, the writer's queue, the sink.

    Parameters
    ----------
    resident : int
        Resident bytes of the process when the estimate was made.
    sink : SinkEntry
    """
    runtime = max(resident - estimate.resident("host"), 0)
    items = [
        MemoryItem("process (interpreter, libraries)", "host", fixed=runtime, resident=True),
        MemoryItem(WRITER, "host", per_step=block_bytes_per_step(probes)),
    ]
    if sink.working_bytes:
        items.append(MemoryItem(f"sink {sink.name}", "host", fixed=sink.working_bytes))
    for item in items:
        estimate = estimate.with_item(item)
    return estimate


def writer_bytes_per_step(estimate: MemoryEstimate) -> float:
    """The writer queue's part of the host's bytes per step."""
    return sum(item.per_step for item in estimate.items if item.name == WRITER)


def with_chunk(plan: Plan, chunk: int) -> Plan:
    """The same plan with a chunk that recovery chose."""
    return replace(plan, chunk=chunk, reason="shortened after memory ran out")


def make_plan(
    start: int,
    end: int,
    estimate: MemoryEstimate,
    budget: Budget,
    probes: Sequence[ProbeSpec],
    alignment: int,
    chunk: int | None,
    disk_free: int | None,
) -> Plan:
    """Choose the chunk length.

    Parameters
    ----------
    start, end : int
        Steps ``start+1 … end`` are to be executed.
    estimate : MemoryEstimate
        As `complete` returns it.
    chunk : int or None
        Chunk length asked for by the user; the budget may shorten it. None: the best.

    Raises
    ------
    BudgetError
        The shortest chunk doesn't fit the budget, or the output doesn't fit on the disk.
    """
    wanted = preferred_chunk(probes, alignment) if chunk is None else chunk
    reason = "set by the config" if chunk is not None else _why_preferred(probes, wanted)
    if wanted >= end - start:
        wanted = max(end - start, 1)
        reason = "the whole run in one chunk"
    fits, limit = largest_fitting(estimate, budget)
    if fits < 1:
        wanted, reason = align(1, alignment), f"the shortest, too long for the {limit} budget"
    elif fits < wanted:
        wanted, reason = align(fits, alignment), f"the most that fits the {limit} budget"
    samples = sum(p.sample_bytes * sample_count(p.period, start, end, end) for p in probes)
    plan = Plan(start, end, wanted, reason, alignment, estimate, budget, samples, disk_free)
    shortest = min(alignment, max(end - start, 1))
    if fits < shortest:
        raise _over_budget(plan, *explain_budget(plan, shortest))
    if disk_free is not None and samples > disk_free:
        raise _over_budget(
            plan,
            f"the output doesn't fit on the disk: {format_bytes(samples)} of samples, "
            f"{format_bytes(disk_free)} free",
            "; ".join(["write elsewhere (output.path)", *_record_less(probes)]),
        )
    return plan


def _over_budget(plan: Plan, message: str, hint: str) -> BudgetError:
    error = BudgetError(message, hint)
    error.plan = plan
    return error


def largest_fitting(estimate: MemoryEstimate, budget: Budget) -> tuple[int, Where]:
    """Steps of the longest chunk that fits the budget (0: none does), and what limits it."""
    limits: list[tuple[int, Where]] = []
    bounds: tuple[tuple[Where, int | None], ...] = (
        ("device", budget.device),
        ("host", budget.host),
    )
    for where, bound in bounds:
        if bound is None:
            continue
        spare, per_step = bound - estimate.fixed(where), estimate.per_step(where)
        steps = 0 if spare < 0 else int(spare / per_step) if per_step else 1 << 62
        limits.append((steps, where))
    return min(limits, default=(1 << 62, "host"))


def corrected(plan: Plan, measured: int, predicted: int, steps: int) -> tuple[Plan, str]:
    """Compare a chunk's measured host peak with its prediction; shorten the chunk if need be.

    Parameters
    ----------
    measured, predicted : int
        Peak bytes of the process over a chunk of ``steps`` steps.

    Returns
    -------
    plan : Plan
    message : str
        One line for the log.
    """
    error = measured / predicted - 1
    message = (
        f"memory: measured peak {format_bytes(measured)}, predicted {format_bytes(predicted)} "
        f"({error:+.1%})"
    )
    if error <= 0.02:
        return plan, message
    # what wasn't foreseen is taken to grow with the chunk: the safe side
    surplus = MemoryItem("not foreseen (measured)", "host", per_step=(measured - predicted) / steps)
    estimate = plan.estimate.with_item(surplus)
    fits, _ = largest_fitting(estimate, plan.budget)
    chunk = min(plan.chunk, align(fits, plan.alignment))
    if chunk < plan.chunk:
        message += f"; chunk shortened from {plan.chunk} to {chunk} steps"
    return replace(plan, estimate=estimate, chunk=chunk), message


def explain_budget(plan: Plan, steps: int) -> tuple[str, str]:
    """Message and hint for a budget that even a chunk of ``steps`` steps doesn't fit."""
    estimate, budget = plan.estimate, plan.budget
    bounds: tuple[tuple[Where, int | None, str], ...] = (
        ("device", budget.device, budget.device_source),
        ("host", budget.host, budget.host_source),
    )
    over = [
        f"{where} {format_bytes(estimate.peak(where, steps))} of {format_bytes(bound)} ({source})"
        for where, bound, source in bounds
        if bound is not None and estimate.peak(where, steps) > bound
    ]
    what = "1 step" if steps == 1 else f"{steps} steps"
    message = (
        f"the budget is too small: a chunk of {what} needs {' and '.join(over)}; "
        f"largest: {largest_consumers(estimate, steps)}"
    )
    return message, "; ".join(["raise memory.host or --budget", *helpful_settings(plan.estimate)])


def explain_out_of_memory(
    plan: Plan, failure: MemoryFailure, chunk: Chunk, why: str
) -> tuple[str, str]:
    """Message and hint when memory ran out and nothing more can be tried."""
    asked = "" if failure.requested is None else f" asking for {format_bytes(failure.requested)}"
    free = "" if failure.free is None else f" with {format_bytes(failure.free)} free"
    message = (
        f"{failure.where} memory ran out after step {chunk.start}{asked}{free}, and {why}; "
        f"largest: {largest_consumers(plan.estimate, chunk.steps)}; the error was: "
        f"{failure.message}"
    )
    settings = helpful_settings(plan.estimate)
    return message, "; ".join(["what was committed is safe and readable", *settings])


def largest_consumers(estimate: MemoryEstimate, steps: int, count: int = 3) -> str:
    """The items that take most for a chunk of ``steps`` steps, in words."""
    sizes = sorted(
        ((item.fixed + item.per_step * steps, item.name) for item in estimate.items), reverse=True
    )
    return ", ".join(f"{name} {format_bytes(int(size))}" for size, name in sizes[:count] if size)


def helpful_settings(estimate: MemoryEstimate) -> list[str]:
    """Settings that would lower the memory, the most effective first."""
    probes = [i for i in estimate.items if i.name.startswith("probe ")]
    largest = max(probes, key=lambda item: item.per_step, default=None)
    advice = []
    if largest is not None:
        advice.append(f"give {largest.name} a sample_every, or record fewer values")
    return [*advice, "use a smaller minibatch or float32 if the adapter has those settings"]


def _record_less(probes: Sequence[ProbeSpec]) -> list[str]:
    largest = max(probes, key=lambda probe: probe.bytes_per_step, default=None)
    return [] if largest is None else [f"give probe {largest.name} a sample_every or a reduce"]


def _why_preferred(probes: Sequence[ProbeSpec], chunk: int) -> str:
    if chunk < MAX_STEPS and block_bytes_per_step(probes):
        return f"blocks of {format_bytes(BLOCK_BYTES)} of samples"
    return f"longer than {MAX_STEPS} steps gains nothing"
