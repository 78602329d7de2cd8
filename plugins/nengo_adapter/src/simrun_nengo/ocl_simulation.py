"""The live simulation by nengo-ocl that simrun's engine drives."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import nengo
import numpy as np
import pyopencl
from nengo_ocl.plan import PythonPlan

from simrun.records import Chunk, MemoryEstimate, MemoryFailure, MemoryItem, ProbeBlock
from simrun_nengo import functions, recording
from simrun_nengo.family import FamilySimulation, estimate_items
from simrun_nengo.host_state import HostState
from simrun_nengo.recording import Array

if TYPE_CHECKING:
    from simrun_nengo.opening import Model

# nengo-ocl counts steps in float32
MOST_STEPS = 2**24 - 1
# samples that wait on the device for being fetched
_BUFFER_BYTES = 4 * 2**20
_MOST_BUFFERED = 64


class OclSimulation(FamilySimulation):
    """A network, executed by the plans of nengo-ocl.

    nengo-ocl's probes write into a buffer on the device; it is fetched when it is full, or the
    chunk ends, straight into the chunk's blocks. Every step of a probe is fetched, so that the
    steps that are recorded are those of nengo's rule.

    Parameters
    ----------
    simulator : nengo_ocl.Simulator
        Built, and at step 0.
    device : pyopencl.Device
    model : Model
    facts : mapping
        For `provenance`.
    batched : bool
        Whether samples have a minibatch axis, of length 1.
    """

    def __init__(
        self, simulator: Any, device: Any, model: Model, facts: Mapping[str, Any], batched: bool
    ) -> None:
        self._simulator = simulator
        self._queue = simulator.queue
        self._on_cpu = bool(device.type & pyopencl.device_type.CPU)
        self.device = "CPU" if self._on_cpu else device.name
        self._owned = functions.owners(model.network, model.labels)
        self._state = list(_changing(simulator))
        signals = [simulator.model.sig[item.probe]["in"] for item in model.named]
        self._shapes = [signal.shape for signal in signals]
        probes = list(simulator.model.probes)
        self._rows = [probes.index(item.probe) for item in model.named]
        self._fed = [(item, _offset(simulator, item.node)) for item in model.fed]
        recordings = [
            recording.make_recording(item, shape, np.float32, batched)
            for item, shape in zip(model.named, self._shapes, strict=True)
        ]
        host = HostState(_python(simulator, self._owned))
        dt = float(simulator.dt)
        fingerprint = zlib.crc32(simulator.all_data.cl_buf.get().data)
        super().__init__(model, "nengo_ocl", dt, recordings, host, fingerprint, facts)
        limit = (MOST_STEPS, "nengo-ocl, which counts steps in float32,")
        self.available = min([limit, *([self.available] if self.available else [])])
        self._warm_up()

    def estimate_memory(self, steps: int) -> MemoryEstimate:
        """Per probe and input, and what is fixed."""
        state = sum(array.nbytes for array in self._state)
        items = [
            MemoryItem("parameters and state", "device", state, resident=True),
            MemoryItem("parameters and state (to go back to)", "device", state),
            MemoryItem("probe buffers", "device", self._buffer_bytes, resident=True),
            MemoryItem("probe buffers (copy)", "host", self._buffer_bytes),
        ]
        items += estimate_items(self._recordings, [item for item, _ in self._fed], 4)
        return MemoryEstimate(tuple(items), shared=self._on_cpu)

    def execute(self, chunk: Chunk) -> ProbeBlock:
        """Run a chunk.

        Raises
        ------
        SimulationError
            A function of the model raised.
        """
        blocks = recording.allocate(self._recordings, chunk)
        fed = [(o, f.rows(chunk.start, chunk.stop, np.float32)) for f, o in self._fed]
        most = self._simulator.n_prealloc_probes
        first = 0
        while first < chunk.steps:
            count = min(most, chunk.steps - first)
            try:
                self._advance(fed, first, count)
            except (MemoryError, pyopencl.Error):
                raise
            except Exception as error:
                start = chunk.start + first
                when = f"in steps {start + 1} to {start + count}"
                raise functions.explain(error, "a function of the model", when) from error
            recording.record(self._recordings, blocks, self._fetched(count), first)
            first += count
        self.step = chunk.stop
        return ProbeBlock(chunk.start, chunk.stop, recording.finish(self._recordings, blocks))

    def copied_state(self) -> list[Any]:
        """Copies on the device."""
        return [array.copy(queue=self._queue) for array in self._state]

    def state_arrays(self) -> list[Array]:
        """Copies on the host."""
        return [array.get(self._queue) for array in self._state]

    def put_state(self, state: Sequence[Any]) -> None:
        """Set what is on the device."""
        for array, value in zip(self._state, state, strict=True):
            if isinstance(value, np.ndarray):
                array.set(value, self._queue)
            else:
                pyopencl.enqueue_copy(self._queue, array.data, value.data)
        self._empty_buffers()
        self._queue.finish()

    def memory_failure(self, error: BaseException) -> MemoryFailure | None:
        """OpenCL's errors for memory, and MemoryError."""
        told = next(iter(str(error).splitlines()), "") or type(error).__name__
        device = isinstance(error, pyopencl.MemoryError) or (
            isinstance(error, pyopencl.Error) and "OUT_OF_" in str(error)
        )
        if device:
            return MemoryFailure("host" if self._on_cpu else "device", told)
        return super().memory_failure(error)

    def close(self) -> None:
        """Free the network, here and on the device."""
        self._simulator.close()
        self._state = []

    # -- helpers -------------------------------------------------------------------------

    @property
    def _plan(self) -> Any:
        return self._simulator._cl_probe_plan

    @property
    def _buffer_bytes(self) -> int:
        return int(self._plan.Y.nbytes)

    def _warm_up(self) -> None:
        """Launch each kernel once: drivers compile then, which takes memory of the process."""
        state = self.copied_state()
        for plan in self._simulator._plans:
            if not isinstance(plan, PythonPlan):
                plan.enqueue()
        self._fetched(1)
        self.put_state(state)

    def _advance(self, fed: Sequence[tuple[int, Array]], first: int, count: int) -> None:
        """Execute steps ``first+1 … first+count`` of the chunk, and wait for them."""
        plans, data = self._simulator._plans, self._simulator.all_data.cl_buf.data
        if not fed:
            plans.call_n_times(count)
        else:
            for i in range(first, first + count):
                for offset, rows in fed:
                    # one queue: the values are there before the step that reads them
                    pyopencl.enqueue_copy(self._queue, data, rows[i], dst_offset=offset)
                plans.enqueue_n_times(1)
        self._queue.finish()

    def _fetched(self, count: int) -> list[Array]:
        """The buffered values of each recording, shape (count, ...); the buffers are empty."""
        buffers = self._plan.Y
        found = [
            buffers[row][:count].reshape(count, *shape)
            for row, shape in zip(self._rows, self._shapes, strict=True)
        ]
        self._empty_buffers()
        return found

    def _empty_buffers(self) -> None:
        self._plan.cl_bufpositions.fill(0)


