"""Calls of the compiled CPU kernels: tensors to pointers, and the working memory they need.

A block's result is its couplings: the strict lower triangle of its ports, row by row.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Sequence

import numpy as np
import torch

from simrun_torch_crossbar.elimination import Front, Zeros
from simrun_torch_crossbar.kernels.build import library
from simrun_torch_crossbar.kernels.program import program, triangle

BASE = 16
"""Blocks of at most BASE x BASE devices are made in cache, one in each lane of a vector."""

_LARGE_PAGE = 1 << 21
_SUFFIX = {torch.float32: "f32", torch.float64: "f64"}


class _Merge(ctypes.Structure):
    _fields_ = (
        ("a", ctypes.c_void_p), ("b", ctypes.c_void_p), ("out", ctypes.c_void_p),
        ("count", ctypes.c_int64),
        ("eliminated", ctypes.c_int), ("floating", ctypes.c_int),
        ("drivers", ctypes.c_int), ("grounds", ctypes.c_int),
        ("ports", ctypes.c_int * 2), ("runs", ctypes.c_int * 2),
        ("run", ctypes.c_void_p * 2), ("port", ctypes.c_void_p * 2),
    )  # fmt: skip


def available() -> bool:
    """Whether the CPU kernels can be called."""
    return library() is not None


def memory(size: int) -> torch.Tensor:
    """Return uninitialised bytes that begin at a multiple of 64, in large pages where there are."""
    spare = torch.empty(size + _LARGE_PAGE, dtype=torch.uint8)
    at = spare.data_ptr()
    if size < 4 * _LARGE_PAGE or not hasattr(mmap, "MADV_HUGEPAGE"):
        return spare[-at % 64 :][:size]
    start = -at % _LARGE_PAGE
    # Advice: refused, it changes nothing.
    ctypes.CDLL(None).madvise(
        ctypes.c_void_p(at + start), ctypes.c_size_t(size), mmap.MADV_HUGEPAGE
    )
    return spare[start:][:size]


def couplings(front: Front) -> int:
    """Return how many numbers the result of one block has."""
    return triangle(front.kept)


def block_work_bytes(front: Front, zeros: Zeros) -> int:
    """Return the bytes of working memory, of all threads, that ``blocks`` needs."""
    vector: int = _library().crossbar_vector_bytes()
    return torch.get_num_threads() * program(front.kind, zeros).numbers * vector


def merge_work_bytes(level: Sequence[Front], tiles: int, dtype: torch.dtype) -> int:
    """Return the bytes of working memory, of all threads, that ``merge`` needs."""
    threads = 1 if _together(level, tiles) else torch.get_num_threads()
    return threads * _stride(level, dtype) * dtype.itemsize


def _together(level: Sequence[Front], tiles: int) -> bool:
    """Whether all threads are to work at one merge: few and large. Bitwise the same either way."""
    threads, count = torch.get_num_threads(), tiles * sum(front.count for front in level)
    # Each shared merge has a dozen barriers, and where other work has the cores each may wait.
    few = count < threads or (count < 4 * threads and level[0].flops > 5e7)
    return threads > 1 and few and level[0].flops > 4e6


def _stride(level: Sequence[Front], dtype: torch.dtype) -> int:
    size = _library().crossbar_merge_work
    size.restype = ctypes.c_int64
    return max(size(front.eliminated, front.kept, dtype.itemsize) for front in level)


def _library() -> ctypes.CDLL:
    loaded = library()
    assert loaded is not None, "call available() first"
    return loaded


def _pointer(array: torch.Tensor | np.ndarray) -> ctypes.c_void_p:
    at = array.data_ptr() if isinstance(array, torch.Tensor) else array.ctypes.data
    return ctypes.c_void_p(at)


def blocks(
    G: torch.Tensor,
    front: Front,
    zeros: Zeros,
    wires: Sequence[float],
    out: torch.Tensor,
    work: torch.Tensor,
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
    out : Tensor, shape (front.count * tiles, couplings), contiguous
        Written.
    work : Tensor
        Of ``block_work_bytes``, at a multiple of 64.
    """
    code = program(front.kind, zeros)
    tiles, m, n = G.shape
    origins = np.ascontiguousarray(front.origins[:, 0] * n + front.origins[:, 1], np.int64)
    conductances = np.array(wires, np.float64)
    getattr(_library(), f"crossbar_blocks_{_SUFFIX[G.dtype]}")(
        _pointer(code.code), code.slots, code.entries, code.nodes, code.ports,
        _pointer(conductances), _pointer(G), _pointer(origins),
        ctypes.c_int64(front.count * tiles), ctypes.c_int64(tiles), ctypes.c_int64(m * n),
        ctypes.c_int64(n), _pointer(out), _pointer(work), torch.get_num_threads(),
    )  # fmt: skip


def merge(
    level: Sequence[Front],
    children: Sequence[Sequence[torch.Tensor]],
    out: Sequence[torch.Tensor],
    tiles: int,
    work: torch.Tensor,
) -> None:
    """Merge blocks: block q of a front is made of block q of each of its two children.

    Parameters
    ----------
    level : sequence of Fronts
        Independent of one another, the most work first.
    children : sequence of pairs of Tensors, shape (count, couplings of the child), contiguous
        For each front.
    out : sequence of Tensors, shape (count, couplings), contiguous
        For each front; written. Couplings among drivers and among grounds are not computed.
    tiles : int
        What the fronts' counts are multiplied by.
    work : Tensor
        Of ``merge_work_bytes``, at a multiple of 64.
    """
    alive = []
    records = (_Merge * len(level))()
    for record, front, (a, b), K in zip(records, level, children, out, strict=True):
        runs = [_runs(to, front.eliminated) for to in front.maps]
        ports = [_ports(to, front.nodes) for to in front.maps]
        alive += runs + ports
        record.a, record.b, record.out = a.data_ptr(), b.data_ptr(), K.data_ptr()
        record.count, record.eliminated, record.floating = len(K), front.eliminated, front.floating
        record.drivers, record.grounds = front.drivers, front.grounds
        record.ports, record.runs = tuple(map(len, front.maps)), tuple(map(len, runs))
        record.run = tuple(x.ctypes.data for x in runs)
        record.port = tuple(x.ctypes.data for x in ports)
    dtype = out[0].dtype
    getattr(_library(), f"crossbar_merges_{_SUFFIX[dtype]}")(
        records, len(level), int(_together(level, tiles)), _pointer(work),
        ctypes.c_int64(_stride(level, dtype)), torch.get_num_threads(),
    )  # fmt: skip


def _runs(to: np.ndarray, eliminated: int) -> np.ndarray:
    """Return (first port, first node, length) of the ports that are consecutive in the front."""
    breaks = np.flatnonzero((np.diff(to) != 1) | (to[1:] == eliminated)) + 1
    first = np.concatenate([[0], breaks])
    length = np.diff(np.concatenate([first, [len(to)]]))
    return np.ascontiguousarray(np.stack([first, to[first], length], 1), np.int32)


def _ports(to: np.ndarray, nodes: int) -> np.ndarray:
    """Return the port of each node of the front, or -1."""
    port = np.full(nodes, -1, np.int32)
    port[to] = np.arange(len(to))
    return port
