"""The sink's keys of the ``output`` section; imports no Zarr."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field


class Options(BaseModel):
    """Where the store is, and how it is compressed."""

    model_config = ConfigDict(extra="forbid")

    url: str | None = Field(
        None,
        description="fsspec URL of the store, such as `s3://bucket/run`; left out: in the run.",
    )
    storage_options: dict[str, Any] = Field(
        default_factory=dict, description="Keyword arguments of the fsspec file system."
    )
    compression: Literal["zstd", "blosc", "gzip", "none"] = Field(
        "zstd", description="Compression of chunks; blosc is zstd with shuffled bytes."
    )
    level: int = Field(1, ge=0, le=9, description="How hard to compress: 0 least, 9 most.")
