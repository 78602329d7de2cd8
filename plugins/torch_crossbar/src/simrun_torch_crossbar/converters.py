"""DAC and ADC: rounding to what a converter can tell apart, and the range it needs. Pure.

A converter of b bits is symmetric about 0, which it can express: 2**b - 1 values for b > 1; one of
1 bit tells only the sign. The values of a linear one are equally spaced; those of a logarithmic
one are geometric over its decades, and 0.
"""

from __future__ import annotations

import math

import torch

BINS = 1 << 12
"""Of `histogram`: 64 to an octave's float32 mantissa, from 2**-48 to 2**16."""

_SHIFT, _LOWEST = 17, (127 - 48) << 6


def linear(x: torch.Tensor, bits: int, full: torch.Tensor) -> torch.Tensor:
    """Round to the nearest of 2**bits - 1 values between -full and full."""
    if bits == 1:
        return torch.where(x < 0, -full, full)
    steps = 2 ** (bits - 1) - 1
    unit = full / steps
    safe = torch.where(unit > 0, unit, torch.ones_like(unit))  # a range of 0: nothing but 0
    return (x / safe).round_().clamp_(-steps, steps) * unit


def logarithmic(x: torch.Tensor, bits: int, full: torch.Tensor, decades: float) -> torch.Tensor:
    """Round to the nearest (in the logarithm) of full * 10**(-decades * k / (K - 1)), or 0.

    K = 2**(bits - 1) - 1 magnitudes; with 2 bits there is one, ``full``. What is below the
    smallest by more than half a step (for 2 bits: half of ``decades``) becomes 0.
    """
    if bits == 1:
        return torch.where(x < 0, -full, full)
    count = 2 ** (bits - 1) - 1
    step = decades / max(count - 1, 1)
    safe = torch.where(full > 0, full, torch.ones_like(full))
    k = (-(x.abs() / safe).log10_() / step).round_().clamp_(min=0)
    size = full * 10 ** (-step * k)
    return torch.where(k <= count - 1, size, torch.zeros_like(size)) * x.sign()


def histogram(size: torch.Tensor) -> torch.Tensor:
    """Counts of magnitudes, (..., values) to (..., BINS); counts add up in any order."""
    bits = size.float().contiguous().view(torch.int32) >> _SHIFT
    bins = (bits - _LOWEST).clamp_(0, BINS - 1).long()
    found = bins.new_zeros(*size.shape[:-1], BINS)
    return found.scatter_add_(-1, bins, torch.ones_like(bins))


def quantile(counts: torch.Tensor, overflow: float) -> torch.Tensor:
    """The magnitude that a share ``overflow`` of those counted lies above.

    Rounded up to the upper edge of its bin, at most 1.6 % more.
    """
    above = counts.flip(-1).cumsum(-1).flip(-1)
    allowed = (overflow * counts.sum(-1, keepdim=True)).floor()
    edge = (above > allowed).sum(-1)  # bins up to here are needed
    return ((edge + _LOWEST) << _SHIFT).int().view(torch.float32)


def largest_but(size: torch.Tensor, overflow: float) -> torch.Tensor:
    """As `quantile`, exact, over the last axis of values at hand."""
    allowed = math.floor(overflow * size.shape[-1])
    if allowed == 0:
        return size.amax(-1)
    return size.kthvalue(size.shape[-1] - allowed, -1).values
