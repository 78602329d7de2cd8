"""The XLA path is no farther from nengo's own simulator than nengo-dl is (`fidelity.py`)."""

import fidelity
import pytest


@pytest.mark.parametrize(
    "name",
    [n if n in ("adaptive", "chaotic") else pytest.param(n, marks=pytest.mark.slow)
     for n in fidelity.NAMES],
)  # fmt: skip
def test_no_farther_from_nengo_than_nengo_dl(name):
    found = fidelity.compare(name)
    (first, rate, values), (their_first, their_rate, their_values) = found["xla"], found["nengo-dl"]
    # which of two orders of rounding moves a spike first is chance: half as early is as good
    if their_first is None:
        assert first is None
    elif first is not None:
        assert first >= their_first / 2
    if rate is not None:
        assert rate <= 2 * their_rate + 1e-2
    if values is not None:
        assert values <= 3 * their_values + 1e-6
    first, rate, values = found["xla64"]
    if name == "chaotic":
        # a difference of rounding, 1e-16, takes twice as long as one of 1e-7 to move a spike
        assert first > found["xla"][0]
        assert rate <= 1e-2
        return
    assert first is None
    assert not rate
    assert values < 1e-9
