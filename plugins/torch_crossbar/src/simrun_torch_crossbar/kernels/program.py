"""What a block of devices consists of, as the integers that blocks.cpp reads. No numbers."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import chain

import numpy as np

from simrun_torch_crossbar.elimination import Front, Kind, Zeros, fronts


@dataclass(frozen=True, eq=False)
class Program:
    """The operations that make one block from its devices, and the memory they need.

    ``slots``, ``entries`` and ``nodes`` count numbers: of the couplings of finished blocks, of
    the front, and of one column of it, of which four are kept. ``ports`` is the size of the result.
    """

    code: np.ndarray
    slots: int
    entries: int
    nodes: int
    ports: int

    @property
    def numbers(self) -> int:
        """Numbers of working memory of one block."""
        return self.slots + self.entries + 4 * self.nodes


def triangle(n: int) -> int:
    """Return the number of pairs among n ports."""
    return n * (n - 1) // 2


def _entries(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return where couplings of nodes a and b are in a strict lower triangle."""
    return triangle(np.maximum(a, b)) + np.minimum(a, b)  # type: ignore[arg-type]


class _Writer:
    def __init__(self) -> None:
        self.records: list[list[int]] = []
        self.tables: list[np.ndarray] = []
        self.table_of: dict[tuple[Kind, int], int] = {}
        self.length = 0
        self.slots = self.nodes = 0

    def table(self, front: Front, side: int) -> int:
        if (front.kind, side) not in self.table_of:
            to = front.maps[side]
            row, column = np.tril_indices(len(to), -1)
            self.table_of[front.kind, side] = self.length
            self.tables.append(_entries(to[row], to[column]))
            self.length += triangle(len(to))
        return self.table_of[front.kind, side]

    def write(self, front: Front, row: int, column: int, slot: int) -> None:
        """Append what makes this block at (row, column), its result in ``slot``."""
        self.nodes = max(self.nodes, front.nodes)
        self.slots = max(self.slots, slot + triangle(front.kept))
        if not front.children:
            left, u, d, below = front.maps[0].tolist()
            wire_l = int(_entries(left, u)) if left != u else -1
            wire_b = int(_entries(d, below)) if d != below else -1
            wires = int(front.kind.left) + 2 * int(front.kind.bottom)
            device = int(_entries(u, d))
            head = [0, slot, front.eliminated, front.nodes, row, column]
            self.records.append([*head, wire_l, device, wire_b, 0, wires, 0])
            return
        (a, _), (b, _) = front.children
        self.write(a, row, column, slot)
        slot_b = slot + triangle(a.kept)
        if a.kind.h == front.kind.h:
            self.write(b, row, column + a.kind.w, slot_b)
        else:
            self.write(b, row + a.kind.h, column, slot_b)
        part_a = [slot, triangle(a.kept), self.table(front, 0)]
        part_b = [slot_b, triangle(b.kept), self.table(front, 1)]
        head = [1, slot, front.eliminated, front.nodes]
        self.records.append([*head, *part_a, *part_b, 0, 0])


@lru_cache(maxsize=256)
def program(kind: Kind, zeros: Zeros) -> Program:
    """Return what makes a block of this kind from its devices."""
    front = fronts(kind.h, kind.w, zeros, kind=kind)[-1]
    writer = _Writer()
    writer.write(front, 0, 0, 0)
    start = 1 + sum(map(len, writer.records))
    for record in writer.records:
        if record[0] == 1:
            record[6] += start
            record[9] += start
    head = np.array([len(writer.records), *chain.from_iterable(writer.records)])
    code = np.concatenate([head, *writer.tables]).astype(np.int32)
    return Program(code, writer.slots, triangle(writer.nodes), writer.nodes, front.kept)
