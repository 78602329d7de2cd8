"""Makes nengo's build the same in each process, which it isn't by itself.

nengo's optimizer merges operators while it iterates over sets of objects, whose order is that of
their addresses, and stops when its last pass took long. So two processes may execute the same
network with operators merged and ordered differently: sums are then rounded differently, and
processes without a seed draw each other's. A run that goes on in a new process needs the same
build. Without the optimizer the order is fixed, but networks are slower.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from types import ModuleType
from typing import Any
from unittest import mock

import nengo.builder.optimizer
import nengo.utils.graphs


class _Ordered(dict[Any, None]):
    """What those modules use of `set`, iterated in the order in which things came."""

    def __init__(self, things: Iterable[Any] = ()) -> None:
        super().__init__(dict.fromkeys(things))

    def add(self, thing: Any) -> None:
        self[thing] = None

    def update(self, things: Iterable[Any]) -> None:  # type: ignore[override]
        super().update(dict.fromkeys(things))

    def difference_update(self, things: Iterable[Any]) -> None:
        for thing in things:
            super().pop(thing, None)

    def isdisjoint(self, things: Iterable[Any]) -> bool:
        return self.keys().isdisjoint(things)

    def remove(self, thing: Any) -> None:
        del self[thing]


class _Pass:
    """Stands for the optimizer's clock: each pass takes equally long."""

    duration = 1.0

    def __enter__(self) -> _Pass:
        return self

    def __exit__(self, *_: object) -> None:
        pass


@contextmanager
def ordered(*planners: ModuleType) -> Iterator[None]:
    """Build a simulator in here, and its operators are merged and ordered reproducibly.

    Parameters
    ----------
    planners : modules
        Further ones that order operators by sets.
    """
    modules = (nengo.builder.optimizer, nengo.utils.graphs, *planners)
    with ExitStack() as stack:
        for module in modules:
            stack.enter_context(mock.patch.object(module, "set", _Ordered, create=True))
        stack.enter_context(mock.patch.object(nengo.builder.optimizer, "Timer", _Pass))
        yield
