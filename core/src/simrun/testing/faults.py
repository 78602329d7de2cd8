"""What goes wrong in the world: memory that runs out, processes that die, disks that are full.

`oom_at` and `kill_at` make plugins, for ``simrun.run(config, plugins=[faults.oom_at(30)])``. The
others are context managers.
"""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from simrun.adapter import Simulation
from simrun.hookspecs import hookimpl
from simrun.records import Chunk, ChunkCommitted, ProbeBlock
from simrun.sink import Sink

#: Functions of `os` that change a file system, or make a change last.
CHANGES = (
    "fdatasync", "fsync", "ftruncate", "link", "mkdir", "pwrite", "pwritev", "remove", "rename",
    "replace", "rmdir", "symlink", "truncate", "unlink", "write", "writev",
)  # fmt: skip
#: Where `kill_at` may kill. A run passes by at the first three; a sink by `KillAt.around`.
LABELS = (
    "before chunk", "after chunk", "after report", "before append", "after append",
    "before commit", "after commit", "before manifest", "after manifest", "before finish",
    "after finish", "before tidy", "after tidy", "change",
)  # fmt: skip


class OomAt:
    """A plugin: memory runs out at a step; see `oom_at`."""

    def __init__(self, step: int, times: int) -> None:
        self.step = step
        self.left = times

    @hookimpl(wrapper=True)
    def simrun_execute_chunk(
        self, simulation: Simulation, chunk: Chunk
    ) -> Generator[None, ProbeBlock, ProbeBlock]:
        """Fail after the chunk was executed: its undoing is then the most work."""
        block = yield
        if self.left and chunk.start < self.step <= chunk.stop:
            self.left -= 1
            raise MemoryError(f"told to run out at step {self.step}")
        return block


def oom_at(step: int, times: int = 1) -> OomAt:
    """A plugin that raises `MemoryError` in the chunk that contains a step.

    Parameters
    ----------
    step : int
        Counted from 1.
    times : int
        The chunk fails so often, then goes through.
    """
    return OomAt(step, times)


class KillAt:
    """A plugin that kills its process; see `kill_at`."""

    def __init__(self, label: str, count: int) -> None:
        if label not in LABELS:
            raise ValueError(f"found {label!r}; allowed: {', '.join(LABELS)}")
        self.label = label
        self.count = count
        self.passed = 0

    def pass_by(self, label: str) -> None:
        """Die, if it is time."""
        self.passed += label == self.label
        if label == self.label and self.passed == self.count:
            os.kill(os.getpid(), signal.SIGKILL)

    @hookimpl(wrapper=True)
    def simrun_execute_chunk(
        self, simulation: Simulation, chunk: Chunk
    ) -> Generator[None, ProbeBlock, ProbeBlock]:
        """Before and after a chunk."""
        self.pass_by("before chunk")
        block = yield
        self.pass_by("after chunk")
        return block

    @hookimpl
    def simrun_chunk_committed(self, record: ChunkCommitted) -> None:
        """After observers could hear of a commit."""
        self.pass_by("after report")

    def around(self, sink: Sink) -> Any:
        """The sink, with a label before and after each call."""
        return _Watched(sink, self.pass_by)


def kill_at(label: str, count: int = 1) -> KillAt:
    """A plugin that kills the process by SIGKILL when it comes by a label for a certain time.

    Parameters
    ----------
    label : str
        One of `LABELS`.
    count : int
        The first time, the second, …
    """
    return KillAt(label, count)


class _Watched:
    def __init__(self, sink: Sink, pass_by: Callable[[str], None]) -> None:
        self._sink = sink
        self._pass_by = pass_by

    def __getattr__(self, name: str) -> Any:
        function = getattr(self._sink, name)
        if name not in ("append", "commit", "finish", "tidy"):
            return function

        def watched(*arguments: Any) -> Any:
            self._pass_by(f"before {name}")
            result = function(*arguments)
            self._pass_by(f"after {name}")
            return result

        return watched


@contextmanager
def watched_changes(
    before: Callable[[str, tuple[Any, ...]], None] = lambda *_: None,
    after: Callable[[str, tuple[Any, ...]], None] = lambda *_: None,
) -> Iterator[None]:
    """Call ``before(name, arguments)`` and ``after`` around every function of `CHANGES`.

    Files that C code writes, and Python's own ``open(...).write``, aren't seen.
    """
    originals = {name: getattr(os, name) for name in CHANGES}

    def wrap(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def changed(*arguments: Any, **keywords: Any) -> Any:
            before(name, arguments)
            result = function(*arguments, **keywords)
            after(name, arguments)
            return result

        return changed

    for name, function in originals.items():
        setattr(os, name, wrap(name, function))
    try:
        yield
    finally:
        for name, function in originals.items():
            setattr(os, name, function)


@contextmanager
def slow_disk(seconds: float) -> Iterator[None]:
    """Each change of a file system takes so much longer."""
    with watched_changes(before=lambda *_: time.sleep(seconds)):
        yield


@contextmanager
def limited_files(size: int) -> Iterator[None]:
    """No file can grow beyond ``size`` bytes: writing raises `OSError` (EFBIG)."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


class SmallDisk:
    """A file system of its own; see `small_disk`."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def resize(self, size: int) -> None:
        """Make room."""
        subprocess.run(["mount", "-o", f"remount,size={size}", str(self.path)], check=True)


@contextmanager
def small_disk(path: Path, size: int) -> Iterator[SmallDisk | None]:
    """A disk of ``size`` bytes at a folder that exists; None where nothing may be mounted."""
    words = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(path)]
    if shutil.which("mount") is None or subprocess.run(words, capture_output=True).returncode:
        yield None
        return
    try:
        yield SmallDisk(path)
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True)


class Lines:
    """The lines of code that were executed, and the one that fails; see `failing_line`."""

    def __init__(self, code: Sequence[Path], fail_at: int | None) -> None:
        self.seen: list[tuple[str, int]] = []
        self.failed = False
        self._fail_at = fail_at
        self._prefixes = tuple(str(path) for path in code)

    def trace(self, frame: FrameType, event: str, argument: Any) -> Any:
        """For `sys.settrace`."""
        if not frame.f_code.co_filename.startswith(self._prefixes):
            return None
        if event == "line":
            self.seen.append((frame.f_code.co_filename, frame.f_lineno))
            if self._fail_at == len(self.seen) and not self.failed:
                self.failed = True
                raise MemoryError(f"told to run out at {frame.f_code.co_filename}, "
                                  f"line {frame.f_lineno}")  # fmt: skip
        return self.trace


@contextmanager
def failing_line(code: Sequence[Path], number: int | None = None) -> Iterator[Lines]:
    """Raise `MemoryError` where the so-manieth line of ``code`` (files, folders) is executed.

    Parameters
    ----------
    number : int or None
        Counted from 1, in this thread; None: no line fails, all are counted.
    """
    lines, before = Lines(code, number), sys.gettrace()
    sys.settrace(lines.trace)
    try:
        yield lines
    finally:
        sys.settrace(before)
