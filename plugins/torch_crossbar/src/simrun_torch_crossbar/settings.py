"""The adapter's section of a config, and its probes; imports no torch."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue, PositiveInt, model_validator

from simrun.adapter import ProbeRequest
from simrun_torch_crossbar.config import CrossbarConfig

FILE = "`x.npy`, `x.npz:NAME` or `x.h5:NAME`"


class Settings(BaseModel):
    """The section ``torch_crossbar:`` of a config. A step of the run is a sample of the data."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    weights: str | None = Field(
        None,
        description="Trained weights: a state_dict by torch.save or in safetensors; left out: "
        "those that the model is built with.",
    )
    inputs: str | None = Field(None, description=f"Samples along the first axis: {FILE}.")
    targets: str | None = Field(None, description=f"Classes, or wanted outputs: {FILE}.")
    dataset: str | None = Field(
        None,
        description="Instead of both: FILE:FUNCTION or MODULE:FUNCTION that returns a torch "
        "Dataset of inputs or of (input, target).",
    )
    dataset_args: dict[str, JsonValue] = Field({}, description="Its keyword arguments.")
    crossbar: CrossbarConfig = CrossbarConfig()
    include: tuple[str, ...] = Field(("*",), description="Patterns of layers to replace.")
    exclude: tuple[str, ...] = Field((), description="Patterns of layers to leave.")
    calibration: str | None = Field(
        None, description=f"Samples to calibrate and tune with: {FILE}; left out: the first inputs."
    )
    calibration_samples: PositiveInt = Field(256, description="How many of them.")
    tune: Literal["column", "layer", "none"] = Field(
        "column", description="A gain and an offset for each output, for each layer, or none."
    )
    compare: bool = Field(
        True, description="Whether the ideal network runs beside it, for the metrics."
    )
    micro_batch: PositiveInt = Field(
        32,
        description="Samples evaluated at once, always so many and at the same places, since the "
        "last bits of matrix products depend on both.",
    )
    dtype: Literal["float32", "float64"] | None = Field(
        None, description="Of the network; left out: as it is built."
    )
    device: str = Field(
        "auto",
        pattern=r"^(auto|cpu|cuda(:\d+)?)$",
        description="`auto`, `cpu`, `cuda` or `cuda:N`.",
    )
    threads: PositiveInt | None = Field(None, description="Of torch; left out: its default.")

    @model_validator(mode="after")
    def _fits(self) -> Settings:
        if (self.inputs is None) == (self.dataset is None):
            raise ValueError("give either `inputs` (and `targets`), or `dataset`")
        if self.dataset is not None and self.targets is not None:
            raise ValueError("targets: given beside `dataset`, which brings its own")
        return self


class Probe(ProbeRequest):
    """A probe that the config declares.

    ``object`` is ``output`` or the name of a module of the network; ``attribute`` is left out
    for what the module returns. Of a crossbar layer it may also be ``tile_currents``, the
    currents out of every tile before the ADC, or ``saturation``, how many of each tile's were
    beyond the ADC's range.
    """

    attribute: Literal["output", "tile_currents", "saturation"] | None = Field(
        None, description="Left out: `output`."
    )

    @model_validator(mode="after")
    def _fits(self) -> Probe:
        if self.reduce != "last":
            raise ValueError(f"reduce = {self.reduce!r}: samples of a data set aren't reduced")
        return self
