"""What the simulations of this package share: everything but how steps are executed."""

from __future__ import annotations

import gc
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

from simrun.adapter import Simulation
from simrun.errors import SimulationError
from simrun.records import MemoryItem
from simrun_nengo import inputs
from simrun_nengo.host_state import SAME_MODEL, HostState
from simrun_nengo.recording import Array, Recording, Window
from simrun_nengo.walking import Entry

if TYPE_CHECKING:
    from simrun_nengo.opening import Model


class _Snapshot(NamedTuple):
    step: int
    state: list[Any]
    windows: list[tuple[Array, int]]
    host: list[Entry]


class FamilySimulation(Simulation):
    """A built network, and what its Python functions remember.

    Parameters
    ----------
    model : Model
    section : str
        The adapter's section of the config, for messages.
    dt : float
        Seconds per step.
    recordings : sequence of Recording
    host : HostState
    fingerprint : int
        Tells the network from others: a checksum of its parameters and of its state's layout.
    facts : mapping
        For `provenance`.
    """

    def __init__(
        self,
        model: Model,
        section: str,
        dt: float,
        recordings: Sequence[Recording],
        host: HostState,
        fingerprint: int,
        facts: Mapping[str, Any],
    ) -> None:
        self._recordings = list(recordings)
        self._windows = [item.window for item in recordings if item.window is not None]
        self._host = host
        self._fingerprint = fingerprint
        self._facts = dict(facts)
        self.probes = tuple(item.spec for item in recordings)
        self.dt = dt
        self.step = 0
        self.available = inputs.available(model.fed, f"{section}.inputs")
        self.sources = tuple(item.file for item in model.fed)
        self.notes = (
            *model.notes,
            *(f"can't be rolled back after running out of memory: {o}" for o in host.obstacles),
            *(f"can't go on with the run in a new process: {o}" for o in self._unsaved()),
        )

    @abstractmethod
    def copied_state(self) -> list[Any]:
        """Copies of what changes beside Python objects, for `put_state`."""

    @abstractmethod
    def state_arrays(self) -> list[Array]:
        """The same as arrays on the host."""

    @abstractmethod
    def put_state(self, state: Sequence[Any]) -> None:
        """Take up copies of either kind; they are left as they are."""

    # -- the contract --------------------------------------------------------------------

    def snapshot(self) -> object:
        """Copies of what changes from step to step, and of what Python functions remember."""
        windows = [(w.value.copy(), w.count) for w in self._windows]
        return _Snapshot(self.step, self.copied_state(), windows, self._host.capture())

    def restore(self, snapshot: object) -> None:
        """Put everything back.

        Raises
        ------
        SimulationError
            Something has advanced that can't be put back; `notes` has named it.
        """
        step, state, windows, host = cast(_Snapshot, snapshot)
        if self._host.obstacles:
            named = "; ".join(self._host.obstacles)
            raise SimulationError(
                f"can't go back to the start of the failed chunk: {named}",
                "run with smaller chunks from the start, or keep that state in arrays",
            )
        try:
            self._host.restore(host)
        except RuntimeError as error:
            raise SimulationError(
                f"can't go back to the start of the failed chunk: {error}"
            ) from error
        self._take_up(step, state, windows)

    def save_state(self) -> Mapping[str, Array] | None:
        """The state as arrays; None where something can't be saved, which `notes` has named."""
        try:
            host = self._host.dump()
        except Exception:
            return None
        return {
            "step": np.array(self.step, np.int64),
            "signals": _packed(self.state_arrays()),
            "windows": _packed([w.value for w in self._windows]),
            "counts": np.array([w.count for w in self._windows], np.int64),
            "network": np.array(self._fingerprint, np.int64),
            "host": np.frombuffer(host, np.uint8),
        }

    def load_state(self, state: Mapping[str, Array]) -> None:
        """Go on from a state that `save_state` gave, maybe in another process.

        Raises
        ------
        SimulationError
            The network isn't the one that the state was saved from.
        """
        if int(state["network"]) != self._fingerprint:
            raise SimulationError("the saved state belongs to another network", SAME_MODEL)
        self._host.load(state["host"].tobytes())
        values = _unpacked(state["windows"], [w.value for w in self._windows])
        self._take_up(
            int(state["step"]),
            _unpacked(state["signals"], self.state_arrays()),
            list(zip(values, state["counts"].tolist(), strict=True)),
        )

    def release(self) -> None:
        """Free what Python has left behind."""
        gc.collect()

    def provenance(self) -> Mapping[str, Any]:
        """Versions, precision and device."""
        return {**self._facts, "device": self.device}

    # -- helpers -------------------------------------------------------------------------

    def _take_up(
        self, step: int, state: Sequence[Any], windows: Iterable[tuple[Array, int]]
    ) -> None:
        self.put_state(state)
        for window, (value, count) in zip(self._windows, windows, strict=True):
            _put_window(window, value, count)
        self.step = step

    def _unsaved(self) -> list[str]:
        try:
            self._host.dump()
        except Exception as error:
            return [f"{type(error).__name__}: {error}"]
        return []


def estimate_items(
    recordings: Sequence[Recording], fed: Iterable[inputs.FileInput], itemsize: int
) -> list[MemoryItem]:
    """Memory of samples, and of inputs from files, on the host."""
    items = []
    for item in recordings:
        spec = item.spec
        window = 0 if item.window is None else 2 * spec.sample_bytes
        items.append(MemoryItem(f"probe {spec.name}", "host", window, spec.bytes_per_step))
    for source in fed:
        per_step = source.data.shape[2] * itemsize
        items.append(MemoryItem(f"input {source.label}", "host", 0, per_step))
    return items


def _put_window(window: Window, value: Array, count: int) -> None:
    window.value[...] = value
    window.count = count


def _packed(arrays: Sequence[Array]) -> Array:
    return np.frombuffer(b"".join(array.tobytes() for array in arrays), np.uint8)


def _unpacked(packed: Array, like: Sequence[Array]) -> list[Array]:
    found, offset = [], 0
    for array in like:
        piece = packed[offset : offset + array.nbytes]
        found.append(np.frombuffer(piece.tobytes(), array.dtype).reshape(array.shape))
        offset += array.nbytes
    return found
