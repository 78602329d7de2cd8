"""The sink's keys of the ``output`` section; imports no HDF5."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from simrun.errors import ConfigError


class Options(BaseModel):
    """Compression of the final file."""

    model_config = ConfigDict(extra="forbid")

    compression: Literal["gzip", "none", "zstd", "blosc2"] = Field(
        "gzip", description="Compression of the final file; zstd and blosc2 need hdf5plugin."
    )
    level: int = Field(1, ge=0, le=9, description="How hard to compress: 0 least, 9 most.")

    def dataset_options(self) -> Mapping[str, Any]:
        """Keyword arguments of `h5py.Group.create_dataset`.

        Raises
        ------
        ConfigError
            hdf5plugin is needed and isn't installed.
        """
        if self.compression == "none":
            return {}
        if self.compression == "gzip":
            return {"compression": "gzip", "compression_opts": self.level, "shuffle": True}
        if find_spec("hdf5plugin") is None:
            raise ConfigError(
                f"output.compression: {self.compression} needs hdf5plugin, which isn't installed",
                'pip install "simrun-storage-hdf5[compression]", or choose gzip or none',
            )
        import hdf5plugin

        if self.compression == "zstd":
            return {**hdf5plugin.Zstd(clevel=self.level), "shuffle": True}
        return dict(hdf5plugin.Blosc2(cname="zstd", clevel=self.level, filters=1))
