"""Adapters with one fault each, of a good one: run by `test_mutations`, in a child process.

``CAUGHT`` says by which test of the kit each is to be caught.
"""

import os
from dataclasses import replace

import numpy as np
import toy_plugin
from test_toy_conforms import TestToy as Good
from toy_plugin import Toy, ToyConfig

import simrun
from simrun.adapter import AdapterEntry
from simrun.records import MemoryEstimate, MemoryItem, ProbeBlock

CAUGHT = {}


def mutation(caught_by):
    """Make a suite of a faulty simulator; it has the name of the class, and ``Test``."""

    def make(simulator):
        class Plugin:
            @simrun.hookimpl
            def simrun_adapters(self):
                config = getattr(simulator, "config_model", ToyConfig)
                return [AdapterEntry("toy", "faulty", config, simulator)]

        name = f"Test{simulator.__name__}"
        body = {"plugins": (Plugin(),), "__module__": __name__, "__qualname__": name}
        body["code"] = [Good.file.parents[1]]
        globals()[name] = type(name, (Good,), body)
        CAUGHT[name] = caught_by
        return simulator

    return make


@mutation("test_a_snapshot_is_exact_and_lasts")
class StateForgottenBySnapshot(Toy):
    def snapshot(self):
        return self.step, None, list(self._sums), list(self._counts)

    def restore(self, snapshot):
        super().restore((snapshot[0], self._state, *snapshot[2:]))


@mutation("test_a_snapshot_is_exact_and_lasts")
class StepForgottenBySnapshot(Toy):
    def restore(self, snapshot):
        super().restore((self.step, *snapshot[1:]))


@mutation("test_a_snapshot_is_exact_and_lasts")
class SumsForgottenBySnapshot(Toy):
    def restore(self, snapshot):
        super().restore((*snapshot[:2], self._sums, self._counts))


@mutation("test_a_snapshot_is_exact_and_lasts")
class SnapshotIsTheStateItself(Toy):
    """Changed in place by the next chunk."""

    def execute(self, chunk):
        own = self._state
        block = super().execute(chunk)
        own[:] = self._state
        self._state = own
        return block


@mutation("test_a_snapshot_is_exact_and_lasts")
class RestoreTakesTheSnapshotAway(Toy):
    """Good once."""

    def snapshot(self):
        return [super().snapshot()]

    def restore(self, snapshot):
        if snapshot:
            super().restore(snapshot.pop())


@mutation("test_it_agrees_with_the_simulator_itself")
class OneStepTooMany(Toy):
    def __init__(self, request):
        super().__init__(request)
        self._state = self._state * toy_plugin.MULTIPLIER + toy_plugin.INCREMENT


@mutation("test_every_split_into_chunks_gives_the_same_samples")
class OneStepTooManyInEachChunk(Toy):
    def execute(self, chunk):
        block = super().execute(chunk)
        self._state = self._state * toy_plugin.MULTIPLIER + toy_plugin.INCREMENT
        return block


@mutation("test_every_split_into_chunks_gives_the_same_samples")
class SumsForgottenBetweenChunks(Toy):
    def execute(self, chunk):
        self._counts = [0 for _ in self.probes]
        return super().execute(chunk)


@mutation("test_every_split_into_chunks_gives_the_same_samples")
class PeriodsCountFromTheChunk(Toy):
    def execute(self, chunk):
        block = super().execute(chunk)
        every = np.arange(chunk.steps) % 3 == 2
        steps = np.arange(chunk.start + 1, chunk.stop + 1)[every].astype(float)
        return ProbeBlock(chunk.start, chunk.stop, {**block.samples, "number": steps})


@mutation("test_it_agrees_with_the_simulator_itself")
class WrongType(Toy):
    """It says float64 and gives float32."""

    def execute(self, chunk):
        block = super().execute(chunk)
        samples = {name: array.astype("f4") for name, array in block.samples.items()}
        return ProbeBlock(chunk.start, chunk.stop, samples)


@mutation("test_blocks_have_what_the_probes_promise")
class WrongTypeOfTheBlock(WrongType):
    pass


@mutation("test_the_probes_are_described")
class ProbesInAnotherOrder(Toy):
    def __init__(self, request):
        super().__init__(request)
        self.probes = self.probes[::-1]


@mutation("test_the_probes_are_described")
class PeriodIgnored(Toy):
    def _probe(self, request, key):
        return super()._probe(request.model_copy(update={"sample_every": 1}), key)


