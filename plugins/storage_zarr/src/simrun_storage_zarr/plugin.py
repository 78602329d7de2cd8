"""What simrun discovers; imports no Zarr."""

from __future__ import annotations

import simrun
from simrun.sink import SinkEntry


@simrun.hookimpl
def simrun_sinks() -> list[SinkEntry]:
    """Offer the Zarr sink."""
    return [
        SinkEntry(
            "zarr",
            "Zarr v3 with sharding, in a folder or an object store",
            "simrun_storage_zarr.sink:ZarrSink",
            "simrun_storage_zarr.reader:ZarrReader",
            "simrun_storage_zarr.options:Options",
            product="probes.zarr",
            working_bytes=36 << 20,
        )
    ]
