"""What a chunk takes, item by item: pure arithmetic over shapes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from simrun.records import MemoryEstimate, MemoryItem
from simrun_nengo_dl.inputs import InputNode
from simrun_nengo_dl.probes import Recording

# what compiling for another chunk length adds to the process, as measured on ten networks
COMPILER_BYTES = 10 * 2**20


@dataclass(frozen=True)
class Sizes:
    """Bytes that don't depend on the chunk.

    Parameters
    ----------
    parameters, state : int
        Weights and the like; what changes from step to step (minibatch included).
    workspace : int
        What a step computes, the new state included: the state at the chunk's start is kept
        beside it for a rollback.
    """

    parameters: int
    state: int
    workspace: int


def estimate(
    sizes: Sizes,
    recordings: Sequence[Recording],
    inputs: Sequence[InputNode],
    columns: int,
    minibatch: int,
    itemsize: int,
    steps: int,
    *,
    on_gpu: bool,
    xla_constants: int | None,
) -> MemoryEstimate:
    """Memory of a chunk of ``steps`` steps.

    The samples are written once, where they stay until the sink has them: on a CPU the arrays
    handed over *are* the buffers; from a GPU they are copied to the host. The copy that the
    writer holds meanwhile is the core's to count.
    """
    items = [
        MemoryItem("parameters", "device", sizes.parameters, resident=True),
        MemoryItem("state", "device", sizes.state, resident=True),
        MemoryItem("workspace", "device", sizes.workspace),
    ]
    if xla_constants is not None:
        # measured: so many copies of the program's constants, in the graph and in the executable
        compiling = COMPILER_BYTES + 5 * xla_constants
        items.append(MemoryItem("compiler (XLA)", "host", compiling))
    for item in recordings:
        row = int(np.prod(item.shape, dtype=np.int64)) * item.spec.dtype.itemsize
        spare = 0 if item.every_step else row * (item.rows(steps) - _rows(item, steps))
        name, per_step = f"probe {item.spec.name}", row / item.spec.period
        # on a CPU the writer holds the buffer itself, with all its rows
        buffers = 1 if on_gpu else 2
        items.append(MemoryItem(name, "device", math.ceil(spare) * buffers, per_step))
        if on_gpu:
            items.append(MemoryItem(f"{name} (host copy)", "host", 0, per_step))
    for node in inputs:
        per_step = minibatch * node.node.size_out * itemsize
        if per_step:
            items.append(MemoryItem(f"input {node.label}", "host", 0, per_step))
            if on_gpu:
                items.append(MemoryItem(f"input {node.label} (copy)", "device", 0, per_step))
    if columns:
        # made on the host, stacked, and passed on
        items.append(MemoryItem("sampling schedule", "host", 0, 16.0 + 12.0 * columns))
    return MemoryEstimate(tuple(items), shared=not on_gpu)


def _rows(item: Recording, steps: int) -> float:
    return steps / item.spec.period
