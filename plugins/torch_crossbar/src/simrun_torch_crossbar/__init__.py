"""Passive memristor crossbars with line resistance, solved exactly, for PyTorch."""

from simrun_torch_crossbar.circuit import Resistances
from simrun_torch_crossbar.solver import (
    device_currents,
    node_voltages,
    power,
    solve,
    transfer_matrix,
)

__all__ = [
    "Resistances",
    "device_currents",
    "node_voltages",
    "power",
    "solve",
    "transfer_matrix",
]
