"""A simulator for tests: integer arithmetic in numpy, so that every bit can be compared.

Its state is a vector of linear congruential generators; a step advances all of them once.
Signals: ``x``, the state as float64 in [0, 1), and ``step``, the number of the step.
"""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

import simrun
from simrun.adapter import AdapterEntry, OpenRequest, ProbeRequest, Simulation
from simrun.errors import ConfigError
from simrun.models import call_model
from simrun.records import Chunk, MemoryEstimate, MemoryItem, ProbeBlock, ProbeSpec
from simrun.sampling import recorded_steps, sample_count
from simrun.units import parse_steps

MULTIPLIER, INCREMENT = np.uint64(6364136223846793005), np.uint64(1442695040888963407)


class ToyConfig(BaseModel):
    """The ``toy`` section: how the simulation is to misbehave."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    dt: float | None = Field(default=0.001, gt=0, description="Seconds per step.")
    alignment: int = Field(default=1, ge=1)
    memory_limit: int | None = Field(
        default=None, description="MemoryError, after half the work, in any longer chunk."
    )
    fallback: bool = Field(default=False, description="The fallback device has no such limit.")
    fail_at: int | None = Field(default=None, description="RuntimeError at this step.")
    seconds_per_step: float = Field(default=0.0, ge=0, description="Sleep so long at each step.")
    ballast: int = Field(default=0, ge=0, description="Bytes per step really allocated.")
    hidden: int = Field(default=0, ge=0, description="The same, but not in the estimate.")
    device: str = "CPU"
    data: str | None = Field(default=None, description="A file with a line for each step.")


class Toy(Simulation):
    """What the model function returns needs an attribute ``n``, the number of generators.

    It may have ``probes``, a list of ``(name, signal)``, which go before the config's.
    """

    def __init__(self, request: OpenRequest) -> None:
        model = call_model(request.model, request.base, request.model_args)
        self.settings: ToyConfig = request.settings
        if not isinstance(getattr(model, "n", None), int):
            raise ConfigError(
                f"model: {request.model} returned a {type(model).__name__}",
                "return an object with an attribute n, an int",
            )
        self.n, self.dt, self.device = model.n, self.settings.dt, self.settings.device
        self.alignment, self.step = self.settings.alignment, 0
        self._state = np.arange(self.n, dtype=np.uint64) + np.uint64(request.seed or 0)
        own = [ProbeRequest(name=name, object=signal) for name, signal in model_probes(model)]
        self.probes = tuple(
            self._probe(probe, f"probes.{index - len(own)}")
            for index, probe in enumerate([*own, *request.probes])
        )
        if self.settings.data is not None:
            path = request.base / self.settings.data
            self.available = len(path.read_text().splitlines()), str(path)
            self.sources = (path,)
        if not self.probes:
            raise ConfigError("probes: nothing is recorded", "declare a probe")
        self._sums = [np.zeros(probe.shape) for probe in self.probes]
        self._counts = [0 for _ in self.probes]
        self._limit = self.settings.memory_limit

    def _probe(self, request: ProbeRequest, key: str) -> ProbeSpec:
        shapes = {"x": (self.n,), "step": ()}
        if request.object not in shapes:
            raise ConfigError(f"{key}.object: found {request.object!r}; allowed: x, step")
        try:
            period = parse_steps(request.sample_every, self.dt)
        except ValueError as error:
            raise ConfigError(f"{key}.sample_every: {error}") from None
        shape = shapes[request.object]
        return ProbeSpec(
            request.name, shape, np.dtype(np.float64), ("unit",) * len(shape), period,
            request.reduce, {"object": request.object},
        )  # fmt: skip

    def estimate_memory(self, steps: int) -> MemoryEstimate:
        items = [MemoryItem("state", "device", fixed=self._state.nbytes, resident=True)]
        items += [
            MemoryItem(f"probe {probe.name}", "device", per_step=probe.bytes_per_step)
            for probe in self.probes
        ]
        if self.settings.ballast:
            items.append(MemoryItem("ballast", "device", per_step=self.settings.ballast))
        return MemoryEstimate(tuple(items), shared=self.device == "CPU")

    def execute(self, chunk: Chunk) -> ProbeBlock:
        size = (self.settings.ballast + self.settings.hidden) * chunk.steps
        ballast = np.ones(size, np.uint8) if size else None
        samples = {
            probe.name: np.empty(
                (sample_count(probe.period, chunk.start, chunk.stop, chunk.end), *probe.shape)
            )
            for probe in self.probes
        }
        recorded = [
            recorded_steps(probe.period, chunk.start, chunk.stop, chunk.end).tolist()
            for probe in self.probes
        ]
        filled = [0 for _ in self.probes]
        for step in range(chunk.start + 1, chunk.stop + 1):
            if step == self.settings.fail_at:
                raise RuntimeError(f"told to fail at step {step}")
            if self._limit and chunk.steps > self._limit and 2 * (step - chunk.start) > chunk.steps:
                raise MemoryError(f"told to fit {self._limit} steps")
            if self.settings.seconds_per_step:
                time.sleep(self.settings.seconds_per_step)
            self._state = self._state * MULTIPLIER + INCREMENT
            self.step = step
            for index, probe in enumerate(self.probes):
                due = (
                    filled[index] < len(recorded[index]) and recorded[index][filled[index]] == step
                )
                value = self._accumulate(index, probe, due)
                if due:
                    samples[probe.name][filled[index]] = value
                    filled[index] += 1
        del ballast
        return ProbeBlock(chunk.start, chunk.stop, samples)

    def _accumulate(self, index: int, probe: ProbeSpec, due: bool) -> np.ndarray:
        step = np.float64(self.step)
        value = step if probe.attrs["object"] == "step" else (self._state >> 11) * 2.0**-53
        if probe.reduce == "last":
            return value
        first = self._counts[index] == 0
        join = np.maximum if probe.reduce == "max" else np.add
        total = value if first else join(self._sums[index], value)
        count = self._counts[index] + 1
        self._sums[index], self._counts[index] = total, 0 if due else count
        return total / count if probe.reduce == "mean" else total

    def snapshot(self) -> object:
        return self.step, self._state, list(self._sums), list(self._counts)

    def restore(self, snapshot: object) -> None:
        self.step, self._state, sums, counts = snapshot
        self._sums, self._counts = list(sums), list(counts)

    def save_state(self) -> dict[str, np.ndarray]:
        sums = {f"sum{index}": np.asarray(total) for index, total in enumerate(self._sums)}
        numbers = {"step": np.array(self.step), "counts": np.array(self._counts)}
        return {"state": self._state, **numbers, **sums}

    def load_state(self, state) -> None:
        self.step, self._state = int(state["step"]), state["state"]
        self._counts = state["counts"].tolist()
        self._sums = [state[f"sum{index}"] for index in range(len(self.probes))]

    def can_fall_back(self) -> bool:
        return self.settings.fallback and self._limit is not None

    def fall_back(self) -> None:
        self._limit = None


def model_probes(model) -> list[tuple[str, str]]:
    """The probes that a model itself declares."""
    return list(getattr(model, "probes", []))


def write_model(folder: Path, n: int = 3, name: str = "model.py") -> None:
    """A model file whose function ``build(n)`` suits the toy."""
    (folder / name).write_text(
        "from types import SimpleNamespace\n\n\n"
        f"def build(n={n}):\n    return SimpleNamespace(n=n)\n"
    )


def install(folder: Path, entry_points: dict[str, str], name: str = "simrun-toy") -> Path:
    """Make a distribution, by its metadata alone; put ``folder`` on sys.path to install it."""
    info = folder / f"{name.replace('-', '_')}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    lines = [f"{key} = {value}" for key, value in entry_points.items()]
    (info / "entry_points.txt").write_text("\n".join(["[simrun]", *lines, ""]))
    return folder


@simrun.hookimpl
def simrun_adapters():
    return [AdapterEntry("toy", "counts in integers, for tests", ToyConfig, Toy)]
