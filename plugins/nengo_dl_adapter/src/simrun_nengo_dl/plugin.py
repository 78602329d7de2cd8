"""What this package offers to simrun; imports nothing heavy."""

from __future__ import annotations

from collections.abc import Iterable

from simrun.adapter import AdapterEntry
from simrun.hookspecs import hookimpl


@hookimpl
def simrun_adapters() -> Iterable[AdapterEntry]:
    """The nengo_dl adapter."""
    return [
        AdapterEntry(
            name="nengo_dl",
            summary="spiking and rate networks of nengo, executed by nengo-dl on TensorFlow",
            config_model="simrun_nengo_dl.settings:Settings",
            factory="simrun_nengo_dl.opening:open_simulation",
            probe_model="simrun_nengo.settings:Probe",
            sections=("nengo", "nengo_ocl"),
        )
    ]
