"""Reads samples from files, a piece at a time: the only module that opens the user's data."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch

from simrun.errors import ConfigError, SimulationError


class Source(Protocol):
    """Samples along a first axis."""

    def __len__(self) -> int: ...

    def read(self, start: int, stop: int) -> np.ndarray[Any, Any]:
        """Samples ``start`` to ``stop``, as an array of its own."""

    @property
    def resident(self) -> int:
        """Bytes that it keeps in memory."""


class NpyFile:
    """A .npy file, read by its positions: mapped pages would count as the process's memory."""

    resident = 0

    def __init__(self, path: Path) -> None:
        self._path = path
        with path.open("rb") as file:
            version = np.lib.format.read_magic(file)
            header = {
                (1, 0): np.lib.format.read_array_header_1_0,
                (2, 0): np.lib.format.read_array_header_2_0,
            }[version]
            self.shape, fortran, self.dtype = header(file)
            self._offset = file.tell()
        if fortran and len(self.shape) > 1:
            raise ValueError("it is in Fortran order; save numpy.ascontiguousarray(x)")
        if self.dtype.hasobject or not self.shape:
            raise ValueError(f"it holds {self.dtype}, shape {self.shape}: no numbers by samples")

    def __len__(self) -> int:
        return int(self.shape[0])

    def read(self, start: int, stop: int) -> np.ndarray[Any, Any]:
        """Samples ``start`` to ``stop``."""
        size = int(np.prod(self.shape[1:], dtype=np.int64))
        with self._path.open("rb") as file:
            file.seek(self._offset + start * size * self.dtype.itemsize)
            found = np.fromfile(file, self.dtype, (stop - start) * size)
        return found.reshape(stop - start, *self.shape[1:])


class Held:
    """An array that is in memory as a whole."""

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        if array.ndim == 0 or array.dtype.hasobject:
            raise ValueError(f"it holds {array.dtype}, shape {array.shape}: no numbers by samples")
        self._array = array

    @property
    def resident(self) -> int:
        """Bytes of the array."""
        return self._array.nbytes

    def __len__(self) -> int:
        return len(self._array)

    def read(self, start: int, stop: int) -> np.ndarray[Any, Any]:
        """Samples ``start`` to ``stop``."""
        return self._array[start:stop].copy()


class Hdf5Dataset:
    """A dataset of an HDF5 file."""

    resident = 0

    def __init__(self, path: Path, name: str) -> None:
        import h5py

        with h5py.File(path) as file:
            if name not in file or not isinstance(file[name], h5py.Dataset):
                raise KeyError(_missing(name, [str(key) for key in file]))
            if not file[name].shape:
                raise ValueError(f"{name} has no axis of samples")
            self._length = len(file[name])
        self._path, self._name = path, name

    def __len__(self) -> int:
        return self._length

    def read(self, start: int, stop: int) -> np.ndarray[Any, Any]:
        """Samples ``start`` to ``stop``."""
        import h5py

        with h5py.File(self._path) as file:
            found: np.ndarray[Any, Any] = file[self._name][start:stop]
            return found


class Field:
    """The inputs, or the targets, of a torch Dataset."""

    resident = 0

    def __init__(self, dataset: Any, index: int | None) -> None:
        self._dataset, self._index = dataset, index

    def __len__(self) -> int:
        return len(self._dataset)

    def read(self, start: int, stop: int) -> np.ndarray[Any, Any]:
        """Samples ``start`` to ``stop``."""
        items = [self._dataset[k] for k in range(start, stop)]
        if self._index is not None:
            items = [item[self._index] for item in items]
        return np.stack([np.asarray(item) for item in items])


def open_file(reference: str, base: Path, key: str) -> tuple[Source, Path]:
    """Open ``x.npy``, ``x.npz:NAME`` or ``x.h5:NAME``; ``key`` is what the config calls it.

    Raises
    ------
    ConfigError
        No such file or name in it, or not samples.
    """
    place, _, name = reference.partition(":")
    path = base / Path(place).expanduser()
    if not path.is_file():
        hint = f"paths start from {base}"
        near = get_close_matches(path.name, [p.name for p in path.parent.glob("*")], 1)
        raise ConfigError(f"{key}: no file {path}", f"did you mean {near[0]}?" if near else hint)
    try:
        if path.suffix == ".npy":
            return NpyFile(path), path
        if path.suffix == ".npz":
            with np.load(path, allow_pickle=False) as archive:
                names = archive.files
                if not name and len(names) == 1:
                    name = names[0]
                if name not in names:
                    raise KeyError(_missing(name, names))
                return Held(archive[name]), path
        if path.suffix in (".h5", ".hdf5"):
            return Hdf5Dataset(path, name), path
    except ImportError as error:
        raise ConfigError(f"{key}: {error}", "pip install h5py") from None
    except (OSError, ValueError, KeyError) as error:
        raise ConfigError(f"{key}: {path}: {error.args[0] if error.args else error}") from None
    raise ConfigError(
        f"{key}: {path}: found {path.suffix or 'no ending'}; allowed: .npy, .npz, .h5"
    )


def open_dataset(dataset: Any, reference: str) -> tuple[Source, Source | None]:
    """Inputs, and targets where there are any, of a torch Dataset."""
    if not hasattr(dataset, "__getitem__") or not hasattr(dataset, "__len__"):
        raise ConfigError(
            f"torch_crossbar.dataset: {reference} returned a {type(dataset).__name__}",
            "return a Dataset with __len__ and __getitem__",
        )
    if len(dataset) == 0:
        raise ConfigError(f"torch_crossbar.dataset: {reference} has no samples")
    try:
        first = dataset[0]
    except Exception as error:
        raise SimulationError(
            f"{reference}: sample 0 raised {type(error).__name__}: {error}"
        ) from error
    if isinstance(first, Sequence):
        return Field(dataset, 0), Field(dataset, 1) if len(first) > 1 else None
    return Field(dataset, None), None


def as_tensor(array: np.ndarray[Any, Any], dtype: torch.dtype) -> torch.Tensor:
    """A tensor for a network: floats and bytes in its precision; longer integers are indices."""
    found = torch.from_numpy(np.ascontiguousarray(array.astype(array.dtype.newbyteorder("="))))
    if found.is_floating_point() or found.dtype in (torch.uint8, torch.bool):
        return found.to(dtype)
    return found


def _missing(name: str, names: list[str]) -> str:
    what = f"it has no array {name!r}" if name else "it holds several arrays: name one"
    return f"{what}; those it has: {', '.join(names) or 'none'}"
