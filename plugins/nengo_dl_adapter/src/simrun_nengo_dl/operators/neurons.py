"""Neuron types that nengo-dl has no TensorFlow form of, and a cheaper LIF.

The formulas follow the order of arithmetic of nengo's ``step`` methods, so that in float64
the spikes are those of nengo's core simulator.
"""

from __future__ import annotations

from functools import partial
from math import factorial
from typing import Any

import numpy as np
import tensorflow as tf
from nengo.neurons import LIF, AdaptiveLIF, AdaptiveLIFRate, Izhikevich
from nengo_dl.neuron_builders import LIFRateBuilder, TFNeuronBuilder

_MANY = 4096  # neurons times minibatch


def builder(ops: Any) -> Any:
    """Return the native builder of a group of ``SimNeurons``, or None where nengo-dl's is."""
    native = NATIVE.get(type(ops[0].neurons))
    return native and native(ops)


def parameter(self: Any, signals: Any, name: str) -> Any:
    """Return a neuron parameter as a scalar, or as one value per neuron where ops differ."""
    ops = self.ops
    sizes = [op.J.shape[0] for op in ops]
    return signals.op_constant([op.neurons for op in ops], sizes, name, signals.dtype)


class ComputedOnce:
    """Mixed into a builder: stops XLA from computing a value again for each of its uses.

    XLA on the CPU copies cheap arithmetic into every loop that reads its result, however long
    the chain; a division by a number that it doesn't know counts as dear. The number is one.
    """

    def build_step(self, signals: Any) -> None:
        """See `nengo_dl.builder.OpBuilder`."""
        self._one = tf.cast(signals.simrun_step >= 0, signals.dtype)
        super().build_step(signals)

    def once(self, x: Any) -> Any:
        """Return ``x``, bit for bit."""
        return x / self._one


class LIFStep(ComputedOnce, LIFRateBuilder):
    """Leaky integrate-and-fire in nengo core's order of arithmetic.

    Within one step ``expm1`` and ``log1p`` only see arguments in [-dt / tau_rc, 0]: the first
    by definition; the second because a neuron that was at most at threshold 1 overshoots by at
    most (J - 1) (1 - exp(-dt / tau_rc)). There a short series is exact to the last bit or so
    of the dtype, and costs a third of the library functions. Few neurons stay with the library:
    XLA would count the series' operations and split so short a loop among threads.

    ``refractory_time`` is what nengo core's is: one dt more than nengo-dl's after a spike.
    """

    spiking = True

    def build_pre(self, signals: Any, config: Any) -> None:
        """See `nengo_dl.builder.OpBuilder`."""
        super().build_pre(signals, config)
        self.min_voltage = parameter(self, signals, "min_voltage")
        bound = max(signals.dt_val / op.neurons.tau_rc for op in self.ops)
        start = max(np.max(op.state["voltage"].initial_value) for op in self.ops)
        many = signals.minibatch_size * self.J_data.shape[0] >= _MANY
        if many and bound <= 0.1 and start <= 1:
            self.expm1, self.log1p = short_series(bound, signals.dtype.as_numpy_dtype)
        else:
            self.expm1, self.log1p = tf.math.expm1, tf.math.log1p

    def step(self, J: Any, dt: Any, voltage: Any, refractory_time: Any) -> tuple[Any, ...]:
        """Return output, voltage and refractory time, each (minibatch, neurons)."""
        refractory_time = refractory_time - dt
        delta_t = tf.clip_by_value(dt - refractory_time, self.zero, dt)
        voltage = voltage - (J - voltage) * self.expm1(-delta_t / self.tau_rc)
        voltage = self.once(voltage)
        spiked = voltage > self.one
        t_spike = dt + self.tau_rc * self.log1p(-(voltage - self.one) / (J - self.one))
        refractory_time = tf.where(spiked, self.tau_ref + t_spike, refractory_time)
        voltage = tf.where(spiked, self.zero, tf.maximum(voltage, self.min_voltage))
        return tf.cast(spiked, J.dtype) * self.alpha, voltage, refractory_time


