"""Layers whose weights are crossbars: `CrossbarLinear` and `CrossbarConv1d`, `2d`, `3d`.

They say how inputs become the rows of a matrix product; `linear_map` does the rest.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional

from simrun_torch_crossbar.config import CrossbarConfig
from simrun_torch_crossbar.linear_map import CrossbarLayer


class CrossbarLinear(CrossbarLayer):
    """`torch.nn.Linear` on crossbars; inputs (..., in), the first axis is that of samples."""

    def _product(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return functional.linear(x, weight)

    def _batched(self, x: torch.Tensor) -> torch.Tensor:
        return x if x.ndim > 1 else x[None]

    def _rows(self, x: torch.Tensor) -> torch.Tensor:
        return x.reshape(1, len(x), -1, x.shape[-1])

    def _shaped(self, y: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return y.reshape(*x.shape[:-1], -1)

    def _per_output(self, values: torch.Tensor) -> torch.Tensor:
        return values

    def by_column(self, y: torch.Tensor) -> torch.Tensor:  # noqa: D102
        return y.reshape(-1, y.shape[-1])

    @property
    def sample_shape(self) -> tuple[int, ...]:  # noqa: D102
        return (self.grid.m,)


class _CrossbarConv(CrossbarLayer):
    """A convolution on crossbars; inputs (samples, channels, ...) or without samples."""

    spatial: int
    convolve: Callable[..., torch.Tensor]

    def __init__(self, layer: Any, config: CrossbarConfig, name: str, **more: Any) -> None:
        super().__init__(layer, config, name, groups=layer.groups, **more)
        self.kernel_size, self.stride, self.dilation = (
            layer.kernel_size,
            layer.stride,
            layer.dilation,
        )
        mode = layer.padding_mode
        self.padding_mode = "constant" if mode == "zeros" else mode
        self.padding = tuple(layer._reversed_padding_repeated_twice)

    def _padded(self, x: torch.Tensor) -> torch.Tensor:
        return functional.pad(x, self.padding, self.padding_mode) if any(self.padding) else x

    def _product(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        before, after = self.padding[-2::-2], self.padding[::-2]
        if self.padding_mode == "constant" and before == after:
            padding: Any = before
        else:
            x, padding = self._padded(x), 0
        return type(self).convolve(
            x, weight, None, self.stride, padding, self.dilation, self.groups
        )

    def _batched(self, x: torch.Tensor) -> torch.Tensor:
        return x if x.ndim == self.spatial + 2 else x[None]

    def _windows(self, x: torch.Tensor) -> torch.Tensor:
        """A view (samples, channels, *places, *kernel)."""
        x = self._padded(x)
        parts = zip(self.kernel_size, self.stride, self.dilation, strict=True)
        for axis, (size, step, spread) in enumerate(parts, start=2):
            x = x.unfold(axis, spread * (size - 1) + 1, step)[..., ::spread]
        return x

    def _rows(self, x: torch.Tensor) -> torch.Tensor:
        windows, d = self._windows(x), self.spatial
        # samples, places, channels, kernel
        windows = windows.permute(0, *range(2, 2 + d), 1, *range(2 + d, 2 + 2 * d))
        rows = windows.reshape(len(x), -1, self.groups, self.grid.m)
        return rows.movedim(2, 0)

    def _shaped(self, y: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        places = self._windows(self._batched(x)).shape[2 : 2 + self.spatial]
        y = y.mT.reshape(len(y), -1, *places)
        return y if x.ndim == self.spatial + 2 else y[0]

    def _per_output(self, values: torch.Tensor) -> torch.Tensor:
        return values.reshape(-1, *[1] * self.spatial)

    def by_column(self, y: torch.Tensor) -> torch.Tensor:
        return self._batched(y).movedim(1, -1).flatten(0, -2)

    @property
    def sample_shape(self) -> tuple[int, ...]:
        channels = self.groups * self.ideal_weight.shape[1]
        sizes = zip(self.kernel_size, self.dilation, strict=True)
        return (channels, *(d * (k - 1) + 1 for k, d in sizes))


class CrossbarConv1d(_CrossbarConv):
    """`torch.nn.Conv1d` on crossbars."""

    spatial, convolve = 1, staticmethod(functional.conv1d)


class CrossbarConv2d(_CrossbarConv):
    """`torch.nn.Conv2d` on crossbars."""

    spatial, convolve = 2, staticmethod(functional.conv2d)


class CrossbarConv3d(_CrossbarConv):
    """`torch.nn.Conv3d` on crossbars."""

    spatial, convolve = 3, staticmethod(functional.conv3d)
