"""Arrays that are read row by row when they are indexed, like numpy arrays."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from simrun.events import Events, decode

# what is read at a time, where fewer elements are asked for than have to be read
BLOCK_BYTES = 32 << 20


class Rows(ABC):
    """An array on the disk; reading `self[key]` takes little more memory than its result.

    Parameters
    ----------
    shape : tuple of int
    dtype : numpy.dtype
    """

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self.shape = shape
        self.dtype = dtype

    @abstractmethod
    def read(self, start: int, stop: int) -> np.ndarray[Any, Any]:
        """Rows ``start … stop-1``."""

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    def __len__(self) -> int:
        return self.shape[0]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        whole = self.read(0, len(self))
        return whole if dtype is None else whole.astype(dtype, copy=False)

    def __getitem__(self, key: Any) -> Any:
        first, *rest = key if isinstance(key, tuple) else (key,)
        if first is Ellipsis:
            missing = len(self.shape) - sum(part is not None for part in rest)
            first, rest = slice(None), [slice(None)] * (missing - 1) + rest
            if missing < 1:
                return self[:][key]
        if first is None or isinstance(first, bool | np.bool_):
            return self[:][key]
        count = len(self)
        if isinstance(first, slice):
            start, stop, stride = first.indices(count)
            if stride == 1:
                return self._range(start, max(start, stop), tuple(rest))
            rows = np.arange(start, stop, stride)
        else:
            rows = np.asarray(first, None if np.size(first) else np.int64)
            if rows.dtype == bool:
                return self[:][key] if rows.ndim > 1 else self[(np.flatnonzero(rows), *rest)]
            outside = (rows < -count) | (rows >= count)
            if outside.any():
                raise IndexError(
                    f"index {rows[outside].flat[0]} is out of bounds for axis 0 with size {count}"
                )
            rows = np.where(rows < 0, rows + count, rows)
        if rows.size == 0:
            return np.empty((0, *self.shape[1:]), self.dtype)[(rows, *rest)]
        low = int(rows.min())
        if not isinstance(first, slice):
            part = self.read(low, int(rows.max()) + 1)
            return part[(int(rows) - low if rows.ndim == 0 else rows - low, *rest)]
        ascending = self._strided(np.sort(rows), tuple(rest))
        return ascending if first.step > 0 else ascending[::-1]

    def _range(self, start: int, stop: int, rest: tuple[Any, ...]) -> Any:
        if not rest:
            return self.read(start, stop)
        return self._strided(np.arange(start, stop), rest)

    def _strided(self, rows: np.ndarray[Any, Any], rest: tuple[Any, ...]) -> Any:
        """Equally spaced ascending rows, block by block."""
        row_bytes = int(np.prod(self.shape[1:], dtype=np.int64)) * self.dtype.itemsize
        stride = int(rows[1] - rows[0]) if len(rows) > 1 else 1
        each = max(BLOCK_BYTES // max(row_bytes * stride, 1), 1)
        parts = [
            self.read(int(piece[0]), int(piece[-1]) + 1)[(slice(None, None, stride), *rest)]
            for piece in (rows[i : i + each] for i in range(0, len(rows), each))
        ]
        if not parts:
            return np.empty((0, *self.shape[1:]), self.dtype)[(slice(None), *rest)]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)


class Joined(Rows):
    """Arrays one after the other, of each the first so many rows.

    Parameters
    ----------
    parts : sequence of (array, int)
        Arrays that take slices, and rows of each.
    shape : tuple of int
        Shape of a row.
    dtype : numpy.dtype
    """

    def __init__(
        self, parts: Sequence[tuple[Any, int]], shape: tuple[int, ...], dtype: np.dtype[Any]
    ) -> None:
        super().__init__((sum(rows for _, rows in parts), *shape), dtype)
        self._parts = parts

    def read(self, start: int, stop: int) -> np.ndarray[Any, Any]:  # noqa: D102 - as in Rows
        out = np.empty((stop - start, *self.shape[1:]), self.dtype)
        begin = 0
        for array, rows in self._parts:
            low, high = max(start, begin), min(stop, begin + rows)
            if low < high and out.size:
                out[low - start : high - start] = array[low - begin : high - begin]
            begin += rows
        return out


class Dense(Rows):
    """The dense samples of a probe that is stored as events.

    Parameters
    ----------
    column : callable
        ``column(name)`` returns the stored column (``"end"``, ``"value"``, or an axis).
    axes : tuple of str
        Columns with the position in a sample, in C order.
    shape : tuple of int
        Shape of a sample.
    dtype : numpy.dtype
    """

    def __init__(
        self,
        column: Callable[[str], Rows],
        axes: tuple[str, ...],
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
    ) -> None:
        self._end = column("end")
        self._value = column("value")
        self._index = [column(axis) for axis in axes]
        super().__init__((len(self._end), *shape), dtype)

    def read(self, start: int, stop: int) -> np.ndarray[Any, Any]:  # noqa: D102 - as in Rows
        shape = self.shape[1:]
        if stop <= start:
            return np.empty((0, *shape), self.dtype)
        end = self._end.read(start, stop)
        first = int(self._end.read(start - 1, start)[0]) if start else 0
        last = int(end[-1])
        position = [column.read(first, last) for column in self._index]
        index = (
            np.ravel_multi_index(position, shape) if position else np.zeros(last - first, np.int64)
        )
        count = np.diff(end, prepend=first)
        return decode(Events(count, index, self._value.read(first, last)), shape, self.dtype)
