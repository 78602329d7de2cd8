"""Nodal analysis of a crossbar with scipy: an independent solution, by another route, for tests.

Sparse LU gives a start. Its admittance matrix has lost what is small beside large (a device of
1e-8 S beside a wire of 1e4 S), so currents are then balanced wire by wire in extended precision
until nothing is left to correct.
"""

import numpy as np
import scipy.sparse as sparse
from scipy.sparse.linalg import splu


def _circuit(G, r):
    """Return edges (a, b, siemens), drivers and grounds; ends of a short are one node."""
    m, n = G.shape
    driver = np.arange(m)
    word = m + np.arange(m * n).reshape(m, n)
    bit = word + m * n
    ground = m + 2 * m * n + np.arange(n)
    alias = np.arange(m + 2 * m * n + n)

    def end(node):
        while alias[node] != node:
            node = alias[node]
        return node

    wires = [
        (driver, word[:, 0], r[0]),
        (word[:, :-1], word[:, 1:], r[1]),
        (bit[:-1], bit[1:], r[2]),
        (bit[-1], ground, r[3]),
    ]
    edges = [(word.ravel(), bit.ravel(), G.ravel())]
    for a, b, ohm in wires:
        if ohm:
            edges.append((a.ravel(), b.ravel(), np.full(a.size, 1 / ohm)))
            continue
        for p, q in zip(a.ravel(), b.ravel(), strict=True):
            alias[max(end(p), end(q))] = min(end(p), end(q))
    real = np.array([end(node) for node in range(len(alias))])
    a, b, g = (np.concatenate(x) for x in zip(*edges, strict=True))
    return real[a], real[b], g, real[driver], real[ground]


def nodal_transfer_matrix(G, r, refinements=30):
    """Return W (m, n) in siemens."""
    a, b, g, driver, ground = _circuit(np.asarray(G, float), r)
    keep = (a != b) & (g > 0)
    a, b, g = a[keep], b[keep], g[keep]
    count = max(driver.max(), ground.max(), a.max(initial=0), b.max(initial=0)) + 1
    Y = sparse.coo_matrix(
        (np.r_[g, g, -g, -g], (np.r_[a, b, a, b], np.r_[a, b, b, a])), shape=(count, count)
    ).tocsc()
    fixed = np.zeros(count, bool)
    fixed[driver] = fixed[ground] = True
    free = np.flatnonzero(~fixed & (Y.diagonal() > 0))
    m = len(driver)
    v = np.zeros((count, m), np.longdouble)
    v[driver, np.arange(m)] = 1

    ends, edge = np.r_[a, b], np.r_[: len(g), : len(g)]
    order = np.argsort(ends, kind="stable")
    sign = np.r_[np.ones(len(g)), -np.ones(len(g))][order, None]
    nodes, starts = np.unique(ends[order], return_index=True)
    wide = g[:, None].astype(np.longdouble)

    def leaving(v):
        out = np.zeros((count, m), np.longdouble)
        if len(g):
            out[nodes] = np.add.reduceat((wide * (v[a] - v[b]))[edge[order]] * sign, starts)
        return out

    W = np.full((m, len(ground)), np.inf)
    lu = splu(Y[free][:, free]) if len(free) else None
    for _ in range(refinements):
        if lu is not None:
            v[free] -= lu.solve(leaving(v)[free].astype(float))
        before, W = W, -leaving(v)[ground].T.astype(float)
        if np.abs(W - before).max() <= 1e-13 * np.abs(W).max():
            return W
    raise AssertionError("nodal analysis did not converge")
