"""Spikes as events: the samples of a probe whose bits aren't all zero, and dense samples back.

Pure functions. What counts is the bit pattern: -0.0 and NaN are events, so that the dense
samples come back exactly.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True, slots=True)
class Events:
    """The events of some consecutive samples, ordered by sample, then by position.

    An adapter that finds events on its device puts this into `ProbeBlock.samples` in place of
    the dense array.

    Parameters
    ----------
    count : numpy.ndarray of int64, shape (samples,)
        Number of events of each sample.
    index : numpy.ndarray of int, shape (events,)
        Flat (C order) position in the sample.
    value : numpy.ndarray, shape (events,)
        The sample's value there, of the probe's dtype.
    """

    count: np.ndarray[Any, Any]
    index: np.ndarray[Any, Any]
    value: np.ndarray[Any, Any]

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        return self.count.nbytes + self.index.nbytes + self.value.nbytes

    def __len__(self) -> int:
        return len(self.count)

    def __getitem__(self, samples: slice) -> Events:
        """The events of some consecutive samples of these."""
        edges = np.concatenate([[0], np.cumsum(self.count)])
        start, stop, _ = samples.indices(len(self))
        events = slice(edges[start], edges[max(start, stop)])
        return Events(self.count[samples], self.index[events], self.value[events])


def joined(parts: Sequence[Events]) -> Events:
    """The events of parts that follow one another."""
    fields = ("count", "index", "value")
    return Events(*(np.concatenate([getattr(part, f) for part in parts]) for f in fields))


def encode(samples: np.ndarray[Any, Any]) -> Events:
    """The events of dense samples, shape (samples, *sample shape)."""
    samples = np.ascontiguousarray(samples)
    count, size = len(samples), int(np.prod(samples.shape[1:], dtype=np.int64))
    flat = samples.reshape(-1)
    position = np.flatnonzero(nonzero_bits(flat))
    edges = np.searchsorted(position, np.arange(count + 1, dtype=np.int64) * size)
    return Events(np.diff(edges).astype(np.int64), position % max(size, 1), flat[position])


def decode(events: Events, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """Dense samples of shape (samples, *shape): the inverse of `encode`, bit for bit."""
    size = int(np.prod(shape, dtype=np.int64))
    dense = np.zeros((len(events), size), dtype)
    rows = np.repeat(np.arange(len(events)), events.count)
    dense[rows, events.index] = events.value
    return dense.reshape(len(events), *shape)


def nonzero_bits(flat: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Which elements of a contiguous 1-D array have a bit set; bool, or 0 for "no"."""
    width = flat.dtype.itemsize
    if width in (1, 2, 4, 8):
        return flat.view(f"u{width}")
    return np.asarray(flat.view(np.uint8).reshape(-1, width).any(axis=1))
