"""Solves the tiles of many layers in groups that fit in memory; smaller groups when it runs out.

The group changes memory and time, not one bit of W.
"""

from __future__ import annotations

import gc
import logging
import re
from typing import Any

import torch

from simrun_torch_crossbar.elimination import Zeros
from simrun_torch_crossbar.mapping import Grid
from simrun_torch_crossbar.memory import peak_bytes
from simrun_torch_crossbar.solver import GROUP_BYTES, transfer_matrix

log = logging.getLogger(__name__)
_TELLING = re.compile(r"not enough memory|can't allocate memory|out of memory", re.IGNORECASE)


def out_of_memory(error: BaseException) -> bool:
    """Whether memory ran out: by type, and for torch's CPU allocator, which has none, by text."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and bool(_TELLING.search(str(error)))


def group_bytes(
    tiles: int,
    shape: tuple[int, int],
    stored: torch.dtype,
    dtype: torch.dtype,
    ohms: tuple[float, ...],
    device: str,
) -> int:
    """Bytes that solving a group takes, beside all G and W.

    The solver's own, and the group's conductances as they are stored (``stored``), as they are
    solved, whether they are good (3 bytes each), and W.

    Parameters
    ----------
    tiles : int
        In the group.
    shape : tuple of int
        Rows and columns of a tile.
    stored, dtype : torch.dtype
        Of the conductances, and of the solver.
    ohms : tuple of four floats
    device : str
        "cpu" or "cuda".
    """
    zeros = Zeros(*(r == 0 for r in ohms))
    copies = 2 * dtype.itemsize + (0 if stored == dtype else stored.itemsize) + 3
    entries = tiles * shape[0] * shape[1]
    return peak_bytes(tiles, *shape, dtype, zeros, device) + copies * entries


def group_size(tiles: int, limit: int, *more: Any) -> int:
    """The most of ``tiles`` tiles whose `group_bytes` (``more`` as there) fit, at least 1."""
    low, high = 1, tiles
    while low < high:
        middle = (low + high + 1) // 2
        if group_bytes(middle, *more) <= limit:
            low = middle
        else:
            high = middle - 1
    return low


def default_limit(device: str) -> int:
    """Bytes that a group of tiles takes at most where nothing else is asked for."""
    return GROUP_BYTES.get(device, GROUP_BYTES["cpu"])


def solve_tiles(
    G: torch.Tensor,
    grid: Grid,
    ohms: tuple[float, ...],
    dtype: torch.dtype,
    limit: int | None = None,
) -> torch.Tensor:
    """Return W of all tiles, side by side as their conductances are.

    Parameters
    ----------
    G : Tensor, shape (crossbars, groups, m, grid.width)
        Conductances in siemens.
    grid : Grid
        Where the tiles are.
    ohms : tuple of four floats
        Source, word-line, bit-line and sense resistance.
    dtype : torch.dtype
        Of the solver, float32 or float64.
    limit : int, optional
        Bytes that a group of tiles may take.

    Returns
    -------
    Tensor
        Of G's shape, dtype and device.

    Raises
    ------
    RuntimeError or MemoryError
        Not even one tile fits, on the CPU neither.
    """
    W = torch.empty_like(G)
    if not any(ohms):
        return W.copy_(G)
    flat, out = G.flatten(0, 1), W.flatten(0, 1)
    for shape, places in grid.by_shape():
        jobs = [(matrix, *place) for matrix in range(len(flat)) for place in places]
        kind = G.device.type
        most = default_limit(kind) if limit is None else limit
        size = group_size(len(jobs), most, shape, G.dtype, dtype, ohms, kind)
        device, first = G.device, 0
        while first < len(jobs):
            group = jobs[first : first + size]
            failure = _solve_group(flat, group, ohms, dtype, device, out)
            if failure is None:
                first += len(group)
                continue
            gc.collect()
            if G.is_cuda:
                torch.cuda.empty_cache()
            if len(group) > 1:
                size = len(group) // 2
                log.warning("out of memory solving %d tiles at once: trying %d", len(group), size)
            elif device.type != "cpu":
                device = torch.device("cpu")
                log.warning("out of memory solving one tile: solving on the CPU")
            else:
                raise failure
    return W


def _solve_group(
    flat: torch.Tensor,
    group: list[tuple[int, slice, slice]],
    ohms: tuple[float, ...],
    dtype: torch.dtype,
    device: torch.device,
    out: torch.Tensor,
) -> BaseException | None:
    """Solve and store; return what was raised if memory ran out, without its traceback."""
    try:
        tiles = torch.stack([flat[k, rows, columns] for k, rows, columns in group])
        found = transfer_matrix(tiles.to(device, dtype), ohms, group=len(group))
        for (k, rows, columns), one in zip(group, found, strict=True):
            out[k, rows, columns] = one
    except (RuntimeError, MemoryError) as error:
        if not out_of_memory(error):
            raise
        # the traceback would hold the group's tensors
        return error.with_traceback(None)
    return None
