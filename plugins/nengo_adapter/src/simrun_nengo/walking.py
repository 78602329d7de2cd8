"""Finds what Python functions remember, by walking from them through all they can reach."""

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

_VALUES = (
    type(None), bool, int, float, complex, str, bytes, range, slice, type(Ellipsis), np.generic,
    np.dtype,
)  # fmt: skip
# nothing of these changes by running; a saved state refers to them by their path
_FIXED = (
    types.ModuleType, types.CodeType, types.MethodDescriptorType, types.WrapperDescriptorType,
    np.ufunc, property, nengo.Network, nengo.base.NengoObject,
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
NO_VALUE = object()

Entry = tuple[str, Any, str, Any]  # kind, target, path, saved


class Walk:
    """One pass over everything that is reachable from the roots.

    Parameters
    ----------
    checksums : dict
        Of large arrays, by their id; kept from one pass to the next.
    ignored : frozenset of int
        Ids of arrays that somebody else keeps.

    Attributes
    ----------
    entries : list of (kind, target, path, saved)
        What was copied, and how it is put back (`simrun_nengo.host_state`).
    seen : dict of int to (object, str)
        Each object that was reached, by its id, and the path to it: the same in each process
        that opens the same model. Holding the objects keeps their ids from being used twice.
    obstacles : dict
        Phrases that name what can't be copied.
    """

    def __init__(
        self, checksums: dict[int, tuple[Any, int]], ignored: frozenset[int] = frozenset()
    ) -> None:
        self.entries: list[Entry] = []
        self.obstacles: dict[str, None] = {}
        self.root = ""
        self.seen: dict[int, tuple[Any, str]] = {}
        self._checksums = checksums
        self._ignored = ignored
        self._frozen: dict[int, Frozen] = {}

    def save(self, kind: str, target: Any, path: str, saved: Any) -> None:
        """Note a copy."""
        self.entries.append((kind, target, path, saved))

    def visit(self, thing: Any, path: str) -> None:
        """Copy an object and all that it reaches, unless that is done."""
        if isinstance(thing, _VALUES) or id(thing) in self.seen:
            return
        self.seen[id(thing)] = (thing, path)
        if isinstance(thing, _FIXED):
            return
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
        if not array.flags.writeable or id(array) in self._ignored:
            return
        if array.nbytes <= LARGE:
            self.save("array", array, path, array.copy())
            return
        if id(array) not in self._checksums:
            self._checksums[id(array)] = (array, checksum(array))
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
            self.save("cell", cell, path, NO_VALUE)
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
            plain = kind.__basicsize__ <= _PLAIN_SIZE
            found = found or (bool(kind.__flags__ & _HEAP_TYPE) and plain)
        return found

    def _held(self, value: Any, path: str) -> None:
        if not isinstance(value, _ITERATORS):
            self.visit(value, path)

    def _freeze(self, value: Any) -> Any:
        if not isinstance(value, _ITERATORS):
            return value
        return self._frozen.setdefault(id(value), Frozen(value))

    def _obstacle(self, thing: Any) -> None:
        self.obstacles[f"{self.root} uses a {type(thing).__qualname__}"] = None


_HEAP_TYPE = 1 << 9
_PLAIN_SIZE = object.__basicsize__

_VISITS: list[tuple[type | tuple[type, ...], Callable[[Walk, Any, str], None]]] = [
    (types.FunctionType, Walk._function),
    (types.MethodType, Walk._method),
    (types.BuiltinFunctionType, Walk._builtin),
    (functools.partial, Walk._partial),
    (type, Walk._class),
    (np.ndarray, Walk._array),
    (np.random.RandomState, Walk._random_state),
    (np.random.Generator, Walk._generator),
    (np.random.BitGenerator, Walk._bits),
    (random.Random, Walk._random),
    ((tuple, frozenset), Walk._tuple),
    (dict, Walk._dict),
    ((list, bytearray, collections.deque), Walk._sequence),
    (set, Walk._set),
    (types.CellType, Walk._cell),
]


class Frozen:
    """A copy of an iterator, never advanced itself."""

    def __init__(self, iterator: Iterator[Any]) -> None:
        self.original = iterator  # keeps its id from being used twice
        self.iterator = copy.copy(iterator)

    def __reduce__(self) -> Any:
        return Frozen, (self.iterator,)


def _unseen(module: str | None) -> bool:
    return (module or "").split(".")[0] in _UNSEEN and module != "__main__"


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


def checksum(array: np.ndarray[Any, Any]) -> int:
    """CRC-32 of an array's values."""
    return zlib.crc32(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
