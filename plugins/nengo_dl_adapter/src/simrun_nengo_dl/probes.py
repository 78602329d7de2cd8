"""What is recorded, and which row of a chunk's buffer each step writes to.

The loop on the device has no branches. A probe that isn't recorded at every step writes each
step's value into the row that the next recorded step overwrites; steps after the last recorded
one write into a spare row at the end. Which row that is, is worked out here, on the host, from
`simrun.sampling.recorded_steps`, so the recorded steps don't depend on the chunking.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from simrun.records import Chunk, ProbeSpec
from simrun.sampling import recorded_steps
from simrun_nengo.networks import NamedProbe, attributes, dims

Ints = np.ndarray[Any, np.dtype[np.int32]]


@dataclass(frozen=True)
class Recording:
    """A probe, as the loop sees it.

    Parameters
    ----------
    spec : ProbeSpec
        What the core and the sink see of it.
    signal : nengo_dl.signals.TensorSignal
        Where the loop finds the value.
    shape : tuple of int
        Shape of the value, always with the minibatch axis that nengo-dl gives it.
    """

    spec: ProbeSpec
    signal: Any
    shape: tuple[int, ...]

    @property
    def every_step(self) -> bool:
        """Whether each step is recorded; then a reduction over one step changes nothing."""
        return self.spec.period == 1

    @property
    def accumulates(self) -> bool:
        """Whether a value is carried from step to step."""
        return self.spec.reduce != "last" and not self.every_step

    def rows(self, steps: int) -> int:
        """The most rows that a chunk of so many steps needs, spare row included."""
        if self.every_step:
            return steps
        return 2 if math.isinf(self.spec.period) else math.floor(steps / self.spec.period) + 2


@dataclass(frozen=True)
class Schedule:
    """Which rows the steps of one chunk write to.

    Parameters
    ----------
    recorded : tuple of int
        Samples of each recording.
    marks : numpy.ndarray of int32, shape (steps, columns)
        The row of each recording that isn't recorded at every step; then for each one that
        accumulates, whether a window begins; then for each mean, the window's length in steps.
    """

    recorded: tuple[int, ...]
    marks: Ints


def columns(recordings: Sequence[Recording]) -> int:
    """Number of columns of `Schedule.marks`."""
    return sum(
        (not r.every_step) + r.accumulates + (r.accumulates and r.spec.reduce == "mean")
        for r in recordings
    )


def schedule(recordings: Sequence[Recording], chunk: Chunk) -> Schedule:
    """Work out where each step of a chunk writes to."""
    recorded = []
    rows: list[Ints] = []
    begins: list[Ints] = []
    lengths: list[Ints] = []
    for item in recordings:
        if item.every_step:
            recorded.append(chunk.steps)
            continue
        period = item.spec.period
        steps = recorded_steps(period, chunk.start, chunk.stop, chunk.end)
        recorded.append(len(steps))
        here = np.zeros(chunk.steps, np.int32)
        here[steps - chunk.start - 1] = 1
        # the recorded steps before step i are the rows that are filled already
        rows.append((np.cumsum(here, dtype=np.int32) - here).astype(np.int32))
        if not item.accumulates:
            continue
        began = np.roll(here, 1)
        began[0] = _begins(period, chunk.start)
        begins.append(began)
        if item.spec.reduce == "mean":
            lengths.append(_lengths(period, steps, here, chunk))
    packed = [*rows, *begins, *lengths]
    marks = np.stack(packed, axis=1) if packed else np.zeros((chunk.steps, 0), np.int32)
    return Schedule(tuple(recorded), marks)


def _begins(period: float, start: int) -> int:
    """Whether a window begins with step ``start + 1``."""
    if start == 0:
        return 1
    return 0 if math.isinf(period) else len(recorded_steps(period, start - 1, start, start))


def _lengths(period: float, steps: np.ndarray[Any, Any], here: Ints, chunk: Chunk) -> Ints:
    """At each recorded step the length of the window that ends there; elsewhere 1."""
    lengths = np.ones(chunk.steps, np.int32)
    if len(steps):
        first = chunk.start
        if not math.isinf(period):
            # the last recorded step at or before the chunk's start
            back = max(chunk.start - math.ceil(period) - 2, 0)
            earlier = recorded_steps(period, back, chunk.start, chunk.start)
            first = int(earlier[-1]) if len(earlier) else 0
        else:
            first = 0
        lengths[here == 1] = np.diff(steps, prepend=first)
    return lengths


def make_recordings(
    tensor_graph: Any, named: Sequence[NamedProbe], minibatch: bool
) -> tuple[Recording, ...]:
    """Describe the probes of a built network.

    Parameters
    ----------
    tensor_graph : nengo_dl.tensor_graph.TensorGraph
    named : sequence of NamedProbe
    minibatch : bool
        Whether the user asked for a minibatch axis.
    """
    return tuple(_recording(tensor_graph, item, minibatch) for item in named)


def _recording(tensor_graph: Any, item: NamedProbe, minibatch: bool) -> Recording:
    signal = tensor_graph.signals[tensor_graph.model.sig[item.probe]["in"]]
    shape = tuple(int(n) for n in signal.full_shape)
    axes = dims(item.probe, len(signal.shape))
    sample = tuple(int(n) for n in signal.shape)
    if signal.minibatched and minibatch:
        axes, sample = ("minibatch", *axes), shape
    spec = ProbeSpec(
        item.name,
        sample,
        np.dtype(signal.dtype),
        axes,
        item.period,
        item.reduce,  # type: ignore[arg-type]
        attributes(item),
    )
    return Recording(spec, signal, shape)
