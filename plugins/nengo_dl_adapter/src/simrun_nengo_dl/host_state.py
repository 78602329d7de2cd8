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

import collections
import copy
import dis
import functools
import itertools
import random
import sys
import types
import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import nengo
import numpy as np

# arrays larger than this are not copied for each chunk; a checksum tells whether they changed
LARGE = 64 * 2**20

_ATOMS = (
    type(None), bool, int, float, complex, str, bytes, range, slice, type(Ellipsis),
    types.ModuleType, types.CodeType, types.MethodDescriptorType, types.WrapperDescriptorType,
    np.generic, np.dtype, np.ufunc, property, nengo.Network, nengo.base.NengoObject,
)  # fmt: skip
# libraries whose objects a function may use but doesn't change by running
_LIBRARIES = {"tensorflow", "keras", "tf_keras", "nengo_dl", "numpy", "scipy", "pydantic"}
_UNSEEN = _LIBRARIES | {"nengo"} | set(sys.stdlib_module_names)
# what nengo's own step functions read and never write: no need to copy it for each chunk
_READ_ONLY = {
    ("WhiteSignal.make_step.<locals>.step_whitesignal", "signal"),
    ("PresentInput.make_step.<locals>.step_presentinput", "inputs"),
}
# iterators that can be copied, though not set back: their holder is given a copy
_ITERATORS = (itertools.count, itertools.cycle, itertools.repeat)
_NO_VALUE = object()

Entry = tuple[str, Any, str, Any]  # kind, target, path, saved


class HostState:
    """Copies and restores what a set of functions remembers.

    Parameters
    ----------
    roots : iterable of (str, object)
        A name for messages, and a function or an object that belongs to the simulation.

    Attributes
    ----------
    obstacles : tuple of str
        What can't be restored, one phrase each.
    """

    def __init__(self, roots: Iterable[tuple[str, Any]]) -> None:
        self._roots = list(roots)
        self._checksums: dict[int, tuple[Any, int]] = {}
        self.obstacles = tuple(self._walk().obstacles)

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

    def _walk(self) -> _Walk:
        walk = _Walk(self._checksums)
        for name, thing in self._roots:
            walk.root = name
            walk.visit(thing, name)
        if self._roots:
            walk.save("numpy", None, "numpy", np.random.get_state(legacy=False))
            walk.save("random", None, "random", random.getstate())
        return walk


