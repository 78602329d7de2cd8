"""Ratios of the crossbar solver to its peers, all measured in one run, interleaved.

Needs scipy; badcrossbar 1.1.0 and pypardiso (the best sparse direct solvers that pip has) are
used where they are installed. Prints a table in Markdown.

    python benchmarks/crossbar_solver.py [--sizes 64 128 256 512] [--repeats 5]
"""

import argparse
import datetime
import logging
import statistics
import time

import numpy as np
import scipy.sparse as sparse
import torch
from scipy.sparse.linalg import splu

from simrun_torch_crossbar import transfer_matrix
from simrun_torch_crossbar.elimination import flops

OHMS = (5.0, 2.0, 2.0, 5.0)


def conductances(n, tiles=None):
    generator = torch.Generator().manual_seed(n)
    shape = (n, n) if tiles is None else (tiles, n, n)
    return 1 / (1e5 + 9e5 * torch.rand(shape, generator=generator, dtype=torch.float64))


def nodal(G, r):
    """Return the admittance matrix and the right sides for W: one column a bit line."""
    m, n = G.shape
    word = np.arange(m * n).reshape(m, n)
    bit = word + m * n
    a = np.r_[word.ravel(), word[:, :-1].ravel(), bit[:-1].ravel()]
    b = np.r_[bit.ravel(), word[:, 1:].ravel(), bit[1:].ravel()]
    wires = [np.full(m * (n - 1), 1 / r[1]), np.full((m - 1) * n, 1 / r[2])]
    g = np.concatenate([G.ravel(), *wires])
    ends = np.zeros(2 * m * n)
    ends[word[:, 0]] += 1 / r[0]
    ends[bit[-1]] += 1 / r[3]
    diagonal = np.bincount(a, g, 2 * m * n) + np.bincount(b, g, 2 * m * n) + ends
    every = np.arange(2 * m * n)
    Y = sparse.coo_matrix(
        (np.r_[diagonal, -g, -g], (np.r_[every, a, b], np.r_[every, b, a])), shape=2 * (2 * m * n,)
    )
    right = np.zeros((2 * m * n, n))
    right[bit[-1], np.arange(n)] = 1 / r[3]
    return Y, right, word[:, 0]


def superlu(G, r):
    Y, right, first = nodal(G, r)
    found = splu(Y.tocsc(), permc_spec="MMD_AT_PLUS_A", options={"SymmetricMode": True})
    return found.solve(right)[first] / r[0]


def pardiso(G, r):
    import pypardiso

    Y, right, first = nodal(G, r)
    solver = pypardiso.PyPardisoSolver(mtype=2)  # symmetric positive definite: a triangle
    W = solver.solve(sparse.triu(Y.tocsr(), format="csr"), right)[first] / r[0]
    solver.free_memory(everything=True)
    return W


def badcrossbar(G, r, V):
    import badcrossbar as peer

    logging.disable(logging.INFO)
    found = peer.compute(V.T, 1 / G, r_i_word_line=r[1], r_i_bit_line=r[2], node_voltages=False)
    return found.currents.output


def seconds(function, *arguments):
    start = time.perf_counter()
    result = function(*arguments)
    return time.perf_counter() - start, result


def interleaved(contestants, repeats):
    """Return the median seconds and last result of each, measured in turn."""
    times = {name: [] for name in contestants}
    results = {}
    for _ in range(repeats):
        for name, (function, *arguments) in contestants.items():
            took, results[name] = seconds(function, *arguments)
            times[name].append(took)
    return {name: statistics.median(x) for name, x in times.items()}, times, results


def peers(n, repeats):
    G = conductances(n)
    transfer_matrix(G, OHMS)  # compiled, planned, and in memory
    contestants = {"simrun": (transfer_matrix, G, OHMS), "SuperLU": (superlu, G.numpy(), OHMS)}
    try:
        import pypardiso  # noqa: F401

        contestants["PARDISO"] = (pardiso, G.numpy(), OHMS)
    except ImportError:
        pass
    if n >= 512:
        contestants.pop("SuperLU" if "PARDISO" in contestants else "")
    took, _, found = interleaved(contestants, repeats)
    W = found["simrun"].numpy()
    for name in set(contestants) - {"simrun"}:
        difference = np.abs(found[name] - W).max() / W.max()
        ratio = took[name] / took["simrun"]
        print(f"| all of W, {n}² | {name} {took[name]:.3g} s, simrun {took['simrun']:.3g} s"
              f" | {ratio:.0f} | difference {difference:.0e} |", flush=True)  # fmt: skip


def against_badcrossbar(n, repeats):
    try:
        import badcrossbar as _
    except ImportError:
        return
    G, r = conductances(n), (2.0, 2.0, 2.0, 2.0)
    V = np.random.default_rng(0).random((100, n))
    took, _, found = interleaved(
        {"simrun": (transfer_matrix, G, r), "badcrossbar": (badcrossbar, G.numpy(), r, V)}, repeats
    )
    I = V @ found["simrun"].numpy()  # noqa: E741
    difference = np.abs(found["badcrossbar"] - I).max() / I.max()
    print(f"| W against 100 inputs, {n}² | badcrossbar {took['badcrossbar']:.3g} s, simrun"
          f" {took['simrun']:.3g} s | {took['badcrossbar'] / took['simrun']:.0f}"
          f" | difference {difference:.0e} |", flush=True)  # fmt: skip


def rate(n, repeats, threads):
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    G, A = conductances(n), torch.rand(1024, 1024, dtype=torch.float64)
    contestants = {"simrun": (transfer_matrix, G, OHMS), "dgemm": (torch.mm, A, A)}
    for function, *arguments in contestants.values():
        function(*arguments)
    took, times, _ = interleaved(contestants, repeats)
    torch.set_num_threads(before)
    ours, theirs = flops(n, n) / took["simrun"] / 1e9, 2 * 1024**3 / took["dgemm"] / 1e9
    best = flops(n, n) / min(times["simrun"]) / (2 * 1024**3 / min(times["dgemm"]))
    print(f"| arithmetic rate, {n}², {threads} thread{'s' * (threads > 1)} | simrun {ours:.1f}"
          f" GFLOP/s, product {theirs:.1f} GFLOP/s | {ours / theirs:.2f} (best of each {best:.2f})"
          f" | |", flush=True)  # fmt: skip


def many(n, tiles, repeats):
    G = conductances(n, tiles)
    took, times, _ = interleaved(
        {"all": (transfer_matrix, G, OHMS), "one": (transfer_matrix, G[0], OHMS)}, repeats
    )
    ratio = took["all"] / tiles / took["one"]
    best = min(times["all"]) / tiles / min(times["one"])
    print(f"| {tiles} tiles of {n}² against {tiles} times one | {took['all']:.3g} s,"
          f" one {took['one']:.3g} s | {ratio:.2f} (best of each {best:.2f}) | |",
          flush=True)  # fmt: skip


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=[64, 128, 256, 512])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--peer-repeats", type=int, default=3)
    options = parser.parse_args()
    print(
        f"{datetime.date.today()}, torch {torch.__version__}, {torch.get_num_threads()} threads\n"
    )
    print("| what | median | ratio | |\n|---|---|---|---|")
    for threads in sorted({1, torch.get_num_threads()}):
        rate(512, 2 * options.repeats, threads)
    many(128, 64, options.repeats)
    for size in options.sizes:
        peers(size, options.peer_repeats)
        if size >= 256:
            against_badcrossbar(size, options.peer_repeats)
