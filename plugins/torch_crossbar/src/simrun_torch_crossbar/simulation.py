"""The live simulation that simrun's engine drives: a network of crossbars, sample by sample."""

from __future__ import annotations

import gc
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from simrun.adapter import OpenRequest, Simulation
from simrun.errors import ConfigError, SimulationError
from simrun.models import blame
from simrun.records import Chunk, MemoryEstimate, MemoryFailure, MemoryItem, ProbeBlock, ProbeSpec
from simrun.sampling import recorded_steps
from simrun.units import format_bytes, parse_steps
from simrun_torch_crossbar import footprint
from simrun_torch_crossbar.budget import layer_bytes, memtorch_bytes, solving_peak
from simrun_torch_crossbar.data import Source, as_tensor
from simrun_torch_crossbar.memory import plan_bytes
from simrun_torch_crossbar.metrics import Tally, is_classes
from simrun_torch_crossbar.patching import crossbars
from simrun_torch_crossbar.recording import Recorder
from simrun_torch_crossbar.settings import Probe, Settings
from simrun_torch_crossbar.solving import default_limit, out_of_memory
from simrun_torch_crossbar.tuning import calibrate, ideally, start_reads, tune

MEMTORCH_INPUTS = 4098
"""Random inputs that MemTorch tunes a layer with by default."""

LISTED = 8
"""Layers that the plan has a line for; of more, one line in all."""

UNITS = {"tile_currents": "A", "saturation": "conversions"}


@dataclass(frozen=True)
class Data:
    """Where samples come from: a name for messages, inputs, targets, what is tuned with."""

    name: str
    inputs: Source
    targets: Source | None
    calibration: Source

    @property
    def resident(self) -> int:
        """Bytes that are in memory."""
        sources = {id(x): x for x in (self.inputs, self.targets, self.calibration) if x is not None}
        return sum(source.resident for source in sources.values())