class _Walk:
    """One pass over everything that is reachable from the roots."""

    def __init__(self, checksums: dict[int, tuple[Any, int]]) -> None:
        self.entries: list[Entry] = []
        self.obstacles: dict[str, None] = {}
        self.root = ""
        self._seen: dict[int, Any] = {}  # holds the objects, so that no id is used twice
        self._checksums = checksums
        self._frozen: dict[int, _Frozen] = {}

    def save(self, kind: str, target: Any, path: str, saved: Any) -> None:
        self.entries.append((kind, target, path, saved))

    def visit(self, thing: Any, path: str) -> None:
        if isinstance(thing, _ATOMS) or id(thing) in self._seen:
            return
        self._seen[id(thing)] = thing
        for kind, method in _VISITS:
            if isinstance(thing, kind):
                method(self, thing, path)
                return
        self._object(thing, path)

    def _each(self, things: Iterable[Any], path: str) -> None:
        for index, thing in enumerate(things):
            self.visit(thing, f"{path}[{index}]")

    def _tuple(self, thing: Any, path: str) -> None:
        self._each(thing, path)
        self._attributes(thing, path)

    def _partial(self, thing: functools.partial[Any], path: str) -> None:
        self._each((thing.func, thing.args, thing.keywords), path)

    def _method(self, thing: types.MethodType, path: str) -> None:
        self.visit(thing.__self__, f"{path}.__self__")
        self.visit(thing.__func__, f"{path}.__func__")

    def _builtin(self, thing: types.BuiltinFunctionType, path: str) -> None:
        self.visit(thing.__self__, f"{path}.__self__")

    def _array(self, array: np.ndarray[Any, Any], path: str) -> None:
        if array.dtype.hasobject:
            self._each(array.ravel().tolist(), path)
        if not array.flags.writeable:
            return
        if array.nbytes <= LARGE:
            self.save("array", array, path, array.copy())
            return
        if id(array) not in self._checksums:
            self._checksums[id(array)] = (array, _checksum(array))
        self.save("large", array, path, self._checksums[id(array)][1])

    def _random_state(self, rng: np.random.RandomState, path: str) -> None:
        self.save("state", rng, path, rng.get_state(legacy=False))

    def _generator(self, rng: np.random.Generator, path: str) -> None:
        self.visit(rng.bit_generator, f"{path}.bit_generator")

    def _bits(self, bits: np.random.BitGenerator, path: str) -> None:
        # the getter makes a new dict, but not every bit generator copies the arrays in it
        self.save("bits", bits, path, copy.deepcopy(bits.state))

    def _random(self, rng: random.Random, path: str) -> None:
        self.save("py_state", rng, path, rng.getstate())

    def _dict(self, thing: dict[Any, Any], path: str) -> None:
        self.save("dict", thing, path, {k: self._freeze(v) for k, v in thing.items()})
        for key, value in thing.items():
            self._held(value, f"{path}[{key!r}]")
        self._attributes(thing, path)

    def _sequence(self, thing: Any, path: str) -> None:
        self.save("list", thing, path, [self._freeze(value) for value in thing])
        for index, value in enumerate(thing):
            self._held(value, f"{path}[{index}]")
        self._attributes(thing, path)

    def _set(self, thing: set[Any], path: str) -> None:
        self.save("set", thing, path, list(thing))
        self._each(thing, path)

    def _cell(self, cell: types.CellType, path: str) -> None:
        try:
            content = cell.cell_contents
        except ValueError:  # a variable that isn't assigned yet
            self.save("cell", cell, path, _NO_VALUE)
            return
        self.save("cell", cell, path, self._freeze(content))
        self._held(content, path)

    def _function(self, function: types.FunctionType, path: str) -> None:
        for variable, cell in zip(
            function.__code__.co_freevars, function.__closure__ or (), strict=True
        ):
            if (function.__qualname__, variable) not in _READ_ONLY:
                self.visit(cell, f"{path}.{variable}")
        if function.__defaults__:
            self._each(function.__defaults__, f"{path}.__defaults__")
        if function.__kwdefaults__:
            self.visit(function.__kwdefaults__, f"{path}.__kwdefaults__")
        if function.__dict__:
            self.visit(function.__dict__, f"{path}.__dict__")
        if not _unseen(function.__module__):
            self._globals(function, path)

    def _globals(self, function: types.FunctionType, path: str) -> None:
        """The globals that a function's code names, and whether it assigns them."""
        space = function.__globals__
        read, written = _global_names(function.__code__)
        for key in sorted(read | written):
            if key in space:
                value = space[key]
                if key in written:
                    self.save("global", space, f"{path}:{key}", (key, self._freeze(value)))
                self._held(value, f"{path}:{key}")

    def _class(self, kind: type, path: str) -> None:
        """A class of the user's: its attributes may count something, its methods use globals."""
        if _unseen(kind.__module__):
            return
        for key, value in vars(kind).items():
            if isinstance(value, (staticmethod, classmethod)):
                value = value.__func__
            elif not (key.startswith("__") or callable(value) or hasattr(value, "__get__")):
                self.save("attribute", kind, f"{path}.{key}", (key, self._freeze(value)))
            if not key.startswith("__") or isinstance(value, types.FunctionType):
                self._held(value, f"{path}.{key}")
        for base in kind.__bases__:
            self.visit(base, f"{path}.{base.__name__}")

    def _object(self, thing: Any, path: str) -> None:
        module = (type(thing).__module__ or "").split(".")[0]
        if hasattr(thing, "__next__") or hasattr(thing, "assign_add"):
            self._obstacle(thing)  # a generator, a file; a TensorFlow variable
        elif module in _LIBRARIES or isinstance(thing, nengo.params.FrozenObject):
            # a process or a neuron type: nengo's own change nothing of themselves
            if not _unseen(type(thing).__module__):
                self._attributes(thing, path)
        elif not self._attributes(thing, path) and module not in ("builtins", "functools"):
            self._obstacle(thing)  # it may hide a state from us

    def _attributes(self, thing: Any, path: str) -> bool:
        """Visit what an object holds; False where nothing can be seen of it."""
        kind = type(thing)
        space = getattr(thing, "__dict__", None)
        found = isinstance(space, dict)
        if found:
            self.visit(space, f"{path}.__dict__")
        for slot in _slots(kind):
            found = True
            if hasattr(thing, slot):
                value = getattr(thing, slot)
                self.save("attribute", thing, f"{path}.{slot}", (slot, self._freeze(value)))
                self._held(value, f"{path}.{slot}")
        if not _unseen(kind.__module__):
            self.visit(kind, f"{path}.__class__")
            found = found or (kind.__flags__ & _HEAP_TYPE and kind.__basicsize__ <= _PLAIN_SIZE)
        return bool(found)

    def _held(self, value: Any, path: str) -> None:
        if not isinstance(value, _ITERATORS):
            self.visit(value, path)

    def _freeze(self, value: Any) -> Any:
        if not isinstance(value, _ITERATORS):
            return value
        return self._frozen.setdefault(id(value), _Frozen(value))

    def _obstacle(self, thing: Any) -> None:
        self.obstacles[f"{self.root} uses a {type(thing).__qualname__}"] = None


