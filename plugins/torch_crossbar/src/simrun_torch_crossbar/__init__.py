"""Passive memristor crossbars with line resistance, solved exactly, for PyTorch."""

from simrun_torch_crossbar.circuit import Resistances
from simrun_torch_crossbar.config import (
    ADC,
    DAC,
    CrossbarConfig,
    Drift,
    Spread,
    Stuck,
    Variability,
)
from simrun_torch_crossbar.layers import (
    CrossbarConv1d,
    CrossbarConv2d,
    CrossbarConv3d,
    CrossbarLayer,
    CrossbarLinear,
    TileCurrents,
)
from simrun_torch_crossbar.patching import crossbars, patch_model
from simrun_torch_crossbar.solver import (
    device_currents,
    node_voltages,
    power,
    solve,
    transfer_matrix,
)
from simrun_torch_crossbar.tuning import best_gain, calibrate, start_reads, tune

__all__ = [
    "ADC",
    "DAC",
    "CrossbarConfig",
    "CrossbarConv1d",
    "CrossbarConv2d",
    "CrossbarConv3d",
    "CrossbarLayer",
    "CrossbarLinear",
    "Drift",
    "Resistances",
    "Spread",
    "Stuck",
    "TileCurrents",
    "Variability",
    "best_gain",
    "calibrate",
    "crossbars",
    "device_currents",
    "node_voltages",
    "patch_model",
    "power",
    "solve",
    "start_reads",
    "transfer_matrix",
    "tune",
]
