"""Which plugins are installed: read from the metadata of distributions, nothing imported."""

from __future__ import annotations

import contextlib
import importlib.metadata
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from simrun.errors import PluginError

GROUP = "simrun"
#: Plugins of this project, and the distribution that each is in.
KNOWN = {
    "hdf5": "simrun-storage-hdf5",
    "nengo": "simrun-nengo",
    "nengo_dl": "simrun-nengo-dl",
    "nengo_ocl": "simrun-nengo[ocl]",
    "torch_crossbar": "simrun-torch-crossbar",
    "zarr": "simrun-storage-zarr",
}


@dataclass(frozen=True, slots=True)
class Discovered:
    """A plugin that is installed.

    ``entry_point`` is None where the metadata can't be read; ``problem`` says why.
    """

    name: str
    distribution: str
    version: str
    entry_point: importlib.metadata.EntryPoint | None
    problem: str = ""

    @property
    def origin(self) -> str:
        """Name, distribution and version, for messages."""
        return f"plugin {self.name!r} ({self.distribution} {self.version})"

    def load(self) -> Any:
        """Import the plugin.

        Raises
        ------
        PluginError
            Whatever it was that the import raised, `SystemExit` included.
        """
        repair = f"repair it: pip install --force-reinstall {self.distribution}"
        if self.entry_point is None:
            raise PluginError(f"{self.origin} is broken: {self.problem}", repair)
        try:
            # what a plugin prints must not end up in our output
            with contextlib.redirect_stdout(sys.stderr):
                return self.entry_point.load()
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            raise PluginError(
                f"{self.origin} can't be imported: {type(error).__name__}: {error}", repair
            ) from error


def discovered() -> list[Discovered]:
    """All installed plugins, sorted by name."""
    found: dict[str, list[Discovered]] = {}
    for distribution in importlib.metadata.distributions():
        try:
            records = _of(distribution)
        except Exception as error:  # metadata that nobody can read is one plugin's problem
            path = str(getattr(distribution, "_path", "?"))
            records = [Discovered("?", path, "", None, f"{type(error).__name__}: {error}")]
        if records:
            # the first of a name on sys.path is the one that Python imports
            found.setdefault(records[0].distribution, records)
    return sorted((r for records in found.values() for r in records), key=lambda r: r.name)


def find(name: str, kind: str) -> Discovered:
    """The installed plugin of that name.

    Parameters
    ----------
    kind : str
        ``"adapter"``, ``"sink"`` or ``"observer"``, for the message.

    Raises
    ------
    PluginError
        Not installed, with what to do about it; or in two distributions.
    """
    everything = discovered()
    matches = [record for record in everything if record.name == name]
    if len(matches) > 1:
        owners = " and ".join(f"{r.distribution} {r.version}" for r in matches)
        raise PluginError(
            f"two distributions offer a plugin {name!r}: {owners}",
            f"uninstall one of them: pip uninstall {matches[-1].distribution}",
        )
    if matches:
        return matches[0]
    raise PluginError(f"{kind} {name!r} isn't installed", _advice(name, everything))


def _of(distribution: importlib.metadata.Distribution) -> list[Discovered]:
    if f"[{GROUP}]" not in (distribution.read_text("entry_points.txt") or ""):
        return []
    points = [point for point in distribution.entry_points if point.group == GROUP]
    name, version = distribution.name, distribution.version
    return [Discovered(point.name, name, version, point) for point in points]


def _advice(name: str, installed: Sequence[Discovered]) -> str:
    if name in KNOWN:
        return f"pip install {KNOWN[name]}"
    names = {record.name for record in installed}
    plain = {_plain(known): known for known in (*KNOWN, *names)}
    near = [plain[match] for match in get_close_matches(_plain(name), plain, 1)]
    if not near:
        return "`simrun plugins` lists what is installed; install its distribution with pip"
    return f"did you mean {near[0]}?" + (
        "" if near[0] in names else f" It isn't installed either: pip install {KNOWN[near[0]]}"
    )


def _plain(name: str) -> str:
    return name.lower().replace("-", "_")
