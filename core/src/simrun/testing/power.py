"""What a power cut would leave: what was synced, under the names that were synced.

The most pessimistic disk that POSIX allows: content is kept as it was when the file was last
synced, names as they were when their folder was.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from simrun.testing.faults import watched_changes


class PowerCut:
    """Follows what is synced below a folder, which exists and counts as synced.

    A sink's syncs are seen when it calls `simrun.durability`, or `os.fsync`.
    """

    def __init__(self, folder: Path) -> None:
        self._root = folder.resolve()
        self._contents: dict[int, bytes] = {}
        self._names: dict[int, dict[str, int]] = {}
        self._folders: set[int] = {self._root.stat().st_ino}

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Take note of every sync."""
        with watched_changes(after=self._changed):
            yield

    def leave(self, target: Path) -> None:
        """Write into ``target``, a new folder, what would be there after the power cut."""
        self._write(self._root.stat().st_ino, target)

    def _changed(self, name: str, arguments: tuple[Any, ...]) -> None:
        if name not in ("fsync", "fdatasync"):
            return
        path = Path(f"/proc/self/fd/{arguments[0]}").resolve()
        if not path.is_relative_to(self._root):
            return
        inode = os.fstat(arguments[0]).st_ino
        if path.is_dir():
            entries = list(os.scandir(path))
            self._names[inode] = {entry.name: entry.inode() for entry in entries}
            self._folders |= {entry.inode() for entry in entries if entry.is_dir()}
        elif path.exists():
            self._contents[inode] = path.read_bytes()

    def _write(self, inode: int, target: Path) -> None:
        if inode not in self._folders:
            target.write_bytes(self._contents.get(inode, b""))
            return
        target.mkdir()
        for name, child in self._names.get(inode, {}).items():
            self._write(child, target / name)
