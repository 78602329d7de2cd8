"""Any sequence of calls of a sink, against a model; needs hypothesis."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, settings, strategies
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from simrun.testing.sink_cases import END, same, samples
from simrun.testing.sink_driver import SinkDriver, plain


class Machine(RuleBasedStateMachine):
    """The model is a step and a record for each commit: samples are a function of the step."""

    driver: SinkDriver

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.commits: list[tuple[int, Any]] = [(0, None)]  # that a manifest may name
        self.appended = 0
        self.sink: Any = None

    @initialize(durable=strategies.booleans())
    def start(self, durable: bool) -> None:
        """A new run."""
        self.durable = durable
        self.sink = self.driver.begin(self.folder, None, durable)

    @rule(steps=strategies.integers(1, 20))
    def append(self, steps: int) -> None:
        """A block of some steps."""
        stop = min(self.appended + steps, END)
        if stop > self.appended:
            self.driver.append(self.sink, self.appended, stop, stop - self.appended)
            self.appended = stop

    @rule()
    def commit(self) -> None:
        """And a manifest that names it, or the one before."""
        self.commits = [*self.commits[-2:], (self.appended, plain(self.sink.commit()))]

    @rule(tidied=strategies.booleans())
    def finish_and_go_on(self, tidied: bool) -> None:
        """As an extended run."""
        self.commits = [*self.commits[-2:], (self.appended, plain(self.sink.finish()))]
        if tidied:
            self.sink.tidy()
            self.commits = self.commits[-1:]
        self.reopen()

    @rule(unnamed=strategies.sampled_from(["", "commit", "finish"]))
    def stop_and_go_on(self, unnamed: str) -> None:
        """Perhaps after a commit that no manifest names."""
        if unnamed:
            getattr(self.sink, unnamed)()
        self.reopen()

    @precondition(lambda self: len(self.commits) > 1)
    @rule()
    def go_back_to_the_commit_before(self) -> None:
        """The manifest wasn't renamed."""
        self.commits.pop()
        self.reopen()

    @rule(start=strategies.integers(0, END), stop=strategies.integers(0, END))
    def read_a_range(self, start: int, stop: int) -> None:
        """Of every probe."""
        step, record = self.commits[-1]
        if record is not None:
            reader = self.driver.opening()[1](self.driver.request(self.folder, record))
            for probe in self.driver.probes:
                expected = samples(probe, 0, step)[start:stop]
                assert same(reader.array(probe.name)[start:stop], expected), probe.name
            reader.close()

    @invariant()
    def committed_is_there(self) -> None:
        """For both readers."""
        step, record = self.commits[-1]
        if record is not None:
            self.driver.check(self.folder, step, record)

    def reopen(self) -> None:
        """A new sink, with the last record; no earlier one is asked for afterwards."""
        self.sink.close()
        self.appended, record = self.commits[-1]
        self.commits = self.commits[-1:]
        self.sink = self.driver.begin(self.folder, record, self.durable)

    def teardown(self) -> None:
        """Remove the files."""
        if self.sink is not None:
            self.sink.close()
        shutil.rmtree(self.folder)


def examine(driver: SinkDriver, examples: int, steps: int) -> None:
    """Try so many sequences of up to so many calls."""
    run_state_machine_as_test(
        type("Machine", (Machine,), {"driver": driver}),
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            derandomize=True,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
