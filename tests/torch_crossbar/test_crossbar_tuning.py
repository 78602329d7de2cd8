"""Calibration of converters, and gain and offset, against least squares by numpy."""

import numpy as np
import pytest
import torch
from torch import nn

from simrun_torch_crossbar import (
    ADC,
    DAC,
    CrossbarConfig,
    best_gain,
    calibrate,
    crossbars,
    patch_model,
    tune,
)

WIRES = {"source_resistance": 20.0, "line_resistance": 5.0, "r_on": 1e3, "r_off": 1e4,
         "tile": (8, 8)}  # fmt: skip


def data(*shape, seed=1):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64) + 0.5


def network():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(2, 6, 3), nn.ReLU(), nn.Flatten(), nn.Linear(54, 5)
    ).double()  # fmt: skip


def error(found, wanted):
    return float((found - wanted).norm() / wanted.norm())


@pytest.mark.parametrize("per", ["column", "layer"])
def test_tuning_is_least_squares(per):
    layer, x = nn.Linear(20, 3).double(), data(40, 20)
    patched = patch_model(layer, CrossbarConfig(**WIRES))
    patched.solve()
    found = (x @ patched._effective.T).detach().numpy()
    wanted = (x @ layer.weight.T).detach().numpy()
    tune(patched, x, per=per, batch=7)
    columns = [slice(k, k + 1) for k in range(3)] if per == "column" else [slice(0, 3)]
    for k in columns:
        A = np.stack([found[:, k].ravel(), np.ones(found[:, k].size)], 1)
        (gain, offset), *_ = np.linalg.lstsq(A, wanted[:, k].ravel(), rcond=None)
        np.testing.assert_allclose(patched.gain[k], gain, rtol=1e-10)
        np.testing.assert_allclose(patched.offset[k], offset, rtol=1e-8, atol=1e-12)


def test_pieces_change_only_roundings():
    x, gains = data(50, 2, 5, 5), []
    for batch in (50, 13, 1):
        patched = patch_model(network(), CrossbarConfig(**WIRES))
        tune(patched, x, batch=batch)
        gains.append(torch.cat([layer.gain for layer in crossbars(patched).values()]))
    torch.testing.assert_close(gains[0], gains[1], rtol=1e-10, atol=0)
    torch.testing.assert_close(gains[0], gains[2], rtol=1e-10, atol=0)


def test_without_data_the_gain_is_in_closed_form():
    layer = nn.Linear(20, 3).double()
    patched = patch_model(layer, CrossbarConfig(**WIRES))
    tune(patched)
    v, w = patched._effective.T, layer.weight.T
    many = data(40_000, 20) - 0.5
    y, wanted = many @ v, many @ w
    regression = (y * wanted).sum(0) / y.square().sum(0)
    torch.testing.assert_close(patched.gain, regression, rtol=0.01, atol=0)
    assert not patched.offset.any()


def test_the_closed_form_for_a_covariance():
    x, v, w = data(30, 6), data(6, 4, seed=2), data(6, 4, seed=3)
    gain = best_gain(v, w, x.T @ x)
    y, wanted = x @ v, x @ w
    torch.testing.assert_close(gain, (y * wanted).sum(0) / y.square().sum(0), rtol=1e-10, atol=0)
    assert best_gain(torch.zeros(3, 2), torch.ones(3, 2)).tolist() == [1, 1]


@pytest.mark.parametrize(
    "converters",
    [{}, {"dac": DAC(bits=8), "adc": ADC(bits=8, overflow=0.001)}, {"read_noise": 0.02}],
    ids=["ideal", "converters", "noise"],
)
@pytest.mark.parametrize("given", [True, False])
def test_tuning_helps(converters, given):
    net, x = network(), data(60, 2, 5, 5)
    patched = patch_model(net, CrossbarConfig(**WIRES, **converters))
    calibrate(patched, x[:40])
    with torch.no_grad():
        before = error(patched(x), net(x))
        tune(patched, x[:40] if given else None)
        assert error(patched(x), net(x)) < 0.7 * before


@pytest.mark.parametrize("overflow", [0.0, 0.05])
def test_ranges_are_quantiles_of_the_currents(overflow):
    layer, x = nn.Linear(20, 12).double(), data(50, 20)
    config = CrossbarConfig(**WIRES, adc=ADC(bits=8, overflow=overflow), dac=DAC(v_max=0.3))
    patched = patch_model(layer, config)
    calibrate(patched, x, batch=7)
    assert patched.input_range == x.abs().max()
    seen = []
    patched.watch = seen.append
    patched(x)
    for part in seen:
        for k, columns in enumerate(patched.grid.columns):
            size = part.currents[..., columns].abs().flatten(2)
            exact = size.sort(-1).values[..., -1 - int(overflow * size.shape[-1])]
            ratio = patched.adc_range[part.row, :, :, k] / exact
            assert (ratio >= 1).all()
            assert (ratio <= 1.016).all()
    saturated = torch.cat([part.saturated.flatten() for part in seen]).double().mean()
    assert saturated <= overflow
    assert saturated >= 0.85 * overflow - 0.003


def test_pieces_do_not_change_ranges():
    x, found = data(50, 2, 5, 5), []
    for batch in (50, 13):
        patched = patch_model(network(), CrossbarConfig(**WIRES, adc=ADC(bits=6, overflow=0.01)))
        calibrate(patched, x, batch)
        found.append([layer.adc_range for layer in crossbars(patched).values()])
    for a, b in zip(*found, strict=True):
        # a current on the edge of a bin may be rounded to the other side of it
        torch.testing.assert_close(a, b, rtol=0.016, atol=0)


def test_bad_data_is_refused():
    patched = patch_model(network(), CrossbarConfig(**WIRES))
    bad = data(3, 2, 5, 5)
    bad[1, 0, 2, 3] = float("inf")
    for function in (calibrate, tune):
        with pytest.raises(ValueError, match=r"inputs\[1, 0, 2, 3\] = inf"):
            function(patched, bad)
        with pytest.raises(ValueError, match=r"\(0, 2\)"):
            function(patched, torch.empty(0, 2))
    with pytest.raises(ValueError, match="per = 'row'"):
        tune(patched, per="row")
