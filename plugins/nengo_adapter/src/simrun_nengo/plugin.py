"""What this package offers to simrun under the name nengo; imports nothing heavy."""

from __future__ import annotations

from collections.abc import Iterable

from simrun.adapter import AdapterEntry
from simrun.hookspecs import hookimpl


@hookimpl
def simrun_adapters() -> Iterable[AdapterEntry]:
    """The nengo adapter."""
    return [
        AdapterEntry(
            name="nengo",
            summary="networks of nengo, executed by nengo's own reference simulator",
            config_model="simrun_nengo.settings:Settings",
            factory="simrun_nengo.opening:open_simulation",
            probe_model="simrun_nengo.settings:Probe",
            sections=("nengo_dl", "nengo_ocl"),
        )
    ]
