"""W and currents against independent tools, nodal analysis, and the laws of circuits."""

import itertools
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from simrun_torch_crossbar import Resistances, solve, transfer_matrix
from torch_crossbar.crossbar_nodal import nodal_transfer_matrix

REFERENCES = sorted((Path(__file__).parent / "reference").glob("*.npz"))
OHMS = (50.0, 1.0, 2.0, 20.0)


def devices(seed, *shape, low=-6.0, high=-3.0, open_rate=0.1):
    """Log-uniform conductances in siemens between powers of ten, some devices open."""
    rng = np.random.default_rng(seed)
    return 10 ** rng.uniform(low, high, shape) * (rng.random(shape) >= open_rate)


def error(found, expected):
    """Largest difference relative to the largest value."""
    return np.abs(np.asarray(found, float) - expected).max() / np.abs(expected).max()


@pytest.mark.parametrize("file", REFERENCES, ids=lambda file: file.stem)
@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-10), ("float32", 2e-5)])
def test_currents_of_independent_tools(file, dtype, tolerance, path):
    data = np.load(file)
    G, V = (torch.from_numpy(data[x]).to(getattr(torch, dtype)) for x in "GV")
    found = solve(G, V, data["r"].tolist())
    assert found.dtype == G.dtype
    assert error(found, data["I_ngspice"]) < tolerance


def test_there_are_references():
    assert len(REFERENCES) == 12


# The sizes of MemTorch's and badcrossbar's tiles, doubled, and odd ones; each wire 0 or not, or
# anywhere between 1e-3 and 1e4 ohm; six decades of G; whole columns stuck or open.
OHM = st.one_of(st.just(0.0), st.floats(-3, 4).map(lambda x: 10.0**x))


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    m=st.integers(1, 70),
    n=st.integers(1, 70),
    r=st.tuples(OHM, OHM, OHM, OHM),
    seed=st.integers(0, 2**32),
    low=st.sampled_from([-9.0, -8.0, -7.0]),
    open_rate=st.sampled_from([0.0, 0.1, 0.9]),
    stuck_rate=st.sampled_from([0.0, 0.1]),
)
def test_nodal_analysis(m, n, r, seed, low, open_rate, stuck_rate):
    G = devices(seed, m, n, low=low, high=low + 6, open_rate=open_rate)
    G[np.random.default_rng(seed + 1).random((m, n)) < stuck_rate] = 10.0 ** (low + 6)
    found = transfer_matrix(torch.from_numpy(G), r).numpy()
    if not G.any():
        assert not found.any()
        return
    assert error(found, nodal_transfer_matrix(G, r)) < 1e-9


@pytest.mark.parametrize("zero", itertools.product([True, False], repeat=4))
def test_every_combination_of_shorts(zero, path):
    r = [0.0 if z else ohm for z, ohm in zip(zero, OHMS, strict=True)]
    for shape in [(1, 1), (1, 7), (6, 1), (2, 2), (3, 5), (17, 33), (40, 9)]:
        G = devices(7, *shape)
        found = transfer_matrix(torch.from_numpy(G), r)
        assert error(found, nodal_transfer_matrix(G, r)) < 1e-12, shape


@pytest.mark.parametrize("zero", itertools.product([True, False], repeat=4))
def test_a_short_is_the_limit_of_small_resistances(zero, path):
    # 1e-9 ohm changes currents by 1e-9 * G * devices in a line: below 1e-10 of them.
    G = torch.from_numpy(devices(3, 9, 11))
    exact = [0.0 if z else ohm for z, ohm in zip(zero, OHMS, strict=True)]
    near = [1e-9 if z else ohm for z, ohm in zip(zero, OHMS, strict=True)]
    assert error(transfer_matrix(G, near), transfer_matrix(G, exact).numpy()) < 1e-10


