from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simrun.units import (
    format_bytes,
    format_duration,
    parse_bytes,
    parse_duration,
    parse_steps,
)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("4GiB", 4 * 2**30), ("512 MiB", 512 * 2**20), ("1kib", 1024), ("1.5 GB", 1_500_000_000),
        ("1 kB", 1000), ("7", 7), (7, 7), ("7 B", 7), ("2TiB", 2**41), ("1e3", 1000),
        (" 0.1 MiB ", 104857),
    ],
)  # fmt: skip
def test_parse_bytes(text, size):
    assert parse_bytes(text) == size


@pytest.mark.parametrize(
    "text",
    ["", "GiB", "4 Gib ps", "8 XiB", "-1 GiB", "0", 0, -5, 1.5, True, None, [], "1e999999999 GiB",
     "1,5 GiB", "nan", "9" * 200],
)  # fmt: skip
def test_parse_bytes_refuses(text):
    with pytest.raises(ValueError, match=r"^found .*; allowed: "):
        parse_bytes(text)


def test_a_size_that_could_mean_two_things_is_refused_with_both():
    with pytest.raises(ValueError, match=r"8GiB .* or 8GB"):
        parse_bytes("8g")


@given(st.integers(1, 2**60))
def test_formatted_sizes_are_three_digits_right(size):
    text = format_bytes(size).replace(",", "")
    assert parse_bytes(text) == pytest.approx(size, rel=0.006)  # three digits


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "0.98 KiB"), (1536, "1.50 KiB"), (10 * 2**20, "10.0 MiB"),
     (1023.9 * 2**20, "1.00 GiB"), (-2048, "-2.00 KiB")],
)  # fmt: skip
def test_format_bytes(size, text):
    assert format_bytes(size) == text


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("8 s", 8), ("50ms", 0.05), ("35 ms", 0.035), ("10 min", 600), ("2h", 7200), ("1 d", 86400),
     ("3 us", 3e-6), ("3 µs", 3e-6), ("0.7 s", 0.7), ("1e-3 s", 0.001), ("7 ns", 7e-9)],
)  # fmt: skip
def test_durations_are_the_nearest_float(text, seconds):
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    "text", ["8", 8, 8.0, "s", "8 parsec", "0 s", "-1 s", None, True, "8 S", "1e999 s", "1:30"]
)
def test_parse_duration_refuses(text):
    with pytest.raises(ValueError, match=r"^found .*; allowed: "):
        parse_duration(text)


@pytest.mark.parametrize(
    ("value", "dt", "steps"),
    [(10, None, 10.0), (2.5, 0.001, 2.5), ("10 ms", 0.001, 10.0), ("10", None, 10.0),
     ("8 s", 0.001, 8000.0), ("0.3 s", 0.1, 0.3 / 0.1), ("1 s", 1.0, 1.0)],
)  # fmt: skip
def test_parse_steps(value, dt, steps):
    assert parse_steps(value, dt) == steps
    assert isinstance(parse_steps(value, dt), float)


@given(st.integers(1, 10**6), st.sampled_from([0.001, 0.0005, 0.1, 1 / 3]))
def test_a_duration_divides_by_dt_as_nengo_does(milliseconds, dt):
    seconds = float(f"{milliseconds}e-3")
    if seconds >= dt:
        assert parse_steps(f"{milliseconds} ms", dt) == seconds / dt


@pytest.mark.parametrize(
    ("value", "dt"),
    [("10 ms", None), ("0.1 ms", 0.001), (0, 1), (0.5, 1), (math.nan, 1), (math.inf, 1), (True, 1),
     ([1], 1), (None, 1), (10**400, 1), ("x", 1), ("0", 1), (-3, None)],
)  # fmt: skip
def test_parse_steps_refuses(value, dt):
    with pytest.raises(ValueError, match=r"^found .*; allowed: "):
        parse_steps(value, dt)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0012, "1.2 ms"), (59.94, "59.9 s"), (59.96, "1 min 00 s"), (3599.6, "1 h 00 min"),
     (12000, "3 h 20 min"), (10**6, "11 d 13 h")],
)  # fmt: skip
def test_format_duration(seconds, text):
    assert format_duration(seconds) == text
