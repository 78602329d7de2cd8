"""Measures what a call takes on the device: the only place that knows the process's memory."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil
import torch

LARGE = 1 << 20
"""Bytes from which an array gets pages of its own, which go back when it is freed."""

HOLES = 1.15
"""What the heap of smaller arrays grows to in many calls, against the three measured."""

_M_MMAP_THRESHOLD = -3  # malloc.h


def steady_heap() -> None:
    """Let large arrays leave no holes in the heap (glibc's `mallopt`), so that peaks repeat.

    Otherwise glibc takes arrays of up to 32 MiB from its heap once it has seen some, and what a
    run takes varies by 5 % with the order in which they come and go.
    """
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, LARGE)


def resident() -> int:
    """Resident bytes of this process."""
    return int(psutil.Process().memory_info().rss)


def peak_of(call: Callable[[], object], device: torch.device) -> int:
    """Bytes by which a call's peak exceeds what was there before.

    The first call, which loads libraries and compiles what torch compiles, isn't measured; the
    next three are, since the heap gets its holes only by and by. Without Linux's ``/proc`` a
    CPU's peak can't be told, and 0 is returned.
    """
    call()
    gc.collect()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        call()
        torch.cuda.synchronize(device)
        return torch.cuda.max_memory_allocated(device) - before
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)  # holes of the heap would hide what is taken
    try:
        Path("/proc/self/clear_refs").write_text("5")
        before = resident()
        for _ in range(3):
            call()
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return 0
    peak = next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) * 1024
    return round(max(peak - before, 0) * HOLES)
