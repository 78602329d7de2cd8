"""Probes of every kind, and their samples: pure functions of the absolute step."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from simrun import events
from simrun.records import ProbeBlock, ProbeSpec
from simrun.sampling import recorded_steps

DT = 0.001
END = 66
#: Steps of the blocks that are appended.
CHUNK = 3


def _probe(name: str, shape: tuple[int, ...], dtype: str, **keywords: Any) -> ProbeSpec:
    dims = tuple(f"axis{index}" for index in range(len(shape)))
    return ProbeSpec(name, shape, np.dtype(dtype), keywords.pop("dims", dims), **keywords)


#: Floats of both sizes and byte orders, bools, integers; scalars, nothing at all, a minibatch,
#: three axes; whole, fractional and infinite periods.
DENSE = (
    _probe("spikes", (2, 5), "f4", dims=("minibatch", "neuron"), attrs={"object": "a.neurons"}),
    _probe("voltage", (7,), ">f8", period=10.0, attrs={"units": "V"}),
    _probe("fraction", (), "<i2", period=2.5),
    _probe("flag", (3,), "?"),
    _probe("nothing", (0,), "f4"),
    _probe("last", (4,), "f8", period=math.inf),
    _probe("cube", (2, 3, 2), "<u4", period=4.0),
    _probe("square", (2, 2), "u1", dims=("x", "x"), period=2.0),
    _probe("wide", (3,), "<i8"),
)
#: Stored as events: some samples have none, and -0.0 is one.
EVENTS = (
    _probe("raster", (2, 5), "f4", dims=("minibatch", "neuron"), attrs={"format": "events"}),
    _probe("graded", (6,), "f8", attrs={"format": "events"}),
)


def samples(probe: ProbeSpec, start: int, stop: int, end: int = END) -> np.ndarray[Any, Any]:
    """What a probe records in steps ``start+1 … stop``."""
    steps = recorded_steps(probe.period, start, stop, end)
    key = probe.name, probe.shape, probe.dtype.str
    rows = [_sample(*key, int(step)) for step in steps]
    # np.stack would make the byte order the machine's
    return np.array(rows, probe.dtype).reshape(len(rows), *probe.shape)


@cache
def _sample(name: str, shape: tuple[int, ...], dtype: str, step: int) -> np.ndarray[Any, Any]:
    values: Any = np.random.default_rng([step, *name.encode()]).random(shape)
    if name == "raster":
        values = np.where(values < 0.1, 1000.0, 0.0)
    elif name == "graded":
        values = np.where(values < 0.1, values, np.where(values > 0.9, -0.0, 0.0))
    elif dtype == "|b1":
        values = values < 0.5
    else:
        values = values * 200 - (0 if np.dtype(dtype).kind == "u" else 100)
    return np.asarray(values, dtype)


def block(
    start: int, stop: int, probes: Sequence[ProbeSpec], end: int = END, as_events: bool = False
) -> ProbeBlock:
    """What an adapter hands over for a chunk; of events maybe what it found on its device."""
    found: dict[str, Any] = {p.name: samples(p, start, stop, end) for p in probes}
    if as_events:
        names = [p.name for p in probes if p.attrs.get("format") == "events"]
        found |= {name: events.encode(found[name]) for name in names}
    return ProbeBlock(start, stop, found)


def same(found: Any, expected: np.ndarray[Any, Any]) -> bool:
    """Bit for bit, whatever the byte order."""
    found = np.asarray(found)
    native = found.astype(found.dtype.newbyteorder("="))
    wanted = expected.astype(expected.dtype.newbyteorder("="))
    described = native.shape == wanted.shape and native.dtype == wanted.dtype
    return bool(described and native.tobytes() == wanted.tobytes())
