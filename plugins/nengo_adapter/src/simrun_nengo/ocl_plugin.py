"""What this package offers to simrun under the name nengo_ocl; imports nothing heavy."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.util import find_spec

from simrun.adapter import AdapterEntry
from simrun.hookspecs import hookimpl


@hookimpl
def simrun_adapters() -> Iterable[AdapterEntry]:
    """The nengo_ocl adapter; it needs the extra ``ocl``."""
    lacking = "" if find_spec("nengo_ocl") else "; needs pip install simrun-nengo[ocl]"
    return [
        AdapterEntry(
            name="nengo_ocl",
            summary=f"networks of nengo, executed by nengo-ocl on OpenCL{lacking}",
            config_model="simrun_nengo.settings:OclSettings",
            factory="simrun_nengo.ocl_opening:open_simulation",
            probe_model="simrun_nengo.settings:Probe",
            sections=("nengo", "nengo_dl"),
        )
    ]
