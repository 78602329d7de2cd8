"""What is recorded: blocks allocated for a chunk, and reductions carried from step to step."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from simrun.errors import ConfigError
from simrun.records import Chunk, ProbeSpec
from simrun.sampling import recorded_steps
from simrun_nengo import networks
from simrun_nengo.networks import NamedProbe

Array = np.ndarray[Any, Any]


@dataclass
class Window:
    """The reduction of the steps since the last sample; in the type of the samples.

    Values are added one after the other, so that the chunks can't change the rounding.
    """

    reduce: str
    value: Array
    count: int = 0

    def add(self, present: Array) -> None:
        """Take in a step."""
        if self.count == 0:
            self.value[...] = present
        elif self.reduce == "max":
            np.maximum(self.value, present, out=self.value)
        else:
            np.add(self.value, present, out=self.value)
        self.count += 1

    def close(self, target: Array) -> None:
        """Write the sample; the next window begins."""
        if self.reduce == "mean":
            np.divide(self.value, self.count, out=target)
        else:
            target[...] = self.value
        self.count = 0


@dataclass
class Recording:
    """A probe, as the loop sees it.

    Parameters
    ----------
    spec : ProbeSpec
        What the core and the sink see of it.
    shape : tuple of int
        Shape of its value in the simulator; the spec's may have a minibatch axis more.
    window : Window or None
        Where a value is carried from step to step.
    """

    spec: ProbeSpec
    shape: tuple[int, ...]
    window: Window | None = field(default=None)


@dataclass(frozen=True)
class Block:
    """One probe's samples of a chunk, while they are recorded.

    Parameters
    ----------
    samples : numpy.ndarray
        To be filled.
    recorded : list of int
        The steps that are recorded, as offsets from the chunk's first.
    """

    samples: Array
    recorded: list[int]


def make_recording(item: NamedProbe, shape: Sequence[int], dtype: Any, batched: bool) -> Recording:
    """Describe a probe of a built network.

    Parameters
    ----------
    shape, dtype
        Of its value in the simulator.
    batched : bool
        Whether samples have a minibatch axis, of length 1.
    """
    shape, dtype = tuple(shape), np.dtype(dtype)
    if item.reduce == "mean" and dtype.kind != "f":
        dtype = np.dtype(float)
    batch, axis = ((1,), ("minibatch",)) if batched else ((), ())
    spec = ProbeSpec(
        item.name,
        (*batch, *shape),
        dtype,
        (*axis, *networks.dims(item.probe, len(shape))),
        item.period,
        item.reduce,  # type: ignore[arg-type]
        networks.attributes(item),
    )
    reduced = item.reduce != "last" and item.period != 1
    window = Window(item.reduce, np.zeros(shape, dtype)) if reduced else None
    return Recording(spec, shape, window)


def allocate(recordings: Sequence[Recording], chunk: Chunk) -> list[Block]:
    """Memory for a chunk's samples."""
    blocks = []
    for item in recordings:
        spec = item.spec
        steps = recorded_steps(spec.period, chunk.start, chunk.stop, chunk.end) - chunk.start - 1
        samples = np.empty((len(steps), *item.shape), spec.dtype)
        blocks.append(Block(samples, steps.tolist()))
    return blocks


def finish(recordings: Sequence[Recording], blocks: Sequence[Block]) -> dict[str, Array]:
    """The samples of each probe, in their final shape."""
    return {
        item.spec.name: block.samples.reshape(len(block.recorded), *item.spec.shape)
        for item, block in zip(recordings, blocks, strict=True)
    }


def due_at(
    recordings: Sequence[Recording], blocks: Sequence[Block], values: Sequence[Array]
) -> dict[int, list[Callable[[], None]]]:
    """What to do after which step of a chunk, for the probes that don't record every one.

    Parameters
    ----------
    values : sequence of numpy.ndarray
        The live values, one for each recording.
    """
    due: dict[int, list[Callable[[], None]]] = {}
    for item, block, value in zip(recordings, blocks, values, strict=True):
        if item.spec.period == 1:
            continue
        for row, step in enumerate(block.recorded):
            due.setdefault(step, []).append(_take(item.window, block.samples, row, value))
    return due


def _take(window: Window | None, samples: Array, row: int, value: Array) -> Callable[[], None]:
    # samples[row, ...] is an array, also where a sample is a number
    target = samples[row, ...]
    if window is None:
        return lambda: np.copyto(target, value)
    return lambda: window.close(target)


def record(
    recordings: Sequence[Recording], blocks: Sequence[Block], values: Sequence[Array], first: int
) -> None:
    """Record several steps at once, for a simulator that keeps them for a while.

    Parameters
    ----------
    values : sequence of numpy.ndarray, each of shape (steps, ...)
        One for each recording.
    first : int
        The first of the steps, as an offset from the chunk's first.
    """
    for item, block, rows in zip(recordings, blocks, values, strict=True):
        if item.spec.period == 1:
            block.samples[first : first + len(rows)] = rows
            continue
        done = bisect_left(block.recorded, first)
        for i, row in enumerate(rows, first):
            if item.window is not None:
                item.window.add(row)
            if done < len(block.recorded) and block.recorded[done] == i:
                if item.window is None:
                    block.samples[done] = row
                else:
                    item.window.close(block.samples[done, ...])
                done += 1


def refuse_sparse(item: NamedProbe) -> ConfigError:
    """The error for a probe whose value is a sparse matrix."""
    return ConfigError(
        f"probe {item.name}: {item.label} has sparse weights, which can't be recorded as an array",
        "leave it out; weights that nothing learns don't change",
    )
