"""Passive crossbars, solved exactly: transfer matrices, currents, voltages, power, gradients.

A tile is linear: I = V W, and W depends on the conductances and the four resistances alone. Any
resistance may be 0, any device open. Results of a tile don't depend on the tiles beside it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from simrun_torch_crossbar.circuit import (
    Resistances,
    check_conductances,
    check_resistances,
    check_voltages,
)
from simrun_torch_crossbar.condense import transfer, weights
from simrun_torch_crossbar.descend import derivatives, potentials
from simrun_torch_crossbar.elimination import Zeros
from simrun_torch_crossbar.memory import peak_bytes, weights_bytes

GROUP_BYTES = {"cpu": 1 << 27, "cuda": 1 << 31}
"""Working memory, by device, that a group of tiles may take where the caller sets no group."""


class Power(NamedTuple):
    """Power in watts that the parts of a tile dissipate, each of shape (..., batch)."""

    devices: torch.Tensor
    source: torch.Tensor
    word_lines: torch.Tensor
    bit_lines: torch.Tensor
    sense: torch.Tensor


def transfer_matrix(
    G: torch.Tensor, resistances: Resistances | tuple[Any, ...], *, group: int | None = None
) -> torch.Tensor:
    """Return the transfer matrix W of each tile: currents are I = V W.

    W_ij >= 0 is the current out of bit line j per volt at word line i, all other drivers at 0 V.
    Exact up to rounding, entry by entry, whatever the ratio of wires to devices: relative errors
    are some 1e-14 in float64 and 1e-6 in float32.

    Differentiable once with respect to G and to resistances given as 0-d tensors. The backward
    pass computes in float64 and needs no memory until it runs.

    Parameters
    ----------
    G : Tensor, shape (..., m, n), float32 or float64
        Conductances in siemens; 0 is an open device.
    resistances : Resistances or 4-tuple of float or 0-d Tensor
        (r_src, r_wl, r_bl, r_out) in ohm, each at least 0.
    group : int, optional
        Number of tiles solved at once; by default as many as work well. It changes memory and
        time, not one bit of the result.

    Returns
    -------
    Tensor, shape (..., m, n)
        Siemens, of G's dtype and device.

    Raises
    ------
    TypeError, ValueError
        Naming what is wrong and its value.
    """
    check_conductances(G)
    values = check_resistances(resistances, G.dtype)
    if group is not None and (not isinstance(group, int) or group < 1):
        raise ValueError(f"group = {group!r}: a number of tiles, at least 1, is needed")
    zeros = Zeros(*(value == 0 for value in values))
    for name, value, given in zip(Resistances._fields, values, resistances, strict=True):
        if value == 0 and isinstance(given, torch.Tensor) and given.requires_grad:
            raise ValueError(
                f"{name} = 0 ohm requires a gradient, but a short has none; a small value, 1e-6"
                " say, is solved as exactly"
            )
    tiles = G.reshape(-1, *G.shape[-2:])
    ohm = torch.stack([torch.as_tensor(x, dtype=torch.float64).cpu() for x in resistances])
    W: torch.Tensor = _Transfer.apply(tiles, ohm, zeros, group)
    return W.reshape(G.shape)


def solve(
    G: torch.Tensor,
    V: torch.Tensor,
    resistances: Resistances | tuple[Any, ...],
    *,
    group: int | None = None,
) -> torch.Tensor:
    """Return the currents out of the bit lines.

    Parameters
    ----------
    G : Tensor, shape (..., m, n), float32 or float64
        Conductances in siemens.
    V : Tensor, shape (..., batch, m)
        Voltages in volts, of G's dtype and device; leading axes broadcast with G's.
    resistances, group
        As in ``transfer_matrix``; gradients too, with respect to V as well.

    Returns
    -------
    Tensor, shape (..., batch, n)
        Amperes into ground.
    """
    check_conductances(G)
    check_voltages(V, G)
    return V @ transfer_matrix(G, resistances, group=group)


@torch.no_grad()
def node_voltages(
    G: torch.Tensor,
    V: torch.Tensor,
    resistances: Resistances | tuple[Any, ...],
    *,
    group: int | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the potentials of the word and bit nodes; not differentiable.

    Parameters
    ----------
    G, V, resistances, group
        As in ``solve``.

    Returns
    -------
    word, bit : Tensor, shape (..., batch, m, n)
        Volts, at the two ends of each device.
    """
    check_conductances(G)
    check_voltages(V, G)
    values = check_resistances(resistances, G.dtype)
    zeros = Zeros(*(value == 0 for value in values))
    m, n = G.shape[-2:]
    shape = torch.broadcast_shapes(G.shape[:-2], V.shape[:-2])
    G = G.expand(*shape, m, n).reshape(-1, m, n)
    V = V.expand(*shape, *V.shape[-2:]).reshape(-1, *V.shape[-2:])
    size = group or _group(weights_bytes(1, m, n, G.dtype, zeros), G.device)
    parts = [
        potentials(weights(some, zeros, _wires(values))[0], volts, n)
        for some, volts in zip(G.split(size), V.split(size), strict=True)
    ]
    word, bit = (torch.cat(x).reshape(*shape, -1, m, n) for x in zip(*parts, strict=True))
    return word, bit


