"""Draws what a run recorded: spikes as a raster, few values as lines, many as a heat map.

However long the run is, at most `READ_BYTES` of a probe are read, so that it takes seconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from simrun.errors import ConfigError, PluginError
from simrun.reading import Run
from simrun.records import ProbeSpec

READ_BYTES = 64 << 20
MOST_LINES = 10
MOST_ROWS = 4000  # samples along the time axis of lines and heat maps
MOST_CHANNELS = 400  # neurons of a raster, rows of a heat map

Kind = Literal["raster", "lines", "heat"]


@dataclass(frozen=True, slots=True)
class Panel:
    """What is drawn of one probe.

    Parameters
    ----------
    title : str
        The probe, and what was left out.
    kind : {"raster", "lines", "heat"}
    time : numpy.ndarray
        Seconds (or steps) of each sample.
    channels : numpy.ndarray of int
        Flat index of each value in a sample.
    values : numpy.ndarray, shape (samples, channels)
    """

    title: str
    kind: Kind
    time: np.ndarray[Any, Any]
    channels: np.ndarray[Any, Any]
    values: np.ndarray[Any, Any]


def panel(run: Run, name: str, start: float, stop: float | None) -> Panel:
    """Read what is to be drawn of a probe.

    Parameters
    ----------
    run : Run
    name : str
    start, stop : float
        Range of time in seconds (of steps, where those have no duration); None: to the end.
    """
    probe = run.probe(name)
    times = run.times(name)[: run.samples(name)]
    last = len(times) if stop is None else int(np.searchsorted(times, stop, side="right"))
    first = min(int(np.searchsorted(times, start)), last)
    affordable = max(int(READ_BYTES // max(probe.sample_bytes, 1)), 1)
    # neighbours tell best what kind of values these are
    head = _flat(run[name][first : min(first + min(affordable, MOST_ROWS), last)])
    if _are_spikes(probe, head):
        # of spikes a part must be read without gaps
        rows = slice(first, min(first + affordable, last))
        kind: Kind = "raster"
    else:
        stride = max(-(-(last - first) // min(MOST_ROWS, affordable)), 1)
        rows = slice(first, last, stride)
        kind = "lines" if head.shape[1] <= MOST_LINES else "heat"
    values = _flat(run[name][rows])
    channels = np.arange(values.shape[1])
    if len(channels) > MOST_CHANNELS:
        channels = np.linspace(0, len(channels) - 1, MOST_CHANNELS).astype(int)
        values = values[:, channels]
    title = f"{name}: {_left_out(rows, last, channels, probe)}".removesuffix(": ")
    return Panel(title, kind, times[rows], channels, values)


def draw(run: Run, names: Sequence[str], target: Path, start: float, stop: float | None) -> None:
    """Draw probes one below the other into an image.

    Parameters
    ----------
    run : Run
    names : sequence of str
        Probes; empty: all that have samples.
    target : pathlib.Path
        Its ending says which format: ``.png``, ``.svg``, ``.pdf``.
    start, stop : float
        As for `panel`.

    Raises
    ------
    ConfigError
        No such probe, nothing to draw, or an ending that nothing writes.
    PluginError
        matplotlib isn't installed.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise PluginError(
            "simrun plot needs matplotlib, which isn't installed", 'pip install "simrun[plot]"'
        ) from None
    try:
        chosen = [run.probe(name).name for name in names] or [
            probe.name for probe in run.probes if run.samples(probe.name) and probe.sample_bytes
        ]
    except KeyError as error:
        raise ConfigError(str(error.args[0])) from None
    panels = [panel(run, name, start, stop) for name in chosen]
    panels = [each for each in panels if each.values.size]
    if not panels:
        raise ConfigError(f"{run.path}: no samples to draw", "choose another --from and --to")
    figure = Figure(figsize=(9, 2.6 * len(panels)), layout="constrained")
    for axes, each in zip(figure.subplots(len(panels), squeeze=False)[:, 0], panels, strict=True):
        _DRAW[each.kind](axes, each)
        axes.set_title(each.title, fontsize="medium", loc="left")
        axes.set_xlabel("step" if run.dt is None else "time (s)")
        axes.set_xlim(each.time[0], each.time[-1] if len(each.time) > 1 else each.time[0] + 1)
    try:
        figure.savefig(target, dpi=150)
    except ValueError as error:
        raise ConfigError(f"{target}: {error}") from None


def _flat(samples: Any) -> np.ndarray[Any, Any]:
    array = np.asarray(samples)
    return array.reshape(len(array), int(np.prod(array.shape[1:])))


def _are_spikes(probe: ProbeSpec, head: np.ndarray[Any, Any]) -> bool:
    """Two values, one of them zero, in many places: spikes."""
    if probe.attrs.get("format") == "events":
        return True
    if head.shape[1] < 2 or probe.reduce != "last" or not head.any():
        return False
    return len(np.unique(head)) == 2 and bool((head == 0).any())


def _left_out(rows: slice, last: int, channels: np.ndarray[Any, Any], probe: ProbeSpec) -> str:
    parts = []
    size = int(np.prod(probe.shape, dtype=np.int64))
    if len(channels) < size:
        parts.append(f"{len(channels):,} of {size:,}")
    if (rows.step or 1) > 1:
        parts.append(f"every {rows.step:,}th sample")
    if rows.stop < last:
        parts.append(f"the first {rows.stop - rows.start:,} of {last - rows.start:,} samples")
    return ", ".join(parts)


def _raster(axes: Any, each: Panel) -> None:
    sample, place = np.nonzero(each.values)
    axes.plot(each.time[sample], each.channels[place], "|", color="black", markersize=2)
    axes.set_ylabel("neuron")


def _lines(axes: Any, each: Panel) -> None:
    for channel, values in zip(each.channels, each.values.T, strict=True):
        axes.plot(each.time, values, linewidth=0.8, label=str(channel))
    if len(each.channels) > 1:
        axes.legend(fontsize="x-small", loc="upper right")


def _heat(axes: Any, each: Panel) -> None:
    image = axes.pcolormesh(each.time, each.channels, each.values.T, shading="nearest")
    axes.figure.colorbar(image, ax=axes)
    axes.set_ylabel("value")


_DRAW = {"raster": _raster, "lines": _lines, "heat": _heat}
