"""The live simulation by nengo's reference simulator that simrun's engine drives."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import nengo
import numpy as np
from nengo.builder.probe import SimProbe

from simrun.records import Chunk, MemoryEstimate, MemoryItem, ProbeBlock
from simrun_nengo import functions, recording
from simrun_nengo.family import FamilySimulation, estimate_items
from simrun_nengo.host_state import HostState
from simrun_nengo.recording import Array

if TYPE_CHECKING:
    from simrun_nengo.opening import Model


class NengoSimulation(FamilySimulation):
    """A network, executed by the step functions of nengo's reference simulator.

    They are called as `nengo.Simulator.step` does, less what it does for its own probes: values
    are written into blocks that are allocated for the chunk.

    Parameters
    ----------
    simulator : nengo.Simulator
        Built, and at step 0.
    model : Model
    facts : mapping
        For `provenance`.
    batched : bool
        Whether samples have a minibatch axis, of length 1.
    """

    device = "CPU"

    def __init__(
        self, simulator: nengo.Simulator, model: Model, facts: Mapping[str, Any], batched: bool
    ) -> None:
        signals = simulator.signals
        calls = [
            (step, operator)
            for step, operator in zip(simulator._steps, simulator.step_order, strict=True)
            if not isinstance(operator, SimProbe)  # they do nothing
        ]
        self._simulator = simulator
        self._steps = [step for step, _ in calls]
        self._operators = [operator for _, operator in calls]
        self._owned = functions.owners(model.network, model.labels)
        self._fed = [(item, signals[simulator.model.sig[item.node]["out"]]) for item in model.fed]
        self._values = [_value(simulator, item) for item in model.named]
        self._state, self._constants = _split(simulator)
        self._itemsize = signals[simulator.model.time].dtype.itemsize
        host = HostState(
            [
                ("the simulator", simulator.rng),
                *functions.roots(self._operators, self._steps, self._owned),
            ],
            ignore=signals.values(),
        )
        recordings = [
            recording.make_recording(item, value.shape, value.dtype, batched)
            for item, value in zip(model.named, self._values, strict=True)
        ]
        fingerprint = _checksum(self._state, self._constants)
        dt = float(simulator.dt)
        super().__init__(model, "nengo", dt, recordings, host, fingerprint, facts)

    def estimate_memory(self, steps: int) -> MemoryEstimate:
        """Per probe and input, and what is fixed."""
        state = sum(array.nbytes for array in self._state)
        constants = sum(array.nbytes for array in self._constants)
        items = [
            MemoryItem("parameters", "host", constants, resident=True),
            MemoryItem("state", "host", state, resident=True),
            MemoryItem("state (to go back to)", "host", state),
        ]
        items += estimate_items(self._recordings, [item for item, _ in self._fed], self._itemsize)
        return MemoryEstimate(tuple(items), shared=True)

    def execute(self, chunk: Chunk) -> ProbeBlock:
        """Run a chunk.

        Raises
        ------
        SimulationError
            A function of the model raised, or returned None or something not finite.
        """
        blocks = recording.allocate(self._recordings, chunk)
        due = recording.due_at(self._recordings, blocks, self._values)
        items = list(zip(self._recordings, blocks, self._values, strict=True))
        every = [(b.samples, value) for r, b, value in items if r.spec.period == 1]
        windows = [(r.window.add, value) for r, _, value in items if r.window is not None]
        fed = [(t, f.rows(chunk.start, chunk.stop, t.dtype)) for f, t in self._fed]
        calls = self._steps
        step = calls[0]
        try:
            # as nengo.Simulator.step has it
            with np.errstate(invalid="raise", divide="ignore"):
                for i in range(chunk.steps):
                    for target, rows in fed:
                        target[...] = rows[i]
                    for step in calls:
                        step()
                    for samples, value in every:
                        samples[i] = value
                    for add, value in windows:
                        add(value)
                    if i in due:
                        for take in due[i]:
                            take()
        except MemoryError:
            raise
        except Exception as error:
            label = functions.name(self._operators[calls.index(step)], self._owned)
            time = (chunk.start + i + 1) * self._simulator.dt
            raise functions.explain(error, label, f"at t = {time:.9g} s") from error
        self.step = chunk.stop
        return ProbeBlock(chunk.start, chunk.stop, recording.finish(self._recordings, blocks))

    def copied_state(self) -> list[Array]:
        """Copies of the signals that operators write to."""
        return [array.copy() for array in self._state]

    def state_arrays(self) -> list[Array]:
        """The signals that operators write to."""
        return self._state

    def put_state(self, state: Sequence[Array]) -> None:
        """Set those signals."""
        for array, value in zip(self._state, state, strict=True):
            array[...] = value

    def close(self) -> None:
        """Free the network."""
        self._simulator.close()
        self._steps, self._operators, self._state, self._values = [], [], [], []


def _value(simulator: nengo.Simulator, item: Any) -> Array:
    """The live value of a probe."""
    value = simulator.signals[simulator.model.sig[item.probe]["in"]]
    if not isinstance(value, np.ndarray):
        raise recording.refuse_sparse(item)
    return value


def _split(simulator: nengo.Simulator) -> tuple[list[Array], list[Array]]:
    """The arrays that operators write to, and all others, each in a fixed order."""
    written = {
        signal.base
        for operator in simulator.model.operators
        for signal in (*operator.sets, *operator.incs, *operator.updates)
    }
    state: list[Array] = []
    constants: list[Array] = []
    for signal, value in simulator.signals.items():
        if not signal.is_view:
            array = value if isinstance(value, np.ndarray) else value.data
            (state if signal in written else constants).append(array)
    return state, constants


def _checksum(state: Sequence[Array], constants: Sequence[Array]) -> int:
    layout = [(array.shape, array.dtype.str) for array in state]
    checksum = zlib.crc32(repr(layout).encode())
    for array in constants:
        values = np.ascontiguousarray(array).reshape(-1)
        checksum = zlib.crc32(values.view(np.uint8).data, checksum)
    return checksum
