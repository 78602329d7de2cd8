"""What `AdapterSuite` does with a simulation, in the test's process and in others."""

from __future__ import annotations

import inspect
import json
import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import chdir, contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

import simrun
from simrun import events, memory, planning
from simrun.adapter import Simulation, resolve
from simrun.records import Chunk, ProbeBlock, ProbeSpec
from simrun.sampling import sample_count
from simrun.setup import Setup, configure, opened
from simrun.testing import faults
from simrun.testing.children import InOtherProcesses

Samples = dict[str, np.ndarray[Any, Any]]
# a checkpoint after every chunk
OFTEN = {"checkpoint": {"every": "1 us"}}


class AdapterDriver(InOtherProcesses):
    """Opens, executes and compares; the methods named ``job_…`` run in other processes."""

    #: A config as for `simrun.run`, less ``steps`` and ``output.path``.
    config: ClassVar[Mapping[str, Any]]
    #: Modules with hooks, where the plugin isn't installed.
    plugins: ClassVar[Sequence[Any]] = ()
    #: Length of the runs that are compared, in units of the simulation's ``alignment``.
    units: int = 24
    #: Changes of the config, and steps, for which memory is measured: those of a chunk that
    #: takes at least a sixth of what the process takes.
    heavy: ClassVar[tuple[Mapping[str, Any], int] | None] = None

    @property
    def folder(self) -> Path:
        """Where the config's relative paths start: the folder of the test file."""
        return self.file.parent

    @property
    def code(self) -> Sequence[Path]:
        """Files and folders whose every line is made to fail: the package of the factory."""
        file = Path(inspect.getfile(resolve(self._setup({}).adapter.factory)))
        return [file.parent if (file.parent / "__init__.py").exists() else file]

    def prepare(self) -> None:
        """Called in other processes before anything else; imports what a run imports."""
        resolve(self._setup({}).adapter.factory)

    @contextmanager
    def opened(self, changes: Mapping[str, Any] | None = None) -> Iterator[Simulation]:
        """A simulation, opened as a run opens it; ``changes`` of the config."""
        with opened(self._setup(changes or {})) as simulation:
            yield simulation

    def execute(
        self,
        simulation: Simulation,
        lengths: Sequence[int],
        end: int | None = None,
        capacity: int | None = None,
    ) -> Samples:
        """Execute chunks; the samples of all, joined, of events made dense."""
        end = simulation.step + sum(lengths) if end is None else end
        blocks = self.blocks(simulation, lengths, end, capacity or max(lengths))
        return joined(simulation.probes, blocks)

    def blocks(
        self, simulation: Simulation, lengths: Sequence[int], end: int, capacity: int
    ) -> list[ProbeBlock]:
        """Execute chunks; a block each."""
        blocks = []
        for length in lengths:
            start = simulation.step
            stop = start + length
            block = simulation.execute(Chunk(start, stop, end, max(capacity, length)))
            assert (block.start, block.stop) == (start, stop), "the block is of another chunk"
            assert simulation.step == stop, (
                f"simulation.step is {simulation.step} after a chunk that ends at {stop}"
            )
            blocks.append(block)
        return blocks

    def run(self, output: Path, steps: int, changes: Mapping[str, Any], *extra: Any) -> Samples:
        """A whole `simrun.run`, or the rest of it; what it stored."""
        config = merged(self.config, {**OFTEN, **changes, "steps": steps})
        config = merged(config, {"output": {"path": str(output)}})
        with chdir(self.folder):
            ended = simrun.run(config, plugins=[*self.plugins, *extra])
        assert ended.status == "done", ended
        with simrun.open_run(output, plugins=self.plugins) as run:
            assert run.step == steps
            return {probe.name: np.array(run[probe.name][:]) for probe in run.probes}

    def job_run(self, output: str, steps: int, chunk: int, label: str, count: int) -> str:
        """A run that is killed at a label."""
        killer = faults.kill_at(label, count)
        self.run(Path(output), steps, {"chunk": chunk}, killer)
        return "not killed"

    def job_go_on(self, folder: str, lengths: list[int], end: int, capacity: int) -> int:
        """Load ``state.npz``, execute, save ``samples.npz``; the step before it."""
        with self.opened() as simulation:
            with np.load(Path(folder) / "state.npz", allow_pickle=False) as state:
                simulation.load_state(dict(state))
            step = simulation.step
            samples = self.execute(simulation, lengths, end, capacity)
        arrays: dict[str, Any] = dict(samples)
        np.savez(Path(folder) / "samples.npz", **arrays)
        return step

    def job_measure(self) -> dict[str, int]:
        """Predicted and measured peak of two chunks, the samples of the first still held."""
        assert self.heavy is not None
        changes, steps = self.heavy
        memory.return_large_blocks()
        setup = self._setup(changes)
        with opened(setup) as simulation:
            steps = planning.align(steps, simulation.alignment)
            memory.trim()
            estimate = simulation.estimate_memory(steps)
            before = memory.resident()
            whole = planning.complete(
                estimate, simulation.probes, before, setup.selection.sink
            ).items
            # of the sink only its queue takes part
            items = tuple(item for item in whole if not item.name.startswith("sink "))
            predicted = type(estimate)(items, estimate.shared).peak("host", steps)
            memory.reset_peak()
            simulation.reset_device_peak()
            held: Any = None
            for start in (0, steps):
                snapshot = simulation.snapshot()
                # while this executes, the block before is held, as the writer holds it
                held = simulation.execute(Chunk(start, start + steps, 3 * steps, steps))
            del held, snapshot
            return {
                "before": before,
                "predicted": predicted,
                "measured": memory.peak_resident(),
                "device predicted": estimate.peak("device", steps),
                "device measured": simulation.device_peak() or 0,
            }

    def _setup(self, changes: Mapping[str, Any]) -> Setup:
        config = merged(self.config, {"steps": 1, **changes})
        config = merged(config, {"output": {"path": "never-written"}})
        with chdir(self.folder):
            return configure(config, plugins=self.plugins)


