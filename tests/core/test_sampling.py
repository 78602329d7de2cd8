import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simrun.sampling import recorded_steps, sample_count

PERIODS = st.one_of(
    st.integers(1, 50).map(float),
    st.floats(1, 50),
    st.sampled_from([0.3 / 0.1, (0.1 + 0.1 + 0.1) / 0.1, 0.007 / 0.001, 0.0035 / 0.001, math.inf]),
)


@given(PERIODS, st.integers(0, 300), st.lists(st.integers(1, 80), max_size=8))
def test_recorded_steps_do_not_depend_on_the_chunks(period, start, lengths):
    edges = np.cumsum([start, *lengths])
    end = int(edges[-1]) + 3
    parts = [recorded_steps(period, int(a), int(b), end) for a, b in itertools.pairwise(edges)]
    whole = recorded_steps(period, start, int(edges[-1]), end)
    assert np.array_equal(np.concatenate([np.empty(0, np.int64), *parts]), whole)
    assert sample_count(period, start, int(edges[-1]), end) == len(whole)


@pytest.mark.parametrize(
    ("period", "steps"),
    [
        (1.0, [1, 2, 3, 4, 5, 6]),
        (3.0, [3, 6]),
        (2.5, [3, 5]),
        ((0.1 + 0.1 + 0.1) / 0.1, [4]),  # rounding makes nengo record one step late
        (math.inf, [6]),
    ],
)
def test_the_rule(period, steps):
    assert recorded_steps(period, 0, 6, 6).tolist() == steps


def test_the_rule_is_that_of_nengos_simulator():
    for sample_every, dt in [
        (0.003, 0.001),
        (0.0035, 0.001),
        (0.007, 0.001),
        (0.3, 0.1),
        (0.06, 0.02),
    ]:
        period = sample_every / dt
        expected = [n for n in range(1, 5001) if n % period < 1]
        assert recorded_steps(period, 0, 5000, 5000).tolist() == expected
