"""Resets to one value, kept as that value and not as an array of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf
from nengo_dl.builder import OpBuilder
from nengo_dl.op_builders import ResetInc


class Resets(OpBuilder):
    """Signals set (or increased) to constants in each step.

    The array that a learning rule's changes are summed up in is reset in each step. It may be a
    network's largest, and XLA copies a program's constants when it compiles: where a group of
    resets has one value, the constant is that value.
    """

    def build_pre(self, signals: Any, config: Any) -> None:
        """See `nengo_dl.builder.OpBuilder`."""
        super().build_pre(signals, config)
        self.mode = "inc" if type(self.ops[0]) is ResetInc else "update"
        by_base: dict[Any, list[Any]] = {}
        for op in self.ops:
            by_base.setdefault(signals[op.dst].key, []).append(op)
        self.resets = [
            (signals.combine([op.dst for op in ops]), self._values(ops, signals))
            for ops in by_base.values()
        ]

    def build_step(self, signals: Any) -> None:
        """See `nengo_dl.builder.OpBuilder`."""
        for data, value in self.resets:
            signals.scatter(data, tf.broadcast_to(value, data.full_shape), mode=self.mode)

    @staticmethod
    def _values(ops: Any, signals: Any) -> Any:
        dtype = np.asarray(ops[0].value).dtype
        dtype = signals.dtype if np.issubdtype(dtype, np.floating) else tf.as_dtype(dtype)
        values = [np.asarray(op.value) for op in ops]
        first = values[0].ravel()[:1]
        if all((value == first).all() for value in values):
            return tf.constant(first.reshape(()), dtype)
        shapes = [(signals.minibatch_size, *op.dst.shape) for op in ops]
        whole = [np.broadcast_to(*pair) for pair in zip(values, shapes, strict=True)]
        return tf.constant(np.concatenate(whole, axis=1), dtype)
