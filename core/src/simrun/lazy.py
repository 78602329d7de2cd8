"""Wraps a reader's array for xarray; imports xarray."""

from __future__ import annotations

from typing import Any

import numpy as np
from xarray import Variable
from xarray.backends import BackendArray
from xarray.core import indexing

from simrun.sink import LazyArray


class _Lazy(BackendArray):
    def __init__(self, array: LazyArray) -> None:
        self.array = array
        self.shape = tuple(array.shape)
        self.dtype = np.dtype(array.dtype)

    def __getitem__(self, key: indexing.ExplicitIndexer) -> Any:
        return indexing.explicit_indexing_adapter(
            key, self.shape, indexing.IndexingSupport.BASIC, self._read
        )

    def _read(self, key: tuple[int | slice, ...]) -> Any:
        return np.asarray(self.array[key])


def lazy_variable(dims: tuple[str, ...], array: LazyArray, attrs: dict[str, Any]) -> Any:
    """An `xarray.Variable` that reads from ``array`` when it is used."""
    return Variable(dims, indexing.LazilyIndexedArray(_Lazy(array)), attrs)