def test_one_device_is_a_divider(path):
    W = transfer_matrix(torch.tensor([[1e-3]], dtype=torch.float64), (1.0, 2.0, 3.0, 4.0))
    assert W.item() == pytest.approx(1 / (1000 + 1 + 4), rel=1e-15)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_entry_by_entry_however_small(dtype, path):
    # Nothing is subtracted, so the smallest entry is as accurate as the largest: wires of 1e-6
    # ohm, devices down to 1e-12 siemens. A dozen roundings a level add up.
    G = devices(5, 33, 20, low=-12, high=-2)
    r = (1e-6, 1e-3, 1e-6, 1e3)
    expected = nodal_transfer_matrix(G.astype(str(dtype)[6:]), r)
    found = transfer_matrix(torch.from_numpy(G).to(dtype), r).double().numpy()
    assert (found[G == 0] >= 0).all()
    direct = G > 1e-11
    tolerance = 200 * torch.finfo(dtype).eps
    assert (np.abs(found / expected - 1)[direct] < max(tolerance, 1e-10)).all()


def test_reciprocity():
    # Driven from its outputs, a tile is its own transpose with the roles of wires exchanged.
    G = torch.from_numpy(devices(11, 21, 34))
    W = transfer_matrix(G, OHMS)
    turned = transfer_matrix(G.flip(0, 1).T.contiguous(), OHMS[::-1])
    assert error(turned.T.flip(0, 1), W.numpy()) < 1e-13


def test_no_parasitics_is_the_matrix_itself(path):
    G = torch.from_numpy(devices(2, 3, 30, 18))
    torch.testing.assert_close(transfer_matrix(G, (0, 0, 0, 0)), G, rtol=0, atol=0)


def test_all_open(path):
    assert not transfer_matrix(torch.zeros(20, 20, dtype=torch.float64), OHMS).any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(5, 7), (16, 16), (37, 50), (96, 128)])
def test_tiles_do_not_see_each_other(shape, dtype, path):
    # Bitwise, with groups of any size, in any place of the batch, and with any number of threads.
    G = torch.from_numpy(devices(13, 7, *shape)).to(dtype)
    alone = torch.stack([transfer_matrix(tile, OHMS) for tile in G])
    for group in (None, 1, 2, 3, 7):
        assert torch.equal(transfer_matrix(G, OHMS, group=group), alone), group
    assert torch.equal(transfer_matrix(G.flip(0), OHMS).flip(0), alone)


def test_threads_change_nothing():
    from simrun_torch_crossbar.kernels import cpu

    if not cpu.available():
        pytest.skip("no C++ compiler here")
    G = torch.from_numpy(devices(17, 200, 260))
    before = torch.get_num_threads()
    found = []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            found.append(transfer_matrix(G, OHMS))
    finally:
        torch.set_num_threads(before)
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])


@pytest.mark.parametrize("r", [OHMS, (0, 1, 2, 0), (5, 0, 2, 5), (5, 2, 0, 5), (0, 0, 2, 5)])
def test_kernels_agree_with_torch(r, monkeypatch):
    from simrun_torch_crossbar.kernels import cpu

    if not cpu.available():
        pytest.skip("no C++ compiler here")
    for shape in [(2, 33, 47), (130, 90)]:
        G = torch.from_numpy(devices(19, *shape))
        with monkeypatch.context() as patch:
            compiled = transfer_matrix(G, r)
            patch.setattr(cpu, "available", lambda: False)
            plain = transfer_matrix(G, r)
        # Every entry: both round the same positive sums in different orders.
        positive = plain > 0
        assert ((compiled / plain - 1).abs()[positive] < 1e-13).all()


def test_any_batch_shape_and_strides():
    G = torch.from_numpy(devices(23, 2, 3, 8, 12))
    W = transfer_matrix(G, OHMS)
    assert W.shape == G.shape
    assert torch.equal(transfer_matrix(G[1, 2], OHMS), W[1, 2])
    assert torch.equal(transfer_matrix(G.mT.contiguous().mT, OHMS), W)
    assert transfer_matrix(G[:0], OHMS).shape == (0, 3, 8, 12)


def test_short_form():
    G = torch.from_numpy(devices(29, 6, 6))
    short = Resistances.of(source_resistance=5, line_resistance=2)
    assert short == (5, 2, 2, 5)
    assert torch.equal(transfer_matrix(G, short), transfer_matrix(G, (5, 2, 2, 5)))
