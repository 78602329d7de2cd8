"""A chunk of any length as one compiled TensorFlow function.

The simulator's state goes in and comes out as tensors: nothing is assigned, so a chunk that
fails half-way has changed nothing on the device. The number of steps is a run-time value; one
trace serves every length. Probe samples are written in place into one buffer per probe, which
is made anew by each chunk, so that the previous chunk's samples stay with whoever has them.

Two ways to execute it, with the same contents of the loop:

graph
    TensorFlow's executor runs kernel after kernel, as in nengo-dl. The buffers have exactly
    the rows that are needed.
xla
    The whole loop is one XLA program. Its buffers have a static number of rows, those of the
    longest chunk (`simrun.records.Chunk.capacity`); another capacity is compiled once more.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np

from simrun_nengo_dl.compat import load_nengo_dl

load_nengo_dl()

import tensorflow as tf

from simrun_nengo_dl.calling import flat_call
from simrun_nengo_dl.loop import Loop, Tensors

# as the core's planner chooses them: another choice compiles once more
_USUAL_STEPS, _USUAL_BYTES = 1000, 32 << 20

_RANDOM = {
    "RandomUniform", "RandomStandardNormal", "RandomPoissonV2", "RandomUniformInt",
    "TruncatedNormal", "RandomGamma", "Multinomial", "RandomShuffle", "RngReadAndSkip",
}  # fmt: skip


@dataclass(frozen=True)
class Result:
    """What a chunk left behind: the new state, and for each recording its buffer of rows."""

    state: Tensors
    buffers: Tensors


class Program:
    """The compiled loop over steps.

    Parameters
    ----------
    loop : Loop
    """

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._tg, self._recordings = loop.tensor_graph, loop.recordings
        self.ahead, self.xla = loop.ahead, loop.xla
        self._functions: dict[int, Any] = {}
        self._calls: dict[int, Callable[[Sequence[Any]], list[Any]]] = {}
        self._steps: tuple[int, Any] | None = None
        self._seen: tuple[set[str], int] | None = None
        self._sizes: tuple[tuple[int, ...], Any] | None = None

    # -- state ---------------------------------------------------------------------------

    def initial_state(self) -> Tensors:
        """The network's state before the first step, as tensors on the device."""
        with self._context():
            return self._loop.initial_state()

    def forget_initial_values(self) -> None:
        """Let go of nengo-dl's copies of the values that are state now, and of initial weights.

        The state's variables, and the tensors that ``Simulator.reset`` would start from, would
        take as much memory as the network a second time.
        """
        tg = self._tg
        for key in self._loop.learned_keys:
            tg.base_params[key] = None
        for key in self._loop.state_keys:
            tg.saved_state[key] = None
        tg.initial_values.clear()
        tg._trainable_weights.clear()
        tg._non_trainable_weights.clear()

    def extra_variables(self) -> list[Any]:
        """Variables of TensorNodes, which a chunk might assign."""
        ours = {id(v) for v in self._tg.base_params.values()}
        found: dict[int, Any] = {}
        for function in self._functions.values():
            for variable in function.variables:
                if id(variable) not in ours:
                    found[id(variable)] = variable
        return list(found.values())

    def stateful_random(self) -> bool:
        """Whether TensorFlow's own generators are used, whose position nobody can read."""
        return self._uses(_RANDOM)

    def _uses(self, names: set[str]) -> bool:
        """Whether one of these operators is in the compiled function."""
        return not names.isdisjoint(self._look()[0])

    def constant_bytes(self) -> int:
        """Bytes of constants in the program, which XLA copies when it compiles."""
        return self._look()[1]

    def _look(self) -> tuple[set[str], int]:
        """The kinds of operators in the program, and the bytes of its constants."""
        if self._seen is None:
            (function,) = self._functions.values()
            graph = function.graph.as_graph_def()
            nodes = [*graph.node, *(n for f in graph.library.function for n in f.node_def)]
            constants = sum(n.attr["value"].tensor.ByteSize() for n in nodes if n.op == "Const")
            self._seen = {node.op for node in nodes}, constants
        return self._seen

    # -- running -------------------------------------------------------------------------

    def prepare(self, capacity: int, state: Tensors) -> None:
        """Trace and compile for chunks of up to ``capacity`` steps, if that isn't done yet.

        ``state`` gives the shapes and types.
        """
        key = capacity if self.xla else 0
        if key in self._functions:
            return
        anew = bool(self._functions)
        self.forget()
        tg = self._tg
        length = capacity if self.xla else None
        with self._context():
            spec = tf.TensorSpec
            signature = [
                spec([], tf.int32),
                tuple(spec(x.shape, x.dtype) for x in state),
                tuple(
                    spec([length, tg.minibatch_size, size], tg.dtype)
                    for size in self._loop.input_sizes()
                ),
                spec([length, self._loop.columns], tf.int32) if self._loop.columns else (),
                () if self.xla else spec([len(self._recordings)], tf.int32),
            ]
            function = tf.function(
                self._loop.chunk(capacity), autograph=False, jit_compile=self.xla or None
            )
            self._functions[key] = function.get_concrete_function(*signature)
            self._calls[key] = flat_call(self._functions[key])
        if anew:
            gc.collect()  # the operators let go of the earlier trace, which refers to itself

    def run(
        self,
        steps: int,
        capacity: int,
        state: Tensors,
        inputs: Sequence[Any],
        marks: np.ndarray[Any, Any],
        rows: tuple[int, ...],
    ) -> Result:
        """Execute ``steps`` steps.

        Parameters
        ----------
        steps, capacity : int
        state : tuple of tensor
            Stays as it is.
        inputs : sequence of tensor, shape (steps or capacity, minibatch, size)
            Of each input node that has an output, then of each process computed ahead.
        marks : numpy.ndarray of int32, shape (steps or capacity, columns)
        rows : tuple of int
            Rows of each recording's buffer (graph).
        """
        self.prepare(capacity, state)
        with self._device():
            # a boundary of chunks takes about ten times what a constant does: each counts
            if self._steps is None or self._steps[0] != steps:
                self._steps = steps, tf.constant(steps)
            arguments = [self._steps[1], *state, *inputs]
            if self._loop.columns:
                arguments.append(tf.constant(marks))
            if not self.xla:
                if self._sizes is None or self._sizes[0] != rows:
                    self._sizes = (rows, tf.constant(rows, tf.int32, (len(rows),)))
                arguments.append(self._sizes[1])
            found = self._calls[capacity if self.xla else 0](arguments)
        return Result(tuple(found[: len(state)]), tuple(found[len(state) :]))

    def run_dry(self, steps: int, state: Tensors, capacity: int) -> None:
        """Run up to ``capacity`` steps from ``state`` with inputs of zero; forget the result.

        XLA has then compiled the program for chunks of that capacity.
        """
        tg = self._tg
        length = capacity if self.xla else steps
        inputs = [
            tf.zeros((length, tg.minibatch_size, size), tg.dtype)
            for size in self._loop.input_sizes()
        ]
        marks = np.ones((length, self._loop.columns), np.int32)
        rows = (steps + 1,) * len(self._recordings)
        self.run(steps, capacity, state, inputs, marks, rows)

    def usual_capacity(self) -> int:
        """The chunk length, in steps, that a plan without need or wish takes."""
        per_step = sum(r.spec.bytes_per_step for r in self._recordings) + self._input_bytes()
        steps = min(_USUAL_STEPS, int(_USUAL_BYTES / per_step)) if per_step else _USUAL_STEPS
        return max(steps // self._tg.unroll, 1) * self._tg.unroll

    def dry_bytes(self, steps: int, capacity: int) -> int:
        """Bytes of the inputs and buffers of `run_dry`, as far as it writes to them."""
        # XLA fills its buffers; on the graph path memory isn't there before it is written
        rows = [
            r.rows(capacity) if self.xla else steps if r.every_step else 1 for r in self._recordings
        ]
        sizes = [int(np.prod(r.shape)) * r.spec.dtype.itemsize for r in self._recordings]
        length = capacity if self.xla else steps
        return int(np.dot(rows, sizes)) + length * self._input_bytes()

    def _input_bytes(self) -> int:
        """Bytes of the inputs of a step."""
        values = self._tg.minibatch_size * sum(self._loop.input_sizes())
        return values * np.dtype(self._tg.dtype).itemsize

    def is_pure(self) -> bool:
        """Whether a chunk has no effect but its results."""
        return not (
            self.stateful_random()
            or self.extra_variables()
            or self._uses({"PyFunc", "PyFuncStateless", "EagerPyFunc"})
        )

    def forget(self) -> None:
        """Free the compiled functions."""
        self._functions.clear()
        self._calls.clear()
        self._steps = self._sizes = None  # they may be on a device that isn't used any more

    @contextmanager
    def _context(self):
        """As nengo-dl's own methods run: its device, and Keras in the network's precision."""
        floatx = tf.keras.backend.floatx()
        tf.keras.backend.set_floatx(self._tg.dtype)
        try:
            with self._device():
                yield
        finally:
            tf.keras.backend.set_floatx(floatx)

    def _device(self) -> Any:
        device = self._tg.device
        return nullcontext() if device is None else tf.device(device)
