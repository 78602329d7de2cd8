"""nengo-ocl with what it lacks on current releases: noise.

Its kernel for white noise includes a header that pyopencl no longer brings, and a process that it
executes in Python sets its output even where it is to be added, as an ensemble's noise is. Here
both are executed in Python, as by nengo's own simulator, with the same random numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import nengo_ocl
import numpy as np
from nengo_ocl.plan import PythonPlan


class Simulator(nengo_ocl.Simulator):  # type: ignore[misc]
    """nengo_ocl's simulator, with noise."""

    def _plan_WhiteNoise(self, ops: Sequence[Any]) -> list[Any]:  # noqa: N802 - nengo-ocl's name
        return [plan for op in ops for plan in self._plan_python_process(op)]

    def _plan_FilteredNoise(self, ops: Sequence[Any]) -> list[Any]:  # noqa: N802 - nengo-ocl's name
        return self._plan_WhiteNoise(ops)

    def _plan_python_process(self, op: Any) -> list[Any]:
        if op.mode != "inc":
            return super()._plan_python_process(op)  # type: ignore[no-any-return]
        rng = op.process.get_rng(self.rng)
        shape_in = (0,) if op.input is None else op.input.shape
        dt, shape = self.model.dt, op.output.shape
        state = op.process.make_state(shape_in, shape, dt, dtype=np.float32)
        fn = op.process.make_step(shape_in, shape, dt, rng, state)
        time, target = self.sidx[self.model.time], self.sidx[op.output]
        source = None if op.input is None else self.sidx[op.input]

        def step() -> None:
            t = float(self.all_data[time][0, 0])
            args = () if source is None else (self.all_data[source].ravel(),)
            present = self.all_data[target]
            self.all_data[target] = present + np.reshape(fn(t, *args), present.shape)

        self._python_rngs[rng] = rng.get_state()
        return [PythonPlan(step, name="python_process", tag=type(op.process).__name__)]