@mutation("test_it_agrees_with_the_simulator_itself")
class ReduceIgnored(Toy):
    def _accumulate(self, index, probe, due):
        return self._state.astype("f8") * 2.0**-64 if index != 1 else np.float64(self.step)


@mutation("test_a_block_belongs_to_its_receiver")
class BufferReused(Toy):
    """The arrays of the block before are written into."""

    buffers = {}

    def execute(self, chunk):
        block = super().execute(chunk)
        samples = {}
        for name, array in block.samples.items():
            key = id(self), name, array.shape
            buffer = BufferReused.buffers.setdefault(key, np.empty_like(array))
            buffer[...] = array
            samples[name] = buffer
        return ProbeBlock(chunk.start, chunk.stop, samples)


@mutation("test_a_block_belongs_to_its_receiver")
class BlockIsTheState(Toy):
    """The last sum is kept in the array that was handed over."""

    def execute(self, chunk):
        block = super().execute(chunk)
        x = block.samples["x"]
        self._kept = x[-1] if len(x) else None
        return block

    def _accumulate(self, index, probe, due):
        value = super()._accumulate(index, probe, due)
        kept, self._kept = getattr(self, "_kept", None), None
        if kept is not None and kept[0] == 77:
            return value + 1
        return value


@mutation("test_a_chunk_that_failed_leaves_nothing_behind")
class FailureLeavesAMark(Toy):
    """What a failed chunk did isn't part of the snapshot."""

    drift = np.uint64(0)

    def execute(self, chunk):
        self.drift = np.uint64(1)
        block = super().execute(chunk)
        self.drift = np.uint64(0)
        return block

    def restore(self, snapshot):
        super().restore(snapshot)
        self._state = self._state + self.drift


@mutation("test_a_chunk_that_failed_leaves_nothing_behind")
class OutOfMemoryNotRecognised(Toy):
    def memory_failure(self, error):
        return None


@mutation("test_a_run_recovers_from_out_of_memory")
class ReleaseForgetsTheState(Toy):
    def release(self):
        self._state = self._state * np.uint64(3)


@mutation("test_without_a_seed_nothing_is_left_to_chance")
class SeedByChance(Toy):
    def __init__(self, request):
        if request.seed is None:
            request = replace(request, seed=int.from_bytes(os.urandom(4)))
        super().__init__(request)


@mutation("test_a_state_goes_on_in_another_process")
class WrongStepAfterLoad(Toy):
    def load_state(self, state):
        super().load_state(state)
        self.step = 0


@mutation("test_a_state_goes_on_in_another_process")
class GeneratorNotSaved(Toy):
    def load_state(self, state):
        fresh = self._state
        super().load_state(state)
        self._state = fresh


@mutation("test_a_state_goes_on_in_another_process")
class SavedStateIsTheStateItself(SnapshotIsTheStateItself):
    """The writer's thread would store the state of a later step."""


@mutation("test_a_killed_run_goes_on")
class SumsNotSaved(Toy):
    def load_state(self, state):
        super().load_state(state)
        self._counts = [0 for _ in self.probes]


class HalfAnEstimate(Toy):
    factor = 0.5

    def estimate_memory(self, steps):
        good = super().estimate_memory(steps)
        items = tuple(
            MemoryItem(i.name, i.where, i.fixed, i.per_step * self.factor, i.resident)
            for i in good.items
        )
        return MemoryEstimate(items, good.shared)


@mutation("test_the_estimate_is_what_is_measured")
class EstimateHalved(HalfAnEstimate):
    pass


@mutation("test_the_estimate_is_what_is_measured")
class EstimateDoubled(HalfAnEstimate):
    factor = 2.0


@mutation("test_bad_configs_are_refused_with_good_words")
class UnknownKeysAccepted(Toy):
    class config_model(ToyConfig):  # noqa: N801
        model_config = {"extra": "ignore"}


@mutation("test_bad_configs_are_refused_with_good_words")
class UnknownProbesIgnored(Toy):
    def __init__(self, request):
        import dataclasses

        known = tuple(p for p in request.probes if p.object in ("x", "step"))
        super().__init__(dataclasses.replace(request, probes=known))


@mutation("test_bad_configs_are_refused_with_good_words")
class ModelErrorsEscape(Toy):
    def __init__(self, request):
        try:
            super().__init__(request)
        except simrun.errors.SimulationError as error:
            raise KeyError("model") from error


@mutation("test_what_it_tells_of_itself")
class ProvenanceOfObjects(Toy):
    def provenance(self):
        return {"version": np.float64}
