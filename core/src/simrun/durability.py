"""The only place of fsync and rename: what makes a commit survive.

``durable`` says against what: True, a power cut (fsync of the file and its folder); False,
the death of the process (the kernel keeps what was written, so no fsync is needed).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path


def write_atomic(path: Path, data: bytes | Sequence[bytes], durable: bool) -> None:
    """Replace a file by new content, or its parts: a reader sees the old or the new, no mixture."""
    temporary = path.with_name(path.name + ".new")
    with temporary.open("wb") as file:
        file.writelines([data] if isinstance(data, bytes) else data)
        if durable:
            file.flush()
            sync_file(file.fileno())
    replace(temporary, path, durable)


def replace(source: Path, target: Path, durable: bool) -> None:
    """Rename ``source`` to ``target`` in one step; the content must be synced already."""
    source.replace(target)
    if durable:
        sync_directory(target.parent)


def sync_file(descriptor: int) -> None:
    """Return when the file's data and size are on stable storage."""
    os.fsync(descriptor)


def sync_directory(path: Path) -> None:
    """Return when the names in a folder are on stable storage."""
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0))
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
