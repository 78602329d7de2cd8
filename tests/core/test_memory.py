import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import psutil

from simrun import memory


def test_the_peak_is_measured_anew_after_a_reset():
    memory.reset_peak()
    base = memory.peak_resident()
    block = np.ones(40_000_000, np.uint8)
    grown = memory.peak_resident()
    assert grown - base > 35_000_000
    del block
    memory.reset_peak()
    assert memory.peak_resident() < grown - 30_000_000


def test_what_is_asked_for_is_the_budget():
    budget = memory.find_budget(1 << 30, 1 << 20, "GPU:0", shared=False)
    assert (budget.host, budget.device) == (1 << 30, 1 << 20)
    assert budget.host_source == "asked for"


def test_a_share_of_what_is_free_is_the_default():
    budget = memory.find_budget(None, None, "CPU", shared=True)
    assert budget.device is None
    available = psutil.virtual_memory().available
    assert 0 < budget.host < available + memory.resident()
    assert "90%" in budget.host_source


def write_group(root: Path, name: str, limit: str, used: int, cache: int, version: int = 2):
    group = root / name
    group.mkdir(parents=True, exist_ok=True)
    names = {
        2: ("memory.max", "memory.current", "inactive_file"),
        1: ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    }[version]
    (group / names[0]).write_text(limit + "\n")
    (group / names[1]).write_text(f"{used}\n")
    (group / "memory.stat").write_text(f"anon 1\n{names[2]} {cache}\n")


def test_every_cgroup_above_the_process_counts(tmp_path):
    write_group(tmp_path, "slurm", "1000", 700, 100)
    write_group(tmp_path, "slurm/job", "max", 600, 0)
    write_group(tmp_path, "slurm/job/task", "900", 300, 0)
    proc = tmp_path / "cgroup"
    proc.write_text("0::/slurm/job/task\n")
    found = sorted(memory._cgroups(proc, tmp_path))
    assert found == [(400, "slurm"), (600, "slurm/job/task")]


def test_version_1_cgroups_count_too(tmp_path):
    write_group(tmp_path, "memory/a", "1000", 500, 200, version=1)
    write_group(tmp_path, "memory", str(2**63 - 4096), 0, 0, version=1)
    proc = tmp_path / "cgroup"
    proc.write_text("7:cpuset:/a\n4:memory:/a\n")
    assert list(memory._cgroups(proc, tmp_path)) == [(700, "a")]


def test_a_path_out_of_this_namespace_ends_the_walk(tmp_path):
    proc = tmp_path / "cgroup"
    proc.write_text("0::/../elsewhere\n")
    assert list(memory._cgroups(proc, tmp_path)) == []


def test_the_address_space_limit_counts():
    code = (
        "import resource; from simrun import memory;"
        "resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30));"
        "free, source = memory.host_free();"
        "assert free < 2 << 30, free; assert 'ulimit' in source, source"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env=dict(os.environ))


def test_disk_free_of_a_folder_that_is_not_there_yet(tmp_path):
    assert memory.disk_free(tmp_path / "a" / "b") > 0


def test_no_gpu_is_no_error():
    assert memory.gpu_free("CPU") is None


def test_freed_memory_goes_back_to_the_system_at_once():
    code = """
import numpy as np
from simrun import memory
memory.return_large_blocks()
for _ in range(20):  # glibc would raise its threshold at the first of these
    blocks = [np.ones(20 << 20, np.uint8) for _ in range(2)]
    del blocks
    kept = [np.ones(1 << 20, np.uint8)]
memory.reset_peak()
base = memory.resident()
blocks = [np.ones(20 << 20, np.uint8) for _ in range(2)]
del blocks
assert memory.peak_resident() - base > 39 << 20, "the blocks weren't given back before"
assert memory.resident() - base < 2 << 20
"""
    subprocess.run([sys.executable, "-c", code], check=True)


class NoGpuHere:
    """The part of pynvml that is used, for a machine with two GPUs that isn't there."""

    class NVMLError(Exception):
        pass

    @staticmethod
    def nvmlInit():  # noqa: N802
        pass

    @staticmethod
    def nvmlDeviceGetHandleByIndex(index):  # noqa: N802
        if index > 1:
            raise NoGpuHere.NVMLError("no such device")
        return index

    @staticmethod
    def nvmlDeviceGetMemoryInfo(handle):  # noqa: N802
        return SimpleNamespace(free=(handle + 1) * 1000, total=5000)

    @staticmethod
    def nvmlDeviceGetCount():  # noqa: N802
        return 2

    @staticmethod
    def nvmlDeviceGetName(handle):  # noqa: N802
        return f"card {handle}"


def test_the_gpus_free_memory_is_the_drivers_word(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", NoGpuHere)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert [memory.gpu_free(f"GPU:{n}") for n in range(3)] == [1000, 2000, None]
    assert memory.gpu_free("GPU") == 1000
    budget = memory.find_budget(None, None, "GPU:1", shared=False)
    assert budget.device == 1800
    assert "90% of what is free on GPU:1" in budget.device_source
    # TensorFlow counts the visible GPUs, the driver all
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1,0")
    assert memory.gpu_free("GPU:0") == 2000


def test_every_gpu_that_the_driver_knows(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", NoGpuHere)
    assert memory.gpus() == [("card 0", 1000, 5000), ("card 1", 2000, 5000)]

    def no_driver():
        raise NoGpuHere.NVMLError

    monkeypatch.setattr(NoGpuHere, "nvmlInit", no_driver)
    assert memory.gpus() == []
