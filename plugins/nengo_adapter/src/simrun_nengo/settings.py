"""The adapters' sections of a config, and what they add to a probe; imports nothing heavy.

The keys are those of nengo_dl's section, so that a config moves between the simulators of a
network by its one word ``plugin:``. What can't change the samples is accepted, and without effect
here; what would change them is refused when the simulation is opened.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, NonNegativeFloat, PositiveFloat, PositiveInt

from simrun.adapter import ProbeRequest


class Settings(BaseModel):
    """The section ``nengo:`` or ``nengo_ocl:`` of a config."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    dt: PositiveFloat = Field(
        0.001, allow_inf_nan=False, description="Length of a step in seconds of model time."
    )
    minibatch_size: PositiveInt | None = Field(
        None, description="1, or left out: then without that axis. Only nengo_dl has minibatches."
    )
    dtype: Literal["float32", "float64"] | None = Field(
        None, description="Precision; left out: nengo's setting, else float64."
    )
    inputs: dict[str, str] = Field(
        default_factory=dict,
        description="For input nodes, by label: a file `x.npy` or `x.npz:NAME` with values of "
        "shape (steps, size) or (1, steps, size), read piece by piece.",
    )
    device: str = Field("auto", pattern=r"^(auto|cpu|gpu(:\d+)?)$", description="`auto` or `cpu`.")
    compile: Literal["auto", "xla", "graph"] = Field(
        "auto", description="For nengo_dl; without effect here."
    )
    unroll_simulation: PositiveInt = Field(
        1, le=1000, description="For nengo_dl; without effect here."
    )
    threads: PositiveInt | None = Field(None, description="For nengo_dl; without effect here.")
    load_params: str | None = Field(None, description="For nengo_dl; refused here.")


class OclSettings(Settings):
    """The section ``nengo_ocl:`` of a config."""

    dtype: Literal["float32", "float64"] | None = Field(
        None, description="float32, which is all that nengo-ocl has."
    )
    device: str = Field(
        "auto",
        pattern=r"^(auto|cpu|gpu(:\d+)?)$",
        description="`auto` (a GPU if OpenCL has one), `cpu`, `gpu` or `gpu:N`.",
    )


class Probe(ProbeRequest):
    """A probe that the config declares."""

    synapse: NonNegativeFloat | None = Field(
        None,
        allow_inf_nan=False,
        description="Time constant in seconds of a lowpass filter; left out: none.",
    )
