"""Calls of the same kernels on a GPU: compiled by NVRTC at first use, launched by the driver.

No GPU, no nvcc and no link against libtorch are needed to install. Results are the full couplings,
both triangles, which torch takes on from there.
"""

from __future__ import annotations

import ctypes
import logging
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np
import torch

from simrun_torch_crossbar.elimination import Front, Kind, Zeros
from simrun_torch_crossbar.kernels.build import SOURCES
from simrun_torch_crossbar.kernels.program import Program, program

THREADS = 128
_SUFFIX = {torch.float32: "f32", torch.float64: "f64"}
_MAX_DYNAMIC_SHARED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES

log = logging.getLogger(__name__)


def shared_bytes(code: Program, dtype: torch.dtype) -> int:
    """Return the shared memory that one block of threads needs: one block of devices, the wires."""
    return (code.numbers + 4) * dtype.itemsize


def base(zeros: Zeros, dtype: torch.dtype, device: torch.device) -> int:
    """Return the side of the largest blocks of devices of which three fit in shared memory at once.

    1 where there are no kernels: then torch begins at single devices.
    """
    if not available(device.index or 0):
        return 1
    have = torch.cuda.get_device_properties(device).shared_memory_per_block_optin
    for side in (16, 8, 4):
        inner = Kind(side, side, False, False, False, False)
        if 3 * shared_bytes(program(inner, zeros), dtype) <= have:
            return side
    return 1


@cache
def available(device: int) -> bool:
    """Whether kernels for this GPU could be compiled and loaded."""
    try:
        _function("crossbar_blocks_f64", device)
    except OSError as error:
        log.warning(
            "crossbar kernels unavailable on cuda:%d, torch is used instead: %s", device, error
        )
        return False
    return True


def _open(*names: str) -> ctypes.CDLL:
    """Return the first library that can be loaded; torch's wheels bring NVRTC in a folder."""
    nvidia = Path(torch.__file__).parents[1] / "nvidia"
    found = [str(path) for name in names for path in sorted(nvidia.glob(f"**/{name}"))]
    for name in (*names, *found):
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    raise OSError(f"none of {', '.join(names)} could be loaded")


def compile_for(architecture: str) -> bytes:
    """Return the kernels' machine code for an architecture such as ``sm_90``, by NVRTC.

    Raises
    ------
    OSError
        NVRTC is missing or refused; the message holds its log.
    """
    major = (torch.version.cuda or "13").split(".")[0]
    nvrtc = _open(f"libnvrtc.so.{major}", "libnvrtc.so")
    handle = ctypes.c_void_p()
    source = SOURCES[0].read_bytes()
    nvrtc.nvrtcCreateProgram(ctypes.byref(handle), source, b"blocks.cu", 0, None, None)
    options = [f"--gpu-architecture={architecture}".encode(), b"--std=c++17"]
    failed = nvrtc.nvrtcCompileProgram(
        handle, len(options), (ctypes.c_char_p * len(options))(*options)
    )
    size = ctypes.c_size_t()
    try:
        if failed:
            nvrtc.nvrtcGetProgramLogSize(handle, ctypes.byref(size))
            text = ctypes.create_string_buffer(size.value)
            nvrtc.nvrtcGetProgramLog(handle, text)
            raise OSError(f"NVRTC, {architecture}: {text.value.decode(errors='replace')}")
        nvrtc.nvrtcGetCUBINSize(handle, ctypes.byref(size))
        code = ctypes.create_string_buffer(size.value)
        nvrtc.nvrtcGetCUBIN(handle, code)
        return code.raw
    finally:
        nvrtc.nvrtcDestroyProgram(ctypes.byref(handle))


def _check(result: int, what: str) -> None:
    if result:
        raise OSError(f"CUDA driver: {what} failed with error {result}")


@cache
def _driver() -> ctypes.CDLL:
    return _open("libcuda.so.1", "libcuda.so")


@cache
def _module(device: int) -> ctypes.c_void_p:
    major, minor = torch.cuda.get_device_capability(device)
    code = compile_for(f"sm_{major}{minor}")
    with torch.cuda.device(device):
        torch.cuda.current_stream().synchronize()  # the device's context exists from here on
        module = ctypes.c_void_p()
        _check(_driver().cuModuleLoadData(ctypes.byref(module), code), "cuModuleLoadData")
    return module


@cache
def _function(name: str, device: int) -> ctypes.c_void_p:
    function = ctypes.c_void_p()
    _check(
        _driver().cuModuleGetFunction(ctypes.byref(function), _module(device), name.encode()),
        f"cuModuleGetFunction({name})",
    )
    limit = torch.cuda.get_device_properties(device).shared_memory_per_block_optin
    _check(_driver().cuFuncSetAttribute(function, _MAX_DYNAMIC_SHARED, limit), "cuFuncSetAttribute")
    return function


def blocks(
    G: torch.Tensor, front: Front, zeros: Zeros, wires: Sequence[float], out: torch.Tensor
) -> None:
    """Make all blocks of a front from their devices.

    Parameters
    ----------
    G : Tensor, shape (tiles, m, n), contiguous, on a GPU
        Conductances in siemens.
    front : Front
        At most ``base`` x ``base`` devices.
    zeros : Zeros
        The wires that are shorts.
    wires : sequence of 4 floats
        Conductances of source, word-line, bit-line and sense wires in siemens.
    out : Tensor, shape (front.count * tiles, ports, ports), contiguous
        Written.
    """
    code = program(front.kind, zeros)
    tiles, m, n = G.shape
    device = G.device.index or 0
    here = {"device": G.device}
    text = torch.from_numpy(code.code).to(**here)
    siemens = torch.tensor(wires, dtype=torch.float64, **here)
    origins = torch.from_numpy((front.origins[:, 0] * n + front.origins[:, 1]).astype(np.int64)).to(
        **here
    )
    count = front.count * tiles
    arguments = [
        ctypes.c_void_p(text.data_ptr()), ctypes.c_int(code.slots), ctypes.c_int(code.entries),
        ctypes.c_int(code.nodes), ctypes.c_int(code.ports), ctypes.c_void_p(siemens.data_ptr()),
        ctypes.c_void_p(G.data_ptr()), ctypes.c_void_p(origins.data_ptr()),
        ctypes.c_longlong(count), ctypes.c_longlong(tiles), ctypes.c_longlong(m * n),
        ctypes.c_longlong(n), ctypes.c_void_p(out.data_ptr()),
    ]  # fmt: skip
    pointers = (ctypes.c_void_p * len(arguments))(
        *(ctypes.cast(ctypes.pointer(x), ctypes.c_void_p) for x in arguments)
    )
    # As many as there are blocks, up to plenty for every multiprocessor; each strides on.
    grid = min(count, 32 * torch.cuda.get_device_properties(device).multi_processor_count)
    function = _function(f"crossbar_blocks_{_SUFFIX[G.dtype]}", device)
    with torch.cuda.device(device):
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        _check(
            _driver().cuLaunchKernel(
                function, grid, 1, 1, THREADS, 1, 1, shared_bytes(code, G.dtype), stream,
                pointers, None,
            ),
            "cuLaunchKernel",
        )  # fmt: skip
