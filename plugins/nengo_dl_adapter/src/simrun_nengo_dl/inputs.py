"""The values of the input nodes: computed or read on the host, one chunk at a time.

An input node has no input but the time. A constant goes to the device once; a function or a
process is called once per step, in order, as nengo-dl does; a file is read piece by piece.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nengo
import numpy as np

from simrun.errors import SimulationError

Array = np.ndarray[Any, Any]

# TensorFlow takes over a host array without a copy only where it starts at such an address
ALIGNMENT = 64


def aligned_empty(shape: Sequence[int], dtype: Any) -> Array:
    """An array of unset values that TensorFlow can use without copying it."""
    nbytes = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
    raw = np.empty(nbytes + ALIGNMENT, np.uint8)
    offset = -raw.ctypes.data % ALIGNMENT
    return raw[offset : offset + nbytes].view(dtype).reshape(shape)


@dataclass
class InputNode:
    """An input node whose values change from step to step.

    Parameters
    ----------
    node : nengo.Node
    label : str
        For messages.
    data : numpy.ndarray, optional
        Memory-mapped values, shape (minibatch or 1, steps, size); None: functions are called.
    file : pathlib.Path, optional
        Where they are.
    """

    node: nengo.Node
    label: str
    data: Array | None = None
    file: Path | None = None


def fill(
    nodes: Sequence[tuple[Array, InputNode, Sequence[Any]]], start: int, steps: int, dt: float
) -> None:
    """Write the nodes' values in steps ``start+1 … start+steps``.

    Step by step, all nodes in each: those that share a generator draw from it in the same order
    for every chunk length.

    Parameters
    ----------
    nodes : sequence of (target, node, functions)
        ``target`` has shape (at least steps, minibatch, size); the functions are one for all the
        minibatch, or one for each of its members. They are called even where nobody reads the
        values, since they may have side effects.
    """
    computed = []
    for target, item, functions in nodes:
        if item.data is None:
            computed.append((target if target.shape[2] else None, functions, item.label))
            continue
        target[:steps] = item.data[:, start : start + steps].swapaxes(0, 1)
    for i in range(steps if computed else 0):
        time = (start + i + 1) * dt
        for target, functions, label in computed:
            # assigned at once, as a function may return the same array each time, changed
            values = [function(time) for function in functions]
            if target is None:
                continue
            try:
                target[i] = values
            except ValueError:
                raise SimulationError(
                    f"node {label} returned values of shape {np.shape(values[0])} at "
                    f"t = {time:.9g} s, after {target.shape[2:]} before",
                    "a node's output must have the same size in each step",
                ) from None


def available(nodes: Sequence[InputNode]) -> tuple[int, str] | None:
    """Steps of the shortest data file, and which it is; None where there are no files."""
    lengths = [
        (item.data.shape[1], f"nengo_dl.inputs.{item.label}: {item.file}")
        for item in nodes
        if item.data is not None
    ]
    return min(lengths, default=None)
