"""The live simulation that simrun's engine drives."""

from __future__ import annotations

import gc
import zlib
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import Any

import numpy as np

from simrun.adapter import Simulation
from simrun.errors import SimrunError, SimulationError
from simrun.records import Chunk, MemoryEstimate, MemoryFailure, ProbeBlock
from simrun_nengo.host_state import SAME_MODEL, HostState
from simrun_nengo_dl import events
from simrun_nengo_dl.compat import load_nengo_dl
from simrun_nengo_dl.estimate import Sizes, estimate
from simrun_nengo_dl.failures import Faults, out_of_memory
from simrun_nengo_dl.feeding import Feed
from simrun_nengo_dl.inputs import InputNode
from simrun_nengo_dl.probes import Recording, columns, schedule
from simrun_nengo_dl.program import Program
from simrun_nengo_dl.sharing import Sharing

load_nengo_dl()

import tensorflow as tf


class NengoDLSimulation(Simulation):
    """A nengo network, executed by nengo-dl's operators.

    Parameters
    ----------
    tensor_graph : nengo_dl.tensor_graph.TensorGraph
        Built, with its ``build_post`` done.
    program : Program
        Traced.
    recordings : sequence of Recording
    inputs : sequence of InputNode
    host : HostState
    sharing : Sharing
    faults : Faults
        Knows which of the user's functions failed.
    notes : sequence of str
    facts : mapping
        For `provenance`.
    workspace : int or None
        Bytes that a step takes beyond the state before it, where that was measured.
    """

    def __init__(
        self,
        tensor_graph: Any,
        program: Program,
        recordings: Sequence[Recording],
        inputs: Sequence[InputNode],
        host: HostState,
        sharing: Sharing,
        faults: Faults,
        notes: Sequence[str],
        facts: Mapping[str, Any],
        workspace: int | None,
    ) -> None:
        self._tg = tensor_graph
        self._program = program
        self._recordings = recordings
        self._inputs = inputs
        self._host = host
        self._sharing = sharing
        self._faults = faults
        self._facts = dict(facts)
        self._workspace = workspace
        self._columns = columns(recordings)
        self._fingerprint: int | None = None
        self._feed = Feed(tensor_graph, inputs, program.ahead)
        self._state = program.initial_state()
        self._extra = program.extra_variables()
        self._random = program.stateful_random()
        program.forget_initial_values()
        self.probes = tuple(r.spec for r in recordings)
        self.dt = float(tensor_graph.dt)
        self.step = 0
        self.alignment = int(tensor_graph.unroll)
        self._on_cpu = self._is_cpu()
        self.device = "CPU" if self._on_cpu else self._gpu()
        self.notes = (
            *notes,
            *(
                f"can't go on with the run in a new process: {o}"
                for o in self.obstacles_to_saving()
            ),
        )

    # -- the contract --------------------------------------------------------------------

    def estimate_memory(self, steps: int) -> MemoryEstimate:
        """Per probe, input, and what is fixed; see `simrun_nengo_dl.estimate`.

        XLA compiles for chunks of ``steps`` steps here, so that what compiling takes isn't
        taken while the first chunk runs.
        """
        tg = self._tg
        if self._program.xla:
            try:
                self._program.run_dry(0, self._state, steps)
            except (tf.errors.OpError, MemoryError) as error:
                if out_of_memory(error) is None:
                    raise
                self._program.forget()
        return estimate(
            _sizes(tg, self._state, self._workspace, xla=self._program.xla),
            self._recordings,
            self._inputs,
            self._columns,
            tg.minibatch_size,
            np.dtype(tg.dtype).itemsize,
            steps,
            on_gpu=not self._on_cpu,
            xla_constants=self._program.constant_bytes() if self._program.xla else None,
        )

    def execute(self, chunk: Chunk) -> ProbeBlock:
        """Run a chunk; nothing of `self` changes unless it succeeds.

        Raises
        ------
        SimulationError
            A function of the model raised, or returned None or something not finite.
        """
        program, steps = self._program, chunk.steps
        length = chunk.capacity if program.xla else steps
        plan = schedule(self._recordings, chunk)
        marks = plan.marks
        if self._columns and length > steps:
            marks = np.pad(marks, ((0, length - steps), (0, 0)))
        rows = tuple(
            n + (not r.every_step) for n, r in zip(plan.recorded, self._recordings, strict=True)
        )
        self._faults.clear()
        self._sharing.begin()
        try:
            inputs = self._feed.tensors(
                chunk.start, steps, length, self._sharing.phase_done, copied=not self._on_cpu
            )
            result = program.run(steps, chunk.capacity, self._state, inputs, marks, rows)
            samples = {
                item.spec.name: events.samples(buffer, item, n)
                for item, buffer, n in zip(
                    self._recordings, result.buffers, plan.recorded, strict=True
                )
            }
        except (tf.errors.OpError, MemoryError) as error:
            if out_of_memory(error) is None:
                raise self._faults.explain(error, chunk) from error
            raise
        except SimrunError:
            raise
        except Exception as error:
            if self._faults.happened():
                raise self._faults.explain(error, chunk) from error
            raise
        self._sharing.phase_done()
        self._sharing.check()
        self._state, self.step = result.state, chunk.stop
        return ProbeBlock(chunk.start, chunk.stop, samples)

    def snapshot(self) -> object:
        """References to the state's tensors, and copies of what Python functions remember."""
        extra = [variable.read_value() for variable in self._extra]
        return self.step, self._state, extra, self._host.capture()

    def restore(self, snapshot: object) -> None:
        """Put everything back.

        Raises
        ------
        SimulationError
            Something has advanced that can't be put back; `notes` has named it.
        """
        step, state, extra, host = snapshot  # type: ignore[misc]
        if self._random:
            raise SimulationError(
                "the network draws random numbers from TensorFlow's own generators, which "
                "can't be set back to the start of the failed chunk",
                "run with smaller chunks from the start, or with `nengo_dl: {compile: auto}`",
            )
        if self._host.obstacles:
            named = "; ".join(self._host.obstacles)
            raise SimulationError(
                f"can't go back to the start of the failed chunk: {named}",
                "run with smaller chunks from the start, or keep that state in arrays",
            )
        self.step, self._state = step, state
        for variable, value in zip(self._extra, extra, strict=True):
            variable.assign(value)
        try:
            self._host.restore(host)
        except RuntimeError as error:
            raise SimulationError(
                f"can't go back to the start of the failed chunk: {error}"
            ) from error

    def save_state(self) -> Mapping[str, np.ndarray[Any, Any]] | None:
        """The state as arrays; None where something can't be saved, which `notes` has named."""
        if self._random:
            return None
        try:
            host = self._host.dump()
        except Exception:
            return None
        state = {f"state_{i}": x.numpy() for i, x in enumerate(self._state)}
        state |= {f"extra_{i}": v.numpy() for i, v in enumerate(self._extra)}
        return {
            **state,
            "step": np.array(self.step, np.int64),
            "parameters": np.array(self._parameters(), np.int64),
            "host": np.frombuffer(host, np.uint8),
        }

    def load_state(self, state: Mapping[str, np.ndarray[Any, Any]]) -> None:
        """Go on from a state that `save_state` gave, maybe in another process.

        Raises
        ------
        SimulationError
            The network isn't the one that the state was saved from.
        """
        shapes = {f"state_{i}": tuple(x.shape) for i, x in enumerate(self._state)}
        saved = {k: v.shape for k, v in state.items() if k.startswith("state_")}
        if saved != shapes or int(state["parameters"]) != self._parameters():
            raise SimulationError(
                "the saved state belongs to a network with other weights", SAME_MODEL
            )
        self._host.load(state["host"].tobytes())
        with tf.device(self._tg.device):
            self._state = tuple(
                tf.constant(state[name], x.dtype)
                for name, x in zip(shapes, self._state, strict=True)
            )
        for i, variable in enumerate(self._extra):
            variable.assign(state[f"extra_{i}"])
        self.step = int(state["step"])

    def memory_failure(self, error: BaseException) -> MemoryFailure | None:
        """TensorFlow's ResourceExhaustedError and what stands for it in XLA; MemoryError."""
        failure = out_of_memory(error)
        if failure is not None and self._on_cpu and failure.where == "device":
            return MemoryFailure("host", failure.message, failure.requested, failure.free)
        return failure

    def release(self) -> None:
        """Free the memory of the inputs, and what Python has left behind."""
        self._feed.forget()
        gc.collect()

    def can_fall_back(self) -> bool:
        """From a GPU to the CPU."""
        return not self._on_cpu

    def fall_back(self) -> None:
        """Move the state to the CPU and trace anew for it."""
        self._tg.device, self._on_cpu = "/cpu:0", True
        self._program.forget()
        with tf.device("/cpu:0"):
            self._state = tuple(tf.identity(x) for x in self._state)
            for key, variable in self._tg.base_params.items():
                if variable is not None:
                    self._tg.base_params[key] = tf.Variable(variable.read_value(), trainable=False)
        self.device = "CPU (fallback)"

    def reset_device_peak(self) -> None:
        """Start a new measurement; GPUs only."""
        if not self._on_cpu:
            tf.config.experimental.reset_memory_stats(self._gpu())

    def device_peak(self) -> int | None:
        """Peak bytes on the GPU; None on a CPU."""
        if self._on_cpu:
            return None
        return int(tf.config.experimental.get_memory_info(self._gpu())["peak"])

    def provenance(self) -> Mapping[str, Any]:
        """Versions, precision, device and how the network was executed."""
        packages = ("tensorflow", "nengo", "nengo-dl", "numpy", "simrun-nengo-dl")
        return {**self._facts, "device": self.device, **{p: version(p) for p in packages}}

    def close(self) -> None:
        """Free the state, the buffers and the compiled functions."""
        self._state = ()
        self._feed.forget()
        self._program.forget()

    def obstacles_to_saving(self) -> list[str]:
        """Why a new process couldn't go on with this run, one phrase each."""
        if self._random:
            return ["random numbers come from TensorFlow's own generators"]
        try:
            self._host.dump()
        except Exception as error:
            return [f"{type(error).__name__}: {error}"]
        return []

    # -- helpers -------------------------------------------------------------------------

    def _parameters(self) -> int:
        """A checksum of what doesn't change and isn't saved."""
        if self._fingerprint is None:
            self._fingerprint = 0
            for variable in _fixed(self._tg):
                values = np.ascontiguousarray(np.asarray(variable.read_value()))
                self._fingerprint = zlib.crc32(values.reshape(-1).view(np.uint8), self._fingerprint)
        return self._fingerprint

    def _is_cpu(self) -> bool:
        return not tf.config.list_logical_devices("GPU") or "cpu" in (self._tg.device or "").lower()

    def _gpu(self) -> str:
        return (self._tg.device or "/gpu:0").lstrip("/").upper()


def _fixed(tensor_graph: Any) -> list[Any]:
    """The variables of parameters that no learning rule changes."""
    return [variable for variable in tensor_graph.base_params.values() if variable is not None]


def _sizes(tensor_graph: Any, state: Sequence[Any], workspace: int | None, *, xla: bool) -> Sizes:
    parameters = sum(int(np.prod(v.shape)) * v.dtype.size for v in _fixed(tensor_graph))
    held = sum(int(np.prod(x.shape)) * x.dtype.size for x in state)
    if workspace is None:
        itemsize = np.dtype(tensor_graph.dtype).itemsize
        signals = sum(
            int(np.prod(shape, dtype=np.int64)) * itemsize
            for group in tensor_graph.base_arrays_init.values()
            for _, shapes, _, _ in group.values()
            for shape in shapes
        )
        # the new state, and about two of each value that a step computes
        workspace = held + 2 * max(signals - parameters, 0)
    # measured with 36 MB of learned weights: from the second chunk on there is one state more
    return Sizes(parameters, held, workspace + held if xla else workspace)
