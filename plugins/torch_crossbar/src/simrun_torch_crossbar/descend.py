"""Down the tree again: what the ports' potentials, or derivatives, mean for the devices.

Both need the weights Z of ``condense.weights``. With E = [Z; 1] the potentials of all nodes of a
front are E times those of its ports, and the rows of E sum to 1.
"""

from __future__ import annotations

import torch

from simrun_torch_crossbar.condense import Weights
from simrun_torch_crossbar.elimination import Front


def potentials(Z: Weights, V: torch.Tensor, n: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the potentials of word and bit nodes.

    Parameters
    ----------
    Z : Weights
        Of tiles of m x n devices.
    V : Tensor, shape (tiles, batch, m)
        Drivers' voltages.

    Returns
    -------
    word, bit : Tensor, shape (tiles, batch, m, n)
        Volts.
    """
    tiles, batch, m = V.shape
    found = V.new_empty(2, m * n, tiles, batch)
    root = next(reversed(Z))
    below = {root: torch.cat([V.mT, V.new_zeros(tiles, n, batch)], 1)}
    for front in reversed(Z):
        x = below.pop(front)
        x = torch.cat([Z[front] @ x, x], 1)
        if front.children:
            _hand_down(front, below, [x[:, torch.from_numpy(to)] for to in front.maps], tiles)
        else:
            _, u, d, _ = front.maps[0].tolist()
            where = torch.from_numpy(front.origins[:, 0] * n + front.origins[:, 1]).to(V.device)
            for node, place in ((u, found[0]), (d, found[1])):
                place[where] = x[:, node].unflatten(0, (front.count, tiles))
    word, bit = found.unflatten(1, (m, n)).movedim((1, 2), (3, 4))
    return word, bit


def derivatives(Z: Weights, W_bar: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the derivatives of a scalar with respect to all conductances, given those by W.

    D_ab is the derivative by the coupling of ports a and b. A conductance g between any nodes p
    and q of the front adds -x_a x_b g to that coupling, where x = E_p - E_q sums to 0; therefore
    D_pq = -x D x^T / 2. The circuit is its own adjoint: this is Tellegen's theorem, front by
    front.

    Parameters
    ----------
    Z : Weights
        Of tiles of m x n devices.
    W_bar : Tensor, shape (tiles, m, n)
        Derivatives with respect to W.

    Returns
    -------
    G_bar : Tensor, shape (tiles, m, n)
        With respect to the devices' conductances.
    wires_bar : Tensor, shape (4,)
        With respect to the conductances of source, word-line, bit-line and sense wires.
    """
    tiles, m, n = W_bar.shape
    G_bar, wires_bar = W_bar.new_empty(m * n, tiles), [W_bar.new_zeros(())] * 4
    root = next(reversed(Z))
    D = W_bar.new_zeros(tiles, m + n, m + n)
    D[:, :m, m:] = W_bar
    below = {root: D + D.mT}
    for front in reversed(Z):
        D, e = below.pop(front), front.eliminated
        F = D.new_empty(len(D), front.nodes, front.nodes)
        F[:, e:, e:] = D
        F[:, :e, e:] = Z[front] @ D
        F[:, :e, :e] = F[:, :e, e:] @ Z[front].mT
        half = F[:, :e, :e].diagonal(dim1=1, dim2=2) / 2
        F[:, :e] -= half[:, :, None]
        F[:, :e, :e] -= half[:, None, :]
        F[:, e:, :e] = F[:, :e, e:].mT
        if front.children:
            parts = [F[:, torch.from_numpy(to)][:, :, torch.from_numpy(to)] for to in front.maps]
            _hand_down(front, below, parts, tiles)
            continue
        left, u, d, under = front.maps[0].tolist()
        where = torch.from_numpy(front.origins[:, 0] * n + front.origins[:, 1]).to(D.device)
        G_bar[where] = F[:, u, d].unflatten(0, (front.count, tiles))
        if left != u:
            kind = 0 if front.kind.left else 1
            wires_bar[kind] = wires_bar[kind] + F[:, left, u].sum()
        if d != under:
            kind = 3 if front.kind.bottom else 2
            wires_bar[kind] = wires_bar[kind] + F[:, d, under].sum()
    return G_bar.T.unflatten(1, (m, n)), torch.stack(wires_bar)


def _hand_down(
    front: Front, below: dict[Front, torch.Tensor], parts: list[torch.Tensor], tiles: int
) -> None:
    """Put each child's part where the child, which has other parents too, will look for it."""
    for (child, first), part in zip(front.children, parts, strict=True):
        if child not in below:
            below[child] = part.new_empty(child.count * tiles, *part.shape[1:])
        below[child][first * tiles : first * tiles + len(part)] = part
