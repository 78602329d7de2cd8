"""Processes without an input: computed on the host before a chunk, read row by row in it."""

from __future__ import annotations

from typing import Any

import numpy as np
from nengo_dl.process_builders import GenericProcessBuilder


class AheadProcess(GenericProcessBuilder):
    """A group of processes that depend on time alone (noise of ensembles, signals).

    nengo-dl calls them once per step from the graph. Here the same step functions, seeded in
    the same order, are called for a whole chunk ahead, so the numbers are the same.

    Attributes
    ----------
    key : str
        Names this group in ``signals.simrun_ahead``.
    label : str
        For messages.
    size : int
        Values per step and minibatch item.
    dtype : str
    """

    def __init__(self, ops: Any, index: int) -> None:
        super().__init__(ops)
        self.key = f"ahead_{index}"
        self.label = ", ".join(str(op.process) for op in ops)
        self.size = sum(op.output.shape[0] for op in ops)

    def build_pre(self, signals: Any, config: Any) -> None:
        """See `nengo_dl.builder.OpBuilder`."""
        super().build_pre(signals, config)
        self.dtype = np.dtype(self.output_data.dtype).name
        self._dt, self._minibatch = signals.dt_val, signals.minibatch_size

    def build_step(self, signals: Any) -> None:
        """See `nengo_dl.builder.OpBuilder`."""
        row = signals.simrun_ahead[self.key][signals.simrun_step]
        row.set_shape((self._minibatch, self.size))
        signals.scatter(self.output_data, row, mode=self.mode)

    @property
    def host_objects(self) -> list[Any]:
        """What must be copied to come back to a step: step functions, and their state arrays."""
        return [self.step_fs, self.step_states]

    def rows(self, first_step: int, n_steps: int) -> np.ndarray:
        """Advance the processes and return their outputs, (n_steps, minibatch, size).

        Parameters
        ----------
        first_step : int
            Steps that the simulation has run before; the first row is for the step after.
        n_steps : int
        """
        out = np.empty((n_steps, self._minibatch, self.size), self.dtype)
        as_dtype = np.dtype(self.dtype).type
        for i in range(n_steps):
            time = as_dtype(first_step + i + 1) * as_dtype(self._dt)
            out[i], *_ = self.merged_func(time, *self.step_states)
        return out
