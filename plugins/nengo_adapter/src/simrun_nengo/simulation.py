"""The live simulation by nengo's reference simulator that simrun's engine drives."""

from __future__ import annotations

import gc
import zlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import nengo
import numpy as np
from nengo.builder.probe import SimProbe

from simrun.adapter import Simulation
from simrun.errors import SimulationError
from simrun.records import Chunk, MemoryEstimate, MemoryItem, ProbeBlock
from simrun_nengo import functions, inputs, recording
from simrun_nengo.host_state import HostState
from simrun_nengo.recording import Array, Recording
from simrun_nengo.walking import Entry

if TYPE_CHECKING:
    from simrun_nengo.opening import Model


class _Snapshot(NamedTuple):
    step: int
    state: list[Array]
    windows: list[tuple[Array, int]]
    host: list[Entry]


_HINT = "the model, its arguments, the seed and the versions must be those of the saved run"


class NengoSimulation(Simulation):
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
        self._simulator = simulator
        self._facts = dict(facts)
        signals, operators = simulator.signals, simulator.step_order
        calls = [
            (step, operator)
            for step, operator in zip(simulator._steps, operators, strict=True)
            if not isinstance(operator, SimProbe)  # they do nothing
        ]
        self._steps = [step for step, _ in calls]
        self._operators = [operator for _, operator in calls]
        self._owned = functions.owners(model.network, model.labels)
        self._fed = [(item, signals[simulator.model.sig[item.node]["out"]]) for item in model.fed]
        self._values = [_value(simulator, item) for item in model.named]
        self._recordings = [
            recording.make_recording(item, value.shape, value.dtype, batched)
            for item, value in zip(model.named, self._values, strict=True)
        ]
        self._state, constants = _split(simulator)
        self._constant_bytes = sum(array.nbytes for array in constants)
        self._fingerprint = _checksum(self._state, constants)
        self._host = HostState(
            [
                *functions.random_state(simulator),
                *functions.roots(self._operators, self._steps, self._owned),
            ],
            ignore=signals.values(),
        )
        self.probes = tuple(item.spec for item in self._recordings)
        self.dt = float(simulator.dt)
        self.step = 0
        self.available = inputs.available(model.fed, "nengo.inputs")
        self.sources = tuple(item.file for item in model.fed)
        self.notes = (
            *model.notes,
            *(f"can't be rolled back after running out of memory: {o}" for o in self._obstacles),
            *(f"can't go on with the run in a new process: {o}" for o in self._unsaved()),
        )

    # -- the contract --------------------------------------------------------------------

    def estimate_memory(self, steps: int) -> MemoryEstimate:
        """Per probe and input, and what is fixed."""
        state = sum(array.nbytes for array in self._state)
        items = [
            MemoryItem("parameters", "host", self._constant_bytes, resident=True),
            MemoryItem("state", "host", state, resident=True),
            MemoryItem("state (to go back to)", "host", state),
        ]
        items += estimate_items(self._recordings, [item for item, _ in self._fed], self._float)
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
        step, calls = self._steps[0], self._steps
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
        self._simulator._probe_step_time()
        self.step = chunk.stop
        return ProbeBlock(chunk.start, chunk.stop, recording.finish(self._recordings, blocks))

    def snapshot(self) -> object:
        """Copies of the signals that change, and of what Python functions remember."""
        windows = [(w.value.copy(), w.count) for w in self._windows]
        state = [array.copy() for array in self._state]
        return _Snapshot(self.step, state, windows, self._host.capture())

    def restore(self, snapshot: object) -> None:
        """Put everything back.

        Raises
        ------
        SimulationError
            Something has advanced that can't be put back; `notes` has named it.
        """
        step, state, windows, host = cast(_Snapshot, snapshot)
        if self._obstacles:
            named = "; ".join(self._obstacles)
            raise SimulationError(
                f"can't go back to the start of the failed chunk: {named}",
                "run with smaller chunks from the start, or keep that state in arrays",
            )
        try:
            self._host.restore(host)
        except RuntimeError as error:
            raise SimulationError(
                f"can't go back to the start of the failed chunk: {error}"
            ) from error
        self._take_up(step, state, windows)

    def save_state(self) -> Mapping[str, Array] | None:
        """The state as arrays; None where something can't be saved, which `notes` has named."""
        try:
            host = self._host.dump()
        except Exception:
            return None
        return {
            "step": np.array(self.step, np.int64),
            "signals": _packed(self._state),
            "windows": _packed([w.value for w in self._windows]),
            "counts": np.array([w.count for w in self._windows], np.int64),
            "network": np.array(self._fingerprint, np.int64),
            "host": np.frombuffer(host, np.uint8),
        }

    def load_state(self, state: Mapping[str, Array]) -> None:
        """Go on from a state that `save_state` gave, maybe in another process.

        Raises
        ------
        SimulationError
            The network isn't the one that the state was saved from.
        """
        if int(state["network"]) != self._fingerprint:
            raise SimulationError("the saved state belongs to another network", _HINT)
        try:
            self._host.load(state["host"].tobytes())
        except Exception as error:
            raise SimulationError(
                f"the state of the model's Python functions can't be taken up: "
                f"{type(error).__name__}: {error}",
                _HINT,
            ) from error
        values = _unpacked(state["windows"], [w.value for w in self._windows])
        self._take_up(
            int(state["step"]),
            _unpacked(state["signals"], self._state),
            list(zip(values, state["counts"].tolist(), strict=True)),
        )

    def release(self) -> None:
        """Free what Python has left behind."""
        gc.collect()

    def provenance(self) -> Mapping[str, Any]:
        """Versions and precision."""
        return self._facts

    def close(self) -> None:
        """Free the network."""
        self._simulator.close()
        self._steps, self._operators, self._state, self._values = [], [], [], []

    # -- helpers -------------------------------------------------------------------------

    @property
    def _windows(self) -> list[recording.Window]:
        return [item.window for item in self._recordings if item.window is not None]

    @property
    def _obstacles(self) -> tuple[str, ...]:
        return self._host.obstacles

    @property
    def _float(self) -> np.dtype[Any]:
        return self._simulator.signals[self._simulator.model.time].dtype  # type: ignore[no-any-return]

    def _take_up(
        self, step: int, state: Sequence[Array], windows: Sequence[tuple[Array, int]]
    ) -> None:
        for array, value in zip(self._state, state, strict=True):
            array[...] = value
        for window, (value, count) in zip(self._windows, windows, strict=True):
            window.value[...], window.count = value, count
        self._simulator._probe_step_time()
        self.step = step

    def _unsaved(self) -> list[str]:
        try:
            self._host.dump()
        except Exception as error:
            return [f"{type(error).__name__}: {error}"]
        return []


