"""The manifest and the checkpoints of a run: what is committed, and nothing else is.

A run's folder holds ``manifest.json`` (the truth), ``data/`` (the sink's), ``state/`` (the
last checkpoints), ``config.resolved.yaml``, ``provenance.json`` and ``run.log``. The rename of
a new manifest over the old one is the commit; samples and state are safe before it.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import math
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from simrun.durability import write_atomic
from simrun.errors import ConfigError, DamagedError, OutputExistsError
from simrun.records import ProbeSpec

FORMAT = 1
MANIFEST = "manifest.json"
KEPT_STATES = 2
SIGN_OF_LIFE_SECONDS = 300


class Journal:
    """Writes a run's manifest and states; one writer at a time.

    Parameters
    ----------
    directory : pathlib.Path
    manifest : dict
        As `new_manifest` or `read_manifest` returns it.
    durable : bool
        Whether commits are to survive a power cut.
    """

    def __init__(self, directory: Path, manifest: dict[str, Any], durable: bool) -> None:
        self.directory = directory
        self.manifest = manifest
        self.durable = durable

    @property
    def step(self) -> int:
        """Last committed step."""
        return int(self.manifest["step"])

    def commit(
        self,
        step: int,
        data: Mapping[str, Any],
        state: Mapping[str, np.ndarray[Any, Any]] | None = None,
        status: str = "running",
    ) -> None:
        """Commit what the sink has made safe up to ``step``, and a state of that step.

        Parameters
        ----------
        data : mapping
            What `Sink.commit` returned.
        state : mapping, optional
            What `Simulation.save_state` returned at this step.
        """
        states = self.manifest["states"]
        if state is not None:
            states = [*states, self._write_state(step, state)][-KEPT_STATES:]
        self.manifest = {
            **self.manifest,
            "step": step,
            "data": data,
            "states": states,
            "status": status,
        }
        self.write()
        if state is not None:
            self._remove_old_states()

    def write(self) -> None:
        """Replace the manifest on the disk by the present one."""
        sealed = {"checksum": _checksum(self.manifest), **self.manifest}
        content = json.dumps(sealed, indent=1).encode()
        write_atomic(self.directory / MANIFEST, content, self.durable)

    def load_state(self) -> tuple[int, dict[str, np.ndarray[Any, Any]]] | None:
        """Step and content of the newest state that is intact; None where there is none."""
        for entry in reversed(self.manifest["states"]):
            if state_is_intact(self.directory, entry):
                with np.load(self.directory / entry["file"], allow_pickle=False) as arrays:
                    return int(entry["step"]), dict(arrays)
        return None

    def _write_state(self, step: int, state: Mapping[str, np.ndarray[Any, Any]]) -> dict[str, Any]:
        buffer = io.BytesIO()
        np.savez(buffer, allow_pickle=False, **state)
        content = buffer.getvalue()
        path = self.directory / "state" / f"{step}.npz"
        path.parent.mkdir(exist_ok=True)
        write_atomic(path, content, self.durable)
        return {
            "step": step,
            "file": f"state/{step}.npz",
            "bytes": len(content),
            "sha256": hashlib.sha256(content).hexdigest(),
        }

    def _remove_old_states(self) -> None:
        kept = {entry["file"] for entry in self.manifest["states"]}
        for path in (self.directory / "state").iterdir():
            if f"state/{path.name}" not in kept:
                path.unlink()


def state_is_intact(directory: Path, entry: Mapping[str, Any]) -> bool:
    """Whether a state's file is what the manifest's entry says."""
    path = directory / entry["file"]
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return bool(hashlib.file_digest(file, "sha256").hexdigest() == entry["sha256"])


def _checksum(values: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(values).encode()).hexdigest()


def new_manifest(*, identity: Mapping[str, Any], **facts: Any) -> dict[str, Any]:
    """The manifest of a run that hasn't committed anything.

    Committed are the steps 1 to ``step``: in the files that ``data``, the sink's record, names
    with sizes and checksums, and in those of ``states``. ``config_sha256`` is that of
    ``identity``, what the samples depend on.
    """
    return {
        "format": FORMAT,
        "status": "running",
        "step": 0,
        "data": None,
        "states": [],
        "config_sha256": _checksum(identity),
        "identity": identity,
        **facts,
    }


def read_manifest(directory: Path) -> dict[str, Any]:
    """Read a run's manifest.

    Raises
    ------
    ConfigError
        The folder is no run, or of another version of simrun.
    DamagedError
        The manifest isn't as it was written.
    """
    path = directory / MANIFEST
    try:
        manifest = json.loads(path.read_bytes())
        found, checksum = manifest["format"], manifest.pop("checksum")
        if found == FORMAT and checksum != _checksum(manifest):
            raise ValueError("its checksum differs")
    except FileNotFoundError:
        what = "there is nothing there" if not directory.exists() else f"it has no {MANIFEST}"
        raise ConfigError(
            f"{directory} is not a run of simrun: {what}", "name the folder of a run (output.path)"
        ) from None
    except (ValueError, TypeError, KeyError, OSError) as error:
        raise DamagedError(
            f"{path}: damaged ({error})",
            "restore it from a backup; the samples in data/ can be read without it",
        ) from None
    if found != FORMAT:
        raise ConfigError(
            f"{path}: format {found}, this simrun reads format {FORMAT}",
            "use the version of simrun that wrote it",
        )
    return dict(manifest)


def lock(directory: Path) -> tuple[int, str | None]:
    """Take the run's lock, which dies with its holder.

    Returns
    -------
    descriptor : int
        To keep open.
    note : str or None
        That nobody can tell whether another process writes here, where that is so: some network
        file systems have no locks. The time of the lock's file, which a run renews after each
        chunk, has then been the only sign.

    Raises
    ------
    OutputExistsError
        Another process holds the lock, or was alive within `SIGN_OF_LIFE_SECONDS`.
    """
    import fcntl

    path = directory / "run.lock"
    age = time.time() - path.stat().st_mtime if path.exists() else math.inf
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise OutputExistsError(
            f"{directory} is being written by another simrun process",
            "wait for it to end, or choose another output.path",
        ) from None
    except OSError as error:
        note = (
            f"{directory}: this file system has no locks ({error.strerror}), so that simrun can't "
            "tell whether another process writes here"
        )
        if age < SIGN_OF_LIFE_SECONDS:
            os.close(descriptor)
            raise OutputExistsError(
                f"{note}; one did {age:.0f} s ago",
                f"make sure that none does, then wait {SIGN_OF_LIFE_SECONDS} s or remove {path}",
            ) from None
        os.utime(path)
        return descriptor, f"{note}: don't start two"
    return descriptor, None


def show_life(directory: Path) -> None:
    """Renew the time of the lock's file: a chunk is done."""
    with contextlib.suppress(OSError):
        os.utime(directory / "run.lock")


def show_death(directory: Path) -> None:
    """Say by the time of the lock's file that its holder is gone."""
    with contextlib.suppress(OSError):
        os.utime(directory / "run.lock", (0, 0))


def probe_to_json(probe: ProbeSpec) -> dict[str, Any]:
    """A probe for the manifest."""
    return {
        "name": probe.name,
        "shape": list(probe.shape),
        "dtype": probe.dtype.str,
        "dims": list(probe.dims),
        "period": None if math.isinf(probe.period) else probe.period,
        "reduce": probe.reduce,
        "attrs": dict(probe.attrs),
    }


def probe_from_json(entry: Mapping[str, Any]) -> ProbeSpec:
    """The inverse of `probe_to_json`."""
    return ProbeSpec(
        entry["name"],
        tuple(entry["shape"]),
        np.dtype(entry["dtype"]),
        tuple(entry["dims"]),
        math.inf if entry["period"] is None else entry["period"],
        entry["reduce"],
        entry["attrs"],
    )
