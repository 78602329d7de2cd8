"""Reads a run back: `Run`, which `simrun.open_run` returns."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import numpy as np

from simrun.errors import PluginError
from simrun.journal import probe_from_json, read_manifest, state_is_intact
from simrun.layout import Layout
from simrun.records import ProbeSpec
from simrun.sampling import recorded_steps
from simrun.sink import LazyArray, Reader, SinkRequest


class Run:
    """The committed part of a run, finished or not; also while it is running.

    Parameters
    ----------
    directory : pathlib.Path
    open_reader : callable
        ``open_reader(sink_name, request)`` returns the `Reader`.

    Attributes
    ----------
    manifest : dict
        As on the disk.
    probes : tuple of ProbeSpec
    step, end : int
        Last committed step, last step of the whole run.
    status : str
        ``"running"``, ``"stopped"``, ``"failed"`` or ``"done"``.
    dt : float or None
        Seconds of model time per step.
    """

    def __init__(self, directory: Path, open_reader: Callable[[str, SinkRequest], Reader]) -> None:
        self.path = directory
        self.manifest = read_manifest(directory)
        self.probes: tuple[ProbeSpec, ...] = tuple(
            probe_from_json(entry) for entry in self.manifest["probes"]
        )
        self.step = int(self.manifest["step"])
        self.end = int(self.manifest["end"])
        self.status = str(self.manifest["status"])
        self.dt = self.manifest["dt"]
        request = SinkRequest(
            directory / "data",
            self.probes,
            self.dt,
            durable=False,
            committed=self.manifest["data"] or {},
            options=self.manifest["sink"]["options"],
        )
        # before the first commit there is nothing that a reader could open
        self._reader = (
            open_reader(self.manifest["sink"]["name"], request) if self.manifest["data"] else None
        )

    def __getitem__(self, name: str) -> LazyArray:
        """Samples of a probe, read on demand; shape (time, *sample shape)."""
        probe = self.probe(name)
        if self._reader is None:
            return np.empty((0, *probe.shape), probe.dtype)
        return self._reader.array(name)

    def __iter__(self) -> Iterator[str]:
        """Names of the probes."""
        return iter(probe.name for probe in self.probes)

    def __contains__(self, name: object) -> bool:
        return name in set(self)

    def __len__(self) -> int:
        return len(self.probes)

    def probe(self, name: str) -> ProbeSpec:
        """The probe of that name; `KeyError`, naming those there are, for another."""
        for probe in self.probes:
            if probe.name == name:
                return probe
        names = [probe.name for probe in self.probes]
        near = get_close_matches(name, names, 1)
        advice = f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(names)}"
        raise KeyError(f"{self.path} has no probe {name!r}; {advice}")

    def events(self, name: str) -> tuple[np.ndarray[Any, Any], ...]:
        """Step, position and value of each event of a probe stored with ``format: events``.

        Raises
        ------
        KeyError
            The probe is stored dense.
        """
        if self.probe(name).attrs.get("format") != "events" or self._reader is None:
            raise KeyError(f"probe {name!r} holds no events; index the run: run[{name!r}]")
        return self._reader.events(name)

    def verify(self) -> list[str]:
        """Read all that is committed and compare checksums; problems, one text each."""
        states = [
            f"{self.path / entry['file']}: checksum differs"
            for entry in self.manifest["states"]
            if not state_is_intact(self.path, entry)
        ]
        return states + (self._reader.verify() if self._reader is not None else [])

    def steps(self, name: str) -> np.ndarray[Any, Any]:
        """Step of each sample, counted from 1; int64."""
        return recorded_steps(self.probe(name).period, 0, self.step, self.end)

    def times(self, name: str) -> np.ndarray[Any, Any]:
        """Time of each sample in seconds of model time (``step * dt``), float64.

        For a simulation whose steps have no duration, the step.
        """
        steps = self.steps(name)
        return steps.astype(np.float64) if self.dt is None else steps * self.dt

    def samples(self, name: str) -> int:
        """Number of committed samples of a probe."""
        return int(self[name].shape[0])

    def to_xarray(self) -> Any:
        """All probes as one lazily read `xarray.Dataset` (needs the extra ``simrun[xarray]``).

        Dimensions have the names that they have in HDF5 and Zarr files: ``time`` in seconds, and
        ``time_PROBE`` for probes that are sampled at other times than the first.
        """
        try:
            import xarray as xr
        except ImportError:
            raise PluginError(
                "to_xarray() needs xarray, which isn't installed", 'pip install "simrun[xarray]"'
            ) from None
        from simrun.lazy import lazy_variable

        dense = tuple(replace(probe, attrs=_without_format(probe)) for probe in self.probes)
        columns = {column.name: column for column in Layout(dense, self.dt).columns}
        variables, coordinates = {}, {}
        for probe in dense:
            column = columns[probe.name]
            variables[probe.name] = lazy_variable(column.dims, self[probe.name], dict(column.attrs))
            time = column.dims[0]
            coordinates[time] = (time, self.times(probe.name), dict(columns[time].attrs))
        attrs = {"status": self.status} | ({} if self.dt is None else {"dt": self.dt})
        return xr.Dataset(variables, coordinates, attrs)

    def close(self) -> None:
        """Release files."""
        if self._reader is not None:
            self._reader.close()

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        names = ", ".join(probe.name for probe in self.probes)
        return f"<Run {self.path}: {self.status}, step {self.step} of {self.end}; {names}>"


def _without_format(probe: ProbeSpec) -> dict[str, Any]:
    return {key: value for key, value in probe.attrs.items() if key != "format"}
