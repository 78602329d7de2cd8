"""What probes see of a forward pass: outputs of modules, currents and saturation of tiles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any

import torch
from torch import nn

from simrun.errors import ConfigError, SimulationError
from simrun_torch_crossbar.linear_map import CrossbarLayer, TileCurrents
from simrun_torch_crossbar.settings import Probe

TILES = ("tile_row", "crossbar", "group")


class Recorder:
    """Sees what the probes ask for in each forward pass; a later pass replaces an earlier one.

    Parameters
    ----------
    network : nn.Module
        Patched.
    layers : mapping of str to CrossbarLayer
    probes : sequence of Probe
    keys : sequence of str
        What the config calls each probe, for messages.
    """

    def __init__(
        self,
        network: nn.Module,
        layers: Mapping[str, CrossbarLayer],
        probes: Sequence[Probe],
        keys: Sequence[str],
    ) -> None:
        self._layers = layers
        self._outputs: dict[nn.Module, Any] = {}
        self._rows: dict[CrossbarLayer, dict[int, TileCurrents]] = {}
        self._probes = {probe.name: probe for probe in probes}
        self._keys = {probe.name: key for probe, key in zip(probes, keys, strict=True)}
        self._modules = {probe.name: self._watch(network, probe) for probe in probes}

    @property
    def names(self) -> tuple[str, ...]:
        """Of the probes."""
        return tuple(self._probes)

    def clear(self) -> None:
        """Let go of what the last pass left."""
        self._outputs.clear()
        for rows in self._rows.values():
            rows.clear()

    def dims(self, name: str, axes: int) -> tuple[str, ...]:
        """Names of a sample's axes."""
        what = self._probes[name].attribute
        if what == "tile_currents":
            return (*TILES, "position", "column")
        if what == "saturation":
            return (*TILES, "tile_column")
        return ("unit",) if axes == 1 else tuple(f"axis{k}" for k in range(axes))

    def values(self, name: str, samples: int) -> torch.Tensor:
        """What a probe saw in the last pass, of ``samples`` samples; the first axis is theirs."""
        probe, module = self._probes[name], self._modules[name]
        if probe.attribute in (None, "output"):
            return self._output(name, samples)
        rows = [self._rows[module][row] for row in range(len(module.grid.rows))]
        if probe.attribute == "tile_currents":
            return torch.stack([row.currents for row in rows]).movedim(3, 0)
        columns = module.grid.columns
        counts = [
            torch.stack([row.saturated[..., k].sum((-1, -2)) for k in columns], -1) for row in rows
        ]
        return torch.stack(counts).movedim(3, 0).int()

    def _output(self, name: str, samples: int) -> torch.Tensor:
        where = f"{self._keys[name]}.object: {self._probes[name].object}"
        found = self._outputs.get(self._modules[name])
        if found is None:
            raise ConfigError(f"{where} isn't called by the network")
        if isinstance(found, tuple | list) and found:
            found = found[0]
        if not isinstance(found, torch.Tensor):
            raise ConfigError(f"{where} returns a {type(found).__name__}, not a tensor")
        if found.ndim == 0 or len(found) != samples:
            raise SimulationError(
                f"{where} returned shape {tuple(found.shape)} for {samples} samples",
                "its first axis must be that of the samples",
            )
        return found

    def _watch(self, network: nn.Module, probe: Probe) -> nn.Module:
        modules = dict(network.named_modules())
        key = self._keys[probe.name]
        if probe.object in modules:
            module = modules[probe.object]
        elif probe.object == "output":
            module = network
        else:
            near = get_close_matches(probe.object, modules, 1)
            known = ", ".join(["output", *filter(None, modules)][:20])
            raise ConfigError(
                f"{key}.object: the network has no module {probe.object!r}",
                f"did you mean {near[0]}?" if near and near[0] else f"there are: {known}",
            )
        if probe.attribute in (None, "output"):
            if not any(isinstance(hook, _Keep) for hook in module._forward_hooks.values()):
                module.register_forward_hook(_Keep(self._outputs))
            return module
        if not isinstance(module, CrossbarLayer):
            raise ConfigError(
                f"{key}.attribute: {probe.object} is a {type(module).__name__}, without tiles",
                f"crossbar layers are: {', '.join(self._layers)}",
            )
        if probe.attribute == "saturation" and module.config.adc.bits is None:
            raise ConfigError(
                f"{key}.attribute: {probe.object} has no ADC that could saturate",
                "set torch_crossbar.crossbar.adc.bits",
            )
        rows = self._rows.setdefault(module, {})
        module.watch = lambda part: rows.__setitem__(part.row, part)
        return module


class _Keep:
    """A forward hook that keeps a module's output."""

    def __init__(self, outputs: dict[nn.Module, Any]) -> None:
        self._outputs = outputs

    def __call__(self, module: nn.Module, inputs: Any, output: Any) -> None:
        self._outputs[module] = output