def buffered_steps(network: nengo.Network) -> int:
    """Steps of samples that are to wait on the device."""
    row = sum(4 * int(probe.size_in) for probe in network.all_probes)
    return max(1, min(_MOST_BUFFERED, int(_BUFFER_BYTES // max(row, 1))))


def _changing(simulator: Any) -> Iterator[Any]:
    """The arrays on the device that steps change: signals, filters' memories, generators."""
    yield simulator.all_data.cl_buf
    for ragged in (*simulator._raggedarrays_to_reset, *simulator._cl_rngs):
        if ragged.cl_buf.nbytes:
            yield ragged.cl_buf
    for plan in simulator._plans:
        if plan.name == "cl_linearfilter":
            # positions in the filters' ring buffers, which nengo-ocl's own reset forgets
            yield from (array for array in plan.full_args[-2:] if array.nbytes)


def _python(simulator: Any, owned: Mapping[int, str]) -> Iterator[tuple[str, Any]]:
    """The functions that nengo-ocl could not turn into OpenCL."""
    for plan in simulator._plans:
        if isinstance(plan, PythonPlan):
            function = functions.closure(plan.function)["fn"]
            yield owned.get(id(function), f"function {plan.tag}"), function


def _offset(simulator: Any, node: nengo.Node) -> int:
    """Where a node's values lie among the signals, in bytes."""
    index = simulator.sidx[simulator.model.sig[node]["out"]]
    return int(simulator.all_data.starts[index]) * 4
