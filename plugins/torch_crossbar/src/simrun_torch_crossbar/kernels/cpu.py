"""Calls of the compiled CPU kernels: tensors to pointers, and the working memory they need."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np
import torch

from simrun_torch_crossbar.elimination import Front, Zeros
from simrun_torch_crossbar.kernels.build import library
from simrun_torch_crossbar.kernels.program import program

BASE = 8
"""Blocks of at most BASE x BASE devices are made in cache, as many at once as a vector has lanes."""


class _Merge(ctypes.Structure):
    _fields_ = (
        ("eliminated", ctypes.c_int), ("floating", ctypes.c_int),
        ("drivers", ctypes.c_int), ("grounds", ctypes.c_int),
        ("ports", ctypes.c_int * 2), ("runs", ctypes.c_int * 2),
        ("run", ctypes.POINTER(ctypes.c_int) * 2),
    )  # fmt: skip


def available() -> bool:
    """Whether the CPU kernels can be called."""
    return library() is not None


def _call(name: str, dtype: torch.dtype, *arguments: object) -> None:
    suffix = {torch.float32: "f32", torch.float64: "f64"}[dtype]
    getattr(library(), f"{name}_{suffix}")(*arguments)


def _pointer(array: torch.Tensor | np.ndarray) -> ctypes.c_void_p:
    at = array.data_ptr() if isinstance(array, torch.Tensor) else array.ctypes.data
    return ctypes.c_void_p(at)


def _aligned(numbers: int, dtype: torch.dtype) -> torch.Tensor:
    """Return uninitialised memory that begins at a multiple of 64 bytes."""
    spare = torch.empty(numbers + 64 // dtype.itemsize, dtype=dtype)
    return spare[-spare.data_ptr() % 64 // dtype.itemsize :]


def blocks(
    G: torch.Tensor, front: Front, zeros: Zeros, wires: Sequence[float], out: torch.Tensor
) -> None:
    """Make all blocks of a front from their devices.

    Parameters
    ----------
    G : Tensor, shape (tiles, m, n), contiguous
        Conductances in siemens.
    front : Front
        At most BASE x BASE devices.
    zeros : Zeros
        The wires that are shorts.
    wires : sequence of 4 floats
        Conductances of source, word-line, bit-line and sense wires in siemens.
    out : Tensor, shape (front.count * tiles, ports, ports)
        The couplings between the blocks' ports, written.
    """
    code = program(front.kind, zeros)
    tiles, m, n = G.shape
    origins = np.ascontiguousarray(front.origins[:, 0] * n + front.origins[:, 1], np.int64)
    conductances = np.array(wires, np.float64)
    threads = torch.get_num_threads()
    lanes = library().crossbar_vector_bytes() // G.element_size()  # type: ignore[union-attr]
    work = _aligned(threads * code.numbers * lanes, G.dtype)
    _call(
        "crossbar_blocks", G.dtype, _pointer(code.code), code.slots, code.entries, code.nodes,
        code.ports, _pointer(conductances), _pointer(G), _pointer(origins),
        ctypes.c_int64(front.count * tiles), ctypes.c_int64(tiles), ctypes.c_int64(m * n),
        ctypes.c_int64(n), _pointer(out), _pointer(work), threads,
    )  # fmt: skip


def merge(front: Front, a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> None:
    """Merge blocks: block q of ``out`` is made of block q of ``a`` and block q of ``b``.

    Parameters
    ----------
    front : Front
        Of the result.
    a, b : Tensor, shape (count, ports of the child, ports of the child), contiguous
        The children's couplings.
    out : Tensor, shape (count, ports, ports), contiguous
        Written; couplings among drivers and among grounds are not computed.
    """
    runs = [_runs(to, front.eliminated) for to in front.maps]
    pointers = [x.ctypes.data_as(ctypes.POINTER(ctypes.c_int)) for x in runs]
    how = _Merge(
        front.eliminated, front.floating, front.drivers, front.grounds,
        (a.shape[-1], b.shape[-1]), (len(runs[0]), len(runs[1])), tuple(pointers),
    )  # fmt: skip
    threads, count = torch.get_num_threads(), len(out)
    # Few and large: all threads at one. Bitwise the same either way.
    together = threads > 1 and (count < threads or (count < 8 * threads and front.flops > 4e6))
    size = library().crossbar_merge_work  # type: ignore[union-attr]
    size.restype = ctypes.c_int64
    numbers = size(front.eliminated, front.kept, a.element_size())
    work = _aligned(numbers * (1 if together else threads), a.dtype)
    _call(
        "crossbar_merge", a.dtype, ctypes.byref(how), ctypes.c_int64(count), int(together),
        _pointer(a), _pointer(b), _pointer(out), _pointer(work), threads,
    )  # fmt: skip


def _runs(to: np.ndarray, eliminated: int) -> np.ndarray:
    """Return (first port, first node, length) of the ports that are consecutive in the front."""
    breaks = np.flatnonzero((np.diff(to) != 1) | (to[1:] == eliminated)) + 1
    first = np.concatenate([[0], breaks])
    length = np.diff(np.concatenate([first, [len(to)]]))
    return np.ascontiguousarray(np.stack([first, to[first], length], 1), np.int32)
