"""What every adapter must keep: subclass `AdapterSuite` in a test file."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from simrun.adapter import Simulation
from simrun.errors import SimrunError
from simrun.records import MemoryFailure
from simrun.testing import faults
from simrun.testing.adapter_driver import (
    AdapterDriver,
    Samples,
    arrays,
    assert_same,
    check_json,
    counts,
    dense,
    sampled,
    splits,
)
from simrun.testing.bad_configs import always_bad
from simrun.testing.children import Children, Killed

# as the chunks of a run: more wouldn't find more
LINES, SPLITS, MEMORY_SHARE = 25, 4, 1 / 6


class AdapterSuite(AdapterDriver):
    """The laws of `simrun.adapter.Simulation`, tested.

    A subclass gives at least ``config``, ``reference`` and ``expected_probes``; ``heavy`` for
    the estimate, ``bad`` for what it refuses.
    """

    #: For each probe, in order: shape of a sample, dtype, dims, period in steps.
    expected_probes: ClassVar[Mapping[str, tuple[Any, Any, Any, float]]]
    #: What is refused: ``{what: (changes of the config, class of the error, words in it)}``.
    bad: ClassVar[Mapping[str, tuple[Mapping[str, Any], type[SimrunError], Sequence[str]]]] = {}

    def reference(self, steps: int) -> Samples | None:
        """What the simulator itself records in so many steps, without the adapter.

        None: there is no way to say; then a fault that each chunk repeats isn't found.
        """
        raise NotImplementedError("define reference(steps), or return None")

    def test_it_agrees_with_the_simulator_itself(self) -> None:
        """Step 1 is the first, nothing is shifted, nothing is converted."""
        with self.opened() as simulation:
            steps = self.units * simulation.alignment
            expected = self.reference(steps)
            if expected is None:
                pytest.skip("the suite has no reference")
            ordered = {probe.name: expected[probe.name] for probe in simulation.probes}
            assert_same(self.execute(simulation, [steps]), ordered, "against the reference")
            varying = any(a.tobytes() != a[:1].tobytes() * len(a) for a in ordered.values())
            assert varying, "no sample ever changes: this config tests nothing"

    def test_the_probes_are_described(self) -> None:
        """In the order of declaration, with shapes, types, names of axes and periods."""
        with self.opened() as simulation:
            names = [probe.name for probe in simulation.probes]
            assert names == list(self.expected_probes), "other probes, or in another order"
            for probe in simulation.probes:
                shape, dtype, dims, period = self.expected_probes[probe.name]
                assert probe.shape == tuple(shape), probe.name
                assert probe.dtype == np.dtype(dtype), probe.name
                assert isinstance(probe.dtype, np.dtype), probe.name
                assert probe.dims == tuple(dims), probe.name
                assert len(probe.dims) == len(probe.shape), probe.name
                assert probe.period == period, probe.name
                assert probe.period >= 1, probe.name
                check_json(probe.attrs, f"attrs of {probe.name}")
            declared = {each["name"]: each for each in self.config.get("probes", ())}
            assert names[len(names) - len(declared) :] == list(declared), (
                "probes of the config come in its order, after those of the model"
            )
            for name, each in declared.items():
                probe = next(probe for probe in simulation.probes if probe.name == name)
                assert probe.reduce == each.get("reduce", "last"), name

    def test_what_it_tells_of_itself(self) -> None:
        """Step 0 at the start; notes, sources, provenance and metrics of the right kinds."""
        with self.opened() as simulation:
            assert simulation.step == 0
            assert simulation.alignment >= 1
            assert simulation.dt is None or simulation.dt > 0
            assert isinstance(simulation.device, str)
            assert all(isinstance(note, str) and note for note in simulation.notes)
            assert all(path.is_file() for path in simulation.sources)
            check_json(simulation.provenance(), "provenance()")
            self.execute(simulation, [simulation.alignment])
            assert all(isinstance(v, float | int) for v in simulation.metrics().values())
            peak = simulation.device_peak()
            assert peak is None or peak >= 0
            assert simulation.memory_failure(ValueError("of the model")) is None
            assert isinstance(simulation.memory_failure(MemoryError()), MemoryFailure)

    def test_every_split_into_chunks_gives_the_same_samples(self, simrun_thorough: bool) -> None:
        """Law 1."""
        with self.opened() as simulation:
            unit = simulation.alignment
            end = self.units * unit
            expected = self.execute(simulation, [end])
        every = [
            [unit] * self.units,
            *splits(self.units, unit, 60 if simrun_thorough else SPLITS),
        ]
        with self.opened() as simulation:
            begin = simulation.snapshot()
            # the first of them in a simulation that was just opened; some with no spare capacity
            tries = [(lengths, end) for lengths in every]
            tries += [(lengths, max(lengths)) for lengths in (every[0], every[-1])]
            for lengths, capacity in tries:
                found = self.execute(simulation, lengths, end, capacity)
                assert_same(found, expected, f"in chunks of {lengths} steps")
                simulation.restore(begin)
            longer = self.execute(simulation, [end // 2 // unit * unit], 10 * end)
            for probe in simulation.probes:
                if not math.isinf(probe.period):
                    begun = expected[probe.name][: len(longer[probe.name])]
                    assert longer[probe.name].tobytes() == begun.tobytes(), (
                        f"{probe.name} depends on the run's last step"
                    )
                else:
                    assert len(longer[probe.name]) == 0, f"{probe.name} before the last step"

    def test_blocks_have_what_the_probes_promise(self) -> None:
        """Names, shapes, types and numbers of samples."""
        with self.opened() as simulation:
            unit = simulation.alignment
            lengths = [unit, 5 * unit, 2 * unit]
            end = sum(lengths)
            for block in self.blocks(simulation, lengths, end, end):
                assert set(block.samples) == {probe.name for probe in simulation.probes}
                assert block.nbytes >= 0
                for probe in simulation.probes:
                    samples = dense(block.samples[probe.name], probe)
                    expected = (counts(probe, block, end), *probe.shape)
                    assert samples.shape == expected, (probe.name, block.start, block.stop)
                    assert samples.dtype == probe.dtype, probe.name

    def test_a_block_belongs_to_its_receiver(self) -> None:
        """A later chunk leaves it alone, and what becomes of it changes no later chunk."""
        with self.opened() as simulation:
            length = 4 * simulation.alignment
            begin = simulation.snapshot()
            expected = self.execute(simulation, [length] * 3, 3 * length)
            simulation.restore(begin)
            blocks, copies = [], []
            for _ in range(3):
                blocks += self.blocks(simulation, [length], 3 * length, length)
                copies.append({name: arrays(a) for name, a in blocks[-1].samples.items()})
                for block, copy in zip(blocks, copies, strict=True):
                    for name, before in copy.items():
                        same = zip(before, arrays(block.samples[name], copied=False), strict=True)
                        assert all(a.tobytes() == b.tobytes() for a, b in same), (
                            f"{name}: a later chunk wrote into an earlier block"
                        )
            simulation.restore(begin)
            found = []
            for _ in range(3):
                found += self.blocks(simulation, [length], 3 * length, length)
                kept = {
                    p.name: dense(found[-1].samples[p.name], p).copy() for p in simulation.probes
                }
                for samples in found[-1].samples.values():
                    for array in arrays(samples, copied=False):
                        if array.flags.writeable:
                            array.fill(77)
                rows = {name: len(array) for name, array in kept.items()}
                for name, array in kept.items():
                    begun = expected[name][: rows[name]]
                    assert array.tobytes() == begun.tobytes(), (
                        f"{name}: what was done to an earlier block came back"
                    )
                    expected[name] = expected[name][rows[name] :]

    def test_a_snapshot_is_exact_and_lasts(self) -> None:
        """Law 2: after other chunks, more than once, and not in order."""
        with self.opened() as simulation:
            unit = simulation.alignment
            end = 18 * unit
            self.execute(simulation, [5 * unit], end, end)
            early = simulation.snapshot()
            self.execute(simulation, [2 * unit], end, end)
            late = simulation.snapshot()
            simulation.restore(early)
            expected = self.execute(simulation, [13 * unit], end, end)
            tail = {p.name: expected[p.name] for p in simulation.probes}
            first = self._after(simulation, late, [11 * unit], end)
            orders = [
                (early, [13], tail), (late, [11], first), (early, [1] * 13, tail),
                (early, [3, 10], tail), (late, [4, 7], first), (late, [11], first),
            ]  # fmt: skip
            for snapshot, lengths, wanted in orders:
                simulation.restore(snapshot)
                assert simulation.step == end - sum(lengths) * unit, "step after restore"
                simulation.release()
                found = self.execute(simulation, [n * unit for n in lengths], end, end)
                assert_same(found, wanted, f"after a restore, in chunks of {lengths}")
                wanted_late = {n: a[len(a) - len(first[n]) :] for n, a in tail.items()}
                assert_same(first, wanted_late, "restored to the later snapshot")

    def test_a_chunk_that_failed_leaves_nothing_behind(self, simrun_thorough: bool) -> None:
        """Memory runs out at each line of the adapter's `execute`, one after the other."""
        with self.opened() as simulation:
            unit = simulation.alignment
            length, end = 4 * unit, 16 * unit
            self.execute(simulation, [length], end, end)
            snapshot = simulation.snapshot()
            expected = self.execute(simulation, [length] * 2, end, end)
            simulation.restore(snapshot)
            with faults.failing_line(self.code) as lines:
                self.execute(simulation, [length], end, end)
            assert lines.seen, f"no line of {[str(p) for p in self.code]} was executed"
            for number in sampled(lines.seen, 10**6 if simrun_thorough else LINES):
                simulation.restore(snapshot)
                where = "memory ran out at {}, line {}".format(*lines.seen[number - 1])
                error = self._failed(simulation, length, end, number, expected)
                if error is not None:
                    known = simulation.memory_failure(error)
                    assert isinstance(known, MemoryFailure), f"{where}: not known: {error!r}"
                    del error  # its traceback holds the failed chunk
                simulation.restore(snapshot)
                simulation.release()
                assert simulation.step == length, where
                found = self.execute(simulation, [unit, length, 3 * unit], end, end)
                assert_same(found, expected, where)

    def test_a_run_recovers_from_out_of_memory(self, tmp_path: Path) -> None:
        """Engine, adapter and sink together; memory runs out twice, in chunks of two lengths."""
        with self.opened() as simulation:
            unit = simulation.alignment
            steps = self.units * unit
            expected = self.execute(simulation, [steps])
        oom = faults.oom_at(steps // 2, times=2)
        found = self.run(tmp_path / "out", steps, {"chunk": 8 * unit}, oom)
        assert oom.left == 0
        assert_same(found, expected, "recovered from out-of-memory")

    def test_without_a_seed_nothing_is_left_to_chance(self) -> None:
        """A run is gone on with by a process that opens the same model once more."""
        found = []
        for _ in range(2):
            with self.opened({"seed": None}) as simulation:
                end = 8 * simulation.alignment
                found.append(self.execute(simulation, [end]))
        assert_same(found[1], found[0], "without a seed, opened once more")

    def test_a_state_goes_on_in_another_process(
        self, tmp_path: Path, simrun_children: Children
    ) -> None:
        """`save_state`, a file, a new interpreter, `load_state`: as if nothing had been."""
        with self.opened() as simulation:
            unit = simulation.alignment
            end = 16 * unit
            self.execute(simulation, [5 * unit, 2 * unit], end, end)
            state = simulation.save_state()
            if state is None:
                overridden = type(simulation).save_state is not Simulation.save_state
                assert simulation.notes or not overridden, "notes must say why it can't be saved"
                pytest.skip("no state is saved: a run that goes on computes from the first step")
            copies = {name: np.array(array) for name, array in state.items()}
            expected = self.execute(simulation, [9 * unit], end, end)
            # the writer's thread stores it while the next chunk computes
            for name, array in copies.items():
                assert np.asarray(state[name]).tobytes() == array.tobytes(), (
                    f"state {name!r} changes while the simulation goes on"
                )
        np.savez(tmp_path / "state.npz", allow_pickle=False, **copies)
        step = simrun_children.run(
            self, "job_go_on", folder=str(tmp_path), lengths=[4 * unit, 5 * unit], end=end,
            capacity=end,
        )  # fmt: skip
        assert step == 7 * unit, f"the state of step {7 * unit} loads as step {step}"
        with np.load(tmp_path / "samples.npz") as samples:
            assert_same(dict(samples), expected, "in another process")

    def test_a_killed_run_goes_on(self, tmp_path: Path, simrun_children: Children) -> None:
        """SIGKILL in a chunk and after a commit; the same call goes on."""
        with self.opened() as simulation:
            unit = simulation.alignment
            steps = self.units * unit
            expected = self.execute(simulation, [steps])
        output = tmp_path / "out"
        for label, count in (("after chunk", 3), ("after report", 2)):
            with pytest.raises(Killed):
                simrun_children.run(
                    self, "job_run", output=str(output), steps=steps, chunk=4 * unit,
                    label=label, count=count,
                )  # fmt: skip
        assert_same(self.run(output, steps, {"chunk": 4 * unit}), expected, "killed twice")

    def test_the_estimate_is_what_is_measured(self, simrun_children: Children) -> None:
        """Law 3: within 10 %, and never more than 2 % below."""
        if self.heavy is None:
            pytest.skip("the suite says no `heavy` chunk")
        peak = simrun_children.run(self, "job_measure")
        grown = peak["measured"] - peak["before"]
        assert grown >= MEMORY_SHARE * peak["before"], f"`heavy` is too light to test: {peak}"
        for kind in ("", "device "):
            predicted, measured = peak[kind + "predicted"], peak[kind + "measured"]
            if measured:
                assert 0.98 <= predicted / measured <= 1.1, peak

    def test_bad_configs_are_refused_with_good_words(self, tmp_path: Path) -> None:
        """Each by an error of `simrun.errors` that says where, what was found and what to do."""
        for what, (changes, kind, words) in {
            **always_bad(self.config, tmp_path),
            **self.bad,
        }.items():
            error = self._refused(changes)
            assert error is not None, f"{what} is accepted"
            assert isinstance(error, kind), f"{what}: {type(error).__name__}: {error}"
            for word in words:
                assert word in str(error), f"{what}: no {word!r} in the message: {error}"
        with self.opened() as simulation:  # and a good one still opens
            assert simulation.step == 0

    def _refused(self, changes: Mapping[str, Any]) -> Exception | None:
        try:
            with self.opened(changes):
                return None
        except Exception as error:
            return error

    def _after(
        self, simulation: Simulation, snapshot: object, lengths: list[int], end: int
    ) -> Samples:
        simulation.restore(snapshot)
        return self.execute(simulation, lengths, end, end)

    def _failed(
        self, simulation: Simulation, length: int, end: int, number: int, expected: Samples
    ) -> BaseException | None:
        """What a chunk raises when memory runs out at a line; None where it came through."""
        with faults.failing_line(self.code, number):
            try:
                found = self.execute(simulation, [length], end, end)
            except Exception as error:
                return error
        begun = {name: expected[name][: len(array)] for name, array in found.items()}
        assert_same(found, begun, "the adapter went on when memory ran out")
        return None
