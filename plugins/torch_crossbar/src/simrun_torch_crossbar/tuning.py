"""What is fitted to data before a network of crossbars is used: converters' ranges, gain, offset.

Both are one pass over the data in pieces of equal size, in which each layer hands on the outputs
of the ideal layer: what one layer learns doesn't depend on the others, nor on the pieces.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal

import torch
from torch import nn

from simrun_torch_crossbar import converters, devices
from simrun_torch_crossbar.linear_map import CrossbarLayer
from simrun_torch_crossbar.patching import crossbars

RANDOM_INPUTS = 1024
"""Random inputs that a layer is tuned with where no data are given."""

AT_ONCE = 1 << 17
"""Outputs that are added up at once, in float64."""


@torch.no_grad()
def calibrate(model: nn.Module, inputs: torch.Tensor, batch: int = 64) -> None:
    """Find the ranges of all converters that are to be `calibrated`.

    A DAC's is the largest input; an ADC's the currents' quantile that its ``overflow`` leaves,
    rounded up by at most 1.6 %.

    Parameters
    ----------
    model : nn.Module
        From `patch_model`.
    inputs : Tensor, shape (samples, ...)
    batch : int
        Samples taken at once; memory, not the result, depends on it.
    """
    check_inputs(inputs)
    largest: dict[CrossbarLayer, torch.Tensor] = {}

    def see_inputs(layer: CrossbarLayer, x: torch.Tensor) -> None:
        seen = x.abs().max()
        largest[layer] = torch.maximum(largest[layer], seen) if layer in largest else seen

    layers = crossbars(model).values()
    if any(layer.config.dac.range == "calibrated" for layer in layers):
        _observe(model, inputs, batch, see_inputs)
        for layer, value in largest.items():
            if layer.config.dac.range == "calibrated":
                layer.input_range.copy_(value)

    counts: dict[CrossbarLayer, torch.Tensor] = {}

    def see_currents(layer: CrossbarLayer, x: torch.Tensor) -> None:
        if layer not in counts:
            shape = (*layer.adc_range.shape, converters.BINS)
            counts[layer] = torch.zeros(shape, dtype=torch.int64, device=x.device)
        layer.solve()
        volts, _ = layer.volts(layer._batched(x))
        for row, current in layer.currents(volts):
            for k, columns in enumerate(layer.grid.columns):
                size = current[..., columns].abs().flatten(2)
                counts[layer][row, :, :, k] += converters.histogram(size)

    chosen = [x for x in layers if x.config.adc.bits and x.config.adc.range == "calibrated"]
    if chosen:
        _observe(model, inputs, batch, lambda layer, x: layer in chosen and see_currents(layer, x))
        for layer, found in counts.items():
            layer.adc_range.copy_(converters.quantile(found, layer.config.adc.overflow))


@torch.no_grad()
def tune(
    model: nn.Module,
    inputs: torch.Tensor | None = None,
    *,
    per: Literal["column", "layer"] = "column",
    batch: int = 64,
) -> None:
    """Fit gain and offset that carry the crossbars' outputs to the ideal ones.

    Least squares over all samples and positions. Without ``inputs`` each layer is fitted for
    uncorrelated inputs of mean 0: in closed form from W where that is exact, else with random
    inputs through its converters.

    Parameters
    ----------
    model : nn.Module
        From `patch_model`.
    inputs : Tensor, shape (samples, ...), optional
        The model's.
    per : {"column", "layer"}
        A gain and an offset for each output (of a convolution: channel), or one pair for all.
    batch : int
        Samples taken at once; memory depends on it.
    """
    if per not in ("column", "layer"):
        raise ValueError(f"per = {per!r}: 'column' or 'layer' is needed")
    layers = crossbars(model)
    if inputs is None:
        for layer in layers.values():
            _tune_alone(layer, per)
        return
    check_inputs(inputs)
    sums: dict[CrossbarLayer, Sums] = {layer: Sums() for layer in layers.values()}
    _observe(model, inputs, batch, lambda layer, x: _add(sums[layer], layer, x, per))
    for layer, found in sums.items():
        if found.count:
            _store(layer, *found.fit())


def best_gain(
    found: torch.Tensor, wanted: torch.Tensor, covariance: torch.Tensor | None = None
) -> torch.Tensor:
    """The gain, for each column, that makes ``found`` most like ``wanted``; no offset.

    Parameters
    ----------
    found, wanted : Tensor, shape (m, n)
        Matrices that inputs (1, m) are multiplied by.
    covariance : Tensor, shape (m, m), optional
        Of the inputs, about 0; left out: the identity.

    Returns
    -------
    Tensor, shape (n,), float64
        1 for columns of zeros.
    """
    v, w = found.double(), wanted.double()
    seen = v if covariance is None else covariance.double() @ v
    power = (seen * v).sum(0)
    return torch.where(power > 0, (seen * w).sum(0) / torch.where(power > 0, power, 1.0), 1.0)


class Sums:
    """Sums from which a straight line is fitted for each column; in float64."""

    def __init__(self) -> None:
        self.count = 0
        self._first: torch.Tensor | None = None
        self._sums: torch.Tensor | None = None

    def add(self, found: torch.Tensor, wanted: torch.Tensor, together: bool) -> None:
        """Take in values of shape (rows, columns); ``together``: as of one column."""
        pair = torch.stack([found, wanted]).double()
        pair = pair.reshape(2, -1, 1) if together else pair
        if self._first is None:
            # about the first row, so that little is lost when squares of means are subtracted
            self._first = pair[:, :1].clone()
        x, y = pair - self._first
        new = torch.stack([x.sum(0), y.sum(0), (x * x).sum(0), (x * y).sum(0)])
        self._sums = new if self._sums is None else self._sums + new
        self.count += x.shape[0]

    def fit(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Gain and offset of each column; a column that never varies keeps gain 1."""
        x, y, xx, xy = self._sums / self.count
        variance, covariance = xx - x * x, xy - x * y
        least = 1e-14 * xx  # rounding
        gain = torch.where(variance > least, covariance / torch.where(variance > 0, variance, 1), 1)
        first_x, first_y = self._first[:, 0]
        return gain, first_y + y - gain * (first_x + x)