def estimate_items(
    recordings: Sequence[Recording], fed: Sequence[inputs.FileInput], dtype: np.dtype[Any]
) -> list[MemoryItem]:
    """Memory of samples and of inputs from files, on the host."""
    items = []
    for item in recordings:
        spec = item.spec
        window = 0 if item.window is None else 2 * spec.sample_bytes
        items.append(MemoryItem(f"probe {spec.name}", "host", window, spec.bytes_per_step))
    for source in fed:
        per_step = source.data.shape[2] * dtype.itemsize
        items.append(MemoryItem(f"input {source.label}", "host", 0, per_step))
    return items


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
    """Tells networks apart: their parameters, and the layout of their state."""
    layout = [(array.shape, array.dtype.str) for array in state]
    checksum = zlib.crc32(repr(layout).encode())
    for array in constants:
        values = np.ascontiguousarray(array).reshape(-1)
        checksum = zlib.crc32(values.view(np.uint8).data, checksum)
    return checksum


def _packed(arrays: Sequence[Array]) -> Array:
    return np.frombuffer(b"".join(array.tobytes() for array in arrays), np.uint8)


def _unpacked(packed: Array, like: Sequence[Array]) -> list[Array]:
    found, offset = [], 0
    for array in like:
        piece = packed[offset : offset + array.nbytes]
        found.append(np.frombuffer(piece.tobytes(), array.dtype).reshape(array.shape))
        offset += array.nbytes
    return found
