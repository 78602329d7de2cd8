import math

import numpy as np
import pytest

from simrun.errors import BudgetError
from simrun.planning import (
    BLOCK_BYTES,
    complete,
    corrected,
    largest_consumers,
    largest_fitting,
    make_plan,
    preferred_chunk,
)
from simrun.records import (
    Abort,
    Budget,
    Chunk,
    Fallback,
    MemoryEstimate,
    MemoryFailure,
    MemoryItem,
    OOMEvent,
    ProbeSpec,
    Retry,
)
from simrun.recovery import checked, decide
from simrun.sink import SinkEntry

MIB = 1 << 20


def probe(values=1000, period=1.0):
    return ProbeSpec("p", (values,), np.dtype("f4"), ("neuron",), period)


def estimate(per_step=4000, fixed=10 * MIB, shared=True):
    items = (
        MemoryItem("parameters", "device", fixed=fixed, resident=True),
        MemoryItem("probe p", "device", per_step=per_step),
    )
    return MemoryEstimate(items, shared)


PROBES = (probe(),)
NPY = SinkEntry("npy", "", "", "")


def plan(budget=None, chunk=None, probes=PROBES, end=100_000, alignment=1, disk=None, **kw):
    full = complete(estimate(**kw), probes, resident=100 * MIB, sink=NPY)
    budget = Budget(budget, None, "asked for", "-")
    return make_plan(0, end, full, budget, probes, alignment, chunk, disk)


def test_peak_of_shared_memory_is_the_sum_of_device_and_host():
    made = plan(chunk=50)
    # the process held 100 MiB, 10 of them the parameters'
    assert made.peak_host == 100 * MIB + 50 * (4000 + 4000)
    assert made.peak_device == 10 * MIB + 50 * 4000


def test_device_memory_of_its_own_is_not_counted_on_the_host():
    full = complete(estimate(shared=False), (probe(),), resident=100 * MIB, sink=NPY)
    assert full.peak("host", 10) == 100 * MIB + 10 * 4000
    assert full.peak("device", 10) == 10 * MIB + 10 * 4000


def test_what_a_sink_needs_is_counted():
    zarr = SinkEntry("zarr", "", "", "", working_bytes=36 * MIB)
    without, with_ = (complete(estimate(), PROBES, 100 * MIB, sink) for sink in (NPY, zarr))
    assert with_.peak("host", 10) - without.peak("host", 10) == 36 * MIB
    assert "sink zarr" in largest_consumers(with_, 10)


def test_without_need_the_chunk_is_the_preferred_one():
    assert plan().chunk == 1000
    big = probe(values=1_000_000)
    assert plan(probes=(big,)).chunk == BLOCK_BYTES // big.sample_bytes


def test_the_budget_shortens_the_chunk_asked_for_or_not():
    for chunk in (None, 5000):
        made = plan(budget=100 * MIB + 300 * 8000 + 17, chunk=chunk)
        assert made.chunk == 300
        assert "host budget" in made.reason
        assert made.peak_host <= made.budget.host


def test_chunks_are_multiples_of_the_alignment():
    assert plan(budget=100 * MIB + 303 * 8000, alignment=10).chunk == 300
    assert preferred_chunk((probe(),), 7) == 994


def test_a_budget_that_one_step_does_not_fit_is_refused_with_figures():
    with pytest.raises(BudgetError) as caught:
        plan(budget=100 * MIB)
    assert "a chunk of 1 step needs host 100 MiB of 100 MiB (asked for)" in caught.value.message
    assert "process" in caught.value.message
    assert "--budget" in caught.value.hint


def test_output_that_does_not_fit_on_the_disk_is_refused_with_figures():
    assert plan(disk=400_000_000).output_bytes == 400_000_000
    with pytest.raises(BudgetError, match=r"381 MiB of samples, 381 MiB free"):
        plan(disk=400_000_000 - 1)


def test_a_sparse_probe_counts_by_its_period():
    made = plan(probes=(probe(period=10.0), probe(period=math.inf)), end=1000)
    assert made.output_bytes == 100 * 4000 + 4000


def test_a_short_run_is_one_chunk():
    assert plan(end=17).chunk == 17
    assert plan(end=17).chunks == 1


def test_largest_fitting_takes_the_tighter_limit():
    budget = Budget(1000 * MIB, 11 * MIB, "", "")
    steps, where = largest_fitting(estimate(), budget)
    assert (steps, where) == (MIB // 4000, "device")


def test_a_surprise_in_the_first_chunk_shortens_the_next():
    made = plan(budget=100 * MIB + 1000 * 8000, chunk=1000)
    fine, message = corrected(made, made.peak_host, made.peak_host, 1000)
    assert fine is made
    assert "+0.0%" in message
    shorter, message = corrected(made, made.peak_host + 8_000_000, made.peak_host, 1000)
    assert shorter.chunk == 500
    assert "shortened from 1000 to 500" in message


@pytest.mark.parametrize(
    ("steps", "alignment", "fallback", "decision"),
    [
        (100, 1, False, Retry(50)),
        (100, 8, False, Retry(48)),
        (3, 1, False, Retry(1)),
        (9, 8, False, Retry(8)),
        (1, 1, True, Fallback()),
        (8, 8, True, Fallback()),
        (1, 1, False, Abort("even a chunk of 1 step doesn't fit")),
    ],
)
def test_recovery(steps, alignment, fallback, decision):
    failure = MemoryFailure("device", "no")
    event = OOMEvent(failure, Chunk(10, 10 + steps, 1000, steps), 1, alignment, fallback)
    assert decide(event) == decision


def test_a_policys_retry_is_aligned():
    event = OOMEvent(MemoryFailure("device", "no"), Chunk(0, 64, 640, 64), 1, 8, False)
    assert checked(Retry(13), event) == Retry(8)
    assert checked(Retry(3), event) == Retry(8)
