"""Checks and times the crossbar solver on a GPU, in under 8 minutes. Exits with 1 if a check fails.

python benchmarks/gpu_crossbar.py
"""

import sys
import time

import torch

from simrun_torch_crossbar import node_voltages, transfer_matrix
from simrun_torch_crossbar.elimination import Zeros, flops
from simrun_torch_crossbar.kernels import cuda

OHMS = (5.0, 2.0, 2.0, 5.0)
LIMIT = 7 * 60
STARTED = time.monotonic()
FAILED = []


def conductances(*shape, dtype=torch.float64):
    generator = torch.Generator().manual_seed(0)
    return (1 / (1e4 + 9e4 * torch.rand(shape, generator=generator, dtype=torch.float64))).to(dtype)


def check(what, error, tolerance):
    good = error <= tolerance
    print(f"{'ok  ' if good else 'FAIL'} {what}: {error:.1e}, allowed {tolerance:.0e}", flush=True)
    if not good:
        FAILED.append(what)


def timed(function, repeats=5):
    function()
    times = []
    for _ in range(repeats):
        torch.cuda.synchronize()
        start = time.perf_counter()
        function()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return sorted(times)[len(times) // 2]


def late():
    return time.monotonic() - STARTED > LIMIT


if not torch.cuda.is_available():
    sys.exit("no GPU")
device = torch.device("cuda", torch.cuda.current_device())
print(torch.cuda.get_device_name(device), torch.__version__, torch.version.cuda)
for dtype in (torch.float32, torch.float64):
    side = cuda.base(Zeros(False, False, False, False), dtype, device)
    print(f"{dtype}: blocks of {side} x {side} devices in shared memory")
    check(f"{dtype}: kernels are compiled and loaded", float(side == 1), 0)

for shape in [(1, 1), (3, 1, 9), (9, 1), (5, 17, 33), (2, 128, 128), (300, 400)]:
    for r in [OHMS, (0, 1, 2, 0), (5, 0, 2, 5), (5, 2, 0, 5), (0, 0, 0, 0), (5, 0, 0, 5)]:
        for dtype, tolerance in ((torch.float64, 1e-12), (torch.float32, 1e-5)):
            G = conductances(*shape, dtype=dtype)
            here = transfer_matrix(G.double(), r)
            there = transfer_matrix(G.to(device), r).cpu().double()
            error = ((there - here).abs().max() / here.abs().max()).item()
            check(f"{shape} {r} {dtype} against the CPU", error, tolerance)

G = conductances(7, 96, 80).to(device)
alone = torch.stack([transfer_matrix(tile, OHMS) for tile in G])
for group in (None, 2, 7):
    # Bitwise is the aim; torch's batched factorisations decide it above the kernels' blocks.
    different = (transfer_matrix(G, OHMS, group=group) != alone).sum().item()
    check(f"entries that differ from tiles solved alone, group {group}", float(different), 0)

leaf, there = conductances(2, 20, 30).requires_grad_(), conductances(2, 20, 30).to(device)
there.requires_grad_()
transfer_matrix(leaf, OHMS).square().sum().backward()
transfer_matrix(there, OHMS).square().sum().backward()
check(
    "gradient", ((there.grad.cpu() - leaf.grad).abs().max() / leaf.grad.abs().max()).item(), 1e-10
)
V = torch.ones(2, 1, 20, dtype=torch.float64)
here = node_voltages(leaf.detach(), V, OHMS)[0]
check(
    "voltages",
    (node_voltages(there.detach(), V.to(device), OHMS)[0].cpu() - here).abs().max().item(),
    1e-12,
)

print(
    "\n| dtype | tiles | size | seconds | GFLOP/s | pure torch, seconds | CPU, seconds | peak MB |"
)
print("|---|---|---|---|---|---|---|---|")
for dtype in (torch.float64, torch.float32):
    for tiles, n in [(1, 128), (64, 128), (512, 128), (1, 256), (1, 512), (8, 512), (1, 1024)]:
        if late():
            break
        G = conductances(tiles, n, n, dtype=dtype)
        there = G.to(device)
        torch.cuda.reset_peak_memory_stats()
        took = timed(lambda there=there: transfer_matrix(there, OHMS))
        peak = torch.cuda.max_memory_allocated() / 1e6
        kernels, cuda.base = cuda.base, lambda *_: 1
        plain = timed(lambda there=there: transfer_matrix(there, OHMS), 1)
        cuda.base = kernels
        start = time.perf_counter()
        transfer_matrix(G, OHMS)
        on_cpu = time.perf_counter() - start
        print(f"| {dtype} | {tiles} | {n} | {took:.4f} | {flops(n, n) * tiles / took / 1e9:.0f}"
              f" | {plain:.4f} | {on_cpu:.4f} | {peak:.0f} |", flush=True)  # fmt: skip

print(f"\n{time.monotonic() - STARTED:.0f} s; {len(FAILED)} checks failed")
sys.exit(bool(FAILED))
