"""The thread that stores blocks while the next chunk computes.

It holds one block at a time: handing over the next waits until the last is written, so that
a slow disk slows the run and never the memory.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from queue import SimpleQueue
from typing import Any

import numpy as np

from simrun import memory
from simrun.errors import SimrunError, SinkError
from simrun.events import Events, joined
from simrun.finiteness import first_not_finite
from simrun.journal import Journal
from simrun.records import ProbeBlock, ProbeSpec
from simrun.sampling import sample_count
from simrun.sink import Sink

# A commit is mostly a small file and a rename: once a second is unnoticeable and loses a second.
# Where it takes longer (many probes, a slow disk) it comes more seldom, to take 1 % of the time.
COMMIT_SECONDS, LONGEST_COMMIT_SECONDS = 1.0, 30.0
COMMIT_SHARE = 0.01
# Waking the thread costs more than a small block is worth: those are handed over together.
BATCH_BYTES = 256 << 10
# What a sink takes to turn samples into what it stores grows with what it is given at a time.
PIECE_BYTES = 8 << 20

State = Mapping[str, np.ndarray[Any, Any]]


class Writer:
    """Appends, commits and checkpoints in a thread of its own.

    Parameters
    ----------
    sink : Sink
    journal : Journal
    probes : sequence of ProbeSpec
    end : int
        The run's last step.
    """

    def __init__(self, sink: Sink, journal: Journal, probes: Sequence[ProbeSpec], end: int) -> None:
        self._sink = sink
        self._journal = journal
        self._probes = probes
        self._end = end
        self._queue: SimpleQueue[tuple[str, Any]] = SimpleQueue()
        self._idle = threading.Semaphore(1)
        self._error: BaseException | None = None
        self._last_commit = self._last_batch = time.monotonic()
        self._batch: list[ProbeBlock] = []
        self._batch_bytes = 0
        self._appended = journal.step
        self._commit_seconds = 0.0  # what the last took, without a state
        self.written = 0  # bytes of samples appended
        self.not_finite: dict[str, int] = {}  # probe → first step with NaN or an infinite value
        self.state_seconds = 0.0  # what the last checkpoint took
        self._thread = threading.Thread(target=self._work, name="simrun-writer", daemon=True)
        self._thread.start()

    @property
    def committed(self) -> int:
        """Last committed step."""
        return self._journal.step

    def put(self, block: ProbeBlock) -> None:
        """Take over a block; waits while the last is being written."""
        self._batch.append(block)
        self._batch_bytes += block.nbytes
        overdue = time.monotonic() - self._last_batch >= COMMIT_SECONDS
        if self._batch_bytes >= BATCH_BYTES or overdue:
            self._flush()

    def checkpoint(self, state: State | None, status: str = "running") -> None:
        """Commit everything taken over, with the simulation's state after it."""
        self._flush()
        self._hand_over("commit", (state, status))

    def finish(self, state: State | None) -> None:
        """Commit the run's end."""
        self._flush()
        self._hand_over("finish", state)

    def drain(self) -> None:
        """Wait until everything handed over is done."""
        self._idle.acquire()
        self._idle.release()
        self._check()

    def close(self) -> None:
        """End the thread and close the sink; never raises for an error reported before."""
        self._idle.acquire()
        self._queue.put(("close", None))
        self._thread.join()
        self._sink.close()

    def _flush(self) -> None:
        batch, self._batch, self._batch_bytes = self._batch, [], 0
        self._last_batch = time.monotonic()
        self._hand_over("append", batch)

    def _hand_over(self, action: str, argument: Any) -> None:
        self._idle.acquire()
        if self._error is not None:
            self._idle.release()
            self._check()
        self._queue.put((action, argument))

    def _check(self) -> None:
        error = self._error
        if error is None:
            return
        if isinstance(error, SimrunError):
            raise error
        if isinstance(error, OSError | MemoryError):
            raise SinkError(
                f"the samples after step {self.committed} couldn't be stored: {error}",
                "what was committed is safe; make room or mend the disk, then run the same "
                "command again",
            ) from error
        raise error

    def _work(self) -> None:
        while True:
            action, argument = self._queue.get()
            if action == "close":
                return
            try:
                self._do(action, argument)
            except BaseException as error:
                self._error = error
            # the block must be gone before the next may come
            large = action == "append" and sum(b.nbytes for b in argument) >= memory.LARGE_BLOCK
            argument = None
            if large:
                memory.trim()
            self._idle.release()

    def _do(self, action: str, argument: Any) -> None:
        if action == "append":
            for block in _joined(argument):
                for piece in _pieces(block, self._probes, self._end):
                    self._sink.append(piece)
                    for name, step in first_not_finite(piece, self._probes, self._end):
                        self.not_finite.setdefault(name, step)
                self._appended = block.stop
                self.written += block.nbytes
            wait = max(COMMIT_SECONDS, self._commit_seconds / COMMIT_SHARE)
            if time.monotonic() - self._last_commit >= min(wait, LONGEST_COMMIT_SECONDS):
                self._commit(None, "running")
        elif action == "commit":
            begin = time.monotonic()
            self._commit(*argument)
            self.state_seconds = time.monotonic() - begin
        else:
            self._journal.commit(self._appended, self._sink.finish(), argument, "done")
            self._sink.tidy()

    def _commit(self, state: State | None, status: str) -> None:
        begin = time.monotonic()
        self._journal.commit(self._appended, self._sink.commit(), state, status)
        self._last_commit = time.monotonic()
        if state is None:
            self._commit_seconds = self._last_commit - begin


def _joined(batch: Sequence[ProbeBlock]) -> Sequence[ProbeBlock]:
    """Small blocks that follow one another as one: a sink takes longer to be called than to write.

    Only the last of a batch may be large; that one is left as it is.
    """
    small = batch if sum(b.nbytes for b in batch) <= 2 * BATCH_BYTES else batch[:-1]
    if len(small) < 2:
        return batch
    samples: dict[str, Any] = {}
    for name in small[0].samples:
        parts: list[Any] = [block.samples[name] for block in small]
        kinds = {type(part) for part in parts}
        if kinds == {Events}:
            samples[name] = joined(parts)
        elif Events in kinds:  # here few events, there many
            return batch
        else:
            samples[name] = np.concatenate(parts)
    return [ProbeBlock(small[0].start, small[-1].stop, samples), *batch[len(small) :]]


def _pieces(block: ProbeBlock, probes: Sequence[ProbeSpec], end: int) -> Iterator[ProbeBlock]:
    """A block as blocks of about `PIECE_BYTES`, which share its memory."""
    count = -(-block.nbytes // PIECE_BYTES)
    steps = max((block.stop - block.start) // max(count, 1), 1)
    taken = dict.fromkeys(block.samples, 0)
    for start in range(block.start, block.stop, steps):
        stop = min(start + steps, block.stop)
        samples = {}
        for probe in probes:
            first = taken[probe.name]
            taken[probe.name] += sample_count(probe.period, start, stop, end)
            samples[probe.name] = block.samples[probe.name][first : taken[probe.name]]
        yield ProbeBlock(start, stop, samples)
