"""A run's folder: whether it may be written, its lock, and the journal to go on with."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from simrun import __version__
from simrun.errors import BudgetError, ConfigError, OutputExistsError
from simrun.journal import (
    MANIFEST,
    Journal,
    lock,
    new_manifest,
    probe_to_json,
    read_manifest,
    show_death,
)
from simrun.records import ProbeSpec
from simrun.units import parse_steps

# what a run leaves behind that was killed before its first manifest
OWN_FILES = {
    "run.lock",
    "run.log",
    "data",
    "config.resolved.yaml",
    "provenance.json",
    f"{MANIFEST}.new",
}


@dataclass(frozen=True, slots=True)
class RunFolder:
    """Where a run is, and what must be the same for a run to go on there.

    Parameters
    ----------
    directory : pathlib.Path
    identity : mapping
        What the samples depend on, as JSON values.
    sink : mapping
        ``name`` and ``options`` of the sink.
    durable : bool
        Whether commits are to survive a power cut.
    """

    directory: Path
    identity: Mapping[str, Any]
    sink: Mapping[str, Any]
    durable: bool

    @property
    def begun(self) -> bool:
        """Whether the folder holds a run."""
        return (self.directory / MANIFEST).exists()

    def check(self) -> None:
        """Refuse a folder that this run may not touch, before anything costly is done.

        Raises
        ------
        OutputExistsError
            A file, a folder with other things, or a run of another config.
        """
        directory = self.directory
        try:
            content = {path.name for path in directory.iterdir()}
        except FileNotFoundError:
            return
        except NotADirectoryError:
            raise OutputExistsError(
                f"output.path: {directory} is a file, or in one", "name a folder"
            ) from None
        except OSError as error:
            raise ConfigError(f"output.path: {directory}: {error.strerror}") from None
        if self.begun:
            self._check_same(read_manifest(directory))
        elif content - OWN_FILES:
            raise OutputExistsError(
                f"output.path: {directory} isn't empty and is no run of simrun",
                "choose another folder; nothing is overwritten",
            )

    def extended(self, extend: str | int) -> int:
        """The last step of the run begun here, once it is longer by so much.

        A finished run gets that many steps more. One that isn't finished keeps the end that it
        was begun with: so the same command goes on with an extension that was interrupted.

        Parameters
        ----------
        extend : int or str
            Steps, or a duration of model time such as ``"2 s"``.

        Raises
        ------
        ConfigError
            There is no run here, or ``extend`` is neither steps nor a duration.
        """
        if not self.begun:
            raise ConfigError(
                f"extend: there is no run in {self.directory} yet", "leave it out to begin one"
            )
        manifest = read_manifest(self.directory)
        try:
            steps = round(parse_steps(extend, manifest["dt"]))
        except ValueError as error:
            raise ConfigError(f"extend: {error}") from None
        finished = manifest["status"] == "done" and manifest["step"] >= manifest["end"]
        return int(manifest["end"]) + (steps if finished else 0)

    @contextmanager
    def locked(self) -> Iterator[tuple[str, ...]]:
        """Hold the run's lock; a run refused by its budget leaves no new folder behind.

        Gives what the user should know of the lock (see `simrun.journal.lock`).

        Raises
        ------
        OutputExistsError
            Another process holds the lock.
        ConfigError
            The folder can't be made or written to.
        """
        directory, new = self.directory, not self.directory.exists()
        try:
            directory.mkdir(parents=True, exist_ok=True)
            descriptor, note = lock(directory)
        except OSError as error:
            raise ConfigError(
                f"output.path: can't write to {directory}: {error.strerror}",
                "choose another folder",
            ) from None
        try:
            yield () if note is None else (note,)
        except BudgetError:
            if new and not self.begun:
                (directory / "run.lock").unlink()
                directory.rmdir()
            raise
        finally:
            os.close(descriptor)
            if note is not None:
                show_death(directory)

    def journal(
        self,
        probes: Sequence[ProbeSpec],
        dt: float | None,
        end: int,
        sources: Mapping[str, str],
    ) -> Journal:
        """The journal of a new run (not on the disk yet), or of the one begun here.

        Parameters
        ----------
        probes, dt
            The simulation's.
        end : int
            The run's last step.
        sources : mapping of str to str
            Checksums of the files that the samples depend on, by name.

        Raises
        ------
        OutputExistsError
            The run that was begun has other probes, read other files, or can't be continued to
            ``end``.
        """
        described = [probe_to_json(probe) for probe in probes]
        if not self.begun:
            manifest = new_manifest(
                simrun=__version__,
                end=end,
                dt=dt,
                identity=self.identity,
                probes=described,
                sink=self.sink,
                sources=dict(sources),
            )
            return Journal(self.directory, manifest, self.durable)
        manifest = read_manifest(self.directory)
        self._check_same(manifest)
        before = manifest["sources"]
        changed = [name for name in sources if sources[name] != before.get(name, sources[name])]
        if changed:
            raise OutputExistsError(
                f"{self.directory} was begun with another content of {', '.join(changed)}",
                "choose another output.path, or put the files back to go on with that run",
            )
        if manifest["probes"] != described:
            raise OutputExistsError(
                f"{self.directory} holds a run with other probes", "choose another output.path"
            )
        if end < manifest["step"]:
            raise OutputExistsError(
                f"{self.directory} holds {manifest['step']} steps already, {end} are asked for",
                f"ask for more (--steps N, --extend N), or for these (--steps {manifest['end']}), "
                "or choose another output.path",
            )
        if end != manifest["end"] and any(math.isinf(probe.period) for probe in probes):
            raise OutputExistsError(
                f"{self.directory} was begun with {manifest['end']} steps, and a probe of it "
                f"records the last step only",
                "keep the number of steps, or choose another output.path",
            )
        status = manifest["status"] if end == manifest["step"] else "running"
        return Journal(self.directory, {**manifest, "end": end, "status": status}, self.durable)

    def _check_same(self, manifest: Mapping[str, Any]) -> None:
        before, now = manifest["identity"], json.loads(json.dumps(self.identity))
        differences = [
            f"{key}: was {before.get(key)!r}, is {now.get(key)!r}"
            for key in sorted(before.keys() | now.keys())
            if before.get(key) != now.get(key)
        ]
        if manifest["sink"] != self.sink:
            differences.append(f"output: was {manifest['sink']}, is {dict(self.sink)}")
        if differences:
            raise OutputExistsError(
                f"{self.directory} holds a run of another config: {'; '.join(differences)}",
                "choose another output.path, or put the config back to go on with that run",
            )
