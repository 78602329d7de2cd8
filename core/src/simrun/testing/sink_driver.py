"""What `SinkSuite` does with a sink: the part of the engine, and the checks of what it stored."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from simrun import memory
from simrun.adapter import resolve
from simrun.durability import write_atomic
from simrun.errors import SimrunError
from simrun.plugins import select
from simrun.records import ProbeBlock, ProbeSpec
from simrun.sink import Reader, Sink, SinkEntry, SinkRequest
from simrun.testing import faults
from simrun.testing.adapter_driver import dense
from simrun.testing.children import InOtherProcesses
from simrun.testing.sink_cases import CHUNK, DENSE, DT, END, EVENTS, block, same, samples

Commit = tuple[int, Mapping[str, Any] | None]
LONG = 600  # steps of a run that fills a disk
PIECE = 8 << 20  # the most that a sink is given at a time


class SinkDriver(InOtherProcesses):
    """Opens, appends, commits and compares; methods ``job_…`` run in other processes."""

    #: Name of the sink, as in ``output.sink`` of a config.
    sink: ClassVar[str]
    #: Modules with hooks, where the plugin isn't installed.
    plugins: ClassVar[Sequence[Any]] = ()
    #: The sink's own keys of ``output``.
    options: ClassVar[Mapping[str, Any]] = {}
    #: Whether it stores probes with ``format: events``.
    stores_events: bool = False

    def read(self, data: Path, probe: ProbeSpec) -> Any:
        """All samples of a probe that a program without simrun and without the plugin sees.

        Parameters
        ----------
        data : pathlib.Path
            The folder that the sink wrote into.

        Returns
        -------
        numpy.ndarray, or simrun.events.Events for a probe that is stored as events
        """
        raise NotImplementedError("define read(data, probe) with nothing of the plugin")

    @property
    def entry(self) -> SinkEntry:
        """What the plugin offers."""
        return select(None, self.sink, extra=self.plugins).sink

    @property
    def probes(self) -> tuple[ProbeSpec, ...]:
        """What is stored in the tests."""
        return (*DENSE, *EVENTS) if self.stores_events else DENSE

    def small_files(self, patch: pytest.MonkeyPatch) -> None:
        """Make the sink's files so small that a run of 66 steps has several; optional.

        Parameters
        ----------
        patch : pytest.MonkeyPatch
            ``patch.setattr(module, "SEGMENT_BYTES", 1024)`` is undone after the test.
        """

    def prepare(self) -> None:
        """Import what a run imports, before jobs are forked."""
        self.opening()

    def opening(self) -> tuple[Callable[..., Sink], Callable[..., Reader]]:
        """What opens the sink and its reader."""
        return resolve(self.entry.sink), resolve(self.entry.reader)

    def request(
        self,
        folder: Path,
        record: Mapping[str, Any] | None = None,
        durable: bool = False,
        probes: Sequence[ProbeSpec] | None = None,
    ) -> SinkRequest:
        """What a sink in ``folder/data`` is opened with."""
        data = folder / "data"
        data.mkdir(exist_ok=True)
        chosen = self.probes if probes is None else tuple(probes)
        return SinkRequest(data, chosen, DT, durable, record, dict(self.options))

    def begin(self, folder: Path, record: Any = None, durable: bool = False) -> Any:
        """Open the sink."""
        return self.opening()[0](self.request(folder, record, durable))

    def append(self, sink: Sink, start: int, stop: int, chunk: int = CHUNK, end: int = END) -> None:
        """Append the samples of steps ``start+1 … stop``."""
        for at in range(start, stop, chunk):
            to = min(at + chunk, stop)
            sink.append(block(at, to, self.probes, end, as_events=bool(at % 2)))

    def drive(
        self,
        folder: Path,
        end: int = END,
        *,
        chunk: int = CHUNK,
        durable: bool = False,
        every: int = 3,  # such that the last blocks are left for `finish`
        watch: faults.KillAt | None = None,
        pause: float = 0.0,
    ) -> None:
        """What a run does with a sink: go on from the manifest to the end, tidy, close."""
        step, record = manifest(folder)
        pass_by = watch.pass_by if watch else (lambda _: None)

        def commit(data: Mapping[str, Any]) -> None:
            pass_by("before manifest")
            content = json.dumps({"step": step, "data": data}).encode()
            write_atomic(folder / "manifest.json", content, durable)
            pass_by("after manifest")

        sink = self.begin(folder, record, durable)
        sink = watch.around(sink) if watch else sink
        blocks = 0
        while step < end:
            stop = min(step + chunk, end)
            self.append(sink, step, stop, chunk, end)
            step, blocks = stop, blocks + 1
            if blocks % every == 0:
                commit(sink.commit())
            time.sleep(pause)
        commit(sink.finish())
        sink.tidy()
        sink.close()

    def two_commits(self, folder: Path, beyond: int = 0) -> list[tuple[int, Any]]:
        """Commits at steps 30 and 48, then ``beyond`` more steps without; closed."""
        sink, commits = self.begin(folder), []
        for start, stop in ((0, 30), (30, 48)):
            self.append(sink, start, stop)
            commits.append((stop, plain(sink.commit())))
        self.append(sink, 48, 48 + beyond)
        sink.close()
        return commits

    def check(self, folder: Path, step: int, record: Any, end: int = END) -> None:
        """Both readers have the samples up to ``step``; the sink's, no other, and verified."""
        self.check_reader(folder, step, record, end)
        self.check_raw(folder, step, end)

    def check_reader(self, folder: Path, step: int, record: Any, end: int = END) -> None:
        """The sink's reader shows exactly what was committed."""
        reader = self.opening()[1](self.request(folder, record))
        try:
            for probe in self.probes:
                array, expected = reader.array(probe.name), samples(probe, 0, step, end)
                assert array.shape == expected.shape, f"{probe.name}, committed to step {step}"
                assert array.dtype == probe.dtype, probe.name
                assert same(array[:], expected), f"{probe.name}, committed to step {step}"
            assert reader.verify() == []
        finally:
            reader.close()

    def check_raw(self, folder: Path, step: int, end: int = END, exact: bool = False) -> None:
        """An ordinary reader sees at least what was committed, and nothing false."""
        for probe in self.probes:
            found = dense(self.read(folder / "data", probe), probe)
            expected = samples(probe, 0, max(step, end), end)
            least = len(samples(probe, 0, step, end))
            where = f"{probe.name}, committed to step {step}, by the raw reader"
            assert least <= len(found) <= (least if exact else len(expected)), where
            assert same(found, expected[: len(found)]), where

    def check_raw_beside(self, folder: Path, step: int) -> None:
        """An ordinary program that meets a change of the files just then opens them again."""
        for left in (3, 2, 1, 0):
            try:
                self.check_raw(folder, step)
            except AssertionError:
                raise
            except Exception:
                if not left:
                    raise
            else:
                return

    def check_goes_on(self, folder: Path, end: int = END) -> None:
        """What is left can be read, and a run that goes on ends as if nothing had been."""
        step, record = manifest(folder)
        if record is not None:
            self.check(folder, step, record, end)
        self.drive(folder, end, chunk=30 if end > END else CHUNK)
        step, record = manifest(folder)
        assert step == end
        self.check_reader(folder, end, record, end)
        self.check_raw(folder, end, end, exact=True)

    def reported(self, folder: Path, step: int, record: Any, what: str) -> bool:
        """Whether the damage is found; what isn't, reads back and goes on exactly."""
        open_sink, open_reader = self.opening()
        found = True
        try:
            reader = open_reader(self.request(folder, record))
            if not reader.verify():
                found = False
                for probe in self.probes:
                    good = same(reader.array(probe.name)[:], samples(probe, 0, step))
                    assert good, f"{what}: {probe.name} is wrong, and verify() finds nothing"
            reader.close()
        except SimrunError:
            pass
        to = min(step + 1, END)
        try:
            sink = open_sink(self.request(folder, record))
            self.append(sink, step, to)
            last = plain(sink.finish())
            sink.close()
        except SimrunError:
            return True
        reader = open_reader(self.request(folder, last))
        if not reader.verify():
            for probe in self.probes:
                good = same(reader.array(probe.name)[:], samples(probe, 0, to))
                assert good, f"{what}: {probe.name} is wrong after going on, without a word"
        reader.close()
        return found

    def job_killed(self, folder: str, label: str, count: int, durable: bool) -> int:
        """A run that is killed at a label; the number of times that it came by."""
        self.small_files(pytest.MonkeyPatch())
        killer = faults.kill_at(label, count)
        passing = faults.watched_changes(before=lambda *_: killer.pass_by("change"))
        with passing if label == "change" else nullcontext():
            self.drive(Path(folder), durable=durable, watch=killer)
        return killer.passed

    def job_slow(self, folder: str) -> None:
        """A run on a slow disk."""
        self.small_files(pytest.MonkeyPatch())
        with faults.slow_disk(0.002):
            self.drive(Path(folder), every=1, pause=0.002)

    def job_disk_full(self, folder: str, size: int | None) -> list[str]:
        """Class and text of what is raised when files may not grow beyond ``size`` bytes."""
        self.small_files(pytest.MonkeyPatch())
        with faults.limited_files(size) if size else nullcontext():
            try:
                self.drive(Path(folder), LONG, chunk=30, every=1)
            except Exception as error:
                return [type(error).__name__, str(error), str(getattr(error, "exit_code", ""))]
        return []

    def job_memory(self, folder: str) -> dict[str, int]:
        """Resident bytes before, and peaks while the first and the later pieces are stored."""
        wide = ProbeSpec("wide", (1024,), np.dtype("f8"), ("neuron",))
        rows = PIECE // wide.sample_bytes
        piece = np.random.default_rng(0).random((rows, 1024))
        memory.return_large_blocks()
        before = memory.resident()
        sink = self.opening()[0](self.request(Path(folder), probes=[wide]))
        peaks, sizes = [], []
        for number in range(12):
            memory.reset_peak()
            sink.append(ProbeBlock(number * rows, (number + 1) * rows, {"wide": piece}))
            sizes.append(len(json.dumps(plain(sink.commit()))))
            peaks.append(memory.peak_resident())
        sink.finish()
        sink.close()
        return {"before": before, "first": max(peaks[:4]), "later": max(peaks[4:]),
                "record": sizes[-1], "piece": PIECE}  # fmt: skip


def manifest(folder: Path) -> Commit:
    """Step and record of the last commit; (0, None) before the first."""
    path = folder / "manifest.json"
    if not path.exists():
        return 0, None
    content = json.loads(path.read_text())
    return content["step"], content["data"]


def plain(record: Mapping[str, Any]) -> Any:
    """A commit's record as it comes back from the manifest."""
    text = json.dumps(record, allow_nan=False)
    assert json.loads(text) == record, "the record isn't made of JSON values"
    return json.loads(text)


def damaged(folder: Path, choose: random.Random) -> Path:
    """Harm one file below a folder, as disks and people do; which one."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    path = choose.choice(files)
    content = bytearray(path.read_bytes())
    kind = choose.choice(["bit", "bit", "bit", "torn", "missing", "zeros"])
    place = choose.randrange(len(content) or 1)
    if kind == "missing" or not content:
        path.unlink()
    elif kind == "torn":
        path.write_bytes(content[:place])
    else:
        stop = min(place + (1 if kind == "bit" else 64), len(content))
        for index in range(place, stop):
            content[index] = content[index] ^ 1 << choose.randrange(8) if kind == "bit" else 0
        path.write_bytes(content)
    return path
