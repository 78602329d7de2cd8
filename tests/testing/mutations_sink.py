"""Sinks with one fault each, of a good one: run by `test_mutations`, in a child process.

``CAUGHT`` says by which test of the kit each is to be caught.
"""

import gc
import json
from dataclasses import replace

import numpy as np

import simrun
from simrun.errors import DamagedError
from simrun.records import ProbeBlock
from simrun.sink import SinkEntry
from simrun.sinks import npy
from simrun.sinks.npy import NpyReader, NpySink
from simrun.testing import SinkSuite

CAUGHT = {}


class Good(SinkSuite):
    def read(self, data, probe):
        return np.load(data / f"{probe.name}.npy")


def mutation(caught_by, reader=NpyReader, **entry):
    """Make a suite of a faulty sink; it has the name of the class, and ``Test``."""

    def make(sink):
        class Plugin:
            @simrun.hookimpl
            def simrun_sinks(self):
                return [SinkEntry("faulty", "faulty", sink, reader, **entry)]

        name = f"Test{sink.__name__}"
        body = {"plugins": (Plugin(),), "sink": "faulty", "__module__": __name__,
                "__qualname__": name}  # fmt: skip
        globals()[name] = type(name, (Good,), body)
        CAUGHT[name] = caught_by
        return sink

    return make


def converted(block, function):
    samples = {name: function(array) for name, array in block.samples.items()}
    return ProbeBlock(block.start, block.stop, samples)


@mutation("test_samples_come_back[False]")
class ByteOrderForgotten(NpySink):
    """The bytes as they come, whatever the order that the header says."""

    def append(self, block):
        super().append(converted(block, lambda a: a.view(a.dtype.newbyteorder("="))))


@mutation("test_samples_come_back[False]")
class WrongType(NpySink):
    def __init__(self, request):
        probes = [replace(p, dtype=np.dtype("f4")) if p.name == "last" else p
                  for p in request.probes]  # fmt: skip
        super().__init__(replace(request, probes=tuple(probes)))


@mutation("test_samples_come_back[False]")
class FinishLosesTheTail(NpySink):
    """What was appended since the last commit."""

    last = None

    def commit(self):
        self.last = super().commit()
        return self.last

    def finish(self):
        return self.last or self.commit()


@mutation("test_blocks_may_have_any_length")
class OneSampleOfEachBlockLost(NpySink):
    def append(self, block):
        super().append(converted(block, lambda a: a[:29]))


@mutation("test_a_block_isnt_needed_after_append")
class BlocksAreKept(NpySink):
    """And written by the next commit."""

    def __init__(self, request):
        super().__init__(request)
        self.kept = []

    def append(self, block):
        self.kept.append(block)

    def commit(self):
        for block in self.kept:
            super().append(block)
        self.kept.clear()
        return super().commit()


class OnlyRows(NpyReader):
    """Slices of rows, and nothing else."""

    def array(self, name):
        whole = super().array(name)

        class Array:
            shape, dtype = whole.shape, whole.dtype

            def __getitem__(self, key):
                key = key[0] if isinstance(key, tuple) else key
                return whole[key]

        return Array()


@mutation("test_a_reader_is_indexed_like_numpy", OnlyRows)
class ReaderIgnoresOtherAxes(NpySink):
    pass


class WholeFile(NpyReader):
    def array(self, name):
        return np.load(self._directory / f"{name}.npy", mmap_mode="r")


@mutation("test_committed_samples_can_be_read_while_it_goes_on", WholeFile)
class UncommittedRowsShown(NpySink):
    """The header names what was appended, and the reader goes by it."""

    def append(self, block):
        super().append(block)
        super().commit()


@mutation("test_committed_samples_can_be_read_while_it_goes_on")
class HeaderOnlyAtTheEnd(NpySink):
    def commit(self):
        record = super().commit()
        for column in self._columns:
            column._write(npy._header(column._probe, 0), 0)
        return record

    def finish(self):
        return super().commit()


@mutation("test_what_came_after_a_record_is_discarded[1]")
class RecordNotTrimmed(NpySink):
    """Goes on behind what lies there."""

    def __init__(self, request):
        record = request.committed
        rows = {}
        for probe in request.probes if record else ():
            size = (request.directory / f"{probe.name}.npy").stat().st_size
            rows[probe.name] = size - record["files"][probe.name]["bytes"]
        tails = {}
        for name, more in rows.items():
            data = (request.directory / f"{name}.npy").read_bytes()
            tails[name] = data[len(data) - more :]
        super().__init__(request)
        for column in self._columns:
            if tails.get(column.name):
                tail = np.frombuffer(tails[column.name], column._probe.dtype)
                column.append(tail.reshape(-1, *column._probe.shape))


@mutation("test_what_came_after_a_record_is_discarded[2]")
class OnlyTheLastCommitCounts(NpySink):
    """It keeps its own memory of how far it came."""

    def __init__(self, request):
        path = request.directory / "last.json"
        if request.committed and path.exists():
            request = replace(request, committed=json.loads(path.read_text()))
        super().__init__(request)
        self.path = path

    def commit(self):
        record = super().commit()
        self.path.write_text(json.dumps(record))
        return record


