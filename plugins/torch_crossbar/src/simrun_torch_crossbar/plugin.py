"""What this package offers to simrun; imports nothing heavy."""

from __future__ import annotations

from collections.abc import Iterable

from simrun.adapter import AdapterEntry
from simrun.hookspecs import hookimpl


@hookimpl
def simrun_adapters() -> Iterable[AdapterEntry]:
    """The torch_crossbar adapter."""
    return [
        AdapterEntry(
            name="torch_crossbar",
            summary="PyTorch networks on passive memristor crossbars",
            config_model="simrun_torch_crossbar.settings:Settings",
            factory="simrun_torch_crossbar.opening:open_simulation",
            probe_model="simrun_torch_crossbar.settings:Probe",
        )
    ]
