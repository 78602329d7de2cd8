"""What simrun discovers; imports no HDF5."""

from __future__ import annotations

import simrun
from simrun.sink import SinkEntry


@simrun.hookimpl
def simrun_sinks() -> list[SinkEntry]:
    """Offer the HDF5 sink."""
    return [
        SinkEntry(
            "hdf5",
            "one HDF5 file for h5py, xarray, MATLAB; compressed at the end",
            "simrun_storage_hdf5.sink:Hdf5Sink",
            "simrun_storage_hdf5.reader:Hdf5Reader",
            "simrun_storage_hdf5.options:Options",
            product="probes.h5",
            working_bytes=20 << 20,
        )
    ]
