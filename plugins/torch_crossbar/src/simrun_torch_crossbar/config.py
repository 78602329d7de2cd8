"""What a crossbar is like: `CrossbarConfig`. Pure settings, validated; imports no torch."""

from __future__ import annotations

import math
from typing import Annotated, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    NonNegativeFloat,
    PositiveFloat,
    PositiveInt,
    model_validator,
)


def _finite(value: float) -> float:
    if not math.isfinite(value):
        raise ValueError(f"{value} isn't finite")
    return value


Ohm = Annotated[float, Field(ge=0), AfterValidator(_finite)]
Positive = Annotated[float, Field(gt=0), AfterValidator(_finite)]
Rate = Annotated[float, Field(ge=0, le=1)]


class _Settings(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Spread(_Settings):
    """A resistance that differs from device to device."""

    mean: Positive = Field(description="Mean (normal) or median (lognormal), in ohm.")
    std: NonNegativeFloat = Field(
        description="Standard deviation: in ohm (normal), or of the logarithm (lognormal)."
    )
    distribution: Literal["normal", "lognormal"] = "normal"


class Converter(_Settings):
    """What every converter has: bits and a range."""

    bits: int | None = Field(None, ge=1, le=24, description="Resolution; left out: exact.")
    range: Positive | Literal["calibrated", "sample"] = Field(
        "calibrated",
        description="Full scale: a number, found once by `calibrate`, or anew for each sample.",
    )


class DAC(Converter):
    """Inputs to voltages: x = range is driven by v_max; what is beyond is clipped."""

    v_max: Positive = Field(0.2, description="Volts at full scale.")


class ADC(Converter):
    """A tile's currents to numbers; a range of its own for each tile, in amperes if given."""

    overflow: float = Field(
        0.0, ge=0, lt=1, description="Share of the currents that the range may leave out."
    )
    scale: Literal["linear", "log"] = "linear"
    decades: PositiveFloat = Field(3.0, description="Span of a logarithmic converter.")


class Variability(_Settings):
    """Each device's conductance is its target times a factor of its own."""

    distribution: Literal["normal", "lognormal", "samples"] = "lognormal"
    sigma: NonNegativeFloat = Field(
        0.0, description="Standard deviation of the factor (normal) or of its logarithm."
    )
    samples: tuple[NonNegativeFloat, ...] = Field(
        (), description="Measured factors, drawn from with equal chances."
    )

    @model_validator(mode="after")
    def _fits(self) -> Variability:
        if (self.distribution == "samples") != bool(self.samples):
            raise ValueError(f"samples: {len(self.samples)} given, {self.distribution=!s}")
        return self


class Stuck(_Settings):
    """Shares of the devices that are stuck, whatever they were programmed to."""

    r_on: Rate = Field(0.0, description="At r_on.")
    r_off: Rate = Field(0.0, description="At r_off.")
    open: Rate = Field(0.0, description="At no conductance.")

    @model_validator(mode="after")
    def _fits(self) -> Stuck:
        total = self.r_on + self.r_off + self.open
        if total > 1:
            raise ValueError(f"r_on + r_off + open = {total}: more than all")
        return self


class Drift(_Settings):
    """G(t) = G(t0) (t / t0) ** -exponent, the exponent drawn for each device."""

    time: Positive = Field(description="Seconds since programming.")
    t0: Positive = Field(1.0, description="Seconds after programming at which G was read.")
    exponent: NonNegativeFloat = Field(description="Mean.")
    sigma: NonNegativeFloat = Field(0.0, description="Standard deviation; clipped at 0.")


class CrossbarConfig(_Settings):
    """What the crossbars are like. Resistances in ohm, voltages in volts, times in seconds.

    Non-idealities act in this order: finite ``levels``; the device's own ``r_on`` and ``r_off``;
    ``variability``; ``drift``; ``stuck``; then, at each read, ``read_noise`` and the converters.
    Each has a random stream of its own, fixed by ``seed``, the layer's name and its own name, so
    that switching one on leaves the others' draws alone.
    """

    tile: tuple[PositiveInt, PositiveInt] = Field(
        (128, 128), description="Rows and columns of devices; the last tiles may be smaller."
    )
    mapping: Literal["double", "single"] = Field(
        "double",
        description="`double`: positive and negative parts in two crossbars; `single`: shifted "
        "weights, with a reference column in each tile.",
    )
    r_on: Positive | Spread = 1e4
    r_off: Positive | Spread = 1e6
    quantile: float = Field(
        1.0, gt=0, le=1, description="Of |w|, that 1 / r_on stands for; larger ones are clipped."
    )
    source_resistance: Ohm = Field(0.0, description="Of drivers, and of senses.")
    line_resistance: Ohm = Field(0.0, description="Between neighbours, of both kinds of lines.")
    resistances: tuple[Ohm, Ohm, Ohm, Ohm] | None = Field(
        None, description="Or all four: source, word line, bit line, sense."
    )
    dac: DAC = DAC()
    adc: ADC = ADC()
    levels: int | None = Field(None, ge=2, description="Conductances a device can take.")
    variability: Variability | None = None
    drift: Drift | None = None
    stuck: Stuck | None = None
    read_noise: NonNegativeFloat = Field(
        0.0, description="Standard deviation of a device's contribution to a read, relative."
    )
    precision: Literal["float64", "float32"] = Field("float64", description="Of the solver.")
    seed: int = Field(0, ge=0, lt=2**63)

    @model_validator(mode="after")
    def _fits(self) -> CrossbarConfig:
        on, off = nominal(self.r_on), nominal(self.r_off)
        if on >= off:
            raise ValueError(f"r_on = {on:g} ohm must be below r_off = {off:g} ohm")
        if self.mapping == "single" and self.tile[1] < 2:
            raise ValueError(
                f"tile = {list(self.tile)}: single columns need 2 or more, one is the reference"
            )
        if self.resistances is not None and (self.source_resistance or self.line_resistance):
            raise ValueError("resistances: given beside source_resistance or line_resistance")
        return self

    @property
    def ohms(self) -> tuple[float, float, float, float]:
        """Source, word-line, bit-line and sense resistance."""
        if self.resistances is not None:
            return self.resistances
        source, line = self.source_resistance, self.line_resistance
        return source, line, line, source

    @property
    def g_on(self) -> float:
        """Nominal conductance of a device that is on, in siemens."""
        return 1 / nominal(self.r_on)

    @property
    def g_off(self) -> float:
        """Nominal conductance of a device that is off, in siemens."""
        return 1 / nominal(self.r_off)

    @property
    def tilewise(self) -> bool:
        """Whether each tile's currents are needed: something other than a product befalls them."""
        return self.adc.bits is not None or self.read_noise > 0


def nominal(resistance: float | Spread) -> float:
    """The resistance that most devices are near, in ohm."""
    return resistance.mean if isinstance(resistance, Spread) else resistance