def check_inputs(inputs: torch.Tensor) -> None:
    """Refuse inputs of no samples, or that aren't finite."""
    if not isinstance(inputs, torch.Tensor) or inputs.ndim == 0 or len(inputs) == 0:
        found = tuple(inputs.shape) if isinstance(inputs, torch.Tensor) else type(inputs).__name__
        raise ValueError(f"inputs: {found}; a tensor of one or more samples is needed")
    if inputs.is_floating_point() and not bool(torch.isfinite(inputs).all()):
        at = tuple((~torch.isfinite(inputs)).nonzero()[0].tolist())
        raise ValueError(f"inputs{list(at)} = {inputs[at].item()}: they must be finite")


def _tune_alone(layer: CrossbarLayer, per: str) -> None:
    """Fit one layer for uncorrelated inputs of mean 0."""
    config = layer.config
    if not config.tilewise and config.dac.bits is None:
        layer.solve()
        found, wanted = layer._effective.flatten(1).T, layer.ideal_weight.flatten(1).T
        if per == "layer":
            found, wanted = found.reshape(-1, 1), wanted.reshape(-1, 1)
        gain = best_gain(found, wanted)
        _store(layer, gain, torch.zeros_like(gain))
        return
    # a layer's rows alone: of a convolution one window, which it takes at one place
    generator = devices.stream(config.seed, layer.name, "tune")
    x = torch.randn(RANDOM_INPUTS, *layer.sample_shape, generator=generator)
    x = x.to(layer.ideal_weight)
    full = layer.full_scale(x)
    if config.dac.bits is not None:
        x = x * full / 3  # three deviations: one in 400 is clipped
    sums = Sums()
    _add(sums, layer, x, per)
    _store(layer, *sums.fit())


def _add(sums: Sums, layer: CrossbarLayer, x: torch.Tensor, per: str) -> None:
    """Take in the crossbar's outputs, uncorrected, and the ideal layer's, a few at a time."""
    found, wanted = layer.raw(x), layer.ideal(x)
    few = max(1, AT_ONCE // found[0].numel())
    for y, z in zip(found.split(few), wanted.split(few), strict=True):
        sums.add(layer.by_column(y), layer.by_column(z), per == "layer")


def _store(layer: CrossbarLayer, gain: torch.Tensor, offset: torch.Tensor) -> None:
    layer.gain.copy_(gain.expand(len(layer.gain)))
    layer.offset.copy_(offset.expand(len(layer.offset)))


def _observe(
    model: nn.Module,
    inputs: torch.Tensor,
    batch: int,
    see: Callable[[CrossbarLayer, torch.Tensor], object],
) -> None:
    """Show each layer's inputs to ``see``, while the layers compute what the ideal ones would."""
    with _evaluating(model), ideally(model, see):
        for first in range(0, len(inputs), batch):
            start_reads(model, first)
            model(inputs[first : first + batch])


@contextmanager
def ideally(
    model: nn.Module,
    see: Callable[[CrossbarLayer, torch.Tensor], object] = lambda layer, x: None,
) -> Iterator[None]:
    """For a while the layers compute what those that they replaced would.

    Parameters
    ----------
    model : nn.Module
        From `patch_model`.
    see : callable
        Called with each layer and its inputs.
    """

    def observer(layer: CrossbarLayer, x: torch.Tensor) -> torch.Tensor:
        see(layer, x)
        y = layer.ideal(x)
        return y if layer.bias is None else y + layer._per_output(layer.bias)

    layers = crossbars(model).values()
    try:
        for layer in layers:
            layer.observer = observer
        yield
    finally:
        for layer in layers:
            layer.observer = None


def start_reads(model: nn.Module, first: int) -> None:
    """Say which sample the next forward pass begins with: read noise is a function of it."""
    for layer in crossbars(model).values():
        layer.reads.start(first)


@contextmanager
def _evaluating(model: nn.Module) -> Iterator[None]:
    """In evaluation mode for a while."""
    before = {module: module.training for module in model.modules()}
    model.eval()
    try:
        yield
    finally:
        for module, training in before.items():
            module.training = training
