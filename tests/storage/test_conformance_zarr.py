"""The Zarr sink keeps the laws of sinks; read by zarr alone."""

import numpy as np
import zarr

from simrun.events import Events
from simrun.testing import SinkSuite


def as_events(group, probe):
    """Events from their columns: of each a position along every axis, and of each sample the
    number of events up to it."""
    count = np.diff(group["end"][...], prepend=0)
    index = np.ravel_multi_index([group[axis][...] for axis in probe.dims], probe.shape)
    return Events(count, index, group["value"][...])


class TestZarr(SinkSuite):
    sink = "zarr"
    stores_events = True
    bad = {
        "an unknown compression": ({"compression": "zip"}, ["compression", "zstd"]),
        "a wrong level": ({"level": 10}, ["level", "9"]),
    }

    def small_files(self, patch):
        import simrun_storage_zarr.layout as module

        sizes = {"CHUNK_BYTES": 128, "SHARDS_BYTES": 2048, "SMALLEST_SHARD": 256,
                 "EVENTS_SHARD": 512}  # fmt: skip
        for name, size in sizes.items():
            patch.setattr(module, name, size)

    def read(self, data, probe):
        found = zarr.open_group(data / "probes.zarr", mode="r")[probe.name]
        return as_events(found, probe) if isinstance(found, zarr.Group) else found[...]
