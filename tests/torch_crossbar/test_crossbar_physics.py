"""Voltages, device currents, power and gradients."""

import itertools

import pytest
import torch

from simrun_torch_crossbar import (
    device_currents,
    node_voltages,
    power,
    solve,
    transfer_matrix,
)

OHMS = (50.0, 1.0, 2.0, 20.0)
ZEROS = list(itertools.product([True, False], repeat=4))


def tiles(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(shape, generator=generator, dtype=torch.float64) * 1e-3


def volts(*shape, seed=1):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def ohms(zero):
    return tuple(0.0 if z else x for z, x in zip(zero, OHMS, strict=True))


@pytest.mark.parametrize("zero", ZEROS)
def test_device_currents_add_up_to_the_outputs(zero):
    G, V, r = tiles(2, 7, 5), volts(2, 3, 7), ohms(zero)
    current = device_currents(G, V, r)
    torch.testing.assert_close(current.sum(-2), solve(G, V, r), rtol=1e-11, atol=1e-17)


@pytest.mark.parametrize("zero", ZEROS)
def test_voltages_obey_kirchhoff(zero):
    G, V, r = tiles(6, 9), volts(4, 6), ohms(zero)
    source, word_line, bit_line, sense = r
    u, d = node_voltages(G, V, r)
    assert u.shape == d.shape == (4, 6, 9)
    current = G * (u - d)
    along, down = current.flip(-1).cumsum(-1).flip(-1), current.cumsum(-2)
    near = {"rtol": 0, "atol": 1e-13}
    torch.testing.assert_close(u[..., 0], V - source * along[..., 0], **near)
    torch.testing.assert_close(u[..., 1:], u[..., :-1] - word_line * along[..., 1:], **near)
    torch.testing.assert_close(d[:, 1:], d[:, :-1] - bit_line * down[:, :-1], **near)
    torch.testing.assert_close(d[:, -1], sense * down[:, -1], **near)


@pytest.mark.parametrize("zero", ZEROS)
def test_power_is_what_the_drivers_deliver(zero):
    G, V, r = tiles(2, 8, 6), volts(2, 3, 8), ohms(zero)
    delivered = (V * device_currents(G, V, r).sum(-1)).sum(-1)
    parts = power(G, V, r)
    torch.testing.assert_close(sum(parts), delivered, rtol=1e-12, atol=0)
    for name, part, ohm in zip(parts._fields[1:], parts[1:], r, strict=True):
        assert (part >= 0).all(), name
        assert bool(part.any()) == (ohm > 0), name


def test_groups_change_no_voltage():
    G, V = tiles(5, 12, 9), volts(5, 2, 12)
    for found, alone in zip(
        node_voltages(G, V, OHMS), node_voltages(G, V, OHMS, group=2), strict=True
    ):
        torch.testing.assert_close(found, alone, rtol=1e-14, atol=0)


def test_one_tile_many_inputs_and_one_input_many_tiles():
    G, V = tiles(3, 4, 5), volts(2, 4)
    assert node_voltages(G, V, OHMS)[0].shape == (3, 2, 4, 5)
    assert solve(G, V, OHMS).shape == (3, 2, 5)


@pytest.mark.parametrize("zero", ZEROS)
@pytest.mark.parametrize("shape", [(1, 1), (1, 3), (3, 1), (3, 2), (2, 4, 3)])
def test_gradients(zero, shape):
    # Of siemens by ohm and siemens: scaled so that none is lost in gradcheck's tolerance.
    G = (tiles(*shape) * 1e3 + 0.1).requires_grad_()
    r = [torch.tensor(x / 50, dtype=torch.float64, requires_grad=x > 0) for x in ohms(zero)]
    assert torch.autograd.gradcheck(
        lambda G, *r: transfer_matrix(G, r), (G, *r), atol=1e-9, rtol=1e-6
    )


def test_gradient_of_a_larger_tile_along_a_line():
    G, step = tiles(40, 50), tiles(40, 50, seed=5) - 5e-4
    weight = volts(40, 50)
    G.requires_grad_()
    r = torch.tensor(2.0, dtype=torch.float64, requires_grad=True)
    (weight * transfer_matrix(G, (5.0, r, r, 5.0))).sum().backward()

    def value(t, ohm=2.0):
        return (weight * transfer_matrix(G.detach() + t * step, (5.0, ohm, ohm, 5.0))).sum()

    h = 1e-4  # errors: h^2 of the third derivative
    assert ((value(h) - value(-h)) / (2 * h)).item() == pytest.approx(
        (G.grad * step).sum().item(), rel=1e-6
    )
    assert ((value(0, 2 + h) - value(0, 2 - h)) / (2 * h)).item() == pytest.approx(
        r.grad.item(), rel=1e-6
    )


def test_gradients_do_not_depend_on_groups_and_float32_is_computed_wide():
    G = tiles(5, 12, 9)
    found = []
    for group, dtype in ((None, torch.float64), (2, torch.float64), (3, torch.float32)):
        leaf = G.clone().to(dtype).requires_grad_()
        transfer_matrix(leaf, OHMS, group=group).square().sum().backward()
        assert leaf.grad.dtype == dtype
        found.append(leaf.grad.double())
    torch.testing.assert_close(found[1], found[0], rtol=1e-13, atol=0)
    # W and G are rounded to float32; some entries are differences of larger ones.
    assert (found[2] - found[0]).abs().max() < 1e-5 * found[0].abs().max()


def test_a_gradient_by_a_short_is_refused():
    r = torch.zeros((), dtype=torch.float64, requires_grad=True)
    with pytest.raises(ValueError, match="r_wl = 0 ohm requires a gradient"):
        transfer_matrix(tiles(3, 3), (1.0, r, 1.0, 1.0))
