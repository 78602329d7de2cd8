"""The adapter's section of a config; imports nothing heavy."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, PositiveInt


class Settings(BaseModel):
    """The section ``nengo_dl:`` of a config."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    dt: PositiveFloat = Field(
        0.001, allow_inf_nan=False, description="Length of a step in seconds of model time."
    )
    minibatch_size: PositiveInt | None = Field(
        None, description="Networks simulated side by side; left out: one, without that axis."
    )
    compile: Literal["auto", "xla", "graph"] = Field(
        "auto",
        description="How steps are executed: `xla` compiles the whole chunk, `graph` is "
        "nengo-dl's own graph and bit-identical to its run_steps; `auto` takes xla if it can.",
    )
    dtype: Literal["float32", "float64"] | None = Field(
        None, description="Precision; left out: the network's setting, else float32."
    )
    device: str = Field(
        "auto",
        pattern=r"^(auto|cpu|gpu(:\d+)?)$",
        description="`auto` (a GPU if there is one), `cpu`, `gpu` or `gpu:N`.",
    )
    unroll_simulation: PositiveInt = Field(
        1, le=1000, description="Steps per turn of the loop; chunks become multiples of it."
    )
    load_params: str | None = Field(
        None, description="A .npz that nengo-dl's Simulator.save_params wrote."
    )
    inputs: dict[str, str] = Field(
        default_factory=dict,
        description="For input nodes, by label: a file `x.npy` or `x.npz:NAME` with values of "
        "shape (steps, size) or (minibatch, steps, size), read piece by piece.",
    )
    threads: PositiveInt | None = Field(
        None, description="CPU threads that TensorFlow may use; left out: all cores."
    )
