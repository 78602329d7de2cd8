"""What memory and disk there is, and what this process takes: the only reader of those."""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import shutil
from collections.abc import Iterator
from pathlib import Path

import psutil

from simrun.records import Budget

# what else the machine does meanwhile must not push the run over the edge
SHARE_OF_FREE = 0.9
# a cgroup without a limit reports a number near 2**63
NO_LIMIT = 1 << 60
M_MMAP_THRESHOLD = -3  # malloc.h
LARGE_BLOCK = 4 << 20


def find_budget(host: int | None, device: int | None, device_name: str, shared: bool) -> Budget:
    """The budget of a run: what the user asks for, or what is free.

    Parameters
    ----------
    host, device : int or None
        Bytes asked for; None: a share of what is free now.
    device_name : str
        ``"CPU"`` or ``"GPU:n"``.
    shared : bool
        Whether the device's memory is the host's.
    """
    if host is None:
        free, source = host_free()
        host, host_source = int(free * SHARE_OF_FREE), f"{SHARE_OF_FREE:.0%} of {source}"
    else:
        host_source = "asked for"
    if device is not None:
        return Budget(host, device, host_source, "asked for")
    free_device = None if shared else gpu_free(device_name)
    if free_device is None:
        return Budget(host, None, host_source, "the host's memory" if shared else "unknown")
    share = int(free_device * SHARE_OF_FREE)
    return Budget(host, share, host_source, f"{SHARE_OF_FREE:.0%} of what is free on {device_name}")


def host_free() -> tuple[int, str]:
    """Bytes that this process may hold in all, and the limit that says so: the least one."""
    return min(host_limits())


def host_limits() -> list[tuple[int, str]]:
    """Bytes that this process may hold in all, by each limit that there is.

    The machine's available memory, what every cgroup above the process leaves, and the
    address-space limit, each with what the process holds already.
    """
    own = resident()
    limits = [(psutil.virtual_memory().available + own, "the machine's free memory")]
    limits += [(free + own, f"what cgroup {name} leaves") for free, name in _cgroups()]
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    if soft != resource.RLIM_INFINITY:
        spare = soft - psutil.Process().memory_info().vms
        limits.append((max(spare, 0) + own, "what the address-space limit (ulimit -v) leaves"))
    return limits


def gpu_free(device_name: str) -> int | None:
    """Free bytes of ``"GPU:n"`` by NVIDIA's management library; None where it can't tell."""
    kind, _, number = device_name.partition(":")
    if kind != "GPU":
        return None
    import pynvml

    try:
        pynvml.nvmlInit()
        handle = pynvml.nvmlDeviceGetHandleByIndex(_physical(int(number or 0)))
        return int(pynvml.nvmlDeviceGetMemoryInfo(handle).free)
    except pynvml.NVMLError:
        return None


def gpus() -> list[tuple[str, int, int]]:
    """Name, free and total bytes of each GPU that NVIDIA's management library knows."""
    import pynvml

    try:
        pynvml.nvmlInit()
        handles = map(pynvml.nvmlDeviceGetHandleByIndex, range(pynvml.nvmlDeviceGetCount()))
        named = [(pynvml.nvmlDeviceGetName(h), pynvml.nvmlDeviceGetMemoryInfo(h)) for h in handles]
    except pynvml.NVMLError:
        return []
    return [(str(name), int(sizes.free), int(sizes.total)) for name, sizes in named]


def disk_free(path: Path) -> int | None:
    """Free bytes of the file system that ``path`` is on or will be on; None where unknown."""
    while not path.exists() and path != path.parent:
        path = path.parent
    try:
        return shutil.disk_usage(path).free
    except OSError:
        return None


def resident() -> int:
    """Resident bytes of this process now."""
    return int(psutil.Process().memory_info().rss)


def peak_resident() -> int:
    """Most resident bytes of this process since `reset_peak`, or since its start."""
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    line = next(line for line in status.splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024


def reset_peak() -> None:
    """Start a new measurement of `peak_resident`, where the system lets one."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return


def return_large_blocks() -> None:
    """Have the allocator map large blocks by themselves, so that each goes back when freed.

    glibc raises its threshold for that up to 32 MiB as blocks are freed, and then keeps a
    chunk's buffers: the peak would be that of three chunks instead of two. Elsewhere nothing
    is done.
    """
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).mallopt(M_MMAP_THRESHOLD, LARGE_BLOCK)


def trim() -> None:
    """Give free memory inside the heap back to the system; glibc only.

    A large block may still have been put into a hole of the heap, where it stays resident
    after it was freed.
    """
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def _physical(index: int) -> int:
    """The number that the driver knows a visible GPU by."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    numbers = [v for v in visible.split(",") if v.strip()]
    if index < len(numbers) and numbers[index].strip().isdigit():
        return int(numbers[index])
    return index


def _cgroups(
    proc: Path = Path("/proc/self/cgroup"), root: Path = Path("/sys/fs/cgroup")
) -> Iterator[tuple[int, str]]:
    """Free bytes and name of each memory cgroup above this process that has a limit."""
    try:
        lines = proc.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "":  # version 2
            top, limit, used, cache = root, "memory.max", "memory.current", "inactive_file"
        elif "memory" in controllers.split(","):  # version 1
            top, limit = root / "memory", "memory.limit_in_bytes"
            used, cache = "memory.usage_in_bytes", "total_inactive_file"
        else:
            continue
        group = top / path.lstrip("/")
        while True:
            free = _cgroup_free(group, limit, used, cache)
            if free is not None:
                yield free, str(group.relative_to(top))
            if group == top:
                break
            group = group.parent


def _cgroup_free(group: Path, limit: str, used: str, cache: str) -> int | None:
    try:
        text = (group / limit).read_text().strip()
        if text == "max" or int(text) >= NO_LIMIT:
            return None
        statistics = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
        # cached file pages count as used but are given up when memory is wanted
        taken = int((group / used).read_text()) - int(statistics.get(cache, 0))
        return max(int(text) - taken, 0)
    except (OSError, ValueError):
        return None
