"""Synapses, and other processes with an input, as formulas."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf
from nengo.synapses import Triangle
from nengo_dl.builder import OpBuilder


def input_process(ops: Any) -> Any:
    """Return the native builder of a group of processes with input, or None."""
    return TriangleStep(ops) if all(type(op.process) is Triangle for op in ops) else None


class TriangleStep(OpBuilder):
    """Triangular FIR filter, as nengo's: a ring of taps and a running output.

    ``Y += n0 u - sum(X)``, then the oldest tap becomes ``ndiff u``.
    """

    def build_pre(self, signals: Any, config: Any) -> None:
        """See `nengo_dl.builder.OpBuilder`."""
        super().build_pre(signals, config)
        self.coefficients = [op.process._get_coefficients(signals.dt_val) for op in self.ops]

    def build_step(self, signals: Any) -> None:
        """See `nengo_dl.builder.OpBuilder`."""
        for op, (n_taps, n0, ndiff) in zip(self.ops, self.coefficients, strict=True):
            u = signals.gather(signals[op.input])
            X, Y, Xi = (signals.gather(signals[op.state[name]]) for name in ("X", "Y", "Xi"))
            Y = Y + n0 * u - tf.reduce_sum(X, axis=1)
            Xi = tf.math.floormod(Xi + 1, n_taps)
            oldest = np.arange(n_taps, dtype=X.dtype.as_numpy_dtype) == Xi
            X = tf.where(oldest[..., None], ndiff * u[:, None], X)
            for name, value in (("X", X), ("Y", Y), ("Xi", Xi)):
                signals.scatter(signals[op.state[name]], value)
            signals.scatter(signals[op.output], Y)
