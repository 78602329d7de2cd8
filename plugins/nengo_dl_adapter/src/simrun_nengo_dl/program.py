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
from simrun_nengo_dl.inputs import InputNode
from simrun_nengo_dl.probes import Recording, columns

nengo_dl = load_nengo_dl()

import tensorflow as tf  # noqa: E402 - after load_nengo_dl

from nengo_dl import builder, config, utils  # noqa: E402
from simrun_nengo_dl.calling import flat_call  # noqa: E402

Tensors = tuple[Any, ...]

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
    tensor_graph : nengo_dl.tensor_graph.TensorGraph
        Built: its variables exist.
    recordings : sequence of Recording
    inputs : sequence of InputNode
        Nodes whose values change from step to step.
    constants : sequence of (nengo.Node, numpy.ndarray)
        Nodes whose values don't.
    ahead : sequence of operators.AheadProcess
        Processes inside the network that are computed on the host, as inputs are.
    xla : bool
    """

    def __init__(
        self,
        tensor_graph: Any,
        recordings: Sequence[Recording],
        inputs: Sequence[InputNode],
        constants: Sequence[tuple[Any, np.ndarray[Any, Any]]],
        ahead: Sequence[Any] = (),
        *,
        xla: bool,
    ) -> None:
        self._tg = tensor_graph
        self._recordings = recordings
        self._inputs = inputs
        self._constants = constants
        self.ahead = ahead
        self._columns = columns(recordings)
        self._state_keys = list(tensor_graph.saved_state)
        self._learned_keys = [k for k in tensor_graph.base_params if _is_learned(tensor_graph, k)]
        self._accumulators = [r for r in recordings if r.accumulates]
        self._functions: dict[int, Any] = {}
        self._calls: dict[int, Callable[[Sequence[Any]], list[Any]]] = {}
        self._steps: tuple[int, Any] | None = None
        self._seen: tuple[set[str], int] | None = None
        self._sizes: tuple[tuple[int, ...], Any] | None = None
        self.xla = xla

    # -- state ---------------------------------------------------------------------------

    def initial_state(self) -> Tensors:
        """The network's state before the first step, as tensors on the device."""
        tg = self._tg
        with self._context():
            values = [tg.saved_state[k] for k in self._state_keys]
            values += [tg.base_params[k] for k in self._learned_keys]
            state = [tf.identity(v.read_value()) for v in values]
            state += [tf.zeros(r.shape, _accumulator_dtype(r)) for r in self._accumulators]
        return tuple(state)

    def forget_initial_values(self) -> None:
        """Let go of nengo-dl's copies of the values that are state now, and of initial weights.

        The state's variables, and the tensors that ``Simulator.reset`` would start from, would
        take as much memory as the network a second time.
        """
        tg = self._tg
        for key in self._learned_keys:
            tg.base_params[key] = None
        for key in self._state_keys:
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
                    for size in self._input_sizes()
                ),
                spec([length, self._columns], tf.int32) if self._columns else (),
                () if self.xla else spec([len(self._recordings)], tf.int32),
            ]
            function = tf.function(
                self._trace(capacity), autograph=False, jit_compile=self.xla or None
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
            if self._columns:
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
            tf.zeros((length, tg.minibatch_size, size), tg.dtype) for size in self._input_sizes()
        ]
        marks = np.ones((length, self._columns), np.int32)
        rows = (steps + 1,) * len(self._recordings)
        self.run(steps, capacity, state, inputs, marks, rows)

    def usual_capacity(self) -> int:
        """The chunk length, in steps, that a plan without need or wish takes."""
        per_step = sum(r.spec.bytes_per_step for r in self._recordings) + self._input_bytes()
        steps = min(_USUAL_STEPS, int(_USUAL_BYTES / per_step)) if per_step else _USUAL_STEPS
        return max(steps // self._tg.unroll, 1) * self._tg.unroll

    def dry_bytes(self, steps: int, capacity: int) -> int:
        """Bytes of the inputs and buffers of `run_dry`."""
        rows = [r.rows(capacity) if self.xla else steps + 1 for r in self._recordings]
        sizes = [int(np.prod(r.shape)) * r.spec.dtype.itemsize for r in self._recordings]
        length = capacity if self.xla else steps
        return int(np.dot(rows, sizes)) + length * self._input_bytes()

    def _input_bytes(self) -> int:
        """Bytes of the inputs of a step."""
        values = self._tg.minibatch_size * sum(self._input_sizes())
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

    def _input_sizes(self) -> list[int]:
        nodes = [i.node.size_out for i in self._inputs if i.node.size_out]
        return nodes + [process.size for process in self.ahead]

    # -- tracing -------------------------------------------------------------------------

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

    def _trace(self, capacity: int) -> Callable[..., Any]:
        recordings, tg = self._recordings, self._tg

        def chunk(steps: Any, state: Tensors, inputs: Tensors, marks: Any, rows: Any) -> Any:
            buffers = []
            for i, item in enumerate(recordings):
                if self.xla:
                    buffers.append(tf.zeros((item.rows(capacity), *item.shape), tg.dtype))
                else:
                    shape = tf.concat([rows[i : i + 1], np.array(item.shape, np.int32)], 0)
                    buffers.append(_empty(shape, tg.dtype, item.shape))
            values = (tf.constant(0), state, tuple(buffers))
            if tg.unroll > 1:
                whole = steps - steps % tg.unroll
                values = self._loop(whole, tg.unroll, values, inputs, marks)
            _, state, done = self._loop(steps, 1, values, inputs, marks)
            return state, done

        return chunk

    def _loop(
        self, stop: Any, unroll: int, values: tuple[Any, ...], inputs: Tensors, marks: Any
    ) -> Any:
        """``while i < stop``, with ``unroll`` steps in each turn."""
        tg = self._tg
        # all that the operators cached while an earlier loop was traced belongs to that loop
        self._build_operators()
        params = {
            k: tf.convert_to_tensor(v)
            for k, v in tg.base_params.items()
            if k not in self._learned_keys
        }

        def turn(i: Any, state: Tensors, buffers: Tensors) -> Any:
            for _ in range(unroll):
                i, state, buffers = self._step(i, state, buffers, params, inputs, marks)
            return i, state, buffers

        return tf.while_loop(lambda i, *_: i < stop, turn, values, parallel_iterations=1)

    def _build_operators(self) -> None:
        """What nengo-dl's ``TensorGraph.call`` does before its loop."""
        tg = self._tg
        signals = tg.signals
        tf.random.set_seed(tg.seed)
        signals.reset()
        signals.dt = tf.constant(tg.dt, tg.dtype)
        signals.dt_val = tg.dt
        signals.zero = tf.constant(0, tg.dtype)
        signals.one = tf.constant(1, tg.dtype)
        tg.op_builder.build_pre(
            signals,
            builder.BuildConfig(
                inference_only=tg.inference_only,
                lif_smoothing=config.get_setting(tg.model, "lif_smoothing"),
                cpu_only=not utils.tf_gpu_installed or "cpu" in (tg.device or "").lower(),
                rng=np.random.RandomState(tg.seed),
                training=bool(config.get_setting(tg.model, "learning_phase", False)),
            ),
        )

    def _step(
        self,
        i: Any,
        state: Tensors,
        buffers: Tensors,
        params: dict[Any, Any],
        inputs: Tensors,
        marks: Any,
    ) -> Any:
        tg = self._tg
        signals = tg.signals
        n_state, n_learned = len(self._state_keys), len(self._learned_keys)
        accumulated = state[n_state + n_learned :]
        learned = dict(zip(self._learned_keys, state[n_state : n_state + n_learned], strict=True))
        # in the order of base_params, as nengo-dl fills them
        bases = {k: learned.get(k, params.get(k)) for k in tg.base_params}
        tg._fill_bases(dict(zip(self._state_keys, state[:n_state], strict=True)), bases)
        self._write_inputs(i, inputs)
        # side effects and probes of the last step come before this one, as in nengo-dl
        with tf.control_dependencies([i]):
            effects = tg.op_builder.build_step(signals)
            values = [signals.gather(r.signal) for r in self._recordings]
        row = marks[i] if self._columns else None
        accumulated, samples = self._reduce(row, accumulated, values)
        buffers = self._write(i, row, buffers, samples)
        with tf.control_dependencies([*effects, *values, *buffers]):
            i += 1
        state = tuple(signals.bases[k] for k in (*self._state_keys, *self._learned_keys))
        return i, (*state, *accumulated), buffers

    def _write_inputs(self, i: Any, inputs: Tensors) -> None:
        tg = self._tg
        fed = [item.node for item in self._inputs if item.node.size_out]
        values = {node: array[i] for node, array in zip(fed, inputs, strict=False)}
        tg.signals.simrun_step = i
        tg.signals.simrun_ahead = {
            process.key: array
            for process, array in zip(self.ahead, inputs[len(fed) :], strict=True)
        }
        for node, value in self._constants:
            shape = (tg.minibatch_size, node.size_out)
            values[node] = tf.constant(np.broadcast_to(value, shape), tg.dtype)
        for node in tg.invariant_inputs:
            signal = tg.model.sig[node]["out"]
            if signal in tg.signals and node in values:
                tg.signals.scatter(tg.signals[signal], values[node])

    def _reduce(
        self, row: Any, accumulated: Tensors, values: list[Any]
    ) -> tuple[Tensors, list[Any]]:
        """Add this step's values to their windows; what a step that ends one records."""
        thinned = sum(not r.every_step for r in self._recordings)
        kept, samples = [], []
        mean = thinned + len(self._accumulators)
        for item, value in zip(self._recordings, values, strict=True):
            if not item.accumulates:
                samples.append(value)
                continue
            begins = row[thinned + len(kept)] > 0
            before = accumulated[len(kept)]
            x = tf.cast(value, before.dtype)
            combine = tf.maximum if item.spec.reduce == "max" else tf.add
            total = tf.where(begins, x, combine(before, x))
            kept.append(total)
            if item.spec.reduce == "mean":
                total = total / tf.cast(row[mean], total.dtype)
                mean += 1
            samples.append(tf.cast(total, value.dtype))
        return tuple(kept), samples

    def _write(self, i: Any, row: Any, buffers: Tensors, samples: list[Any]) -> Tensors:
        write = _write_xla if self.xla else _write_graph
        written, thinned = [], 0
        for item, buffer, sample in zip(self._recordings, buffers, samples, strict=True):
            at = i
            if not item.every_step:
                at = row[thinned]
                thinned += 1
            written.append(write(buffer, at, sample))
        return tuple(written)


def _write_xla(buffer: Any, at: Any, sample: Any) -> Any:
    from tensorflow.compiler.tf2xla.python import xla

    start = tf.stack([at, *([0] * sample.shape.rank)])
    return xla.dynamic_update_slice(buffer, sample[None], start)


def _write_graph(buffer: Any, at: Any, sample: Any) -> Any:
    # in place, and handed on without a copy; a variable would be copied when it is read
    return tf.raw_ops.InplaceUpdate(x=buffer, i=at[None], v=sample[None])


def _empty(shape: Any, dtype: Any, row: tuple[int, ...]) -> Any:
    """Memory that isn't set to anything."""
    buffer = tf.raw_ops.Empty(shape=shape, dtype=dtype)
    return tf.ensure_shape(buffer, (None, *row))


def _is_learned(tensor_graph: Any, key: Any) -> bool:
    """Whether a learning rule changes a parameter: nengo-dl gives those a minibatch axis."""
    arrays = tensor_graph.base_arrays_init
    found = arrays["non_trainable"].get(key) or arrays["trainable"][key]
    return bool(found[-1])


def _accumulator_dtype(item: Recording) -> Any:
    """Sums are kept in float64, so that millions of steps lose nothing."""
    return tf.as_dtype(item.spec.dtype) if item.spec.reduce == "max" else tf.float64
