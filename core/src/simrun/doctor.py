"""Looks at the machine and at what is installed, for ``simrun doctor``."""

from __future__ import annotations

import platform
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from simrun import __version__, discovery, memory
from simrun.plugins import describe

# what a feature needs beside its distribution: package, what for, the extra with it
EXTRAS = (
    ("nengo-ocl", "the nengo_ocl simulator", "simrun-nengo[ocl]"),
    ("xarray", "Run.to_xarray()", "simrun[xarray]"),
    ("matplotlib", "simrun plot", "simrun[plot]"),
    ("hdf5plugin", "zstd and blosc2 in HDF5 files", "simrun-storage-hdf5[compression]"),
    ("s3fs", "s3:// URLs of the zarr sink", "simrun-storage-zarr[s3]"),
)
# plugins that come with a distribution but need its extra: without it they are missing, not ill
NEEDS = {"nengo_ocl": "nengo-ocl"}
IMPORT_SECONDS = 300
# imported in a process of its own: it may be slow, print, or die
_IMPORT = """
import sys
from simrun.adapter import resolve
from simrun.plugins import select
kind, name = sys.argv[1:]
if kind == "adapter":
    resolve(select(name, "npy").adapter.factory)
else:
    resolve(select(None, name).sink.sink)
"""


def examine(folder: Path) -> dict[str, Any]:
    """Facts about this machine, as JSON values.

    Parameters
    ----------
    folder : pathlib.Path
        Whose disk is of interest.

    Returns
    -------
    dict
        ``simrun``, ``python``, ``platform``: versions. ``memory``: each limit on the host's
        memory (``limit``, free ``bytes``). ``gpus``: ``name``, ``free`` and ``total`` bytes.
        ``disk``: free bytes. ``plugins``: ``name``, ``kind``, ``distribution``, ``version`` and
        ``problem`` (empty: it imports). ``missing``: what isn't installed, ``what`` and ``how``.
    """
    rows = [row for row in describe() if _version(NEEDS.get(row.name, "simrun")) is not None]
    plugins = [
        {
            "name": row.name,
            "kind": row.kind,
            "distribution": row.distribution,
            "version": row.version,
            "problem": _problem(row.kind, row.name) if row.status == "ok" else row.status,
        }
        for row in rows
    ]
    there = {row.name for row in rows}
    missing = [
        {"what": f"plugin {name}", "how": f"pip install {distribution}"}
        for name, distribution in discovery.KNOWN.items()
        if name not in there and name not in NEEDS
    ]
    missing += [
        {"what": f"{package} ({purpose})", "how": f'pip install "{extra}"'}
        for package, purpose, extra in EXTRAS
        if _version(package) is None
    ]
    return {
        "simrun": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "memory": [{"limit": name, "bytes": free} for free, name in memory.host_limits()],
        "gpus": [
            {"name": name, "free": free, "total": total} for name, free, total in memory.gpus()
        ],
        "disk": memory.disk_free(folder),
        "plugins": plugins,
        "missing": missing,
    }


def _problem(kind: str, name: str) -> str:
    """Why a simulator or a sink can't be imported; empty when it can."""
    if kind not in ("adapter", "sink"):
        return ""
    try:
        child = subprocess.run(
            [sys.executable, "-c", _IMPORT, kind, name],
            capture_output=True,
            text=True,
            timeout=IMPORT_SECONDS,
        )
    except subprocess.TimeoutExpired:
        return f"importing it took longer than {IMPORT_SECONDS} s"
    if child.returncode == 0:
        return ""
    lines = [line.strip() for line in child.stderr.splitlines() if line.strip()]
    return lines[-1] if lines else f"importing it ended the process with {child.returncode}"


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
