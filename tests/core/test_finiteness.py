"""The first step in which samples aren't finite is found, and the run's log names it."""

import numpy as np
import pytest

from simrun.events import encode
from simrun.finiteness import first_not_finite
from simrun.records import ProbeBlock, ProbeSpec


def probe(period=1.0, dtype="float32"):
    return ProbeSpec("p", (3,), np.dtype(dtype), ("neuron",), period)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("as_events", [False, True])
def test_the_first_step_is_found(value, as_events):
    samples = np.zeros((20, 3), np.float32)
    samples[3], samples[7, 2], samples[9] = 1, value, np.nan
    found = encode(samples) if as_events else samples
    assert dict(first_not_finite(ProbeBlock(100, 120, {"p": found}), [probe()], 500)) == {"p": 108}


def test_steps_are_those_recorded():
    samples = np.full((4, 3), np.nan, np.float32)
    block = ProbeBlock(100, 120, {"p": samples})
    assert dict(first_not_finite(block, [probe(5.0)], 500)) == {"p": 105}


@pytest.mark.parametrize("as_events", [False, True])
def test_sums_that_overflow_and_other_types_are_fine(as_events):
    for samples in (np.full((4, 3), 3e38, np.float32), np.zeros((0, 3), np.float32)):
        found = encode(samples) if as_events else samples
        block = ProbeBlock(0, len(samples), {"p": found})
        assert not dict(first_not_finite(block, [probe()], 500))
    integers = ProbeBlock(0, 1, {"p": np.full((1, 3), 2**31 - 1, np.int32)})
    assert not dict(first_not_finite(integers, [probe(dtype="int32")], 500))
