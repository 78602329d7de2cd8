"""What the samples of a run may depend on: versions, machine, command, source of the model."""

from __future__ import annotations

import platform
import subprocess
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

PACKAGES = ("simrun", "numpy", "pluggy", "pydantic")


def collect(base: Path, device: str, adapter: Mapping[str, Any]) -> dict[str, Any]:
    """Facts for ``provenance.json``.

    Parameters
    ----------
    base : pathlib.Path
        The config's folder; its git commit is recorded where it has one.
    device : str
    adapter : mapping
        What `Simulation.provenance` returns.
    """
    return {
        "command": sys.argv,
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "device": device,
        "packages": {name: _version(name) for name in PACKAGES},
        "git": _git(base),
        "adapter": dict(adapter),
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _git(base: Path) -> dict[str, Any] | None:
    def ask(*arguments: str) -> str:
        return subprocess.run(
            ["git", "-C", str(base), *arguments],
            check=True,
            capture_output=True,
            text=True,
            timeout=10,
        ).stdout.strip()

    try:
        return {"commit": ask("rev-parse", "HEAD"), "changed": bool(ask("status", "--porcelain"))}
    except (OSError, subprocess.SubprocessError):
        return None
