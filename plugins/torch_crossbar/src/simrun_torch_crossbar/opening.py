"""From a request to a simulation: the network, its weights, its crossbars, its data."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import torch
from torch import nn

from simrun.adapter import OpenRequest
from simrun.errors import ConfigError
from simrun.models import call_model
from simrun_torch_crossbar.data import Source, open_dataset, open_file
from simrun_torch_crossbar.footprint import steady_heap
from simrun_torch_crossbar.patching import patch_model
from simrun_torch_crossbar.settings import Settings
from simrun_torch_crossbar.simulation import CrossbarSimulation, Data

PRECISION = {"float32": torch.float32, "float64": torch.float64}


def open_simulation(request: OpenRequest) -> CrossbarSimulation:
    """Build the network, load its weights, program its crossbars, open its data.

    Raises
    ------
    ConfigError
        What the config names doesn't exist or doesn't fit.
    SimulationError
        The user's code raised.
    """
    settings: Settings = request.settings
    steady_heap()
    if settings.threads is not None:
        torch.set_num_threads(settings.threads)
    device = _device(settings.device)
    seed = request.seed or 0
    torch.manual_seed(seed)  # of weights that the model makes itself
    model = call_model(request.model, request.base, request.model_args)
    if not isinstance(model, nn.Module):
        raise ConfigError(
            f"model: {request.model} returned a {type(model).__name__}", "return a torch.nn.Module"
        )
    sources: list[Path] = []
    if settings.weights is not None:
        path = request.base / Path(settings.weights).expanduser()
        _load_weights(model, path)
        sources.append(path)
    if settings.dtype is not None:
        model.to(PRECISION[settings.dtype])
    config = settings.crossbar
    if "seed" not in config.model_fields_set:
        config = config.model_copy(update={"seed": seed})
    try:
        patched = patch_model(
            model.eval(), config, include=settings.include, exclude=settings.exclude
        )
    except (ValueError, TypeError) as error:
        raise ConfigError(f"torch_crossbar: {error}") from error
    del model
    data, files = _open_data(settings, request.base)
    return CrossbarSimulation(patched.to(device), device, data, request, (*sources, *files))


def _device(name: str) -> torch.device:
    there = torch.cuda.is_available()
    if name == "auto":
        return torch.device("cuda:0" if there else "cpu")
    device = torch.device(name)
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ConfigError(
            f"torch_crossbar.device: {name} isn't there",
            f"torch sees {torch.cuda.device_count()} GPUs; write `device: auto` or `cpu`",
        )
    return torch.device("cuda", device.index or 0) if device.type == "cuda" else device


def _load_weights(model: nn.Module, path: Path) -> None:
    key = "torch_crossbar.weights"
    if not path.is_file():
        raise ConfigError(f"{key}: no file {path}", "paths start from the config's folder")
    try:
        state: Any
        if path.suffix == ".safetensors":
            from safetensors.torch import load_file

            state = load_file(path)
        else:
            state = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError:
        raise ConfigError(
            f"{key}: {path} holds more than tensors, and what it holds could run any code",
            "save the weights alone: torch.save(model.state_dict(), path)",
        ) from None
    except Exception as error:
        raise ConfigError(f"{key}: can't read {path}: {error}") from error
    if not isinstance(state, dict):
        raise ConfigError(
            f"{key}: {path} holds a {type(state).__name__}",
            "save a state_dict: torch.save(model.state_dict(), path)",
        )
    try:
        model.load_state_dict(state)
    except RuntimeError as error:
        lines = [line.strip() for line in str(error).splitlines()]
        raise ConfigError(f"{key}: {path} doesn't fit the model: {' '.join(lines)}") from None


def _open_data(settings: Settings, base: Path) -> tuple[Data, list[Path]]:
    files: list[Path] = []

    def opened(reference: str | None, key: str) -> Source | None:
        if reference is None:
            return None
        source, path = open_file(reference, base, f"torch_crossbar.{key}")
        files.append(path)
        return source

    calibration = opened(settings.calibration, "calibration")
    if settings.dataset is not None:
        name = settings.dataset
        inputs, targets = open_dataset(call_model(name, base, settings.dataset_args), name)
    else:
        name = str(settings.inputs)
        found, targets = opened(name, "inputs"), opened(settings.targets, "targets")
        assert found is not None
        inputs = found
    if not len(inputs):
        raise ConfigError(f"torch_crossbar.inputs: {name} has no samples")
    if targets is not None and len(targets) != len(inputs):
        raise ConfigError(
            f"torch_crossbar.targets: {len(targets)} for {len(inputs)} inputs",
            "give one for each sample",
        )
    return Data(name, inputs, targets, calibration or inputs), files
