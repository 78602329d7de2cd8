"""Weights to conductances and back: how a matrix lies on tiles. No non-ideality.

A layer's weights are matrices (groups, m, n): rows are inputs, columns outputs. On the crossbars
they are conductances (crossbars, groups, m, columns), laid side by side without padding:

- double column: two crossbars, for the positive and the negative parts; an output is the
  difference of two currents, of circuits that are solved each on its own;
- single column: one crossbar of shifted weights; the last column of each tile is a reference,
  all of whose devices stand for weight 0.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch

from simrun_torch_crossbar.config import CrossbarConfig


@dataclass(frozen=True)
class Grid:
    """How a matrix of m inputs and n outputs is cut into tiles.

    Parameters
    ----------
    m, n : int
        Inputs and outputs.
    tile : tuple of int
        Rows and columns of devices of a tile; those at the end may have fewer.
    single : bool
        Whether the last column of each tile is the reference.
    """

    m: int
    n: int
    tile: tuple[int, int]
    single: bool

    @property
    def crossbars(self) -> int:
        """Number of crossbars that hold one matrix."""
        return 1 if self.single else 2

    @property
    def rows(self) -> list[slice]:
        """The rows of each row of tiles."""
        return _cut(self.m, self.tile[0])

    @property
    def outputs(self) -> list[slice]:
        """The outputs of each column of tiles."""
        return _cut(self.n, self.tile[1] - self.single)

    @property
    def columns(self) -> list[slice]:
        """The columns of devices of each column of tiles."""
        return [
            slice(x.start + k * self.single, x.stop + (k + 1) * self.single)
            for k, x in enumerate(self.outputs)
        ]

    @property
    def width(self) -> int:
        """Columns of devices in all."""
        return self.columns[-1].stop

    @property
    def tiles(self) -> int:
        """Number of tiles that hold one matrix, of all crossbars."""
        return self.crossbars * len(self.rows) * len(self.columns)

    def by_shape(self) -> Iterator[tuple[tuple[int, int], list[tuple[slice, slice]]]]:
        """The tiles of one crossbar, those of a shape together: at most four shapes."""
        found: dict[tuple[int, int], list[tuple[slice, slice]]] = {}
        for r in self.rows:
            for c in self.columns:
                found.setdefault((r.stop - r.start, c.stop - c.start), []).append((r, c))
        yield from found.items()

    def combine(self, currents: torch.Tensor) -> torch.Tensor:
        """Subtract: (crossbars, ..., columns) to (..., n). Of currents, or of W itself."""
        if not self.single:
            return currents[0] - currents[1]
        parts = [
            currents[0, ..., c.start : c.stop - 1] - currents[0, ..., c.stop - 1 : c.stop]
            for c in self.columns
        ]
        return parts[0] if len(parts) == 1 else torch.cat(parts, -1)


def matrices(weight: torch.Tensor, groups: int) -> torch.Tensor:
    """Weights of a layer, (out, in / groups, *kernel), as matrices (groups, m, n)."""
    return weight.reshape(groups, weight.shape[0] // groups, -1).mT


def weights(matrix: torch.Tensor, shape: torch.Size) -> torch.Tensor:
    """The inverse of `matrices`, contiguous."""
    return matrix.mT.reshape(shape).contiguous()


def largest(weight: torch.Tensor, quantile: float) -> float:
    """The |w| that g_on stands for: the largest, or a quantile; 1 where all are 0."""
    size = weight.abs().flatten()
    if quantile == 1:
        found = size.max()
    else:  # torch.quantile takes only 2**24 values
        found = size.kthvalue(max(1, math.ceil(quantile * size.numel()))).values
    return float(found) or 1.0


def fractions(matrix: torch.Tensor, grid: Grid, scale: float) -> torch.Tensor:
    """Where between g_off (0) and g_on (1) each device is to be.

    Parameters
    ----------
    matrix : Tensor, shape (groups, m, n)
    grid : Grid
    scale : float
        The |w| of g_on; larger ones are clipped.

    Returns
    -------
    Tensor, shape (crossbars, groups, m, grid.width)
    """
    w = matrix / scale
    if not grid.single:
        return torch.stack([w.clamp(0, 1), (-w).clamp(0, 1)])
    found = w.new_full((1, *w.shape[:2], grid.width), 0.5)
    for columns, outputs in zip(grid.columns, grid.outputs, strict=True):
        found[0, ..., columns.start : columns.stop - 1] = (w[..., outputs].clamp(-1, 1) + 1) / 2
    return found


def ohms_per_weight(config: CrossbarConfig, scale: float) -> float:
    """Weight that a combined conductance of one siemens stands for."""
    span = config.g_on - config.g_off
    return scale / span if config.mapping == "double" else 2 * scale / span


def _cut(size: int, length: int) -> list[slice]:
    return [slice(k, min(k + length, size)) for k in range(0, size, length)]
