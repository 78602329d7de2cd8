"""The HDF5 sink keeps the laws of sinks; read by h5py alone."""

import h5py
import numpy as np

from simrun.events import Events
from simrun.testing import SinkSuite


def as_events(group, probe):
    """Events from their columns: of each a position along every axis, and of each sample the
    number of events up to it."""
    count = np.diff(group["end"][...], prepend=0)
    index = np.ravel_multi_index([group[axis][...] for axis in probe.dims], probe.shape)
    return Events(count, index, group["value"][...])


class TestHdf5(SinkSuite):
    sink = "hdf5"
    stores_events = True
    bad = {
        "an unknown compression": ({"compression": "zip"}, ["compression", "gzip"]),
        "a wrong level": ({"level": 10}, ["level", "9"]),
    }

    def small_files(self, patch):
        import simrun_storage_hdf5.sink as module

        patch.setattr(module, "SMALLEST", 1024)
        patch.setattr(module, "LARGEST", 4096)

    def read(self, data, probe):
        with h5py.File(data / "probes.h5") as file:
            if isinstance(file[probe.name], h5py.Group):
                return as_events(file[probe.name], probe)
            return file[probe.name][...]
