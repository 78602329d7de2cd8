"""The order of elimination: which blocks exist, what they share, which nodes go when. No numbers.

A block of h x w devices owns its devices, the word-line wire left of each and the bit-line wire
below each. Two neighbours therefore share nodes, not wires, and a merge eliminates s nodes where
one that joined facing ports would eliminate 2s. The ports of a block are

- L: the word nodes left of it (the drivers in the first column of blocks),
- R: the word nodes of its last column, none at the right edge of the tile,
- T: the bit nodes of its first row, none at the upper edge,
- B: the bit nodes below it (the grounds in the last row of blocks).

A wire of zero resistance makes its two ends one node; nothing else is special about it.

All blocks alike in size and in the edges of the tile they touch are one *front*: one batched
operation over all of them, in all tiles. The instances of a front are numbered in the order in
which their parents ask for them, so that the children of a batch are always one slice.

The work at the merges, e nodes eliminated among f floating ports, a drivers and b grounds, is
e^3/3 + e^2 (f+a+b) + e (f^2 + 2 f (a+b) + 2 a b): couplings among drivers and among grounds are
never needed. It sums to 32 n^3 for an n x n tile. Splitting the longer side is within 0.3 % of
the best choice of every split (dynamic programming over 64 to 1024, squares and rectangles).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

import numpy as np

WORD, BIT = 0, 1
_BASE = 1 << 24


class Zeros(NamedTuple):
    """Which of the four resistances are exactly zero."""

    src: bool
    wl: bool
    bl: bool
    out: bool


NO_SHORTS = Zeros(False, False, False, False)


class Kind(NamedTuple):
    """What makes two blocks alike: size in devices, and the edges of the tile that they touch."""

    h: int
    w: int
    left: bool
    right: bool
    top: bool
    bottom: bool

    def split(self) -> tuple[Kind, Kind]:
        """Return the halves, left and right or upper and lower, of the longer side."""
        if self.w >= self.h:
            half = (self.w + 1) // 2
            return self._replace(w=half, right=False), self._replace(w=self.w - half, left=False)
        half = (self.h + 1) // 2
        return self._replace(h=half, bottom=False), self._replace(h=self.h - half, top=False)


@dataclass(eq=False)
class Front:
    """All blocks of one kind, and how one of them is made.

    The nodes of the front are numbered with the ``eliminated`` first, then the ports: floating,
    drivers, grounds. ``maps`` holds, for each child, the front's number of each of its ports.
    A single device has no children, and one map of its four nodes: L, u, d, B.
    """

    kind: Kind
    ports: np.ndarray
    eliminated: int
    floating: int
    drivers: int
    grounds: int
    maps: tuple[np.ndarray, ...]
    children: tuple[tuple[Front, int], ...] = ()
    count: int = 0
    origins: np.ndarray = field(default_factory=lambda: np.empty((0, 2), np.int64))

    @property
    def kept(self) -> int:
        """Number of ports."""
        return len(self.ports)

    @property
    def nodes(self) -> int:
        """Number of ports and eliminated nodes."""
        return self.kept + self.eliminated

    @property
    def flops(self) -> float:
        """Floating point operations that one block needs."""
        e, f, a, b = self.eliminated, self.floating, self.drivers, self.grounds
        return e**3 / 3 + e * e * (f + a + b) + e * (f * f + 2 * f * (a + b) + 2 * a * b)


def _word(i: np.ndarray, c: np.ndarray, kind: Kind, zeros: Zeros) -> np.ndarray:
    """Return the keys of word nodes; column c=0 is left of the block, c the device c-1."""
    c = np.asarray(c)
    if zeros.wl:
        c = np.minimum(c, 1 if kind.left and not zeros.src else 0)
    elif kind.left and zeros.src:
        c = np.where(c == 1, 0, c)
    return (WORD * _BASE + np.asarray(i)) * _BASE + c


def _bit(r: np.ndarray, j: np.ndarray, kind: Kind, zeros: Zeros) -> np.ndarray:
    """Return the keys of bit nodes; row r=h is below the block."""
    r, h = np.asarray(r), kind.h
    if zeros.bl:
        r = np.maximum(r, h - 1 if kind.bottom and not zeros.out else h)
    elif kind.bottom and zeros.out:
        r = np.where(r == h - 1, h, r)
    return (BIT * _BASE + r) * _BASE + np.asarray(j)


def _moved(keys: np.ndarray, down: int, right: int, kind: Kind, zeros: Zeros) -> np.ndarray:
    """Return the keys of a child's ports as its parent, of ``kind``, names them."""
    what, x, y = keys // _BASE**2, keys // _BASE % _BASE, keys % _BASE
    x, y = x + down, y + right
    return np.where(what == WORD, _word(x, y, kind, zeros), _bit(x, y, kind, zeros))