_HEAP_TYPE = 1 << 9
_PLAIN_SIZE = object.__basicsize__

_VISITS: list[tuple[type | tuple[type, ...], Callable[[_Walk, Any, str], None]]] = [
    (types.FunctionType, _Walk._function),
    (types.MethodType, _Walk._method),
    (types.BuiltinFunctionType, _Walk._builtin),
    (functools.partial, _Walk._partial),
    (type, _Walk._class),
    (np.ndarray, _Walk._array),
    (np.random.RandomState, _Walk._random_state),
    (np.random.Generator, _Walk._generator),
    (np.random.BitGenerator, _Walk._bits),
    (random.Random, _Walk._random),
    ((tuple, frozenset), _Walk._tuple),
    (dict, _Walk._dict),
    ((list, bytearray, collections.deque), _Walk._sequence),
    (set, _Walk._set),
    (types.CellType, _Walk._cell),
]


class _Frozen:
    """A copy of an iterator, never advanced itself."""

    def __init__(self, iterator: Iterator[Any]) -> None:
        self.original = iterator
        self.iterator = copy.copy(iterator)


def _thaw(thawed: dict[int, Any], saved: Any) -> Any:
    if not isinstance(saved, _Frozen):
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
    if saved is not _NO_VALUE:
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
    if _checksum(target) != saved:
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


def _unseen(module: str | None) -> bool:
    return (module or "").split(".")[0] in _UNSEEN and module != "__main__"


def _checksum(array: np.ndarray[Any, Any]) -> int:
    return zlib.crc32(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)


@functools.cache
def _global_names(code: types.CodeType) -> tuple[frozenset[str], frozenset[str]]:
    """Names that code (and code nested in it) loads from and stores to its globals."""
    read, written = set(), set()
    for instruction in dis.get_instructions(code):
        if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            read.add(instruction.argval)
        elif instruction.opname in ("STORE_GLOBAL", "DELETE_GLOBAL"):
            written.add(instruction.argval)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            inner = _global_names(constant)
            read |= inner[0]
            written |= inner[1]
    return frozenset(read), frozenset(written)


def _slots(kind: type) -> Iterator[str]:
    for base in kind.__mro__:
        slots = vars(base).get("__slots__", ())
        for slot in (slots,) if isinstance(slots, str) else slots:
            if slot not in ("__dict__", "__weakref__"):
                yield slot
