"""Up the tree: from devices to couplings between drivers and grounds, which are W. And down again.

Everything is a coupling (a conductance between two nodes), never a diagonal: what a node is
joined to in all is summed where a pivot needs it. So nothing is ever subtracted from a large
number, and wires of 1e-6 ohm beside devices of 1e9 ohm cost no accuracy.

An array of a front has shape (count * tiles, ...), tiles fastest.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from simrun_torch_crossbar.elimination import Front, Zeros, fronts, is_base, levels
from simrun_torch_crossbar.kernels import cpu, cuda
from simrun_torch_crossbar.memory import forgotten, layout, parents

Weights = dict[Front, torch.Tensor]

AT_ONCE = 1 << 16
"""Entries of W that are copied at once."""


def transfer(G: torch.Tensor, zeros: Zeros, wires: Sequence[float], out: torch.Tensor) -> None:
    """Compute W.

    Parameters
    ----------
    G : Tensor, shape (tiles, m, n)
        Conductances in siemens.
    zeros : Zeros
        The wires that are shorts.
    wires : sequence of 4 floats
        Conductances of source, word-line, bit-line and sense wires in siemens; of a short, any.
    out : Tensor, shape (tiles, m, n)
        W in siemens, written.
    """
    G = G.contiguous()
    if G.device.type == "cuda":
        _transfer_by_torch(G, zeros, wires, out, cuda.base(zeros, G.dtype, G.device))
    elif cpu.available():
        _transfer_on_cpu(G, zeros, wires, out)
    else:
        # One by one: BLAS rounds a matrix differently where its place in a batch isn't aligned.
        for tile in range(len(G)):
            _transfer_by_torch(G[tile : tile + 1], zeros, wires, out[tile : tile + 1], 1)


def _transfer_by_torch(
    G: torch.Tensor, zeros: Zeros, wires: Sequence[float], out: torch.Tensor, base: int
) -> None:
    tiles, m, n = G.shape
    tree = fronts(m, n, zeros, base)
    done: dict[Front, torch.Tensor] = {}
    waiting = parents(tree, base)
    for front in tree:
        if base > 1 and is_base(front, base):
            done[front] = G.new_empty(front.count * tiles, front.kept, front.kept)
            cuda.blocks(G, front, zeros, wires, done[front])
        else:
            done[front], _ = _eliminate(front, _assembled(front, G, done, wires))
        for child in forgotten(front, base, waiting):
            del done[child]
    out.copy_(done[tree[-1]][:, :m, m:])


def _transfer_on_cpu(
    G: torch.Tensor, zeros: Zeros, wires: Sequence[float], out: torch.Tensor
) -> None:
    tiles, m, n = G.shape
    tree = levels(fronts(m, n, zeros, cpu.BASE), cpu.BASE)
    plan = layout(m, n, zeros, tiles, G.dtype)
    memory = cpu.memory(plan.total)
    done: dict[Front, torch.Tensor] = {}
    for level in tree:
        for front in level:
            entries = cpu.couplings(front)
            size = front.count * tiles * entries * G.dtype.itemsize
            part = memory[plan.starts[front] :][:size]
            done[front] = part.view(G.dtype).view(front.count * tiles, entries)
    for front in tree[0]:
        cpu.blocks(G, front, zeros, wires, done[front], memory)
    for level in tree[1:]:
        children = [_children(front, done, tiles) for front in level]
        cpu.merge(level, children, [done[front] for front in level], tiles, memory)
    # numpy, here and where G is checked: it wakes none of torch's threads, which would spin on
    # for a while and keep the kernels' threads from the cores.
    drivers, ground = np.arange(m)[:, None], m + np.arange(n)
    first = ground * (ground - 1) // 2
    some = max(1, AT_ONCE // n)  # indices of all of a large tile would take as much as its W
    found, W = done[tree[-1][0]].numpy(), out.numpy()
    for row in range(0, m, some):
        where = first + drivers[row : row + some]
        for tile in range(tiles):
            np.take(found[tile], where, out=W[tile, row : row + some], mode="clip")


def weights(G: torch.Tensor, zeros: Zeros, wires: Sequence[float]) -> tuple[Weights, torch.Tensor]:
    """Return for each front the weights Z that its ports have in its eliminated nodes; and W.

    The potentials of eliminated nodes are Z times those of the ports; no weight is negative, and
    those of a node sum to 1.
    """
    m, n = G.shape[1:]
    tree = fronts(m, n, zeros)
    done: dict[Front, torch.Tensor] = {}
    waiting = parents(tree, 1)
    Z: Weights = {}
    for front in tree:
        done[front], Z[front] = _eliminate(front, _assembled(front, G, done, wires), keep=True)
        for child in forgotten(front, 1, waiting):
            del done[child]
    return Z, done[tree[-1]][:, :m, m:].contiguous()


def _children(front: Front, done: dict[Front, torch.Tensor], tiles: int) -> list[torch.Tensor]:
    return [
        done[child][first * tiles : (first + front.count) * tiles]
        for child, first in front.children
    ]


def _assembled(
    front: Front, G: torch.Tensor, done: dict[Front, torch.Tensor], wires: Sequence[float]
) -> torch.Tensor:
    """Return the couplings between all nodes of a front, its own parts put together."""
    tiles, _, n = G.shape
    if front.children:
        F: torch.Tensor | None = None
        for K, to in zip(_children(front, done, tiles), front.maps, strict=True):
            # Nodes that the child lacks read the diagonal, which is zero.
            port = torch.zeros(front.nodes, dtype=torch.int64)
            has = torch.zeros(front.nodes, dtype=torch.bool)
            port[torch.from_numpy(to)] = torch.arange(len(to))
            has[torch.from_numpy(to)] = True
            entry = (port[:, None] * len(to) + port) * (has[:, None] & has)
            part = K.flatten(1).index_select(1, entry.flatten().to(K.device))
            F = part if F is None else F.add_(part)
        assert F is not None
        return F.unflatten(1, (front.nodes, front.nodes))
    source, word, bit, sense = wires
    left, u, d, below = front.maps[0].tolist()
    F = G.new_zeros(front.count * tiles, front.nodes, front.nodes)
    where = torch.from_numpy(front.origins[:, 0] * n + front.origins[:, 1]).to(G.device)
    F[:, u, d] = G.flatten(1).index_select(1, where).T.flatten()
    if left != u:
        F[:, left, u] += source if front.kind.left else word
    if d != below:
        F[:, d, below] += sense if front.kind.bottom else bit
    return F + F.mT


def _eliminate(
    front: Front, F: torch.Tensor, keep: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the couplings between the ports; and Z, where it is to be kept."""
    e = front.eliminated
    if e == 0:
        return F, F[:, :0, :]
    S = torch.diag_embed(F[:, :e].sum(-1)) - F[:, :e, :e]
    L = torch.linalg.cholesky_ex(S).L
    P = torch.linalg.solve_triangular(L, F[:, :e, e:], upper=False)
    K = torch.baddbmm(F[:, e:, e:], P.mT, P)
    K.diagonal(dim1=-2, dim2=-1).zero_()
    Z = torch.linalg.solve_triangular(L.mT, P, upper=True) if keep else P
    return K, Z
