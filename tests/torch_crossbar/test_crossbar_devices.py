"""Non-idealities: their statistics, their order, and what their draws depend on."""

import math

import pytest
import torch
from torch import nn

from simrun_torch_crossbar import CrossbarConfig, Drift, Spread, Stuck, Variability, patch_model
from simrun_torch_crossbar.devices import program

ON, OFF = 1e3, 1e5
N = 40_000  # a share of 0.1 is met within 0.006 (4 standard deviations), a mean within 2 %


def config(**changes):
    return CrossbarConfig(**({"r_on": ON, "r_off": OFF, "seed": 5} | changes))


def fractions(value=None):
    generator = torch.Generator().manual_seed(0)
    random = torch.rand(N, generator=generator, dtype=torch.float64)
    return random if value is None else torch.full_like(random, value)


def test_none_is_the_target():
    f = fractions()
    wanted = 1 / OFF + f * (1 / ON - 1 / OFF)
    torch.testing.assert_close(program(f, config(), "a"), wanted, rtol=1e-14, atol=0)


def test_levels():
    found = program(fractions(), config(levels=4), "a").unique()
    wanted = [1 / OFF + k / 3 * (1 / ON - 1 / OFF) for k in range(4)]
    torch.testing.assert_close(found, torch.tensor(wanted, dtype=torch.float64), rtol=1e-12, atol=0)


@pytest.mark.parametrize(
    ("settings", "mean", "deviation"),
    [
        (Variability(distribution="normal", sigma=0.1), 1.0, 0.1),
        (Variability(distribution="lognormal", sigma=0.1), math.exp(0.005), 0.1008),
        (Variability(distribution="samples", samples=(0.5, 1.5)), 1.0, 0.5),
    ],
    ids=["normal", "lognormal", "samples"],
)
def test_variability(settings, mean, deviation):
    factor = program(fractions(), config(variability=settings), "a") / program(
        fractions(), config(), "a"
    )
    assert factor.mean().item() == pytest.approx(mean, abs=4 * deviation / N**0.5)
    assert factor.std().item() == pytest.approx(deviation, rel=0.02)
    assert (program(fractions(), config(variability=Variability(distribution="normal", sigma=9)),
                    "a") >= 0).all()  # fmt: skip


def test_limits_of_each_device():
    spread = Spread(mean=ON, std=50)
    found = program(fractions(1.0), config(r_on=spread), "a")
    assert (1 / found).mean().item() == pytest.approx(ON, rel=0.002)
    assert (1 / found).std().item() == pytest.approx(50, rel=0.02)
    # a device that is off doesn't care
    assert (program(fractions(0.0), config(r_on=spread), "a") == 1 / OFF).all()
    lognormal = Spread(mean=OFF, std=0.3, distribution="lognormal")
    found = program(fractions(0.0), config(r_off=lognormal), "a")
    assert (found * OFF).log().std().item() == pytest.approx(0.3, rel=0.02)


def test_drift():
    drift = Drift(time=1000.0, exponent=0.1, sigma=0.02)
    factor = program(fractions(), config(drift=drift), "a") / program(fractions(), config(), "a")
    exponent = -factor.log() / math.log(1000)
    assert exponent.mean().item() == pytest.approx(0.1, rel=0.01)
    assert exponent.std().item() == pytest.approx(0.02, rel=0.02)


def test_stuck_comes_last():
    stuck = Stuck(r_on=0.1, r_off=0.05, open=0.2)
    noise = {"variability": Variability(sigma=0.2), "drift": Drift(time=10, exponent=0.1)}
    found = program(fractions(0.5), config(stuck=stuck, **noise), "a")
    for value, rate in ((1 / ON, 0.1), (1 / OFF, 0.05), (0.0, 0.2)):
        assert (found == value).double().mean().item() == pytest.approx(rate, abs=0.008)


def test_each_has_a_stream_of_its_own():
    one = config(variability=Variability(sigma=0.2))
    both = config(variability=Variability(sigma=0.2), stuck=Stuck(open=0.3))
    found, alone = program(fractions(), both, "a"), program(fractions(), one, "a")
    assert torch.equal(found[found > 0], alone[found > 0])
    # a higher rate adds to the devices of a lower one
    more = program(fractions(), config(stuck=Stuck(open=0.4)), "a")
    assert (more[found == 0] == 0).all()


def test_draws_depend_on_seed_and_layer():
    settings = config(variability=Variability(sigma=0.2))
    found = program(fractions(), settings, "a")
    assert torch.equal(found, program(fractions(), settings, "a"))
    assert not torch.equal(found, program(fractions(), settings, "b"))
    other = settings.model_copy(update={"seed": 6})
    assert not torch.equal(found, program(fractions(), other, "a"))
    torch.manual_seed(1)
    torch.rand(3)  # the global generator has no part in it
    assert torch.equal(found, program(fractions(), settings, "a"))


def test_read_noise_is_that_of_independent_devices():
    # Without wires: column j has variance sum_i (V_i s G_ij)^2, of either crossbar.
    layer = nn.Linear(6, 2, bias=False).double()
    patched = patch_model(layer, config(read_noise=0.05))
    x = torch.linspace(-1, 1, 6, dtype=torch.float64).expand(20_000, 6)
    found = patched(x)
    scale = patched.weight_per_siemens
    wanted = (x[0].square() @ patched.conductances[:, 0].square().sum(0)).sqrt() * 0.05 * scale
    assert (found.std(0) / wanted - 1).abs().max() < 0.03
    torch.testing.assert_close(found.mean(0), layer(x[0]), rtol=0, atol=4 * wanted.max() / 140)


def test_read_noise_is_a_function_of_the_sample():
    patched = patch_model(nn.Sequential(nn.Linear(6, 4), nn.Linear(4, 2)).double(),
                          config(read_noise=0.05))  # fmt: skip
    x = fractions()[:60].reshape(10, 6)
    reads = patched[0].reads
    together = patched(x)
    parts = []
    for first, stop in ((0, 3), (3, 4), (4, 10)):
        reads.start(first)
        parts.append(patched(x[first:stop]))
    # BLAS sums shorter batches in another order
    torch.testing.assert_close(torch.cat(parts), together, rtol=1e-12, atol=1e-12)
    reads.start(0)
    again, later = patched(x), patched(x)
    assert torch.equal(again, together)
    assert not torch.allclose(later, together), "a second read of the same samples is another"
