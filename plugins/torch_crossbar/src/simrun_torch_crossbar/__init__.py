"""Passive memristor crossbars with line resistance, solved exactly, for PyTorch.

Names are imported when they are used: what simrun discovers must not import torch.
"""

from __future__ import annotations

import importlib
from typing import Any

_MODULES = {
    "circuit": ["Resistances"],
    "config": ["ADC", "DAC", "CrossbarConfig", "Drift", "Spread", "Stuck", "Variability"],
    "layers": [
        "CrossbarConv1d",
        "CrossbarConv2d",
        "CrossbarConv3d",
        "CrossbarLinear",
    ],
    "linear_map": ["CrossbarLayer", "TileCurrents"],
    "patching": ["crossbars", "patch_model"],
    "solver": ["device_currents", "node_voltages", "power", "solve", "transfer_matrix"],
    "tuning": ["best_gain", "calibrate", "start_reads", "tune"],
}
_WHERE = {name: module for module, names in _MODULES.items() for name in names}
__all__ = sorted(_WHERE)


def __getattr__(name: str) -> Any:
    if name in _WHERE:
        return getattr(importlib.import_module(f"{__name__}.{_WHERE[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
