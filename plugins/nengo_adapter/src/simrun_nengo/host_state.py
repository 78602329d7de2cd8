"""The Python side of a simulation's state: what node functions and processes remember.

nengo calls plain Python functions: nodes, processes' step functions, functions computed on
connections. They remember things in closures, default arguments, attributes, globals and
random generators. `HostState` finds all that by walking from the functions, copies it, and
puts it back *in place*, since a function keeps its own reference to an array or a list.

What can't be copied (a generator, an open file, an object of a C extension) is named by
`HostState.obstacles`, so that nobody relies on a rollback that isn't one. Out of sight are
variables of other modules that a function changes by ``module.name = …``.
"""

from __future__ import annotations

import copy
import functools
import io
import pickle
import random
import types
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from simrun.errors import SimulationError
from simrun_nengo.generators import numpy_state
from simrun_nengo.walking import NO_VALUE, Entry, Frozen, Walk, checksum

SAME_MODEL = "the model, its arguments, the seed and the versions must be those of the saved run"


class HostState:
    """Copies and restores what a set of functions remembers.

    Parameters
    ----------
    roots : iterable of (str, object)
        A name for messages, and a function or an object that belongs to the simulation.
    ignore : iterable of numpy.ndarray
        Arrays that the functions reach and that somebody else copies; they must stay alive.

    Attributes
    ----------
    obstacles : tuple of str
        What can't be restored, one phrase each.
    """

    def __init__(
        self, roots: Iterable[tuple[str, Any]], ignore: Iterable[np.ndarray[Any, Any]] = ()
    ) -> None:
        self._roots = list(roots)
        self._ignored = frozenset(map(id, ignore))
        self._checksums: dict[int, tuple[Any, int]] = {}
        walk = self._walk()
        self.obstacles = tuple(walk.obstacles)
        # the objects that another process has too, once it has opened the same model
        self._paths = walk.seen
        self._targets = {key(entry): entry for entry in walk.entries}

    def capture(self) -> list[Entry]:
        """Copy everything; to be handed to `restore`."""
        return self._walk().entries

    def restore(self, entries: list[Entry]) -> None:
        """Put everything back in place; the same copy may be put back several times.

        Raises
        ------
        RuntimeError
            A large array, of which there is only a checksum, has changed.
        """
        thawed: dict[int, Any] = {}
        for kind, target, _, saved in entries:
            _PUT_BACK[kind](target, saved, functools.partial(_thaw, thawed))

    def dump(self) -> bytes:
        """The present state for `load` in another process that has opened the same model.

        What exists since the model was opened is referred to by its path; what came later is
        pickled by value.

        Raises
        ------
        Exception
            Something can't be pickled (whatever pickle raises), or can't be copied.
        """
        if self.obstacles:
            raise RuntimeError("; ".join(self.obstacles))
        found = []
        for entry in self.capture():
            known = self._targets.get(key(entry))
            if known is None:  # its holder is pickled by value
                continue
            kind, target, _, saved = entry
            if kind == "large":
                _check_large(target, saved, functools.partial(_thaw, {}))
            found.append((kind, known[2], saved))
        buffer = io.BytesIO()
        _Pickler(buffer, self._paths).dump(found)
        return buffer.getvalue()

    def load(self, data: bytes) -> None:
        """Take up a state that `dump` wrote.

        Raises
        ------
        SimulationError
            The model isn't the same, or what was pickled can't be made again.
        """
        things = {path: thing for thing, path in self._paths.values()}
        targets = {(kind, path): target for kind, target, path, _ in self._targets.values()}
        try:
            found = _Unpickler(io.BytesIO(data), things).load()
            self.restore([(k, targets[k, path], path, saved) for k, path, saved in found])
        except Exception as error:  # whatever unpickling raises
            raise SimulationError(
                f"the state of the model's Python functions can't be taken up: "
                f"{type(error).__name__}: {error}",
                SAME_MODEL,
            ) from error

    def _walk(self) -> Walk:
        walk = Walk(self._checksums, self._ignored)
        for index, (name, thing) in enumerate(self._roots):
            walk.root = name
            walk.visit(thing, f"{index}")
        if self._roots:
            walk.save("numpy", None, "numpy", numpy_state())
            walk.save("random", None, "random", random.getstate())
        return walk


def key(entry: Entry) -> tuple[str, int, Any]:
    """What tells an entry from all others: what is put back, and where."""
    kind, target, _, saved = entry
    return kind, id(target), saved[0] if kind in ("global", "attribute") else None


class _Pickler(pickle.Pickler):
    def __init__(self, file: Any, paths: dict[int, tuple[Any, str]]) -> None:
        super().__init__(file, protocol=5)
        self._paths = paths

    def persistent_id(self, obj: Any) -> str | None:
        known = self._paths.get(id(obj))
        return known[1] if known is not None and known[0] is obj else None


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: Any, things: dict[str, Any]) -> None:
        super().__init__(file)
        self._things = things

    def persistent_load(self, pid: str) -> Any:
        return self._things[pid]


def _thaw(thawed: dict[int, Any], saved: Any) -> Any:
    if not isinstance(saved, Frozen):
        return saved
    return thawed.setdefault(id(saved), copy.copy(saved.iterator))


_Thaw = Callable[[Any], Any]


def _put_dict(target: dict[Any, Any], saved: dict[Any, Any], thaw: _Thaw) -> None:
    target.clear()
    target.update({key: thaw(value) for key, value in saved.items()})


def _put_list(target: Any, saved: list[Any], thaw: _Thaw) -> None:
    target.clear()
    target.extend(thaw(value) for value in saved)


def _put_set(target: set[Any], saved: list[Any], _: _Thaw) -> None:
    target.clear()
    target.update(saved)


def _put_cell(target: types.CellType, saved: Any, thaw: _Thaw) -> None:
    if saved is not NO_VALUE:
        target.cell_contents = thaw(saved)
    elif _is_full(target):
        del target.cell_contents


def _is_full(cell: types.CellType) -> bool:
    try:
        return cell.cell_contents is not cell
    except ValueError:
        return False


def _put_attribute(target: Any, saved: tuple[str, Any], thaw: _Thaw) -> None:
    setter = type.__setattr__ if isinstance(target, type) else object.__setattr__
    setter(target, saved[0], thaw(saved[1]))


def _check_large(target: np.ndarray[Any, Any], saved: int, _: _Thaw) -> None:
    if checksum(target) != saved:
        raise RuntimeError(
            f"a function changes an array of {target.nbytes} bytes, which is too large to be "
            "copied for each chunk"
        )


_PUT_BACK: dict[str, Callable[[Any, Any, _Thaw], None]] = {
    "array": lambda target, saved, _: np.copyto(target, saved),
    "large": _check_large,
    "state": lambda target, saved, _: target.set_state(saved),
    "bits": lambda target, saved, _: setattr(target, "state", saved),
    "py_state": lambda target, saved, _: target.setstate(saved),
    "numpy": lambda _, saved, __: np.random.set_state(saved),
    "random": lambda _, saved, __: random.setstate(saved),
    "dict": _put_dict,
    "list": _put_list,
    "set": _put_set,
    "cell": _put_cell,
    "global": lambda target, saved, thaw: target.__setitem__(saved[0], thaw(saved[1])),
    "attribute": _put_attribute,
}
