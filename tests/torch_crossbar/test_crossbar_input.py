"""Bad input is refused by name and value."""

import math

import pytest
import torch

from simrun_torch_crossbar import solve, transfer_matrix

G = torch.full((2, 3, 4), 1e-4, dtype=torch.float64)
R = (1.0, 1.0, 1.0, 1.0)


@pytest.mark.parametrize("value", [-1e-9, math.inf, math.nan])
def test_conductance(value):
    bad = G.clone()
    bad[1, 2, 3] = value
    with pytest.raises(ValueError, match=rf"G\[1, 2, 3\] = {value} siemens"):
        transfer_matrix(bad, R)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (G.to(torch.complex128), "torch.complex128"),
        (G.int(), "torch.int32"),
        (G.half(), "torch.float16"),
        (G[0].to_sparse(), "to_dense"),
        (G.tolist(), "not list"),
    ],
)
def test_kind_of_conductances(bad, message):
    with pytest.raises(TypeError, match=message):
        transfer_matrix(bad, R)


@pytest.mark.parametrize("shape", [(4,), (0, 4), (2, 4, 0)])
def test_shape_of_conductances(shape):
    with pytest.raises(ValueError, match=r"G: shape \("):
        transfer_matrix(torch.zeros(shape), R)


@pytest.mark.parametrize("place", range(4))
@pytest.mark.parametrize("value", [-1.0, math.inf, math.nan, 1e-310])
def test_resistance(place, value):
    r = list(R)
    r[place] = value
    name = ("r_src", "r_wl", "r_bl", "r_out")[place]
    with pytest.raises(ValueError, match=f"{name} = {value} ohm"):
        transfer_matrix(G, r)


@pytest.mark.parametrize("r", [None, 5.0, (1, 2, 3), (1, 2, 3, 4, 5), ("a", 1, 1, 1)])
def test_four_resistances(r):
    with pytest.raises(TypeError, match="r_src, r_wl, r_bl, r_out"):
        transfer_matrix(G, r)


@pytest.mark.parametrize("group", [0, -1, 1.5, "all"])
def test_group(group):
    with pytest.raises(ValueError, match="group = "):
        transfer_matrix(G, R, group=group)


def test_voltages():
    with pytest.raises(ValueError, match=r"V: shape \(5, 4\); \(..., batch, 3\) volts"):
        solve(G, torch.zeros(5, 4, dtype=torch.float64), R)
    with pytest.raises(ValueError, match=r"don't broadcast"):
        solve(G, torch.zeros(3, 5, 3, dtype=torch.float64), R)
    V = torch.zeros(2, 3, dtype=torch.float64)
    V[1, 2] = math.nan
    with pytest.raises(ValueError, match=r"V\[1, 2\] = nan volts"):
        solve(G, V, R)
    with pytest.raises(TypeError, match=r"V: a tensor of G's dtype"):
        solve(G, torch.zeros(5, 3), R)
