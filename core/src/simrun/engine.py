"""The chunk loop: the only holder of a live simulation while it runs."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

from simrun import memory, models, planning, recovery
from simrun.adapter import Simulation
from simrun.errors import OutOfMemoryError, SimrunError, SimulationError
from simrun.interrupts import StopRequest
from simrun.records import (
    Abort,
    Chunk,
    ChunkCommitted,
    Fallback,
    MemoryFailure,
    OOMEvent,
    Plan,
    ProbeBlock,
    Retry,
)
from simrun.writer import Writer

# a chunk lasts no longer than this once the rate is known: signals are answered in time
CHUNK_SECONDS = 5.0
# at most this share of the run's time goes into checkpoints
CHECKPOINT_SHARE = 0.01
FIRST_CHECKPOINT_SECONDS = 30.0


class Engine:
    """Executes a plan chunk by chunk, hands the samples to the writer, recovers from OOM.

    Parameters
    ----------
    simulation : Simulation
    plan : Plan
    writer : Writer
    hook : pluggy's hook caller
        With ``simrun_execute_chunk`` and ``simrun_recover_oom``.
    stop : StopRequest
    report : callable
        Called with a `ChunkCommitted` after each commit, in the caller's thread.
    alive : callable
        Called after each chunk: the supervisor's sign of life.
    checkpoint_seconds : float or None
        Time between checkpoints; None: such that they take 1 % of the time.
    checkpoint_bytes : int or None
        Also after so many bytes of samples.
    """

    def __init__(
        self,
        simulation: Simulation,
        plan: Plan,
        writer: Writer,
        hook: Any,
        stop: StopRequest,
        report: Callable[[ChunkCommitted], None],
        alive: Callable[[], None],
        checkpoint_seconds: float | None,
        checkpoint_bytes: int | None = None,
    ) -> None:
        self._simulation = simulation
        self._writer = writer
        self._hook = hook
        self._stop = stop
        self._report = report
        self._alive = alive
        self._checkpoint_seconds = checkpoint_seconds
        self._checkpoint_bytes = math.inf if checkpoint_bytes is None else checkpoint_bytes
        self._since_state = 0  # bytes of samples
        self._messages: list[str] = []
        self._told_not_finite = 0
        self._reported = writer.committed
        self._begin = self._last_state = time.monotonic()
        self._attempts = 0
        self.plan = plan
        self.measured_host = 0
        self.measured_device: int | None = None
        self.predicted_host = plan.peak_host

    def run(self) -> bool:
        """Run to the plan's end, or until a stop is asked for; True when the end was reached.

        What was executed is committed, with the state, when it returns.

        Raises
        ------
        OutOfMemoryError
            Memory ran out for good; committed up to the last good chunk.
        SinkError
            Samples couldn't be stored; committed up to the last commit.
        """
        simulation, end = self._simulation, self.plan.end
        memory.reset_peak()
        simulation.reset_device_peak()
        seconds_per_step = 0.0
        executed = 0
        while simulation.step < end:
            if self._stop.reason and (executed or self._stop.at_once):
                break
            chunk = self._next_chunk(seconds_per_step)
            began = time.monotonic()
            snapshot = simulation.snapshot()
            block, failure = self._attempt(chunk)
            if failure is not None:
                # the except block lies behind: no traceback holds the failed chunk's tensors
                simulation.restore(snapshot)
                simulation.release()
                self._recover(failure, chunk)
                continue
            assert block is not None
            self._attempts = 0
            seconds_per_step = (time.monotonic() - began) / chunk.steps
            executed += 1
            if executed == 1:
                self._check_prediction(chunk)
            if chunk.stop > self._writer.committed:
                self._since_state += block.nbytes
                self._writer.put(block)
            del block, snapshot  # the writer alone holds the samples now
            self._alive()
            self._checkpoint_if_due()
            self._report_commits()
        self._finish()
        return simulation.step >= end

    def _next_chunk(self, seconds_per_step: float) -> Chunk:
        start, plan = self._simulation.step, self.plan
        steps = plan.chunk
        if seconds_per_step:
            bearable = int(CHUNK_SECONDS / seconds_per_step)
            steps = min(steps, planning.align(bearable, plan.alignment))
        stop = min(start + steps, plan.end)
        # what a resumed run recomputes up to the last commit is stored already
        if start < self._writer.committed < stop:
            stop = self._writer.committed
        return Chunk(start, stop, plan.end, plan.chunk)

    def _attempt(self, chunk: Chunk) -> tuple[ProbeBlock | None, MemoryFailure | None]:
        try:
            block = self._hook.simrun_execute_chunk(simulation=self._simulation, chunk=chunk)
        except Exception as error:
            failure = self._simulation.memory_failure(error)
            if failure is None:
                if isinstance(error, SimrunError):
                    raise
                steps = f"steps {chunk.start + 1} to {chunk.stop}"
                raise SimulationError(
                    models.blame(f"the simulation, in {steps},", error)
                ) from error
            return None, failure
        if self._simulation.step != chunk.stop:
            raise SimulationError(
                f"the adapter stands at step {self._simulation.step} after a chunk that ends at "
                f"step {chunk.stop}",
                "this is a fault of the adapter or of a plugin that wraps simrun_execute_chunk",
            )
        return block, None

    def _recover(self, failure: MemoryFailure, chunk: Chunk) -> None:
        self._attempts += 1
        event = OOMEvent(
            failure,
            chunk,
            self._attempts,
            self.plan.alignment,
            self._simulation.can_fall_back(),
        )
        decision = recovery.checked(self._hook.simrun_recover_oom(event=event), event)
        where = f"out of {failure.where} memory in a chunk of {chunk.steps} steps"
        match decision:
            case Retry(chunk=steps):
                self._say(f"{where} after step {chunk.start}: trying again with {steps}")
                self.plan = planning.with_chunk(self.plan, steps)
            case Fallback():
                self._say(f"{where} after step {chunk.start}: going on on the fallback device")
                self._simulation.fall_back()
            case Abort(why=why):
                self._finish()
                raise OutOfMemoryError(
                    *planning.explain_out_of_memory(self.plan, failure, chunk, why)
                )

    def _check_prediction(self, chunk: Chunk) -> None:
        """Compare the first chunk's peak with what was predicted for it, and correct the plan."""
        measured = memory.peak_resident()
        # no block is in the writer yet
        predicted = self.plan.estimate.peak("host", chunk.steps) - int(
            planning.writer_bytes_per_step(self.plan.estimate) * chunk.steps
        )
        self.plan, message = planning.corrected(self.plan, measured, predicted, chunk.steps)
        self._say(message)

    def _checkpoint_if_due(self) -> None:
        now = time.monotonic()
        wait = self._checkpoint_seconds
        if wait is None:
            cost = self._writer.state_seconds
            wait = max(FIRST_CHECKPOINT_SECONDS, cost / CHECKPOINT_SHARE)
        due = now - self._last_state >= wait or self._since_state >= self._checkpoint_bytes
        # at the end the state is saved anyway
        if due and self._writer.committed <= self._simulation.step < self.plan.end:
            self._writer.checkpoint(self._simulation.save_state())
            self._last_state, self._since_state = now, 0

    def _finish(self) -> None:
        """Commit what was executed, with the state."""
        step, end = self._simulation.step, self.plan.end
        if step >= self._writer.committed:
            state = self._simulation.save_state()
            if step >= end:
                self._writer.finish(state)
            else:
                self._writer.checkpoint(state, "stopped")
            self._writer.drain()
        self.measured_host = memory.peak_resident()
        self.measured_device = self._simulation.device_peak()
        self._report_commits()

    def _say(self, message: str) -> None:
        self._messages.append(message)

    def _report_commits(self) -> None:
        committed = self._writer.committed
        for name, step in list(self._writer.not_finite.items())[self._told_not_finite :]:
            self._told_not_finite += 1
            self._say(f"probe {name}: values that aren't finite (NaN, inf), first in step {step}")
        if committed == self._reported and not self._messages:
            return
        self._reported = committed
        messages, self._messages = tuple(self._messages), []
        self._report(
            ChunkCommitted(
                committed,
                self.plan.end,
                self.plan.chunk,
                self._writer.written,
                memory.resident(),
                self._simulation.device_peak(),
                time.monotonic() - self._begin,
                messages,
            )
        )
