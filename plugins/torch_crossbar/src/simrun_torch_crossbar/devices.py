"""From where a device is to be to where it is: non-idealities of programming, in a fixed order.

Levels, the device's own limits, variability, drift, stuck devices. Each draws from a stream of
its own; the draws depend on seed, layer and non-ideality alone.
"""

from __future__ import annotations

import hashlib

import torch

from simrun_torch_crossbar.config import CrossbarConfig, Spread, Variability


def stream(*key: object) -> torch.Generator:
    """A random generator (CPU) of its own for each key."""
    digest = hashlib.blake2b(repr(key).encode(), digest_size=8).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest, "little") >> 1)


def program(fraction: torch.Tensor, config: CrossbarConfig, layer: str) -> torch.Tensor:
    """Conductances in siemens of devices that were to be at ``fraction`` of the way to g_on.

    Parameters
    ----------
    fraction : Tensor
        From 0 (g_off) to 1 (g_on).
    config : CrossbarConfig
    layer : str
        Its name: with the seed, the key of all draws.
    """

    def draw(what: str) -> torch.Generator:
        return stream(config.seed, layer, what)

    if config.levels is not None:
        fraction = (fraction * (config.levels - 1)).round() / (config.levels - 1)
    g_off = _siemens(config.r_off, fraction, draw("r_off"))
    g_on = _siemens(config.r_on, fraction, draw("r_on"))
    G = g_off + fraction * (g_on - g_off)
    if config.variability is not None:
        G = G * _factors(config.variability, G, draw("variability"))
    if config.drift is not None:
        drift = config.drift
        exponent = drift.exponent + drift.sigma * _normal(G, draw("drift"))
        G = G * (drift.time / drift.t0) ** -exponent.clamp_(min=0)
    if config.stuck is not None:
        stuck, u = config.stuck, _uniform(G, draw("stuck"))
        # one draw decides, so that a higher rate only adds to the devices stuck by a lower one
        G = torch.where(u < stuck.r_on, g_on, G)
        u = u - stuck.r_on
        G = torch.where((u >= 0) & (u < stuck.r_off), g_off, G)
        u = u - stuck.r_off
        G = torch.where((u >= 0) & (u < stuck.open), 0.0, G)
    return G


def _siemens(
    resistance: float | Spread, like: torch.Tensor, generator: torch.Generator
) -> torch.Tensor:
    if not isinstance(resistance, Spread):
        return like.new_tensor(1 / resistance)
    z = resistance.std * _normal(like, generator)
    if resistance.distribution == "lognormal":
        return (-z).exp_() / resistance.mean
    # a normal distribution has a tail below 0; a hundredth of the mean ends it
    return 1 / (resistance.mean + z).clamp_(min=resistance.mean / 100)


def _factors(settings: Variability, like: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    if settings.distribution == "samples":
        which = torch.randint(len(settings.samples), like.shape, generator=generator)
        return like.new_tensor(settings.samples)[which.to(like.device)]
    z = settings.sigma * _normal(like, generator)
    return z.exp_() if settings.distribution == "lognormal" else (1 + z).clamp_(min=0)


def _normal(like: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    return torch.randn(like.shape, generator=generator, dtype=like.dtype).to(like.device)


def _uniform(like: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    return torch.rand(like.shape, generator=generator, dtype=like.dtype).to(like.device)
