"""What a solve is predicted to take, and what it takes."""

import subprocess
import sys
import textwrap

import pytest
import torch

from simrun_torch_crossbar.elimination import NO_SHORTS
from simrun_torch_crossbar.kernels import cpu
from simrun_torch_crossbar.memory import peak_bytes

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
    transfer_matrix(torch.full((40, 40), 1e-5, dtype=torch.float64), (5, 2, 2, 5))
    G = torch.full((tiles, n, n), 1e-5, dtype=torch.float64)
    W = torch.ones_like(G)
    del W  # its place is W's
    Path("/proc/self/clear_refs").write_text("5")
    before = peak()
    W = transfer_matrix(G, (5, 2, 2, 5), group=tiles)
    print(peak() - before - W.nbytes)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@pytest.mark.parametrize(("tiles", "n", "kernels"), [(1, 512, "1"), (8, 128, "1"), (4, 96, "0")])
def test_peak_is_as_predicted(tiles, n, kernels, monkeypatch):
    if kernels == "1" and not cpu.available():
        pytest.skip("no C++ compiler here")
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(MEASURE), str(tiles), str(n)],
        env={"SIMRUN_CROSSBAR_KERNELS": kernels, "PATH": "/usr/bin:/bin", "HOME": "/root"},
        capture_output=True,
        text=True,
        check=True,
    )
    if kernels == "0":
        monkeypatch.setattr(cpu, "available", lambda: False)
    predicted = peak_bytes(tiles, n, n, torch.float64, NO_SHORTS)
    # Beside it: the plan in Python, W's own place if not reused, and the allocator's slack.
    spare = 12e6
    assert 0.6 * predicted - spare < int(done.stdout) < 1.1 * predicted + spare


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
