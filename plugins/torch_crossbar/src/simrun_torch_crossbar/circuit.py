"""The circuit of a tile: its four resistances, and what is refused as an input.

Word line i is driven at its left end by V_i; bit line j is read at its lower end::

    V_i --r_src-- u(i,0) --r_wl-- u(i,1) -- ...      G[i,j] joins u(i,j) and d(i,j)
    d(0,j) --r_bl-- d(1,j) -- ... d(m-1,j) --r_out-- ground

The far ends (right end of a word line, upper end of a bit line) are open.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch

Scalar = float | torch.Tensor


class Resistances(NamedTuple):
    """The four parasitic resistances of a tile, in ohm; each may be exactly 0.

    Parameters
    ----------
    r_src : float or 0-d Tensor
        Between driver i and word node (i, 0).
    r_wl : float or 0-d Tensor
        Between word nodes (i, j) and (i, j+1).
    r_bl : float or 0-d Tensor
        Between bit nodes (i, j) and (i+1, j).
    r_out : float or 0-d Tensor
        Between bit node (m-1, j) and ground.
    """

    r_src: Scalar
    r_wl: Scalar
    r_bl: Scalar
    r_out: Scalar

    @classmethod
    def of(cls, *, source_resistance: Scalar, line_resistance: Scalar) -> Resistances:
        """Return the short form: r_src = r_out = source, r_wl = r_bl = line, in ohm."""
        return cls(source_resistance, line_resistance, line_resistance, source_resistance)


def check_resistances(resistances: object, dtype: torch.dtype) -> tuple[float, ...]:
    """Return the four values in ohm as floats.

    Raises
    ------
    TypeError
        Not four numbers.
    ValueError
        One is negative, infinite, NaN, or so small that its conductance overflows ``dtype``.
    """
    names = Resistances._fields
    try:
        items = tuple(resistances)  # type: ignore[call-overload]
        values = tuple(
            float(item.detach() if isinstance(item, torch.Tensor) else item) for item in items
        )
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(
            f"resistances: {resistances!r} is not four numbers ({', '.join(names)}) in ohm"
        ) from error
    if len(values) != 4:
        raise TypeError(f"resistances: {len(values)} values given, four needed: {', '.join(names)}")
    for name, value in zip(names, values, strict=True):
        if not (math.isfinite(value) and value >= 0):
            raise ValueError(f"{name} = {value} ohm: must be finite and at least 0")
        if value > 0 and not 1 / torch.finfo(dtype).max < value < torch.finfo(dtype).max:
            raise ValueError(f"{name} = {value} ohm: outside the range of {dtype}; 0 is a short")
    return values


def check_conductances(G: torch.Tensor) -> None:
    """Refuse what isn't a batch of tiles of conductances in siemens.

    Raises
    ------
    TypeError
        Not a dense tensor of float32 or float64.
    ValueError
        Fewer than two axes, a tile of size zero, or an entry that is negative, infinite or NaN.
    """
    if not isinstance(G, torch.Tensor):
        raise TypeError(f"G: a torch.Tensor is needed, not {type(G).__name__}")
    if G.layout is not torch.strided or G.is_quantized:
        raise TypeError(f"G: a dense tensor is needed, not {G.layout} {G.dtype}; use G.to_dense()")
    if G.dtype not in (torch.float32, torch.float64):
        raise TypeError(f"G: dtype {G.dtype}; conductances are float32 or float64")
    if G.ndim < 2 or 0 in G.shape[-2:]:
        raise ValueError(
            f"G: shape {tuple(G.shape)}; (..., m, n) with m, n of at least 1 is needed"
        )
    values = G.detach().numpy() if G.device.type == "cpu" else G.detach()
    good = (values >= 0) & (values < math.inf)
    if not bool(good.all()):
        bad = torch.as_tensor(~good).nonzero()[0].tolist()
        raise ValueError(
            f"G[{', '.join(map(str, bad))}] = {G[tuple(bad)].item()} siemens: conductances must be"
            " finite and at least 0 (an open device is 0)"
        )


def check_voltages(V: torch.Tensor, G: torch.Tensor) -> None:
    """Refuse voltages that don't fit the tiles.

    Raises
    ------
    TypeError
        Not a tensor of G's dtype on G's device.
    ValueError
        Not (..., batch, m) with G's m and leading axes that broadcast, or not finite.
    """
    if not isinstance(V, torch.Tensor) or V.dtype != G.dtype or V.device != G.device:
        found = f"{V.dtype} on {V.device}" if isinstance(V, torch.Tensor) else type(V).__name__
        raise TypeError(
            f"V: a tensor of G's dtype and device is needed ({G.dtype} on {G.device}), not {found}"
        )
    if V.ndim < 2 or V.shape[-1] != G.shape[-2]:
        raise ValueError(f"V: shape {tuple(V.shape)}; (..., batch, {G.shape[-2]}) volts is needed")
    try:
        torch.broadcast_shapes(V.shape[:-2], G.shape[:-2])
    except RuntimeError as error:
        raise ValueError(
            f"V: leading axes {tuple(V.shape[:-2])} don't broadcast with G's {tuple(G.shape[:-2])}"
        ) from error
    if not bool(torch.isfinite(V).all()):
        bad = (~torch.isfinite(V)).nonzero()[0].tolist()
        raise ValueError(
            f"V[{', '.join(map(str, bad))}] = {V[tuple(bad)].item()} volts: must be finite"
        )
