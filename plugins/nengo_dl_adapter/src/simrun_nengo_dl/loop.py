"""What one step of a chunk computes: nengo-dl's operators, and the probes' rows.

`Loop.chunk` is traced by TensorFlow, once for each way to execute it; nothing here runs while
a simulation does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from simrun_nengo_dl.compat import load_nengo_dl
from simrun_nengo_dl.inputs import InputNode
from simrun_nengo_dl.probes import Recording, columns

load_nengo_dl()

import tensorflow as tf

from nengo_dl import builder, config, utils

Tensors = tuple[Any, ...]


class Loop:
    """The loop over steps, to be traced.

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

    Attributes
    ----------
    state_keys, learned_keys : list
        The base arrays that are a simulation's state; a learning rule changes the latter.
    accumulators : list of Recording
        Those whose windows are summed up; their sums are the last part of the state.
    columns : int
        Of the marks that say what a step records.
    """

    def __init__(
        self,
        tensor_graph: Any,
        recordings: Sequence[Recording],
        inputs: Sequence[InputNode],
        constants: Sequence[tuple[Any, np.ndarray[Any, Any]]],
        ahead: Sequence[Any],
        *,
        xla: bool,
    ) -> None:
        self.tensor_graph = tensor_graph
        self.recordings = recordings
        self.ahead = ahead
        self.xla = xla
        self._constants = constants
        self._fed = [item.node for item in inputs if item.node.size_out]
        self.state_keys = list(tensor_graph.saved_state)
        self.learned_keys = [k for k in tensor_graph.base_params if _is_learned(tensor_graph, k)]
        self.accumulators = [r for r in recordings if r.accumulates]
        self.columns = columns(recordings)

    def initial_state(self) -> Tensors:
        """The network's state before the first step, as tensors on the current device."""
        tg = self.tensor_graph
        values = [tg.saved_state[k] for k in self.state_keys]
        values += [tg.base_params[k] for k in self.learned_keys]
        state = [tf.identity(v.read_value()) for v in values]
        state += [tf.zeros(r.shape, _accumulator_dtype(r)) for r in self.accumulators]
        return tuple(state)

    def input_sizes(self) -> list[int]:
        """Values per step of each input: nodes, then processes that are computed ahead."""
        return [node.size_out for node in self._fed] + [p.size for p in self.ahead]

    def chunk(self, capacity: int) -> Callable[..., Any]:
        """The function of (steps, state, inputs, marks, rows) that gives state and buffers."""
        recordings, tg = self.recordings, self.tensor_graph

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
                values = self._turns(whole, tg.unroll, values, inputs, marks)
            _, state, done = self._turns(steps, 1, values, inputs, marks)
            return state, done

        return chunk

    def _turns(
        self, stop: Any, unroll: int, values: tuple[Any, ...], inputs: Tensors, marks: Any
    ) -> Any:
        """``while i < stop``, with ``unroll`` steps in each turn."""
        tg = self.tensor_graph
        # all that the operators cached while an earlier loop was traced belongs to that loop
        self._build_operators()
        params = {
            k: tf.convert_to_tensor(v)
            for k, v in tg.base_params.items()
            if k not in self.learned_keys
        }

        def turn(i: Any, state: Tensors, buffers: Tensors) -> Any:
            for _ in range(unroll):
                i, state, buffers = self._step(i, state, buffers, params, inputs, marks)
            return i, state, buffers

        return tf.while_loop(lambda i, *_: i < stop, turn, values, parallel_iterations=1)

    def _build_operators(self) -> None:
        """What nengo-dl's ``TensorGraph.call`` does before its loop."""
        tg = self.tensor_graph
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
        tg = self.tensor_graph
        signals = tg.signals
        n_state, n_learned = len(self.state_keys), len(self.learned_keys)
        accumulated = state[n_state + n_learned :]
        learned = dict(zip(self.learned_keys, state[n_state : n_state + n_learned], strict=True))
        # in the order of base_params, as nengo-dl fills them
        bases = {k: learned.get(k, params.get(k)) for k in tg.base_params}
        tg._fill_bases(dict(zip(self.state_keys, state[:n_state], strict=True)), bases)
        self._write_inputs(i, inputs)
        # side effects and probes of the last step come before this one, as in nengo-dl
        with tf.control_dependencies([i]):
            effects = tg.op_builder.build_step(signals)
            values = [signals.gather(r.signal) for r in self.recordings]
        row = marks[i] if self.columns else None
        accumulated, samples = self._reduce(row, accumulated, values)
        buffers = self._write(i, row, buffers, samples)
        with tf.control_dependencies([*effects, *values, *buffers]):
            i += 1
        state = tuple(signals.bases[k] for k in (*self.state_keys, *self.learned_keys))
        return i, (*state, *accumulated), buffers

    def _write_inputs(self, i: Any, inputs: Tensors) -> None:
        tg = self.tensor_graph
        values = {node: array[i] for node, array in zip(self._fed, inputs, strict=False)}
        tg.signals.simrun_step = i
        tg.signals.simrun_ahead = {
            process.key: array
            for process, array in zip(self.ahead, inputs[len(self._fed) :], strict=True)
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
        thinned = sum(not r.every_step for r in self.recordings)
        kept, samples = [], []
        mean = thinned + len(self.accumulators)
        for item, value in zip(self.recordings, values, strict=True):
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
        for item, buffer, sample in zip(self.recordings, buffers, samples, strict=True):
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