class CrossbarSimulation(Simulation):
    """A patched network and its data. A step is a sample.

    The tiles are solved, the converters calibrated and the layers tuned when the first chunk is
    executed. Samples are evaluated in micro-batches of a fixed size, each sample always at the
    same place of its micro-batch: what it gives is then the same, bit for bit, in any chunk.

    Parameters
    ----------
    network : nn.Module
        From `patch_model`, on its device.
    device : torch.device
    data : Data
    request : OpenRequest
    sources : tuple of Path
        The files that were read.
    """

    dt = None

    def __init__(
        self,
        network: nn.Module,
        device: torch.device,
        data: Data,
        request: OpenRequest,
        sources: tuple[Path, ...],
    ) -> None:
        self._network, self._data = network, data
        self._settings: Settings = request.settings
        self._budgets = (request.host_budget, request.device_budget)
        self._layers = crossbars(network)
        self._dtype = next(iter(self._layers.values())).ideal_weight.dtype
        self._size = self._settings.micro_batch
        self._move(device)
        self._prepared = False
        self._tally = Tally()
        self._classes = False
        self.step = 0
        self.alignment = self._size
        self.available = len(data.inputs), data.name
        self.sources = sources
        probes = request.probes or (Probe(name="output", object="output"),)
        keys = [f"probes.{k}" for k in range(len(probes))]
        self._recorder = Recorder(network, self._layers, probes, keys)
        self._inference, self._preparation = self._try_out()
        self.probes = tuple(map(self._spec, probes, keys))
        self._recorder.clear()
        for layer in self._layers.values():
            layer.forget()
        self.notes = tuple(self._describe())

    # -- the contract ----------------------------------------------------------------------

    def estimate_memory(self, steps: int) -> MemoryEstimate:
        """Formulas for weights, W and the solver (`budget`); a trial's peak for activations."""
        probes = [(f"probe {p.name}", p.bytes_per_step) for p in self.probes]
        samples = sum(per_step for _, per_step in probes) * steps
        held, passing = self._fit()
        items = [
            MemoryItem("conductances and weights", "device", self._network_bytes(), resident=True),
            MemoryItem("W of all tiles", "device", held, resident=self._prepared),
            MemoryItem(f"inference of {self._size} samples", "device", self._inference),
        ]
        if not self._prepared:
            # before there are samples: only what goes beyond them counts
            beyond = max(0, passing - self._inference - int(samples))
            items.append(MemoryItem("solver and tuning, beyond the rest", "device", beyond))
        if self._data.resident:
            items.append(MemoryItem("data", "host", self._data.resident, resident=True))
        items += [MemoryItem(name, "host", per_step=per_step) for name, per_step in probes]
        return MemoryEstimate(tuple(items), shared=self._device.type == "cpu")

    @torch.no_grad()
    def execute(self, chunk: Chunk) -> ProbeBlock:
        """Evaluate samples ``start + 1 … stop``, micro-batch by micro-batch."""
        self._prepare()
        steps = {p.name: recorded_steps(p.period, chunk.start, chunk.stop, chunk.end)
                 for p in self.probes}  # fmt: skip
        samples = {p.name: np.empty((len(steps[p.name]), *p.shape), p.dtype) for p in self.probes}
        for first in range(chunk.start // self._size * self._size, chunk.stop, self._size):
            start, stop = max(first, chunk.start), min(first + self._size, chunk.stop)
            self._evaluate(first, start, stop)
            for name, array in samples.items():
                here = (steps[name] > start) & (steps[name] <= stop)
                if here.any():
                    at = torch.from_numpy(steps[name][here] - 1 - first)
                    found = self._recorder.values(name, self._size)
                    array[here] = found[at.to(found.device)].cpu().numpy()
            self._recorder.clear()
        self.step = chunk.stop
        return ProbeBlock(chunk.start, chunk.stop, samples)

    def snapshot(self) -> object:
        """The step and the figures: nothing else changes from sample to sample."""
        return self.step, self._tally, self._classes

    def restore(self, snapshot: object) -> None:
        """Go back."""
        self.step, self._tally, self._classes = snapshot  # type: ignore[misc]

    def save_state(self) -> Mapping[str, np.ndarray[Any, Any]]:
        """The same, as arrays; W is solved anew by another process."""
        state = {key: np.array(value) for key, value in asdict(self._tally).items()}
        return state | {"step": np.array(self.step), "classes": np.array(self._classes)}

    def load_state(self, state: Mapping[str, np.ndarray[Any, Any]]) -> None:
        """Take up a saved state."""
        self.step, self._classes = int(state["step"]), bool(state["classes"])
        self._tally = Tally(**{key: state[key].item() for key in asdict(self._tally)})

    def memory_failure(self, error: BaseException) -> MemoryFailure | None:
        """Recognise torch's errors, of the CPU's allocator too."""
        if not out_of_memory(error):
            return None
        text = next(iter(str(error).splitlines()), "") or type(error).__name__
        found = re.search(r"allocate (\d+) bytes", text)
        on_device = isinstance(error, torch.OutOfMemoryError) or self._device.type == "cpu"
        return MemoryFailure(
            "device" if on_device else "host", text, int(found[1]) if found else None
        )

    def release(self) -> None:
        """Free caches; tiles not solved yet will be solved in smaller groups."""
        self._recorder.clear()
        if not self._prepared:
            self._set_limit(max(self._limit // 2, 1))
        gc.collect()
        if self._device.type == "cuda":
            torch.cuda.empty_cache()

    def can_fall_back(self) -> bool:
        """Whether it is on a GPU."""
        return self._device.type != "cpu"

    def fall_back(self) -> None:
        """Move to the CPU; the tiles are solved there again."""
        for layer in self._layers.values():
            layer.forget()
        self._network.to("cpu")
        torch.cuda.empty_cache()
        self._move(torch.device("cpu"))

    def reset_device_peak(self) -> None:
        """Of torch's allocator."""
        if self._device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self._device)

    def device_peak(self) -> int | None:
        """Of torch's allocator; None on a CPU."""
        if self._device.type != "cuda":
            return None
        return int(torch.cuda.max_memory_allocated(self._device))

    def metrics(self) -> Mapping[str, float]:
        """Accuracy where there are targets, and the error to the ideal network."""
        return self._tally.figures(
            self._classes, self._data.targets is not None, self._settings.compare
        )

    def provenance(self) -> Mapping[str, Any]:
        """Versions, and the threads, which the last bits of products may depend on."""
        return {"torch": torch.__version__, "torch threads": torch.get_num_threads()}

    def close(self) -> None:
        """Free everything."""
        self._network, self._layers = nn.Identity(), {}
        self.release()

    # -- evaluation ------------------------------------------------------------------------

    def _evaluate(self, first: int, start: int, stop: int) -> None:
        """Run the micro-batch that begins at sample ``first``; count samples start to stop."""
        read = self._data.inputs.read(start, stop)
        some = as_tensor(read, self._dtype)
        x = some.new_zeros(self._size, *some.shape[1:])
        x[start - first : stop - first] = some  # what the other places hold changes no bit
        if some.is_floating_point() and not bool(torch.isfinite(some).all()):
            at = start + int((~torch.isfinite(some)).flatten(1).any(1).nonzero()[0])
            raise SimulationError(f"{self._data.name}: sample {at} isn't finite", "mend the data")
        y, ideal = self._outputs(x.to(self._device), first)
        if isinstance(y, torch.Tensor) and y.ndim and len(y) == self._size:
            here = slice(start - first, stop - first)
            targets = self._data.targets
            target = None if targets is None else targets.read(start, stop)
            if target is not None:
                self._classes = self._check_target(target, y)
            self._tally = self._tally.add(y[here], None if ideal is None else ideal[here], target)

    def _outputs(self, x: torch.Tensor, first: int) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Outputs of the crossbars, and of the ideal network, which runs before them."""
        ideal = None
        with _explained(x):
            if self._settings.compare:
                with ideally(self._network):
                    ideal = self._network(x)
            start_reads(self._network, first)
            return self._network(x), ideal

    def _check_target(self, target: np.ndarray[Any, Any], y: torch.Tensor) -> bool:
        classes = is_classes(target, tuple(y.shape))
        if not classes and target.shape[1:] != tuple(y.shape[1:]):
            raise ConfigError(
                f"torch_crossbar.targets: {target.dtype} of shape {target.shape[1:]} for outputs"
                f" of shape {tuple(y.shape[1:])}",
                "give the numbers of classes, or outputs as they are wanted",
            )
        if classes and (target.min() < 0 or target.max() >= y.shape[1]):
            bad = target[(target < 0) | (target >= y.shape[1])][0]
            raise ConfigError(
                f"torch_crossbar.targets: class {bad}, and the network has {y.shape[1]} outputs"
            )
        return classes

    # -- before the first chunk ------------------------------------------------------------

    def _prepare(self) -> None:
        """Solve all tiles, calibrate, tune."""
        if self._prepared:
            return
        for layer in self._layers.values():
            layer.solve()
        count = min(self._settings.calibration_samples, len(self._data.calibration))
        found = self._data.calibration.read(0, count)
        self._fit_to(as_tensor(found, self._dtype).to(self._device))
        self._prepared = True

    def _fit_to(self, x: torch.Tensor) -> None:
        with _explained(x):
            calibrate(self._network, x, self._size)
            if self._settings.tune != "none":
                tune(self._network, x, per=self._settings.tune, batch=self._size)

    @torch.no_grad()
    def _try_out(self) -> tuple[int, int]:
        """Bytes that a micro-batch takes, and that tuning takes; with zeros for W and inputs."""
        layers = self._layers.values()
        fitted = [x for layer in layers for x in (layer.gain, layer.offset)]
        fitted += [x for layer in layers for x in (layer.input_range, layer.adc_range)]
        before = [x.clone() for x in fitted]
        for layer in layers:
            layer.pretend()
        sample = as_tensor(self._data.inputs.read(0, 1), self._dtype)
        zeros = sample.new_zeros(self._size, *sample.shape[1:]).to(self._device)

        def once() -> None:
            self._outputs(zeros, 0)
            for name in self._recorder.names:
                self._recorder.values(name, self._size)

        try:
            preparation = footprint.peak_of(lambda: self._fit_to(zeros), self._device)
            return footprint.peak_of(once, self._device), preparation
        finally:
            for x, value in zip(fitted, before, strict=True):
                x.copy_(value)

    def _fit(self) -> tuple[int, int]:
        """Shrink the solver's groups until they fit the budget.

        Returns
        -------
        held, passing : int
            Bytes of W in the end, and of what solving and tuning take for a while beside it.
        """
        weights, there = self._network_bytes(), 0
        if self._device.type == "cpu":
            there = max(footprint.resident() - weights, 0)  # the process itself
        budget = self._budget()
        limit = default_limit(self._device.type)
        while True:
            held, peak = solving_peak(layer_bytes(x, limit) for x in self._layers.values())
            if budget is None or limit == 1 or there + weights + peak <= budget:
                break
            limit //= 2
        self._set_limit(limit)
        shapes = {s for x in self._layers.values() for s, _ in x.grid.by_shape()}
        plans = sum(plan_bytes(*shape) for shape in shapes)
        return held, plans + max(peak - held, self._preparation + self._calibration_bytes())

    def _calibration_bytes(self) -> int:
        """Of the samples to tune with: as they are read, and as the network takes them."""
        read = self._data.calibration.read(0, 1)
        count = min(self._settings.calibration_samples, len(self._data.calibration))
        return count * (read.nbytes + as_tensor(read, self._dtype).nbytes)

    def _budget(self) -> int | None:
        host, device = self._budgets
        given = (host, device) if self._device.type == "cpu" else (device,)
        return min((x for x in given if x is not None), default=None)

    def _set_limit(self, limit: int) -> None:
        self._limit = limit
        for layer in self._layers.values():
            layer.group_limit = limit

    def _move(self, device: torch.device) -> None:
        self._device = device
        self.device = "CPU" if device.type == "cpu" else f"GPU:{device.index}"
        self._set_limit(default_limit(device.type))

    def _network_bytes(self) -> int:
        tensors = [*self._network.parameters(), *self._network.buffers()]
        return sum(x.nbytes for x in tensors)

    def _spec(self, probe: Probe, key: str) -> ProbeSpec:
        found = self._recorder.values(probe.name, self._size)
        try:
            period = parse_steps(probe.sample_every, None)
        except ValueError as error:
            raise ConfigError(f"{key}.sample_every: {error}") from None
        attribute = probe.attribute or "output"
        attrs = {"object": probe.object, "attribute": attribute}
        if attribute in UNITS:
            attrs["units"] = UNITS[attribute]
        if probe.format != "dense":
            attrs["format"] = probe.format
        shape = tuple(found.shape[1:])
        dtype = np.dtype(str(found.dtype).removeprefix("torch."))
        dims = self._recorder.dims(probe.name, len(shape))
        return ProbeSpec(probe.name, shape, dtype, dims, period, "last", attrs)

    def _describe(self) -> Iterator[str]:
        layers = [layer_bytes(x, self._limit) for x in self._layers.values()]
        if len(layers) <= LISTED:
            for layer in layers:
                m, n = layer.tile
                yield (
                    f"{layer.name or 'the model'}: {layer.tiles} tiles of up to {m} x {n}, solved"
                    f" in groups of up to {layer.together}; W {format_bytes(layer.kept)}"
                )
        else:
            yield f"{len(layers)} layers on {sum(layer.tiles for layer in layers):,} tiles"
        if any(any(x.config.ohms) for x in self._layers.values()):
            old, new = memtorch_bytes(self._layers.values(), MEMTORCH_INPUTS)
            yield (
                f"MemTorch's first passive kernel would ask for {format_bytes(old)} to tune its"
                f" largest layer with {MEMTORCH_INPUTS} inputs, one that keeps a matrix a tile for"
                f" {format_bytes(new)}"
            )


@contextmanager
def _explained(x: torch.Tensor) -> Iterator[None]:
    """What the network's code raises becomes an error for the user; out-of-memory stays."""
    try:
        yield
    except Exception as error:
        if out_of_memory(error):
            raise
        raise SimulationError(
            blame(f"the network, given inputs of shape {tuple(x.shape)},", error)
        ) from error
