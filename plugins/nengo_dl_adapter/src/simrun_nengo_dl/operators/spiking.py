"""Stochastic and Poisson spiking by random numbers that are a function of the step.

nengo-dl draws from TensorFlow's stateful generators: a run can't be taken up again in a new
process, and XLA can't compile them. Here each number is a counter-based generator's (Salmon
et al. 2011) of a key made of the simulator's seed and the operator's place in the plan, and a
counter made of the simulation step and the neuron's index. So any chunking, resume or retry
draws the same numbers.

The generator is Threefry under XLA and Philox without, as each has one of them that is fast and
TensorFlow's two Philoxes don't agree: the two paths draw different numbers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf
from nengo.builder.neurons import SimNeurons
from nengo.neurons import PoissonSpiking, StochasticSpiking
from nengo_dl.neuron_builders import PoissonSpikingBuilder, StochasticSpikingBuilder

_PHILOX, _THREEFRY = 1, 2
_GOLDEN = 0x9E3779B97F4A7C15  # spreads neighbouring operators over the keys
_NORMAL_ABOVE = 500.0  # expected spikes a step; exp(-mean) underflows near 700


def builder(ops: Any, graph: Any, index: int, *, xla: bool) -> Any:
    """Return the builder of a group of randomly spiking neurons, or None for anything else."""
    if not isinstance(ops[0], SimNeurons):
        return None
    native = _NATIVE.get(type(ops[0].neurons))
    if native is None:
        return None
    key = (graph.seed + (index + 1) * _GOLDEN) % 2**64
    return native(ops, graph.model.step, key, _THREEFRY if xla else _PHILOX)


class _Counted:
    """Mixed into a neuron builder: uniform numbers for this step, without a state."""

    def __init__(self, ops: Any, step: Any, key: int, algorithm: int) -> None:
        super().__init__(ops)
        self._step_signal, self._key, self._algorithm = step, np.uint64(key), algorithm

    def build_step(self, signals: Any) -> None:
        """See `nengo_dl.builder.OpBuilder`."""
        step = signals.gather(signals[self._step_signal])
        # the low word counts the neurons of a step; Threefry has no more than these 64 bits
        step = tf.bitwise.left_shift(tf.cast(step, tf.uint64), tf.constant([32], tf.uint64))
        self._counter = tf.concat([step, tf.zeros(1, tf.uint64)], 0)
        super().build_step(signals)

    def uniform(self, shape: Any, dtype: Any) -> Any:
        """Return numbers in [0, 1), the same for the same step."""
        return tf.raw_ops.StatelessRandomUniformV2(
            shape=shape,
            key=[self._key],
            counter=self._counter,
            dtype=dtype,
            alg=self._algorithm,
        )


class StochasticStep(_Counted, StochasticSpikingBuilder):
    """Round dt |J| up or down at random, so that its mean is kept."""

    def step(self, J: Any, dt: Any) -> Any:
        """Return the output, (minibatch, neurons)."""
        mean = dt * tf.abs(J)
        whole = tf.floor(mean)
        up = self.uniform(J.shape, J.dtype) < mean - whole
        return (whole + tf.cast(up, J.dtype)) * (self.alpha * tf.sign(J))


class PoissonStep(_Counted, PoissonSpikingBuilder):
    """Draw the number of spikes from the Poisson distribution of mean dt |J|."""

    def step(self, J: Any, dt: Any) -> Any:
        """Return the output, (minibatch, neurons)."""
        mean = tf.cast(tf.abs(J) * dt, tf.float64)
        spikes = poisson(mean, self.uniform(J.shape, tf.float64))
        return self.alpha * tf.cast(spikes, J.dtype) * tf.sign(J)


def poisson(mean: Any, u: Any) -> Any:
    """Return the smallest k with P(X <= k) > u, X Poisson: inversion by sequential search.

    Parameters
    ----------
    mean, u : tf.Tensor of float64
        Of one shape. Means above 500 take the rounded normal quantile instead.
    """
    small = mean < _NORMAL_ABOVE
    m = tf.where(small, mean, 0.0)

    def unfinished(_: Any, p: Any, cdf: Any, __: Any) -> Any:
        # p falls below what cdf can hold: u lies in the rounding of the tail
        return tf.reduce_any((u >= cdf) & (cdf + p > cdf))

    def search(k: Any, p: Any, cdf: Any, count: Any) -> tuple[Any, ...]:
        more = u >= cdf
        p = p * m / k
        return k + 1, p, cdf + p, count + tf.cast(more, tf.float64)

    p = tf.exp(-m)
    start = (tf.ones((), tf.float64), p, p, tf.zeros_like(m))
    count = tf.while_loop(unfinished, search, start)[3]
    normal = mean + tf.sqrt(mean) * tf.math.ndtri(tf.clip_by_value(u, 1e-16, 1 - 1e-16))
    return tf.where(small, count, tf.maximum(tf.round(normal), 0.0))


_NATIVE = {StochasticSpiking: StochasticStep, PoissonSpiking: PoissonStep}