def _ports(kind: Kind, zeros: Zeros) -> tuple[np.ndarray, int, int, int]:
    """Return the keys of the ports and the numbers of floating ones, drivers and grounds."""
    rows, columns = np.arange(kind.h), np.arange(kind.w)
    left, right = _word(rows, 0 * rows, kind, zeros), _word(rows, kind.w + 0 * rows, kind, zeros)
    top = _bit(0 * columns, columns, kind, zeros)
    bottom = _bit(kind.h + 0 * columns, columns, kind, zeros)
    right = right[:0] if kind.right or right[0] == left[0] else right
    top = top[:0] if kind.top or top[0] == bottom[0] else top
    drivers, left = (left, left[:0]) if kind.left else (left[:0], left)
    grounds, bottom = (bottom, bottom[:0]) if kind.bottom else (bottom[:0], bottom)
    floating = np.concatenate([left, right, top, bottom])
    ports = np.concatenate([floating, drivers, grounds])
    return ports, len(floating), len(drivers), len(grounds)


class _Tree:
    """Builds each front once."""

    def __init__(self, zeros: Zeros) -> None:
        self.zeros = zeros
        self.fronts: dict[Kind, Front] = {}

    def front(self, kind: Kind) -> Front:
        if kind not in self.fronts:
            self.fronts[kind] = self._device(kind) if kind.h == kind.w == 1 else self._merge(kind)
        return self.fronts[kind]

    def _assemble(self, kind: Kind, parts: list[np.ndarray], children: list[Front]) -> Front:
        ports, floating, drivers, grounds = _ports(kind, self.zeros)
        nodes = np.unique(np.concatenate(parts))
        eliminated = nodes[~np.isin(nodes, ports)]
        order = np.concatenate([eliminated, ports])
        by_key = np.argsort(order)
        maps = tuple(by_key[np.searchsorted(order[by_key], part)] for part in parts)
        return Front(
            kind, ports, len(eliminated), floating, drivers, grounds, maps,
            tuple((child, 0) for child in children),
        )  # fmt: skip

    def _device(self, kind: Kind) -> Front:
        u = _word(np.zeros(2, int), np.arange(2), kind, self.zeros)
        d = _bit(np.arange(2), np.zeros(2, int), kind, self.zeros)
        return self._assemble(kind, [np.concatenate([u, d])], [])

    def _merge(self, kind: Kind) -> Front:
        a, b = (self.front(half) for half in kind.split())
        down, right = (0, a.kind.w) if a.kind.h == kind.h else (a.kind.h, 0)
        parts = [
            _moved(a.ports, 0, 0, kind, self.zeros),
            _moved(b.ports, down, right, kind, self.zeros),
        ]
        return self._assemble(kind, parts, [a, b])


@lru_cache(maxsize=64)
def fronts(
    m: int, n: int, zeros: Zeros, base: int = 1, kind: Kind | None = None
) -> tuple[Front, ...]:
    """Return the fronts of an m x n tile, children before parents, the whole tile last.

    Parameters
    ----------
    m, n : int
        Rows and columns of devices.
    zeros : Zeros
        The wires that are shorts.
    base : int
        Blocks of at most base x base devices are where the tree ends: a kernel makes them
        from their devices. 1 ends at single devices.
    kind : Kind, optional
        Of a part of a tile, where it isn't a whole one.
    """
    tree = _Tree(zeros)
    root = tree.front(kind or Kind(m, n, True, True, True, True))
    order: list[Front] = []
    root.count, root.origins = 1, np.zeros((1, 2), np.int64)

    # Larger blocks first: all parents of a front are numbered before its children are.
    pending = {root.kind: root}
    while pending:
        kind = max(pending, key=lambda k: (k.h * k.w, k))
        front = pending.pop(kind)
        order.append(front)
        if is_base(front, base):
            continue
        slices = []
        for position, (child, _) in enumerate(front.children):
            first = front.children[0][0].kind
            across = first.h == kind.h
            shift = (0, first.w) if across else (first.h, 0)
            slices.append((child, child.count))
            moved = front.origins + (np.array(shift) if position else 0)
            child.origins = np.concatenate([child.origins, moved])
            child.count += front.count
            pending[child.kind] = child
        front.children = tuple(slices)
    return tuple(reversed(order))


def levels(tree: Sequence[Front], base: int) -> list[list[Front]]:
    """Return the fronts by how far above their devices, or their bases, they are.

    Those of a level don't depend on one another; those with the most work come first.
    """
    height: dict[Front, int] = {}
    for front in tree:
        below = () if is_base(front, base) else front.children
        height[front] = 1 + max((height[child] for child, _ in below), default=-1)
    found: list[list[Front]] = [[] for _ in range(max(height.values()) + 1)]
    for front in reversed(tree):
        found[height[front]].append(front)
    return [sorted(level, key=lambda front: -front.flops) for level in found]


def is_base(front: Front, base: int) -> bool:
    """Whether the tree ends at this front."""
    return front.kind.h <= base and front.kind.w <= base


def flops(m: int, n: int, zeros: Zeros = NO_SHORTS) -> float:
    """Return the floating point operations of all of W of one m x n tile."""
    return sum(front.flops * front.count for front in fronts(m, n, zeros))
