"""Compiles the CPU kernels at first use, into the user's cache. Needs a C++ compiler, or does not.

The cache's file name is a hash of source, flags, compiler and processor, and the file is renamed
into place when complete: any number of processes may build at once.
"""

from __future__ import annotations

import ctypes
import hashlib
import logging
import os
import platform
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

SOURCES = (Path(__file__).with_name("blocks.cpp"), Path(__file__).with_name("merges.cpp"))
HEADER = Path(__file__).with_name("threads.h")
FLAGS = (
    "-std=c++17", "-O3", "-march=native", "-ffp-contract=fast", "-fno-math-errno",
    "-fno-trapping-math", "-pthread", "-fPIC", "-shared",
)  # fmt: skip
SWITCH = "SIMRUN_CROSSBAR_KERNELS"

log = logging.getLogger(__name__)


def cache_folder() -> Path:
    """Return where compiled kernels are kept."""
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root) / "simrun-torch-crossbar"


def _processor() -> str:
    """Return what -march=native may depend on."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return "\n".join(x for x in lines[:40] if x.startswith(("flags", "Features", "model name")))


def _compiler() -> str | None:
    return next(filter(None, map(shutil.which, (os.environ.get("CXX", "g++"), "g++", "c++"))), None)


def build(folder: Path) -> Path:
    """Compile the kernels into ``folder`` unless they are there, and return the library.

    Raises
    ------
    OSError
        There is no compiler, or it failed; the message holds what it printed.
    """
    compiler = _compiler()
    if compiler is None:
        raise OSError("no C++ compiler: neither $CXX nor g++ nor c++ was found")
    version = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=False)
    key = hashlib.sha256()
    for part in (*FLAGS, version.stdout, platform.machine(), _processor()):
        key.update(part.encode() + b"\0")
    for source in (*SOURCES, HEADER):
        key.update(source.read_bytes())
    library = folder / f"crossbar-{key.hexdigest()[:20]}.so"
    if library.exists():
        return library
    log.info("compiling the crossbar kernels into %s (once, seconds)", library)
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        made = Path(scratch) / library.name
        command = [compiler, *FLAGS, *map(str, SOURCES), "-o", str(made)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise OSError(f"{' '.join(command)} failed:\n{done.stderr.strip()}")
        made.replace(library)
    return library


@cache
def library() -> ctypes.CDLL | None:
    """Return the loaded CPU kernels, or None where they can't be had.

    They are optional: without them torch does the same, slower. The environment variable
    SIMRUN_CROSSBAR_KERNELS=0 leaves them out.
    """
    if os.environ.get(SWITCH, "1") == "0":
        return None
    try:
        return ctypes.CDLL(str(build(cache_folder())))
    except OSError as error:
        log.warning("crossbar kernels unavailable, torch is used instead (slower): %s", error)
        return None