def joined(probes: Sequence[ProbeSpec], blocks: Sequence[ProbeBlock]) -> Samples:
    """The samples of consecutive blocks, dense."""
    return {
        probe.name: np.concatenate([dense(block.samples[probe.name], probe) for block in blocks])
        for probe in probes
    }


def dense(samples: Any, probe: ProbeSpec) -> np.ndarray[Any, Any]:
    """Samples, of which a plugin may give the events alone, as an array."""
    if isinstance(samples, events.Events):
        return events.decode(samples, probe.shape, probe.dtype)
    return np.asarray(samples)


def counts(probe: ProbeSpec, block: ProbeBlock, end: int) -> int:
    """How many samples of a probe a block has."""
    return sample_count(probe.period, block.start, block.stop, end)


def merged(config: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """A config with changes; sections are joined, everything else is replaced."""
    result = dict(config)
    for key, value in changes.items():
        before = result.get(key)
        if isinstance(before, Mapping) and isinstance(value, Mapping):
            value = {**before, **value}
        result[key] = value
    return result


def assert_same(found: Samples, expected: Samples, where: str) -> None:
    """The same names, types, shapes and bits."""
    assert list(found) == list(expected), where
    for name, array in expected.items():
        other = found[name]
        assert other.dtype == array.dtype, f"{where}: {name} has another dtype"
        assert other.shape == array.shape, f"{where}: {name} has another shape"
        if other.tobytes() != array.tobytes():
            first = next(i for i in range(len(array)) if other[i].tobytes() != array[i].tobytes())
            raise AssertionError(
                f"{where}: {name} differs from sample {first} on:\n{other[first]}\n"
                f"instead of\n{array[first]}"
            )


def check_json(values: Mapping[str, Any], what: str) -> None:
    """Fail where it couldn't be written as JSON."""
    try:
        json.dumps(dict(values), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise AssertionError(f"{what} isn't made of JSON values: {error}") from None


def splits(units: int, unit: int, count: int) -> Iterator[list[int]]:
    """Lengths of chunks that make so many units: by rule, then at random."""
    for first in (1, units - 1, units // 2):
        yield [first * unit, (units - first) * unit]
    growing: list[int] = []
    left = units
    while left:
        growing.append(min(len(growing) + 1, left))
        left -= growing[-1]
    yield [n * unit for n in growing]
    yield [n * unit for n in growing[::-1]]
    choose = random.Random(units)
    for _ in range(count):
        cuts = sorted(choose.sample(range(1, units), choose.randrange(1, min(7, units))))
        edges = [0, *cuts, units]
        yield [(b - a) * unit for a, b in pairwise(edges)]


def sampled(seen: list[tuple[str, int]], most: int) -> list[int]:
    """Numbers of lines: first and last, each line's first time, and others at random."""
    choose = random.Random(len(seen))
    everything = list(range(1, len(seen) + 1))
    firsts = list({place: number for number, place in reversed([*enumerate(seen, 1)])}.values())
    if len(firsts) > most // 2:
        firsts = choose.sample(firsts, most // 2)
    others = choose.sample(everything, min(most - len(firsts), len(everything)))
    return sorted({1, len(seen), *firsts, *others})


def arrays(samples: Any, copied: bool = True) -> list[np.ndarray[Any, Any]]:
    """The arrays of a probe's samples: one, or those of its events."""
    plain = isinstance(samples, np.ndarray)
    found = [samples] if plain else [samples.count, samples.index, samples.value]
    return [array.copy() for array in found] if copied else found