def short_series(bound: float, dtype: Any) -> tuple[Any, Any]:
    """Return ``expm1`` and ``log1p`` for arguments of at most ``bound`` <= 0.1 in size.

    Taylor series in Horner form, cut where the next term is under an eighth of the dtype's
    epsilon relative to the sum.
    """
    limit = np.finfo(dtype).eps / 8
    exp_terms = next(n for n in range(2, 40) if bound**n / factorial(n + 1) < limit)
    log_terms = next(n for n in range(2, 40) if bound**n / (n + 1) < limit)
    exp = [dtype(1 / factorial(k)) for k in range(1, exp_terms + 1)]
    log = [dtype((-1) ** (k + 1) / k) for k in range(1, log_terms + 1)]
    return partial(power_series, exp), partial(power_series, log)


def power_series(coefficients: list[Any], x: Any) -> Any:
    """Return ``c[0] x + c[1] x**2 + ...``."""
    *rest, total = coefficients
    for c in reversed(rest):
        total = c + x * total
    return x * total


def adapt(self: Any, dt: Any, output: Any, adaptation: Any) -> Any:
    """Return the next adaptation: decay by tau_n, plus inc_n for each spike."""
    return adaptation + (dt / self.tau_n) * (self.inc_n * output - adaptation)


class AdaptiveLIFStep(LIFStep):
    """LIF with the current reduced by an adaptation state (Camera et al. 2004)."""

    def build_pre(self, signals: Any, config: Any) -> None:
        """See `nengo_dl.builder.OpBuilder`."""
        super().build_pre(signals, config)
        self.tau_n, self.inc_n = (parameter(self, signals, name) for name in ("tau_n", "inc_n"))

    def step(
        self, J: Any, dt: Any, voltage: Any, refractory_time: Any, adaptation: Any
    ) -> tuple[Any, ...]:
        """Return output, voltage, refractory time and adaptation."""
        output, *state = super().step(J - adaptation, dt, voltage, refractory_time)
        return output, *state, adapt(self, dt, output, adaptation)


class AdaptiveLIFRateStep(LIFRateBuilder):
    """Rate form of the adaptive LIF neuron."""

    def build_pre(self, signals: Any, config: Any) -> None:
        """See `nengo_dl.builder.OpBuilder`."""
        super().build_pre(signals, config)
        self.tau_n, self.inc_n = (parameter(self, signals, name) for name in ("tau_n", "inc_n"))

    def step(self, J: Any, dt: Any, adaptation: Any) -> tuple[Any, ...]:
        """Return output and adaptation."""
        output = super().step(J - adaptation, dt)
        return output, adapt(self, dt, output, adaptation)


class IzhikevichStep(ComputedOnce, TFNeuronBuilder):
    """The two-variable neuron of Izhikevich (2003), reset before recovery, as nengo does it."""

    spiking = True

    def build_pre(self, signals: Any, config: Any) -> None:
        """See `nengo_dl.builder.OpBuilder`."""
        super().build_pre(signals, config)
        for name in ("tau_recovery", "coupling", "reset_voltage", "reset_recovery"):
            setattr(self, name, parameter(self, signals, name))

    def step(self, J: Any, dt: Any, voltage: Any, recovery: Any) -> tuple[Any, ...]:
        """Return output, voltage (mV) and recovery."""
        J = tf.maximum(J, -30.0)
        slope = 0.04 * voltage**2 + 5 * voltage + 140 - recovery + J
        voltage = self.once(voltage + slope * 1000 * dt)
        spiked = voltage >= 30
        voltage = tf.where(spiked, self.reset_voltage, voltage)
        slope = self.tau_recovery * (self.coupling * voltage - recovery)
        recovery = recovery + slope * 1000 * dt
        recovery = tf.where(spiked, recovery + self.reset_recovery, recovery)
        return tf.cast(spiked, J.dtype) / dt, voltage, recovery


NATIVE: dict[type, type] = {
    LIF: LIFStep,
    AdaptiveLIF: AdaptiveLIFStep,
    AdaptiveLIFRate: AdaptiveLIFRateStep,
    Izhikevich: IzhikevichStep,
}
"""Builder by exact neuron type. A neuron type of your own compiles once it is in here."""
