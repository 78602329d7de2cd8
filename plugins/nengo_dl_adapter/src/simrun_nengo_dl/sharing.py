"""Functions that share what they remember, though they aren't called step by step together.

nengo-dl computes the values of input nodes ahead, and the loop's functions are called later. If
one of them changes what another one reads, samples depend on the chunk length, and differ from
nengo's own simulator, which calls all of them in each step. `Sharing` finds what functions of
different phases can reach in common, and tells after a chunk whether that was changed.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from simrun.errors import SimulationError
from simrun_nengo.generators import numpy_state
from simrun_nengo.host_state import key
from simrun_nengo.walking import Frozen, Walk

# drawing from a generator is the only way to read it: one that draws alone harms nobody
_GENERATORS = {"state", "bits", "py_state", "global generator"}
_HINT = (
    "call the node step by step: give it an input that it ignores, nengo.Node(f, size_in=1) with "
    "f(t, x)"
)

Roots = Sequence[tuple[str, Any]]  # a name for messages, and a function


class Sharing:
    """What functions of different phases of a chunk share.

    Parameters
    ----------
    phases : sequence of sequences of (str, object)
        The functions that are called in each phase, in the order of the phases.

    Attributes
    ----------
    pairs : list of (str, str)
        Names of functions of different phases that reach the same changeable object.
    """

    def __init__(self, phases: Sequence[Roots]) -> None:
        reached: dict[Any, dict[int, str]] = {}
        for phase, roots in enumerate(phases):
            for name, root in roots:
                for found in _changeable([root]):
                    reached.setdefault(found, {}).setdefault(phase, name)
        self._shared = {k: names for k, names in reached.items() if len(names) > 1}
        self.pairs = list(
            dict.fromkeys(tuple(names.values())[:2] for names in self._shared.values())
        )
        involved = {name for names in self._shared.values() for name in names.values()}
        self._roots = [root for roots in phases for name, root in roots if name in involved]
        first = {phase: roots[0][0] for phase, roots in enumerate(phases) if roots}
        if len(first) > 1:
            self._shared |= dict.fromkeys(_GLOBAL_GENERATORS, first)
        self._moments: list[Mapping[Any, Any]] = []

    def begin(self) -> None:
        """Before the first phase of a chunk."""
        self._moments = []
        self.phase_done()

    def phase_done(self) -> None:
        """After each phase."""
        if self._shared:
            self._moments.append(_changeable(self._roots))

    def check(self) -> None:
        """After the last phase.

        Raises
        ------
        SimulationError
            A phase changed what another one reaches.
        """
        steps = list(zip(self._moments, self._moments[1:], strict=False))
        for shared, names in self._shared.items():
            changed = [
                phase
                for phase in names
                if not _same(steps[phase][0].get(shared), steps[phase][1].get(shared))
            ]
            if len(changed) > (shared[0] in _GENERATORS):
                one = names[changed[0]]
                other = next(name for phase, name in names.items() if phase != changed[0])
                raise SimulationError(
                    f"{one} changes what {other} also uses ({_describe(shared)}), and they aren't "
                    "called step by step together: samples would depend on the chunk length",
                    _HINT,
                )


_GLOBAL_GENERATORS = {
    ("global generator", "numpy.random"): numpy_state,
    ("global generator", "random"): random.getstate,
}


def _changeable(roots: Iterable[Any]) -> dict[Any, Any]:
    """What can change of all that functions reach: values by what tells them apart."""
    walk = Walk({})
    for root in roots:
        walk.visit(root, "")
    found = {key(entry): (entry[1], entry[3]) for entry in walk.entries}
    return found | {name: get() for name, get in _GLOBAL_GENERATORS.items()}


def _describe(shared: Any) -> str:
    kind, *rest = shared
    if kind == "global generator":
        return f"the generator of {rest[0]}"
    return {"array": "an array", "large": "an array", "dict": "a dict or attributes"}.get(
        kind, "a generator" if kind in _GENERATORS else f"a {kind}"
    )


def _same(a: Any, b: Any) -> bool:
    if a is b:
        return True
    if type(a) is not type(b):
        return False
    if isinstance(a, np.ndarray):
        return a.shape == b.shape and a.dtype == b.dtype and a.tobytes() == b.tobytes()
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(_same(a[k], b[k]) for k in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(_same, a, b))
    if isinstance(a, Frozen):
        return repr(a.iterator) == repr(b.iterator)
    try:
        return bool(a == b) or (a != a and b != b)
    except Exception:
        return False
