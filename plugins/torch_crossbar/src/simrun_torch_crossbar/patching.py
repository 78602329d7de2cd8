"""Puts crossbars in the place of a model's layers: `patch_model`."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from fnmatch import fnmatch

import torch
from torch import nn

from simrun_torch_crossbar.config import CrossbarConfig
from simrun_torch_crossbar.layers import (
    CrossbarConv1d,
    CrossbarConv2d,
    CrossbarConv3d,
    CrossbarLinear,
)
from simrun_torch_crossbar.linear_map import CrossbarLayer, Reads

KINDS: dict[type[nn.Module], type[CrossbarLayer]] = {
    nn.Linear: CrossbarLinear,
    nn.Conv1d: CrossbarConv1d,
    nn.Conv2d: CrossbarConv2d,
    nn.Conv3d: CrossbarConv3d,
}


@torch.no_grad()
def patch_model(
    model: nn.Module,
    config: CrossbarConfig,
    *,
    include: Sequence[str] = ("*",),
    exclude: Sequence[str] = (),
) -> nn.Module:
    """A copy of a model whose linear and convolutional layers are crossbars.

    Recurrent and attention layers keep what they compute by themselves; the `nn.Linear` layers
    inside a model's own cells and blocks are replaced. The model itself isn't changed.

    Parameters
    ----------
    model : nn.Module
    config : CrossbarConfig
    include, exclude : sequence of str
        Patterns (as of file names) of the names of the layers to replace, and to leave.

    Returns
    -------
    nn.Module

    Raises
    ------
    ValueError
        A pattern that matches no layer, or weights that no device can hold; naming the layer.
    TypeError
        A chosen layer is quantised, sparse, complex or of half precision.
    """
    found = dict(replaceable(model))
    named = dict(model.named_modules())
    for pattern in (*include, *exclude):
        if not any(fnmatch(name, pattern) for name in named):
            near = get_close_matches(pattern, found, 1)
            hint = f"; did you mean {near[0]!r}?" if near else f"; layers: {', '.join(found)}"
            raise ValueError(f"no module's name matches {pattern!r}{hint}")
    reads = Reads()
    instead: dict[int, nn.Module] = {}
    with torch.inference_mode(False):  # the layers watch the versions of their tensors
        for name, module in found.items():
            if _chosen(name, include, exclude):
                check_weight(name, module)
                kind = KINDS[_base(module)]
                instead[id(module)] = kind(module, config, name, reads=reads)
    if not instead:
        raise ValueError(
            f"{type(model).__name__} has no layer to replace: Linear and Conv1d, 2d, 3d are"
        )
    # deepcopy asks its memo first: wherever a replaced layer stands, its crossbar is put
    memo = dict(instead)
    patched = copy.deepcopy(model, memo)
    for module in patched.modules():
        if isinstance(module, nn.TransformerEncoderLayer):
            # its fast path would take the weights of its layers and leave the layers out
            module.activation_relu_or_gelu = 0
    return patched


def crossbars(model: nn.Module) -> dict[str, CrossbarLayer]:
    """The crossbar layers of a model, by name."""
    return {
        name: module for name, module in model.named_modules() if isinstance(module, CrossbarLayer)
    }


def replaceable(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """The layers that crossbars can replace, and those that look so but that will be refused."""
    inside = {
        id(child)
        for module in model.modules()
        if isinstance(module, nn.MultiheadAttention)
        for child in module.modules()  # it reads their weights, and never calls them
    }
    for name, module in model.named_modules():
        if id(module) not in inside and (_base(module) or _foreign(module)):
            yield name, module


def check_weight(name: str, module: nn.Module) -> None:
    """Refuse a layer whose weights no device can hold, by name and value."""
    where = f"{name or 'the model'} ({type(module).__name__})"
    if _foreign(module):
        raise TypeError(
            f"{where} is quantised: its weights are integers already; patch the float model"
        )
    weight = module.weight
    if isinstance(weight, nn.parameter.UninitializedParameter):
        raise ValueError(f"{where} has no weights yet: call the model once before patching it")
    if weight.layout is not torch.strided:
        raise TypeError(f"{where}: weights are {weight.layout}; use weight.to_dense()")
    if weight.dtype not in (torch.float32, torch.float64):
        raise TypeError(
            f"{where}: weights are {weight.dtype}; float32 or float64 is needed (model.float())"
        )
    if weight.numel() == 0:
        raise ValueError(f"{where}: weights of shape {tuple(weight.shape)} need no crossbar")
    bad = (~torch.isfinite(weight)).nonzero()
    if len(bad):
        at = tuple(bad[0].tolist())
        raise ValueError(f"{where}: weight{list(at)} = {weight[at].item()}; it must be finite")


def _base(module: nn.Module) -> type[nn.Module] | None:
    """The kind of layer that a module computes as, subclasses that only change weights included."""
    for kind in KINDS:
        if isinstance(module, kind) and type(module).forward is kind.forward:
            return kind
    return None


def _foreign(module: nn.Module) -> bool:
    """Whether a module is a quantised linear or convolutional layer."""
    kind = type(module)
    return "quantized" in kind.__module__ and kind.__name__.startswith(("Linear", "Conv"))


def _chosen(name: str, include: Sequence[str], exclude: Sequence[str]) -> bool:
    def matches(patterns: Sequence[str]) -> bool:
        return any(fnmatch(name, pattern) for pattern in patterns)

    return matches(include) and not matches(exclude)
