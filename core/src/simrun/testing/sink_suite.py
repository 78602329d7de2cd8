"""What every sink must keep: subclass `SinkSuite` in a test file."""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from simrun.config import output_model
from simrun.document import Document
from simrun.errors import EXIT_RESUMABLE, ConfigError
from simrun.faults import check
from simrun.testing import faults
from simrun.testing.children import Children, Killed
from simrun.testing.power import PowerCut
from simrun.testing.sink_cases import CHUNK, END, EVENTS, block, samples
from simrun.testing.sink_driver import LONG, SinkDriver, damaged, manifest, plain

# allocators and libraries keep this much, whatever is stored
SLACK = 8 << 20
LABELS = tuple(label for label in faults.LABELS if label.split()[-1] not in ("chunk", "report"))
TELLING = ("after append", "after commit", "after manifest", "after finish", "after tidy")


class SinkSuite(SinkDriver):
    """The laws of `simrun.sink.Sink`, tested.

    A subclass gives at least ``sink`` and ``read``; ``stores_events`` where it does.
    """

    #: Wrong options: ``{what: (keys of output, words in the message)}``.
    bad: ClassVar[Mapping[str, tuple[Mapping[str, Any], Sequence[str]]]] = {}

    @pytest.fixture(autouse=True)
    def _small(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.small_files(monkeypatch)

    @pytest.mark.parametrize("durable", [False, True])
    def test_samples_come_back(self, tmp_path: Path, durable: bool) -> None:
        """Every type, shape and period, to the last sample, by the raw reader and by its own."""
        self.drive(tmp_path, durable=durable)
        step, record = manifest(tmp_path)
        self.check_reader(tmp_path, step, record)
        self.check_raw(tmp_path, END, exact=True)
        product = self.entry.product
        assert not product or (tmp_path / "data" / product).exists(), "no `product` of the entry"

    def test_blocks_may_have_any_length(self, tmp_path: Path) -> None:
        """One step, all steps, and none of a probe's samples in a block."""
        for number, lengths in enumerate(([1] * END, [END], [1, 30, 2, 3, 29, 1])):
            folder = tmp_path / str(number)
            folder.mkdir()
            sink, step = self.begin(folder), 0
            for length in lengths:
                self.append(sink, step, step + length, length)
                step += length
            record = plain(sink.finish())
            sink.close()
            self.check_reader(folder, END, record)
            self.check_raw(folder, END, exact=True)

    def test_a_block_isnt_needed_after_append(self, tmp_path: Path) -> None:
        """Its memory is the next chunk's."""
        sink = self.begin(tmp_path)
        for start in range(0, END, CHUNK):
            given = block(start, start + CHUNK, self.probes)
            sink.append(given)
            for array in given.samples.values():
                array.fill(77)
        record = plain(sink.finish())
        sink.close()
        self.check(tmp_path, END, record)

    def test_a_reader_is_indexed_like_numpy(self, tmp_path: Path) -> None:
        """Basic indexing; another name is a `KeyError`."""
        self.drive(tmp_path)
        reader = self.opening()[1](self.request(tmp_path, manifest(tmp_path)[1]))
        spikes = next(probe for probe in self.probes if probe.name == "spikes")
        array, whole = reader.array("spikes"), samples(spikes, 0, END)
        keys = (
            3, -1, slice(5, 40), slice(None, None, 7), slice(60, 999), slice(9, 9),
            (slice(2, 30, 3), 1), (4, 0, 2), (..., 3), (slice(None), slice(0, 1)),
        )  # fmt: skip
        for key in keys:
            found = np.asarray(array[key])
            assert found.shape == whole[key].shape, f"array[{key}]"
            assert found.tobytes() == whole[key].tobytes(), f"array[{key}]"
        with pytest.raises(KeyError):
            reader.array("no such probe")
        reader.close()

    def test_committed_samples_can_be_read_while_it_goes_on(self, tmp_path: Path) -> None:
        """What a record names is there; what came later isn't shown by its reader."""
        sink, step = self.begin(tmp_path), 0
        for stop in (CHUNK, 30, 48):
            self.append(sink, step, stop)
            record, step = plain(sink.commit()), stop
            self.check(tmp_path, step, record)
            self.check(tmp_path, step, plain(sink.commit()))  # with nothing new
            self.append(sink, step, step + CHUNK)
            self.check(tmp_path, step, record)
            step += CHUNK
        sink.close()

    @pytest.mark.parametrize("back", [1, 2])
    def test_what_came_after_a_record_is_discarded(self, tmp_path: Path, back: int) -> None:
        """Law 2: uncommitted samples, and a commit that no manifest named."""
        step, record = self.two_commits(tmp_path, beyond=6)[-back]
        sink = self.begin(tmp_path, record)
        self.check_reader(tmp_path, step, record)
        self.check_raw(tmp_path, step, exact=True)
        again = plain(sink.commit())
        self.check(tmp_path, step, again)
        self.append(sink, step, END)
        record = plain(sink.finish())
        sink.close()
        self.check_reader(tmp_path, END, record)
        self.check_raw(tmp_path, END, exact=True)

    def test_a_run_in_many_sessions(self, tmp_path: Path) -> None:
        """Each opens with the record before, appends, commits and closes."""
        record, step = None, 0
        for length in (1, 2, 7, 20, 1, 30, 5):
            sink = self.begin(tmp_path, record)
            self.append(sink, step, step + length)
            record, step = plain(sink.commit()), step + length
            sink.close()
        self.check(tmp_path, END, record)

    def test_a_finished_run_goes_on(self, tmp_path: Path) -> None:
        """And before the manifest names its end, the record before still holds."""
        for number, (tidied, named) in enumerate(((True, True), (False, True), (False, False))):
            folder = tmp_path / str(number)
            folder.mkdir()
            before = self.two_commits(folder)[-1]
            sink = self.begin(folder, before[1])
            self.append(sink, 48, 57)
            finished = 57, plain(sink.finish())
            if tidied:
                sink.tidy()
            sink.close()
            step, record = finished if named else before
            self.check(folder, step, record)
            sink = self.begin(folder, record)
            self.append(sink, step, END)
            record = plain(sink.finish())
            sink.tidy()
            sink.close()
            self.check_reader(folder, END, record)
            self.check_raw(folder, END, exact=True)

    def test_killed_at_labelled_points(
        self, tmp_path: Path, simrun_children: Children, simrun_thorough: bool
    ) -> None:
        """SIGKILL before and after each call: law 1."""
        for label in LABELS[:-1] if simrun_thorough else TELLING:
            once = "finish" in label or "tidy" in label
            for count in [1] if once else range(1, 13) if simrun_thorough else [4]:
                if not self._killed(tmp_path / "run", simrun_children, label, count):
                    assert count > 4, f"never {label}"
                    break

    def test_killed_at_changes_of_the_file_system(
        self, tmp_path: Path, simrun_children: Children, simrun_thorough: bool
    ) -> None:
        """SIGKILL before the sink's writes, syncs and renames, as far as Python makes them."""
        (tmp_path / "whole").mkdir()
        order = {"label": "change", "durable": True}
        changes = simrun_children.run(
            self, "job_killed", folder=str(tmp_path / "whole"), count=0, **order
        )
        some = random.Random(changes).sample(range(1, changes + 1), min(4, changes))
        for count in range(1, changes + 1) if simrun_thorough else sorted(some):
            assert self._killed(tmp_path / "run", simrun_children, "change", count)

    def test_a_power_cut_after_a_commit(self, tmp_path: Path) -> None:
        """With ``durable`` everything a record names was synced, content and names."""
        folder = tmp_path / "run"
        (folder / "data").mkdir(parents=True)
        disk = PowerCut(folder / "data")
        with disk.watching():
            sink, step = self.begin(folder, durable=True), 0
            for stop in (12, 30, 48, END):
                self.append(sink, step, stop)
                record, step = plain(sink.finish() if stop == END else sink.commit()), stop
                left = tmp_path / f"left{stop}"
                left.mkdir()
                disk.leave(left / "data")
                try:
                    self.check(left, step, record)
                except Exception as error:
                    raise AssertionError(
                        f"the commit at step {step} doesn't survive a power cut (sync by "
                        f"simrun.durability): {error}"
                    ) from error
            sink.close()

    def test_damage_is_never_silent(self, tmp_path: Path, simrun_thorough: bool) -> None:
        """A flipped bit, a torn or missing file: reported, or of no consequence."""
        for kind in ("half", "done"):
            (tmp_path / kind).mkdir()
        commits = {"half": self.two_commits(tmp_path / "half")[-1]}
        self.drive(tmp_path / "done")
        commits["done"] = manifest(tmp_path / "done")
        times, reported = 300 if simrun_thorough else 12, 0
        choose = random.Random(times)
        for number in range(times):
            kind = ("half", "done")[number % 2]
            copy = tmp_path / "copy"
            shutil.copytree(tmp_path / kind, copy)
            where = damaged(copy / "data", choose).relative_to(copy)
            reported += self.reported(copy, *commits[kind], f"{where} was damaged")
            shutil.rmtree(copy)
        assert reported >= times / 5, "damage of samples is hardly ever reported"

    def test_a_reader_beside_the_writer(self, tmp_path: Path, simrun_children: Children) -> None:
        """Law 3: another process writes, on a slow disk, while this one reads."""
        simrun_children.begin(self, "job_slow", folder=str(tmp_path))
        seen: set[int] = set()
        deadline = time.monotonic() + 60
        try:
            while max(seen, default=0) < END and time.monotonic() < deadline:
                step, record = manifest(tmp_path)
                if record is None or step in seen:
                    continue
                self.check_reader(tmp_path, step, record)
                self.check_raw_beside(tmp_path, step)
                seen.add(step)
        finally:
            simrun_children.end(self)
        assert len(seen) > 2, "the writer was never seen between its start and its end"

    def test_a_disk_that_fills_up(self, tmp_path: Path, simrun_children: Children) -> None:
        """Files can't grow (EFBIG): what was committed stays, and with room the run goes on."""
        for name in ("whole", "run"):
            (tmp_path / name).mkdir()
        self.drive(tmp_path / "whole", LONG, chunk=30)
        data = tmp_path / "whole" / "data"
        largest = max(path.stat().st_size for path in data.rglob("*") if path.is_file())
        self._filled(tmp_path / "run", simrun_children, int(largest * 0.6))
        self.check_goes_on(tmp_path / "run", LONG)

    def test_a_small_disk(self, tmp_path: Path, simrun_children: Children) -> None:
        """No space left on the device (ENOSPC), where this process may mount one."""
        run = tmp_path / "run"
        with faults.small_disk(tmp_path, 64 << 20) as disk:
            if disk is None:
                pytest.skip("no disk can be mounted here")
            run.mkdir()
            self.drive(run, LONG, chunk=30)
            taken = shutil.disk_usage(tmp_path).used
            shutil.rmtree(run)
            run.mkdir()
            disk.resize(int(taken * 0.6) // 4096 * 4096)
            self._filled(run, simrun_children, None)
            disk.resize(64 << 20)
            self.check_goes_on(run, LONG)

    def test_memory_is_flat(self, tmp_path: Path, simrun_children: Children) -> None:
        """Whatever was stored before; and no more than the entry's ``working_bytes``."""
        peak = simrun_children.run(self, "job_memory", folder=str(tmp_path))
        assert peak["later"] - peak["first"] < peak["piece"], f"it grows as it stores: {peak}"
        allowed = self.entry.working_bytes + SLACK
        assert peak["later"] - peak["before"] < allowed, f"more than working_bytes: {peak}"
        assert peak["record"] < 1 << 20, f"the record is large: {peak}"

    def test_unknown_options_are_refused(self) -> None:
        """With good words, as are those that the subclass calls bad."""
        unknown = {"an unknown key": ({"there_is_no_such_thing": 1}, ["unknown key", "allowed"])}
        for what, (options, words) in {**unknown, **self.bad}.items():
            data = {"path": "out", "sink": self.sink, **options}
            with pytest.raises(ConfigError) as caught:
                check(output_model(self.entry), Document(data, Path()))
            for word in words:
                assert word in str(caught.value), f"{what}: no {word!r} in: {caught.value}"
        check(output_model(self.entry), Document({"path": "out", **self.options}, Path()))

    def test_events_come_back(self, tmp_path: Path) -> None:
        """Step, position and value of each event, by the reader; or a refusal at the start."""
        if not self.stores_events:
            with pytest.raises(ConfigError, match="events"):
                self.opening()[0](self.request(tmp_path, probes=EVENTS))
            return
        self.drive(tmp_path)
        reader = self.opening()[1](self.request(tmp_path, manifest(tmp_path)[1]))
        for probe in EVENTS:
            dense = samples(probe, 0, END)
            step, *place, value = reader.events(probe.name)
            row, *expected = np.nonzero(dense.view(f"u{dense.itemsize}"))
            assert np.array_equal(step, row + 1), probe.name
            assert len(place) == len(expected), "a position has an index for each axis"
            assert all(map(np.array_equal, place, expected)), probe.name
            assert np.asarray(value).tobytes() == dense[(row, *expected)].tobytes(), probe.name
        reader.close()

    def test_any_sequence_of_calls(self, simrun_thorough: bool) -> None:
        """Append, commit, finish, close, resume, go back, read: equal to a model of two numbers."""
        pytest.importorskip("hypothesis", reason="hypothesis isn't installed")
        from simrun.testing.sink_model import examine

        examine(self, *((150, 20) if simrun_thorough else (6, 8)))

    def _killed(self, folder: Path, children: Children, label: str, count: int) -> bool:
        folder.mkdir()
        try:
            children.run(
                self, "job_killed", folder=str(folder), label=label, count=count, durable=True
            )
        except Killed:
            try:
                self.check_goes_on(folder)
            except Exception as error:
                raise AssertionError(f"killed {label}, time {count}: {error}") from error
            return True
        finally:
            shutil.rmtree(folder)
        return False

    def _filled(self, folder: Path, children: Children, size: int | None) -> None:
        raised = children.run(self, "job_disk_full", folder=str(folder), size=size)
        assert raised, "the disk was full, and nothing was raised"
        # an OSError is told by the writer; an error of simrun tells itself, and is resumable
        kind, text, code = raised
        assert kind == "OSError" or code == str(EXIT_RESUMABLE), f"{kind}: {text}"
