"""The values of input nodes that the config takes from files, read one chunk at a time."""

from __future__ import annotations

import mmap
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import nengo
import numpy as np

from simrun.errors import ConfigError, SimulationError

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class FileInput:
    """An input node with values from a file.

    Parameters
    ----------
    node : nengo.Node
    label : str
    data : numpy.ndarray, shape (1, steps, size)
        Memory-mapped where the file is a ``.npy``.
    file : pathlib.Path
    """

    node: nengo.Node
    label: str
    data: Array
    file: Path

    def rows(self, start: int, stop: int, dtype: Any) -> Array:
        """Values of steps ``start+1 … stop``, shape (steps, size).

        Raises
        ------
        SimulationError
            One of them isn't finite.
        """
        rows = np.array(self.data[0, start:stop], dtype)
        bad = ~np.isfinite(rows).all(axis=1)
        if bad.any():
            raise SimulationError(
                f"node {self.label}: {self.file} isn't finite in step {start + 1 + bad.argmax()}",
                "a node's values must be finite",
            )
        mapped = getattr(self.data, "_mmap", None) or getattr(self.data.base, "_mmap", None)
        if mapped is not None:
            # pages that were read count as the process's memory until they are given back
            mapped.madvise(mmap.MADV_DONTNEED)
        return rows


def override(
    network: nengo.Network,
    labels: Mapping[Any, str],
    wanted: Mapping[str, str],
    base: Path,
    where: str,
) -> list[FileInput]:
    """Make input nodes of a network constants, to be set to values from files in each step.

    Parameters
    ----------
    labels : mapping
        The name of each object.
    wanted : mapping of str to str
        For nodes, by label, the file: ``x.npy`` or ``x.npz:NAME``.
    base : pathlib.Path
        Where relative paths start.
    where : str
        The key of the config, for messages.

    Raises
    ------
    ConfigError
        No such node or file, or values that don't fit.
    """
    nodes = {labels.get(n, str(n)): n for n in network.all_nodes if _is_input(n)}
    found = []
    for label, node in check_names(wanted, nodes, where).items():
        data, file = open_data(wanted[label], base, f"{where}.{label}", node.size_out, 1)
        node.output = np.zeros(node.size_out)
        found.append(FileInput(node, label, data, file))
    return found


def open_data(path: str, base: Path, where: str, size: int, minibatch: int) -> tuple[Array, Path]:
    """Map a data file into memory.

    Returns
    -------
    numpy.ndarray, shape (minibatch or 1, steps, size)
    pathlib.Path
        The file.

    Raises
    ------
    ConfigError
        No such file or array, or the wrong shape or kind of values.
    """
    name, _, key = path.partition(".npz:")
    file = base / (f"{name}.npz" if key else path)
    if not file.is_file():
        near = get_close_matches(file.name, [p.name for p in file.parent.glob("*.np[yz]")], 1)
        raise ConfigError(
            f"{where}: no file {file}",
            f"did you mean {near[0]}?" if near else "write FILE.npy or FILE.npz:NAME",
        )
    try:
        if file.suffix == ".npz":
            with np.load(file) as archive:
                if key not in archive:
                    raise ConfigError(
                        f"{where}: {file} has no array {key!r}",
                        f"write {path.split('.npz')[0]}.npz:NAME with one of: "
                        + ", ".join(archive.files),
                    )
                data = archive[key]
        else:
            data = np.load(file, mmap_mode="r")
    except (ValueError, OSError, zipfile.BadZipFile) as error:
        raise ConfigError(
            f"{where}: can't read {file}: {error}", "save it with numpy.save"
        ) from None
    if data.dtype.kind not in "fiub":
        raise ConfigError(f"{where}: {file} holds {data.dtype}", "numbers are needed")
    shape = data.shape
    if data.ndim == 2:
        data = data[None]
    if data.ndim != 3 or data.shape[2] != size or data.shape[0] not in (1, minibatch):
        raise ConfigError(
            f"{where}: {file} has shape {shape}",
            f"it must be (steps, {size}) or ({minibatch}, steps, {size})",
        )
    return data, file


def available(items: Sequence[FileInput], where: str) -> tuple[int, str] | None:
    """Steps of the shortest data file, and which it is; None where there are no files."""
    lengths = [(item.data.shape[1], f"{where}.{item.label}: {item.file}") for item in items]
    return min(lengths, default=None)


def check_names(
    wanted: Mapping[str, str], nodes: Mapping[str, nengo.Node], where: str
) -> dict[str, nengo.Node]:
    """The input nodes for which the config names a file.

    Raises
    ------
    ConfigError
        No input node of that label.
    """
    for label in wanted:
        if label not in nodes:
            near = get_close_matches(label, nodes, 1)
            names = ", ".join(nodes) or "–"
            raise ConfigError(
                f"{where}: no input node is called {label!r}",
                f"did you mean {near[0]}?" if near else f"input nodes: {names}",
            )
    return {label: nodes[label] for label in wanted}


def _is_input(node: nengo.Node) -> bool:
    return node.size_in == 0 and node.output is not None
