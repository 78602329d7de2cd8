"""Passive crossbars, solved exactly: transfer matrices, currents, voltages, power, gradients."""

from __future__ import annotations

import torch

from simrun_torch_crossbar.circuit import (
    Resistances,
    check_conductances,
    check_resistances,
    check_voltages,
)
from simrun_torch_crossbar.condense import transfer
from simrun_torch_crossbar.elimination import Zeros

def transfer_matrix(G, resistances, *, group=None):
    check_conductances(G)
    r = check_resistances(resistances, G.dtype)
    zeros = Zeros(*(x == 0 for x in r))
    wires = [1/x if x else 0. for x in r]
    return transfer(G.reshape(-1, *G.shape[-2:]), zeros, wires).reshape(G.shape)
solve=node_voltages=device_currents=power=None
