"""Where a solve keeps its numbers: one stretch of memory, laid out in advance. No numbers.

The layout is the prediction: ``peak_bytes`` adds up what ``condense`` will ask for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from simrun_torch_crossbar.elimination import Front, Zeros, fronts, is_base, levels
from simrun_torch_crossbar.kernels import cpu

HOLES = 24 << 20
"""Bytes of an allocator's heap that torch's many arrays leave unused, at most."""

ALIGNMENT = 64
"""Bytes; each array begins at a multiple."""


@dataclass(frozen=True)
class Layout:
    """Bytes of the kernels' working memory, where each front begins after it, and the total."""

    work: int
    starts: dict[Front, int]
    total: int


def layout(m: int, n: int, zeros: Zeros, tiles: int, dtype: torch.dtype) -> Layout:
    """Lay out what the CPU kernels need for ``tiles`` tiles: first fit, level by level."""
    tree = levels(fronts(m, n, zeros, cpu.BASE), cpu.BASE)
    waiting = parents([front for level in tree for front in level], cpu.BASE)
    work = max(cpu.block_work_bytes(front, zeros) for front in tree[0])
    work = max([work, *(cpu.merge_work_bytes(level, tiles, dtype) for level in tree[1:])])
    starts: dict[Front, int] = {}
    held: dict[Front, tuple[int, int]] = {}
    total = work = _aligned(work)
    for level in tree:
        for front in level:
            size = _aligned(front.count * tiles * cpu.couplings(front) * dtype.itemsize)
            at = work
            for start, end in sorted(held.values()):
                if start - at >= size:
                    break
                at = end
            starts[front] = at
            held[front] = (at, at + size)
            total = max(total, at + size)
        for front in level:
            for child in forgotten(front, cpu.BASE, waiting):
                del held[child]
    return Layout(work, starts, total)


def parents(tree: Sequence[Front], base: int) -> dict[Front, int]:
    """Return how many fronts need each front's result."""
    waiting = dict.fromkeys(tree, 0)
    for front in tree:
        for child in _needed(front, base):
            waiting[child] += 1
    return waiting


def forgotten(front: Front, base: int, waiting: dict[Front, int]) -> list[Front]:
    """Return the children that nothing needs after ``front``; ``waiting`` is updated."""
    for child in _needed(front, base):
        waiting[child] -= 1
    return [child for child in _needed(front, base) if not waiting[child]]


def _needed(front: Front, base: int) -> set[Front]:
    return set() if is_base(front, base) else {child for child, _ in front.children}


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


def peak_bytes(
    tiles: int, m: int, n: int, dtype: torch.dtype, zeros: Zeros, device: str = "cpu"
) -> int:
    """Return the most memory that W of a group of tiles takes beside G and W, in bytes.

    Parameters
    ----------
    tiles : int
        In the group.
    m, n : int
        Rows and columns of a tile.
    dtype : torch.dtype
        float32 or float64.
    zeros : Zeros
        The wires that are shorts.
    device : str
        "cpu" or "cuda".
    """
    if device == "cpu" and cpu.available():
        return layout(m, n, zeros, tiles, dtype).total
    if device == "cpu":
        tiles = 1  # by torch alone: one at a time, whatever the group
    tree = fronts(m, n, zeros)
    waiting = parents(tree, 1)
    held = peak = 0
    for front in tree:
        blocks, e, k = front.count * tiles * dtype.itemsize, front.eliminated, front.kept
        nodes = front.nodes**2
        # The front and a child's share of it; or the front, S, L, P, and a copy of P or K.
        peak = max(peak, held + blocks * max(2 * nodes, nodes + 2 * e * e + e * k + k * max(e, k)))
        held += blocks * k * k
        held -= sum(
            x.count * tiles * dtype.itemsize * x.kept**2 for x in forgotten(front, 1, waiting)
        )
    # Many arrays of many sizes, one after the other: the heap keeps holes between them.
    return peak + min(peak, HOLES) if device == "cpu" else peak


def plan_bytes(m: int, n: int) -> int:
    """Return the bytes that the order of elimination takes, kept for each shape of tile.

    A megabyte for the blocks of up to 16 x 16 devices and their programs (measured), and arrays
    of port numbers that grow with the tile.
    """
    return 1_200_000 + 1000 * (m + n)


def weights_bytes(tiles: int, m: int, n: int, dtype: torch.dtype, zeros: Zeros) -> int:
    """Return about the most memory that node voltages or a backward pass take, in bytes.

    Parameters are those of ``peak_bytes``. All weights are alive at once; the couplings going up,
    and the derivatives going down, are at most two levels'.
    """
    tree = fronts(m, n, zeros)
    kept = sum(front.count * front.eliminated * front.kept for front in tree)
    largest = max(front.count * front.nodes**2 for front in tree)
    return tiles * (kept + 4 * largest) * dtype.itemsize
