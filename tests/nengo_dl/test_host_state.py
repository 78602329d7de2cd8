"""What Python functions remember is found, copied and put back in place."""

import collections
import functools
import itertools
import random
import sys
import types

import nengo
import numpy as np
import pytest

from simrun_nengo import walking
from simrun_nengo.host_state import HostState

counter = 0
history = []


def closure():
    total, seen, last = np.zeros(2), [], None

    def f():
        nonlocal last, total
        total += 1
        seen.append({"total": total.copy()})
        last = (last or 0) + len(seen)
        return float(total[0]), last, len(seen)

    return f


def default_argument():
    def f(memory={"n": 0}, *, more=[1]):  # noqa: B006 - as users write it
        memory["n"] += 1
        more.append(memory["n"])
        return sum(more)

    return f


def global_variable():
    def f():
        global counter
        counter += 1
        history.append(counter)
        return counter, len(history)

    return f


def generators():
    old, new, py = np.random.RandomState(1), np.random.default_rng(2), random.Random(3)
    return lambda: (old.normal(), new.normal(), py.random(), np.random.rand(), random.random())


def bound_method_of_a_generator():
    return functools.partial(np.random.RandomState(5).uniform, 0, 1)


class Slotted:
    __slots__ = ("n",)

    def __init__(self):
        self.n = 0

    def __call__(self):
        self.n += 1
        return self.n


class Shared:
    calls = 0

    def __init__(self):
        self.inner = collections.deque([0], maxlen=3)
        self.names = {"a"}
        self.other = Slotted()

    def step(self):
        Shared.calls += 1
        self.inner.append(self.inner[-1] + 1)
        self.names.add(str(self.inner[-1]))
        return sum(self.inner), len(self.names), self.other(), Shared.calls


def method():
    return Shared().step


def iterators():
    count = itertools.count(5)
    holder = {"same": count, "cycle": itertools.cycle("abc")}
    return lambda: (next(count), next(holder["same"]), next(holder["cycle"]))


def function_attribute():
    def f():
        f.n += 1
        return f.n

    f.n = 0
    return f


def unassigned_variable():
    def f():
        nonlocal later
        try:
            later += 1
        except NameError:
            later = 1
        return later

    if f is None:
        later = 0
    return f


def helper_function():
    def f():
        return closure_of_module()

    return f


closure_of_module = closure()


class Leaky(nengo.Process):
    """A user's process, whose step keeps a list."""

    def make_state(self, shape_in, shape_out, dt, dtype=None):
        return {}

    def make_step(self, shape_in, shape_out, dt, rng, state):
        kept = []

        def step(t):
            kept.append(rng.normal())
            return sum(kept)

        return step


def process():
    step = Leaky().make_step((0,), (1,), 0.001, np.random.RandomState(0), {})
    return lambda: step(0.1)


MAKERS = pytest.mark.parametrize(
    "make",
    [
        closure, default_argument, global_variable, generators, bound_method_of_a_generator,
        Slotted, method, iterators, function_attribute, unassigned_variable, helper_function,
        process,
    ],
)  # fmt: skip


@MAKERS
def test_everything_is_put_back(make):
    function = make()
    host = HostState([("it", function)])
    assert host.obstacles == ()
    first = [function() for _ in range(3)]
    saved = host.capture()
    expected = [function() for _ in range(5)]
    for _ in range(2):
        host.restore(saved)
        assert [function() for _ in range(5)] == expected
    assert first != expected


@MAKERS
def test_another_instance_goes_on_where_the_state_was_saved(make):
    """As in a new process: the same model, opened again, takes up the saved state."""
    function, again = make(), make()
    host, other = HostState([("it", function)]), HostState([("it", again)])
    for _ in range(3):
        function()
    data = host.dump()
    expected = [function() for _ in range(5)]
    again()
    other.load(data)
    assert [again() for _ in range(5)] == expected


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (lambda: functools.partial(next, (x for x in range(9))), "generator"),
        (lambda: functools.partial(next, iter([1, 2])), "list_iterator"),
        (lambda: open(__file__, encoding="utf-8").readline, "TextIOWrapper"),  # noqa: SIM115, PTH123
    ],
)
def test_obstacles_are_named(make, kind):
    assert HostState([("node a", make())]).obstacles == (f"node a uses a {kind}",)


def test_a_view_stays_a_view():
    base = np.zeros(4)
    view = base[1:3]

    def f():
        view[:] += 1
        return base.sum()

    host = HostState([("it", f)])
    saved = host.capture()
    f()
    host.restore(saved)
    assert base.sum() == 0
    assert f() == 2


def test_large_arrays_are_only_checked(monkeypatch):
    monkeypatch.setattr(walking, "LARGE", 100)
    data = np.arange(1000.0)
    host = HostState([("it", lambda: data[3])])
    saved = host.capture()
    assert not any(kind == "array" for kind, *_ in saved)
    host.restore(saved)
    data[5] = -1
    with pytest.raises(RuntimeError, match="8000 bytes"):
        host.restore(saved)


def test_modules_and_classes_of_libraries_are_left_alone():
    module = types.ModuleType("other")
    host = HostState([("it", lambda: (module, np.sin, sys.path, nengo.LIF))])
    host.restore(host.capture())
    assert host.obstacles == ()