def device_currents(
    G: torch.Tensor,
    V: torch.Tensor,
    resistances: Resistances | tuple[Any, ...],
    *,
    group: int | None = None,
) -> torch.Tensor:
    """Return the current through each device, shape (..., batch, m, n), in amperes.

    Parameters
    ----------
    G, V, resistances, group
        As in ``solve``. Not differentiable.
    """
    word, bit = node_voltages(G, V, resistances, group=group)
    return G.detach().unsqueeze(-3) * (word - bit)


def power(
    G: torch.Tensor,
    V: torch.Tensor,
    resistances: Resistances | tuple[Any, ...],
    *,
    group: int | None = None,
) -> Power:
    """Return the power that devices and wires dissipate; its sum is what the drivers deliver.

    Parameters
    ----------
    G, V, resistances, group
        As in ``solve``. Not differentiable.
    """
    word, bit = node_voltages(G, V, resistances, group=group)
    source, word_line, bit_line, sense = check_resistances(resistances, G.dtype)
    current = G.detach().unsqueeze(-3) * (word - bit)
    # A wire carries what all devices beyond it do: sums, where differences would cancel.
    along = current.flip(-1).cumsum(-1).flip(-1).square()
    down = current.cumsum(-2).square()
    return Power(
        (current * (word - bit)).sum((-2, -1)),
        source * along[..., 0].sum(-1),
        word_line * along[..., 1:].sum((-2, -1)),
        bit_line * down[..., :-1, :].sum((-2, -1)),
        sense * down[..., -1, :].sum(-1),
    )


def _wires(ohm: Any) -> list[float]:
    """Return the conductances in siemens; of a short, which is no wire, 0."""
    return [1 / float(r) if r else 0.0 for r in ohm]


def _group(bytes_of_one: int, device: torch.device) -> int:
    return max(1, GROUP_BYTES.get(device.type, 1 << 27) // max(1, bytes_of_one))


class _Transfer(torch.autograd.Function):
    """W of (tiles, m, n) conductances and four resistances, and its adjoint."""

    @staticmethod
    def forward(
        ctx: Any, G: torch.Tensor, ohm: torch.Tensor, zeros: Zeros, group: int | None
    ) -> torch.Tensor:
        ctx.save_for_backward(G, ohm)
        ctx.zeros, ctx.group = zeros, group
        tiles, m, n = G.shape
        W = torch.empty_like(G, memory_format=torch.contiguous_format)
        size = group or _group(peak_bytes(1, m, n, G.dtype, zeros, G.device.type), G.device)
        for first in range(0, tiles, size):
            some = slice(first, first + size)
            transfer(G[some], zeros, _wires(ohm), W[some])
        return W

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, W_bar: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        G, ohm = ctx.saved_tensors
        tiles, m, n = G.shape
        wide = torch.float64
        size = ctx.group or _group(weights_bytes(1, m, n, wide, ctx.zeros), G.device)
        G_bar, wires_bar = torch.empty_like(W_bar), torch.zeros(4, dtype=wide)
        for first in range(0, tiles, size):
            some = slice(first, first + size)
            Z, _ = weights(G[some].to(wide), ctx.zeros, _wires(ohm))
            G_bar[some], part = derivatives(Z, W_bar[some].to(wide))
            wires_bar += part.cpu()
        ohm_bar = torch.where(ohm == 0, 0.0, -wires_bar / ohm.square())
        return G_bar, ohm_bar, None, None
