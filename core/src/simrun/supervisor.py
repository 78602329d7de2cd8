"""Runs the engine in a child process and survives its death.

A run out of memory in the kernel's sense is killed without a word, a native library may crash
or hang; none of that can be caught inside the process. What was committed is safe, so that a
fresh process goes on from there, with chunks half as long: also a crash or a hang is often a
want of memory that a library didn't look at. What happens twice in the same way would happen
again, and isn't tried a third time.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from simrun.errors import EXIT_RESUMABLE
from simrun.journal import show_death

RESTARTS = 3
HEARTBEAT_SECONDS = 1800.0
POLL_SECONDS = 0.2
_PARENT, _PR_SET_PDEATHSIG = "SIMRUN_SUPERVISOR", 1  # sys/prctl.h
#: What a fault in native code ends a process with.
CRASHES = tuple(
    getattr(signal, name)
    for name in ("SIGSEGV", "SIGABRT", "SIGBUS", "SIGILL", "SIGFPE")
    if hasattr(signal, name)
)


@dataclass(frozen=True, slots=True)
class Death:
    """Why a child ended without saying so itself."""

    reason: str
    restart: bool
    memory: bool = False


def supervise(
    command: Sequence[str],
    directory: Path,
    say: Callable[[str], None],
    restarts: int = RESTARTS,
    heartbeat_seconds: float = HEARTBEAT_SECONDS,
) -> int:
    """Run a command that runs a simulation, and start it again when it dies.

    Parameters
    ----------
    command : sequence of str
        Starts the engine; ``--chunk-limit N`` is appended where memory killed it.
    directory : pathlib.Path
        The run's folder; its manifest and the time of its lock file tell how the child does.
    say : callable
        Called with a line for the user at each death.
    restarts : int
        At most so many.
    heartbeat_seconds : float
        A child that finishes no chunk for so long is taken to hang, and killed.

    Returns
    -------
    int
        The exit code: the child's, or 75 when it died too often.
    """
    limit: int | None = None
    last: tuple[Death, int, int | None] | None = None
    for attempt in range(restarts + 1):
        kills = oom_kills()
        options = [] if limit is None else ["--chunk-limit", str(limit)]
        environment = os.environ | {_PARENT: str(os.getpid())}
        with _forwarding(subprocess.Popen([*command, *options], env=environment)) as child:
            hung = _wait(child, directory / "run.lock", heartbeat_seconds)
        death = judge(child.returncode, oom_kills() > kills, hung)
        if death is None:
            return child.returncode
        show_death(directory)
        step, chunk = _progress(directory)
        again = last is not None and is_the_same(last, (death, step, limit))
        last = death, step, limit
        going_on = death.restart and attempt < restarts and not again
        if chunk is not None:
            limit = max(min(chunk, limit or chunk) // 2, 1)
        how = "" if limit is None else f" with chunks of at most {limit} steps"
        then = f"starting again from step {step}{how}" if going_on else _give_up(step, attempt)
        say(f"{death.reason}{', as the time before' if again else ''}; {then}")
        if not going_on:
            break
    return EXIT_RESUMABLE


def stop_with_the_supervisor() -> None:
    """In the child: stop, as by SIGTERM, when the supervisor is killed (Linux).

    Otherwise it would go on unseen, and the same command would be refused until it ends.
    """
    parent = os.environ.pop(_PARENT, None)
    if parent is None:
        return
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM))
        if os.getppid() != int(parent):  # it was killed before that
            os.kill(os.getpid(), signal.SIGTERM)


def is_the_same(one: tuple[Death, int, int | None], two: tuple[Death, int, int | None]) -> bool:
    """Whether two deaths in a row make a third one certain. Pure.

    Parameters
    ----------
    one, two : tuple of (Death, int, int or None)
        The death, the step that was committed then, and the longest chunk that was allowed.
    """
    (before, first, allowed), (death, step, limit) = one, two
    if death != before or step != first:
        return False
    # shorter chunks were tried: that helps where a chunk has come through before, or memory ran out
    return limit == allowed or (step == 0 and not death.memory)


def judge(returncode: int, oom_killed: bool, hung: bool) -> Death | None:
    """What a child's end means; None where it ended by its own will. Pure."""
    if hung:
        return Death("the engine finished no chunk for too long and was killed", True)
    if returncode >= 0:
        return None
    number = -returncode
    name = signal.Signals(number).name
    if number == signal.SIGKILL and oom_killed:
        return Death("the kernel killed the engine because memory ran out", True, memory=True)
    if number in CRASHES:
        return Death(f"the engine crashed in native code ({name})", True)
    return Death(f"the engine was killed by {name}", False)


def oom_kills(
    cgroup: Path = Path("/proc/self/cgroup"),
    root: Path = Path("/sys/fs/cgroup"),
    vmstat: Path = Path("/proc/vmstat"),
) -> int:
    """How often the kernel has killed for memory: in this process's cgroups, and in all."""
    count = _counter(vmstat, "oom_kill")
    with contextlib.suppress(OSError):
        for line in cgroup.read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if controllers == "":
                count += _counter(root / path.lstrip("/") / "memory.events", "oom_kill")
            elif "memory" in controllers.split(","):
                group = root / "memory" / path.lstrip("/")
                count += _counter(group / "memory.oom_control", "oom_kill")
    return count


def _counter(path: Path, name: str) -> int:
    with contextlib.suppress(OSError, ValueError):
        for line in path.read_text().splitlines():
            key, _, value = line.partition(" ")
            if key == name:
                return int(value)
    return 0


def _wait(child: subprocess.Popen[Any], sign_of_life: Path, limit: float) -> bool:
    """Wait for a child's end; kill it, and return True, when it shows no life for too long."""
    begin = time.time()
    while True:
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(POLL_SECONDS)
            return False
        last = begin
        with contextlib.suppress(OSError):
            last = max(begin, sign_of_life.stat().st_mtime)
        if time.time() - last > limit:
            child.kill()
            child.wait()
            return True


@contextlib.contextmanager
def _forwarding(child: subprocess.Popen[Any]) -> Iterator[subprocess.Popen[Any]]:
    """Pass on the signals that ask for a stop; the terminal sends SIGINT to both anyway."""

    def forward(number: int, frame: Any) -> None:
        child.send_signal(number)

    handlers = {signal.SIGINT: _ignore, signal.SIGTERM: forward, signal.SIGUSR1: forward}
    previous = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield child
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
        if child.poll() is None:
            child.kill()
            child.wait()


def _ignore(number: int, frame: Any) -> None:
    """The child decides what an interrupt means."""


def _progress(directory: Path) -> tuple[int, int | None]:
    """Committed step and the plan's chunk, by the manifest."""
    try:
        manifest = json.loads((directory / "manifest.json").read_bytes())
        return int(manifest["step"]), int(manifest["chunk"])
    except (OSError, ValueError, KeyError, TypeError):
        return 0, None


def _give_up(step: int, attempt: int) -> str:
    often = f" after {attempt} restart{'s' if attempt > 1 else ''}" if attempt else ""
    if step == 0:
        return (
            f"giving up{often}: nothing was committed, so the model, its libraries or the memory "
            "they are allowed must change first; above is what they said (--in-process shows more)"
        )
    return f"giving up{often}; step {step} is committed, the same command goes on from there"