@mutation("test_a_run_in_many_sessions")
class BeginsAnewEachTime(NpySink):
    def __init__(self, request):
        fresh = replace(request, committed=None)
        super().__init__(fresh)


@mutation("test_a_finished_run_goes_on")
class FinishedForGood(NpySink):
    def __init__(self, request):
        if (request.directory / "done").exists():
            request = replace(request, committed={**request.committed, "format": 0})
        try:
            super().__init__(request)
        except DamagedError as error:
            raise DamagedError("finished") from error
        self.done = request.directory / "done"

    def finish(self):
        self.done.touch()
        return super().finish()


class Later:
    """A file whose writes happen when it is told."""

    def __init__(self, file):
        self.file, self.waiting = file, []

    def write(self, data):
        self.waiting.append(bytes(data))
        return len(data)

    def settle(self):
        for data in self.waiting:
            self.file.write(data)
        self.waiting.clear()

    def fileno(self):
        return self.file.fileno()

    def close(self):
        self.settle()
        self.file.close()


@mutation("test_killed_at_labelled_points")
class CommitBeforeWrite(NpySink):
    """What it commits is in its memory until the next commit."""

    def __init__(self, request):
        super().__init__(request)
        for column in self._columns:
            column._file = Later(column._file)

    def append(self, block):
        for column in self._columns:
            column._file.settle()
        super().append(block)


@mutation("test_killed_at_changes_of_the_file_system")
class HeaderBeforeSamples(NpySink):
    """A reader sees samples that aren't there yet."""

    def append(self, block):
        for column in self._columns:
            more = len(block.samples[column.name])
            column._write(npy._header(column._probe, column._samples + more), 0)
        import os

        for column in self._columns:
            data = npy._bytes(np.asarray(block.samples[column.name], column._probe.dtype))
            os.pwrite(column._file.fileno(), data, column._end)
        super().append(block)


@mutation("test_a_power_cut_after_a_commit")
class NothingIsSynced(NpySink):
    def __init__(self, request):
        super().__init__(replace(request, durable=False))


@mutation("test_a_power_cut_after_a_commit")
class NamesAreNotSynced(NpySink):
    def __init__(self, request):
        super().__init__(replace(request, durable=False))
        self._durable = True


class Trusting(NpyReader):
    def verify(self):
        return []


@mutation("test_damage_is_never_silent", Trusting)
class NothingIsVerified(NpySink):
    pass


class OnlySizes(NpyReader):
    def verify(self):
        problems = []
        for name in self._files:
            try:
                self.array(name)
            except DamagedError as error:
                problems.append(error.message)
        return problems


@mutation("test_damage_is_never_silent", OnlySizes)
class OnlySizesAreVerified(NpySink):
    pass


class Impatient(NpyReader):
    """Goes by the file, which the writer is changing."""

    def __init__(self, request):
        super().__init__(request)
        for name, entry in self._files.items():
            now = np.load(self._directory / f"{name}.npy", mmap_mode="r")
            if len(now) != entry["samples"]:
                raise DamagedError("the file isn't what the record says")


@mutation("test_a_reader_beside_the_writer", Impatient)
class ReaderWantsAFileThatRests(NpySink):
    def append(self, block):
        super().append(block)
        super().commit()


@mutation("test_a_disk_that_fills_up")
class ErrorsAreSwallowed(NpySink):
    def append(self, block):
        try:
            super().append(block)
        except OSError:
            return


@mutation("test_a_disk_that_fills_up")
class AFullDiskIsABug(NpySink):
    def append(self, block):
        try:
            super().append(block)
        except OSError as error:
            raise ValueError("something went wrong") from error


@mutation("test_memory_is_flat", working_bytes=64 << 20)
class EverythingIsKept(NpySink):
    def append(self, block):
        super().append(block)
        self.all = [*getattr(self, "all", []), converted(block, np.copy)]
        gc.collect()


@mutation("test_memory_is_flat")
class MoreThanItSays(NpySink):
    """A copy of the piece, and another, and no `working_bytes`."""

    def append(self, block):
        copies = [converted(block, np.copy) for _ in range(3)]
        super().append(block)
        del copies


@mutation("test_any_sequence_of_calls")
class BeginsAnewInAnySequence(BeginsAnewEachTime):
    pass


@mutation("test_committed_samples_can_be_read_while_it_goes_on")
class ForgetsTheSecondCommit(NpySink):
    """In a row, without samples between: the record is of nothing."""

    before = None

    def commit(self):
        record = super().commit()
        if self.before == record:
            files = {n: {**f, "samples": 0, "checksums": []} for n, f in record["files"].items()}
            return {**record, "files": files}
        self.before = record
        return record


@mutation("test_events_come_back")
class EventsStoredAsIfDense(NpySink):
    def __init__(self, request):
        dense = tuple(replace(probe, attrs={}) for probe in request.probes)
        super().__init__(replace(request, probes=dense))


@mutation("test_committed_samples_can_be_read_while_it_goes_on")
class RecordOfObjects(NpySink):
    """Not of JSON values."""

    def commit(self):
        return {**super().commit(), "shape": (1, 2)}
