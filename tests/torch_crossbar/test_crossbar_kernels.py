"""The compiled kernels: how they are built, that they are optional, and their CUDA side."""

import ctypes
import os
import shutil
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch

from simrun_torch_crossbar import transfer_matrix
from simrun_torch_crossbar.elimination import Zeros, fronts
from simrun_torch_crossbar.kernels import build, cpu, cuda
from simrun_torch_crossbar.kernels.program import program

OHMS = (50.0, 1.0, 2.0, 20.0)
needs_compiler = pytest.mark.skipif(not cpu.available(), reason="no C++ compiler here")


@needs_compiler
def test_many_may_build_at_once(tmp_path):
    with ThreadPoolExecutor(3) as pool:
        libraries = set(pool.map(build.build, [tmp_path] * 3))
    assert list(tmp_path.iterdir()) == list(libraries)  # and no scratch is left
    assert ctypes.CDLL(str(libraries.pop())).crossbar_vector_bytes() in (16, 32, 64)


@needs_compiler
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_has_threads_of_its_own():
    code = """
        import os, torch
        from simrun_torch_crossbar import transfer_matrix
        torch.set_num_threads(2)
        G = torch.full((60, 60), 1e-4, dtype=torch.float64)
        W = transfer_matrix(G, (1, 2, 3, 4))
        child = os.fork()
        if child == 0:
            os._exit(0 if torch.equal(transfer_matrix(G, (1, 2, 3, 4)), W) else 1)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    """
    assert _run(code, PATH="/usr/bin:/bin", HOME=str(Path.home())).stdout.split() == ["0"]


@needs_compiler
def test_callers_in_several_threads():
    G = torch.full((4, 80, 60), 1e-4, dtype=torch.float64)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        expected = transfer_matrix(G, OHMS)
        with ThreadPoolExecutor(4) as pool:
            found = list(pool.map(lambda _: transfer_matrix(G, OHMS), range(12)))
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(W, expected) for W in found)


def _run(code, **environment):
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )


SOLVE = """
    import torch
    from simrun_torch_crossbar import transfer_matrix
    from simrun_torch_crossbar.kernels import cpu
    W = transfer_matrix(torch.full((20, 30), 1e-4, dtype=torch.float64), (1, 2, 3, 4))
    print(cpu.available(), W.sum().item())
"""


