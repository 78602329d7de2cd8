"""Any sequence of write, commit, finish, kill, resume, go back and read equals a model."""

import json
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings, strategies
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from storage_cases import (
    PROBES,
    block,
    check_plain,
    check_reader,
    classes,
    equal,
    kept,
    make_small,
    request,
    samples,
)

LAST = 66


class Machine(RuleBasedStateMachine):
    """The model is two numbers for each commit: samples are a function of the step."""

    name: str

    def __init__(self):
        super().__init__()
        self.directory = Path(tempfile.mkdtemp())
        self.commits = [(0, None)]  # those that a manifest may name, oldest first
        self.appended = 0
        self.sink = None

    @initialize(durable=strategies.booleans())
    def start(self, durable):
        self.durable = durable
        self.open(None)

    def open(self, record):
        asked = request(self.directory, record, durable=self.durable)
        self.sink = classes(self.name)[0](asked)

    @rule(steps=strategies.integers(1, 20))
    def append(self, steps):
        stop = min(self.appended + steps, LAST)
        if stop > self.appended:
            self.sink.append(block(self.appended, stop))
            self.appended = stop

    @rule()
    def commit(self):
        record = json.loads(json.dumps(self.sink.commit()))
        self.commits = [*self.commits[-2:], (self.appended, record)]

    @rule(tidied=strategies.booleans())
    def finish(self, tidied):
        record = json.loads(json.dumps(self.sink.finish()))
        self.commits = [*self.commits[-2:], (self.appended, record)]
        if tidied:
            self.sink.tidy()
            self.commits = self.commits[-1:]  # earlier records may not hold any more
        self.sink.close()
        self.open(record)
        self.commits = self.commits[-1:]

    @rule()
    def killed_after_the_commit(self):
        self.appended, record = self.commits[-1]
        self.open(record)  # nothing of the old sink is closed or written
        self.commits = self.commits[-1:]

    @rule()
    def killed_before_the_manifest_named_the_commit(self):
        self.sink.commit()
        self.killed_after_the_commit()

    @rule()
    def killed_before_the_manifest_named_the_end(self):
        self.sink.finish()
        self.killed_after_the_commit()

    @precondition(lambda self: len(self.commits) > 1)
    @rule()
    def go_back_to_the_commit_before(self):
        self.commits.pop()
        self.killed_after_the_commit()

    @rule(start=strategies.integers(0, LAST), stop=strategies.integers(0, LAST))
    def read_a_range(self, start, stop):
        step, record = self.commits[-1]
        if record is not None:
            reader = classes(self.name)[1](request(self.directory, record))
            for probe in kept(self.name, PROBES):
                whole = samples(probe, 0, step)
                assert equal(reader.array(probe.name)[start:stop], whole[start:stop])
            reader.close()

    @invariant()
    def committed_is_there(self):
        step, record = self.commits[-1]
        if record is not None:
            check_reader(self.name, self.directory, step, record)
            check_plain(self.name, self.directory, step)

    def teardown(self):
        if self.sink is not None:
            self.sink.close()
        shutil.rmtree(self.directory)


@pytest.mark.parametrize("name", ["npy", "hdf5", "zarr"])
def test_any_sequence_equals_the_model(name, monkeypatch):
    examine(name, monkeypatch, 6, 8)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["npy", "hdf5", "zarr"])
def test_many_sequences_equal_the_model(name, monkeypatch, record_count):
    examples = 50 if name == "zarr" else 150  # each look at a zarr store takes a tenth of a second
    examine(name, monkeypatch, examples, 20)
    record_count(examples)


def examine(name, monkeypatch, examples, steps):
    from hypothesis.stateful import run_state_machine_as_test

    import simrun_storage_hdf5.sink as hdf5
    import simrun_storage_zarr.layout as zarr

    for module in (hdf5, zarr):
        for constant in [n for n in vars(module) if n.isupper()]:
            monkeypatch.setattr(module, constant, getattr(module, constant))
    make_small()
    run_state_machine_as_test(
        type("Machine", (Machine,), {"name": name}),
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
