"""A linear map whose weights are crossbars, whatever its inputs look like.

A layer solves its tiles once, at its first forward pass. Without ADC and read noise its inference
is then the plain layer's product, with another matrix. Otherwise each tile's currents pass noise
and ADC before the partial sums are added. What a sample gives doesn't depend on the samples
beside it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import nn

from simrun_torch_crossbar import converters, devices
from simrun_torch_crossbar.config import CrossbarConfig
from simrun_torch_crossbar.mapping import (
    Grid,
    fractions,
    largest,
    matrices,
    ohms_per_weight,
    weights,
)
from simrun_torch_crossbar.solving import solve_tiles

PRECISION = {"float32": torch.float32, "float64": torch.float64}


class Reads:
    """Which samples are read: read noise is a function of it. One for all layers of a model."""

    def __init__(self) -> None:
        self.start(0)

    def start(self, first: int) -> None:
        """The next forward pass is of samples ``first``, ``first + 1`` …"""
        self.first = first
        self._calls: dict[str, int] = {}

    def call(self, layer: str) -> int:
        """How often the layer has read these samples before, as those of a recurrent net do."""
        self._calls[layer] = self._calls.get(layer, -1) + 1
        return self._calls[layer]


@dataclass(frozen=True)
class TileCurrents:
    """What a row of tiles did in a forward pass; handed to a layer's ``watch``.

    Parameters
    ----------
    row : int
        Which row of tiles.
    currents : Tensor, shape (crossbars, groups, samples, positions, grid.width)
        In amperes, before the ADC, with read noise.
    saturated : Tensor of bool, same shape, or None
        Which were beyond the ADC's range; None without ADC.
    """

    row: int
    currents: torch.Tensor
    saturated: torch.Tensor | None


class CrossbarLayer(nn.Module, ABC):
    """A linear map on crossbars. Its parts say how inputs become rows of a matrix product.

    Parameters
    ----------
    layer : nn.Module
        The layer whose weights are programmed; its bias stays digital.
    config : CrossbarConfig
    name : str
        With the config's seed, the key of all random draws.
    groups : int
        Independent matrices that the weights hold.
    reads : Reads, optional

    Attributes
    ----------
    conductances : Tensor, shape (crossbars, groups, m, grid.width)
        In siemens, of the weights' dtype. When they are changed in place (or loaded), the next
        forward pass solves again.
    ideal_weight : Tensor
        The plain layer's.
    gain, offset : Tensor, shape (out,)
        Digital correction of the outputs, as `tune` finds it.
    input_range : Tensor, 0-d
        Input that v_max stands for; NaN until it is known.
    adc_range : Tensor, shape (rows of tiles, crossbars, groups, columns of tiles)
        In amperes; NaN until known.
    """

    #: Called with this layer's `TileCurrents`, a row of tiles at a time.
    watch: Callable[[TileCurrents], None] | None = None
    #: Called with (layer, inputs) in place of the forward pass; for calibration and tuning.
    observer: Callable[[CrossbarLayer, torch.Tensor], torch.Tensor] | None = None
    #: Bytes that a group of tiles may take while it is solved; None: the solver's default.
    group_limit: int | None = None

    def __init__(
        self,
        layer: nn.Module,
        config: CrossbarConfig,
        name: str,
        groups: int = 1,
        reads: Reads | None = None,
    ) -> None:
        super().__init__()
        self.config, self.name, self.groups = config, name, groups
        self.reads = reads or Reads()
        weight = layer.weight.detach().clone()
        matrix = matrices(weight, groups)
        self.grid = Grid(*matrix.shape[1:], config.tile, config.mapping == "single")
        scale = largest(weight, config.quantile)
        G = devices.program(fractions(matrix, self.grid, scale), config, name)
        bias = None if layer.bias is None else layer.bias.detach().clone()
        self.register_buffer("ideal_weight", weight)
        self.register_buffer("bias", bias)
        self.register_buffer("conductances", G)
        self.register_buffer("weight_per_siemens", G.new_tensor(ohms_per_weight(config, scale)))
        self.register_buffer("gain", weight.new_ones(len(weight)))
        self.register_buffer("offset", weight.new_zeros(len(weight)))
        self.register_buffer("input_range", _given(config.dac.range, G.new_empty(())))
        shape = (len(self.grid.rows), *G.shape[:2], len(self.grid.columns))
        self.register_buffer("adc_range", _given(config.adc.range, G.new_empty(shape)))
        self.train(layer.training)
        self._transfer: torch.Tensor | None = None
        self._effective: torch.Tensor | None = None
        self._made_from: object = None

    # -- W ---------------------------------------------------------------------------------

    @torch.no_grad()
    def solve(self) -> None:
        """Solve all tiles, unless it is done and the conductances are still the same."""
        G = self.conductances
        made_from = (G._version, G.data_ptr(), G.dtype, G.device)
        by_tiles, at_once = self.config.tilewise or self.watch is not None, not self.config.tilewise
        if made_from == self._made_from and not (
            (by_tiles and self._transfer is None) or (at_once and self._effective is None)
        ):
            return
        self.forget()  # before the new one is made
        W = solve_tiles(
            G,
            self.grid,
            self.config.ohms,
            PRECISION[self.config.precision],
            self.group_limit,
        )
        self._effective = self.effective(W) if at_once else None
        self._transfer = W if by_tiles else None
        self._made_from = made_from

    def effective(self, W: torch.Tensor) -> torch.Tensor:
        """The weights that W amounts to, without converters, gain and offset."""
        return weights(self.grid.combine(W).mul_(self.weight_per_siemens), self.ideal_weight.shape)

    def pretend(self) -> None:
        """Take zeros for W, as if solved: to see what inference takes, before the solver works."""
        G, weight = self.conductances, self.ideal_weight
        by_tiles, at_once = self.config.tilewise or self.watch is not None, not self.config.tilewise
        # calloc: not a page of it is there until it is written
        self._transfer = torch.zeros_like(G) if by_tiles else None
        self._effective = torch.zeros_like(weight) if at_once else None
        self._made_from = (G._version, G.data_ptr(), G.dtype, G.device)

    def forget(self) -> None:
        """Give the memory of W back; the next forward pass solves again."""
        self._transfer = self._effective = None

    # -- forward ---------------------------------------------------------------------------

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """As the plain layer's."""
        if self.observer is not None:
            return self.observer(self, x)
        return self.corrected(self.raw(x))

    def raw(self, x: torch.Tensor) -> torch.Tensor:
        """Outputs before gain, offset and bias."""
        self.solve()
        if self.config.tilewise:
            return self._shaped(self._through_tiles(self._batched(x)), x)
        if self.watch is not None:
            # on the side: outputs are the same, bit for bit, whether currents are watched or not
            volts, _ = self.volts(self._batched(x))
            for row, current in self.currents(volts):
                self.watch(TileCurrents(row, current, None))
        return self._product(self._drive(x), self._effective)

    def ideal(self, x: torch.Tensor) -> torch.Tensor:
        """Outputs of the plain layer, without bias."""
        return self._product(x, self.ideal_weight)

    def corrected(self, y: torch.Tensor) -> torch.Tensor:
        """Outputs with gain, offset and bias."""
        shift = self.offset if self.bias is None else self.offset + self.bias
        return torch.addcmul(self._per_output(shift), y, self._per_output(self.gain))

    def full_scale(self, x: torch.Tensor) -> torch.Tensor:
        """The input that v_max stands for: one, or one for each sample."""
        if self.config.dac.range == "sample":
            return x.detach().abs().flatten(1).amax(1).reshape(-1, *[1] * (x.ndim - 1))
        if torch.isnan(self.input_range):
            if self.config.dac.bits is not None:
                raise RuntimeError(
                    f"{self.name}: the DAC's range isn't known; call calibrate(model, inputs), or"
                    " give dac.range a number or 'sample'"
                )
            return torch.ones_like(self.input_range)
        return self.input_range

    def _drive(self, x: torch.Tensor) -> torch.Tensor:
        """Inputs as the DAC makes them, still in units of x."""
        bits = self.config.dac.bits
        if bits is None:
            return x
        samples = self._batched(x)
        return converters.linear(samples, bits, self.full_scale(samples)).reshape(x.shape)

    def volts(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """What the DAC puts on the word lines.

        Parameters
        ----------
        x : Tensor
            Inputs with an axis of samples.

        Returns
        -------
        volts : Tensor, shape (groups, samples, positions, m)
        unit : Tensor, 0-d or one for each sample
            Input that one volt stands for.
        """
        bits, full = self.config.dac.bits, self.full_scale(x)
        x = x if bits is None else converters.linear(x, bits, full)
        unit = torch.where(full > 0, full, torch.ones_like(full)) / self.config.dac.v_max
        return self._rows(x / unit), unit

    def currents(self, volts: torch.Tensor) -> Iterator[tuple[int, torch.Tensor]]:
        """The currents of each row of tiles, with read noise, as they reach the ADC.

        Parameters
        ----------
        volts : Tensor
            As `volts` gives them.

        Yields
        ------
        row : int
        current : Tensor, shape (crossbars, groups, samples, positions, grid.width)
            In amperes.
        """
        groups, samples, positions, _ = volts.shape
        call = self.reads.call(self.name)
        for row, rows in enumerate(self.grid.rows):
            V = volts[..., rows].reshape(groups, samples * positions, -1)
            W = self._transfer[:, :, rows]
            current = V @ W
            current = current.unflatten(2, (samples, positions))
            if self.config.read_noise:
                current = current.add_(self._noise(V, W, (row, call), current))
            yield row, current

    def _through_tiles(self, x: torch.Tensor) -> torch.Tensor:
        """Outputs (samples, positions, out) by way of each tile's converted currents."""
        total = None
        volts, unit = self.volts(x)
        for row, current in self.currents(volts):
            converted = self._convert(current, row)
            total = converted if total is None else total.add_(converted)
        y = self.grid.combine(total).mul_(self.weight_per_siemens)
        y = y.movedim(0, 2).flatten(2)  # groups, then their outputs
        return y * unit.reshape(-1, 1, 1)

    def _noise(
        self, V: torch.Tensor, W: torch.Tensor, which: tuple[int, int], like: torch.Tensor
    ) -> torch.Tensor:
        """Noise currents: each device's contribution varies on its own, relative to itself."""
        deviation = (V.square() @ W.square()).sqrt_().mul_(self.config.read_noise)
        shape = (*like.shape[:2], *like.shape[3:])
        normal = [
            torch.randn(
                shape,
                generator=devices.stream(self.config.seed, self.name, "read", *which, sample),
                dtype=like.dtype,
            )
            for sample in range(self.reads.first, self.reads.first + like.shape[2])
        ]
        return deviation.reshape(like.shape) * torch.stack(normal, 2).to(like.device)

    def _convert(self, current: torch.Tensor, row: int) -> torch.Tensor:
        """Currents of a row of tiles as their ADCs report them."""
        adc, saturated = self.config.adc, None
        if adc.bits is None:
            found = current
        else:
            found = torch.empty_like(current)
            saturated = torch.empty_like(current, dtype=torch.bool) if self.watch else None
            for k, columns in enumerate(self.grid.columns):
                part = current[..., columns]
                full = self._adc_full(part, row, k)
                if saturated is not None:
                    saturated[..., columns] = part.abs() > full
                found[..., columns] = (
                    converters.linear(part, adc.bits, full)
                    if adc.scale == "linear"
                    else converters.logarithmic(part, adc.bits, full, adc.decades)
                )
        if self.watch is not None:
            self.watch(TileCurrents(row, current, saturated))
        return found

    def _adc_full(self, part: torch.Tensor, row: int, column: int) -> torch.Tensor:
        if self.config.adc.range == "sample":
            size = part.abs().flatten(3)  # crossbars, groups, samples, values
            return converters.largest_but(size, self.config.adc.overflow)[..., None, None]
        full = self.adc_range[row, :, :, column]
        if bool(torch.isnan(full).any()):
            raise RuntimeError(
                f"{self.name}: the ADC's range isn't known; call calibrate(model, inputs), or give"
                " adc.range a number or 'sample'"
            )
        return full[..., None, None, None]

    # -- what the kind of layer decides ----------------------------------------------------

    @abstractmethod
    def _product(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        """The plain layer without bias."""

    @abstractmethod
    def _batched(self, x: torch.Tensor) -> torch.Tensor:
        """The same with an axis of samples first."""

    @abstractmethod
    def _rows(self, x: torch.Tensor) -> torch.Tensor:
        """Batched inputs as (groups, samples, positions, m): a row for each matrix product."""

    @abstractmethod
    def _shaped(self, y: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        """(samples, positions, out) as the plain layer would shape it for inputs x."""

    @abstractmethod
    def _per_output(self, values: torch.Tensor) -> torch.Tensor:
        """Values (out,) so that they broadcast with outputs."""

    @abstractmethod
    def by_column(self, y: torch.Tensor) -> torch.Tensor:
        """Outputs as (rows, out)."""

    @property
    @abstractmethod
    def sample_shape(self) -> tuple[int, ...]:
        """Shape of the smallest input: one row of the matrix product for each group."""

    def extra_repr(self) -> str:
        """Shown by print."""
        grid = self.grid
        return (
            f"{self.config.mapping} column, {self.groups} x {grid.tiles} tiles of up to"
            f" {self.config.tile[0]} x {self.config.tile[1]}"
        )


def _given(value: float | str, like: torch.Tensor) -> torch.Tensor:
    return like.fill_(float("nan") if isinstance(value, str) else value)