@pytest.mark.parametrize("why", ["no compiler", "broken compiler", "switched off", "no cache"])
def test_kernels_are_optional(why, tmp_path):
    expected = transfer_matrix(torch.full((20, 30), 1e-4, dtype=torch.float64), (1, 2, 3, 4))
    environment = {"PATH": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache"), "HOME": "/"}
    if why == "broken compiler":
        (tmp_path / "g++").write_text("#!/bin/sh\necho 'no space left' >&2\nexit 1\n")
        (tmp_path / "g++").chmod(0o755)
    if why == "switched off":
        environment["SIMRUN_CROSSBAR_KERNELS"] = "0"
    if why == "no cache":
        (tmp_path / "cache").write_text("a file where a folder is wanted")
        environment["PATH"] = "/usr/bin:/bin"
    done = _run(SOLVE, **environment)
    available, total = done.stdout.split()
    assert available == "False"
    assert float(total) == pytest.approx(expected.sum().item(), rel=1e-13)
    reason = {"no compiler": "no C++ compiler", "broken compiler": "no space left"}
    assert reason.get(why, "") in done.stderr


@pytest.mark.skipif(not shutil.which("nvcc"), reason="no nvcc here")
@pytest.mark.parametrize("architecture", ["sm_80", "sm_90"])
def test_nvcc_compiles_the_kernels(architecture, tmp_path):
    made = tmp_path / "blocks.cubin"
    command = ["nvcc", "-std=c++17", f"-arch={architecture}", "-cubin", "-o", str(made), "-x", "cu"]
    subprocess.run([*command, str(build.SOURCES[0])], check=True)
    code = made.read_bytes()
    assert b"crossbar_blocks_f32" in code
    assert b"crossbar_blocks_f64" in code


@pytest.mark.parametrize("architecture", ["sm_80", "sm_90"])
def test_nvrtc_compiles_the_kernels(architecture):
    try:
        cuda._open("libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so")
    except OSError:
        pytest.skip("no NVRTC here")
    assert b"crossbar_blocks_f64" in cuda.compile_for(architecture)


# A GPU that isn't there: each of its threads is a thread here, and barriers are barriers. The
# thread sanitizer sees what two of them do to the same number without one in between.
EMULATION = r"""
#include <barrier>
#include <cstring>
#include <thread>
#include <vector>
struct Index { unsigned x; };
static thread_local Index threadIdx, blockIdx;
static Index blockDim, gridDim;
static std::barrier<>* together;
#define __syncthreads() together->arrive_and_wait()
#define __device__
#define __global__
#define __shared__
#define __forceinline__ inline
#define __CUDACC__ 1
double crossbar_shared[1 << 16];
#include SOURCE
extern "C" void run(int threads, int grid, const int* program, int slots, int entries, int nodes,
                    int ports, const double* wires, const double* G, const long long* origins,
                    long long blocks, long long tiles, long long tile, long long row, double* out) {
  std::barrier<> barrier(threads);
  together = &barrier;
  blockDim.x = threads;
  gridDim.x = grid;
  for (int b = 0; b < grid; ++b) {
    std::vector<std::thread> pool;
    for (int t = 0; t < threads; ++t)
      pool.emplace_back([=] {
        threadIdx.x = t;
        blockIdx.x = b;
        crossbar_blocks_f64(program, slots, entries, nodes, ports, wires, G, origins, blocks,
                            tiles, tile, row, out);
      });
    for (auto& thread : pool) thread.join();
  }
}
"""

EMULATE = """
    import ctypes, sys
    import numpy as np
    data = np.load(sys.argv[1])
    library = ctypes.CDLL(sys.argv[2])
    out = np.full(data["shape"], np.nan)
    pointer = lambda x: ctypes.c_void_p(x.ctypes.data)
    long = ctypes.c_longlong
    names = ("code", "wires", "G", "origins")
    code, wires, G, origins = (np.ascontiguousarray(data[x]) for x in names)
    slots, entries, nodes, ports, blocks, tiles, tile, row = data["sizes"].tolist()
    library.run(32, 2, pointer(code), slots, entries, nodes, ports, pointer(wires), pointer(G),
                pointer(origins), long(blocks), long(tiles), long(tile), long(row), pointer(out))
    np.save(sys.argv[3], out)
"""


@needs_compiler
@pytest.mark.parametrize(
    "zeros", [Zeros(False, False, False, False), Zeros(True, False, True, False)]
)
def test_cuda_side_in_threads(zeros, tmp_path):
    (tmp_path / "emulation.cpp").write_text(EMULATION)
    (tmp_path / "emulate.py").write_text(textwrap.dedent(EMULATE))
    library = tmp_path / "emulation.so"
    source = f'-DSOURCE="{build.SOURCES[0]}"'
    flags = ["-std=c++20", "-O1", "-g", "-fsanitize=thread", "-shared", "-fPIC", "-pthread"]
    made = subprocess.run(
        ["g++", *flags, source, "-o", str(library), str(tmp_path / "emulation.cpp")],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if made.returncode:
        pytest.skip(f"no thread sanitizer here: {made.stderr.strip()[:200]}")
    runtime = subprocess.run(
        ["g++", "-print-file-name=libtsan.so"], capture_output=True, text=True, check=True
    ).stdout.strip()

    tiles, m, n = 2, 11, 13
    G = 10 ** np.random.default_rng(0).uniform(-6, -3, (tiles, m, n))
    wires = np.array([0 if z else 1 / r for z, r in zip(zeros, OHMS, strict=True)])
    for front in fronts(m, n, zeros, 4):
        if front.kind.h > 4 or front.kind.w > 4:
            continue
        code = program(front.kind, zeros)
        origins = front.origins[:, 0] * n + front.origins[:, 1]
        blocks = front.count * tiles
        sizes = [code.slots, code.entries, code.nodes, code.ports, blocks, tiles, m * n, n]
        np.savez(
            tmp_path / "data.npz", code=code.code, wires=wires, G=G, origins=origins, sizes=sizes,
            shape=(blocks, code.ports, code.ports),
        )  # fmt: skip
        done = subprocess.run(
            [sys.executable, "emulate.py", "data.npz", str(library), "out.npy"],
            cwd=tmp_path, capture_output=True, text=True, check=False,
            env={"LD_PRELOAD": runtime, "TSAN_OPTIONS": "exitcode=66", "OPENBLAS_NUM_THREADS": "1"},
        )  # fmt: skip
        if "unexpected memory mapping" in done.stderr:
            pytest.skip("the thread sanitizer can't run here")
        assert done.returncode == 0, done.stderr[-3000:]
        found = np.load(tmp_path / "out.npy")

        lower = torch.empty(blocks, cpu.couplings(front), dtype=torch.float64)
        work = cpu.memory(cpu.block_work_bytes(front, zeros))
        cpu.blocks(torch.from_numpy(G), front, zeros, wires, lower, work)
        row, column = np.tril_indices(code.ports, -1)
        np.testing.assert_allclose(found[:, row, column], lower.numpy(), rtol=1e-13)
        assert (found == found.transpose(0, 2, 1)).all()
        assert not np.diagonal(found, axis1=1, axis2=2).any()
        if front.kind.h * front.kind.w >= 9:
            break  # one front of a good size is enough for a sanitizer's patience
    else:
        raise AssertionError("no block was compared")


def test_sources_are_where_they_are_looked_for():
    assert all(Path(source).is_file() for source in build.SOURCES)
