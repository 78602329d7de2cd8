"""What a solve is predicted to take, and what it takes."""

import subprocess
import sys
import textwrap

import pytest
import torch

from simrun_torch_crossbar.elimination import NO_SHORTS
from simrun_torch_crossbar.kernels import cpu
from simrun_torch_crossbar.memory import peak_bytes, plan_bytes

# /proc knows the largest resident size since it was last told to forget (5 to clear_refs).
MEASURE = """
    import sys, torch
    from pathlib import Path
    from simrun_torch_crossbar import transfer_matrix

    def peak():
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(x.split()[1]) for x in lines if x.startswith("VmHWM")) * 1024

    tiles, n = map(int, sys.argv[1:])
    torch.set_num_threads(1)
    # the libraries are there, and no plan for these tiles
    transfer_matrix(torch.full((3, 3), 1e-5, dtype=torch.float64), (5, 0, 2, 5))
    G = torch.full((tiles, n, n), 1e-5, dtype=torch.float64)
    W = torch.ones_like(G)
    del W  # its place is W's
    Path("/proc/self/clear_refs").write_text("5")
    before = peak()
    W = transfer_matrix(G, (5, 2, 2, 5), group=tiles)
    print(peak() - before - W.nbytes)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@pytest.mark.parametrize(
    ("tiles", "n", "kernels"),
    [(1, 128, "1"), (8, 128, "1"), (16, 64, "1"), (1, 512, "1"), (1, 512, "0")],
)
def test_peak_is_as_predicted(tiles, n, kernels, monkeypatch):
    if kernels == "1" and not cpu.available():
        pytest.skip("no C++ compiler here")
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(MEASURE), str(tiles), str(n)],
        env={
            "SIMRUN_CROSSBAR_KERNELS": kernels,
            "PATH": "/usr/bin:/bin",
            "HOME": "/root",
            # as simrun sets it: large blocks go back when they are freed
            "MALLOC_MMAP_THRESHOLD_": str(4 << 20),
        },
        capture_output=True,
        text=True,
        check=True,
    )
    if kernels == "0":
        monkeypatch.setattr(cpu, "available", lambda: False)
    predicted = peak_bytes(tiles, n, n, torch.float64, NO_SHORTS) + plan_bytes(n, n)
    # 10 % and 2 %, and what Python and the allocator round up in a process: half a megabyte
    assert int(done.stdout) < 1.02 * predicted + 0.5e6
    assert predicted < 1.1 * int(done.stdout) + 0.5e6


def test_a_large_tile_fits():
    # 1024 x 1024 in under 6 GB: with the kernels, in a tenth of it.
    assert peak_bytes(1, 1024, 1024, torch.float64, NO_SHORTS) < 6e9
    if cpu.available():
        assert peak_bytes(1, 1024, 1024, torch.float64, NO_SHORTS) < 0.6e9


def test_tiles_of_a_group_add_up():
    if not cpu.available():
        pytest.skip("no C++ compiler here")
    one, three = (peak_bytes(k, 64, 64, torch.float32, NO_SHORTS) for k in (1, 3))
    assert one < three <= 3 * one
