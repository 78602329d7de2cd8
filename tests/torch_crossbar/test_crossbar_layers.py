"""Layers and patched models against the plain ones, and against tiles solved by nodal analysis."""

import numpy as np
import pytest
import torch
from torch import nn

from simrun_torch_crossbar import (
    ADC,
    DAC,
    CrossbarConfig,
    CrossbarConv2d,
    CrossbarLinear,
    Spread,
    Stuck,
    crossbars,
    patch_model,
    transfer_matrix,
)
from torch_crossbar.crossbar_nodal import nodal_transfer_matrix

WIRES = {"source_resistance": 5.0, "line_resistance": 2.0, "r_on": 1e3, "r_off": 1e4}
NO_WIRES = {"r_on": 1e3, "r_off": 1e4}


def double(module, seed=0):
    torch.manual_seed(seed)
    return module.double()


def inputs(*shape, seed=1):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64)


LAYERS = [
    (nn.Linear(7, 5), (4, 7)),
    (nn.Linear(20, 30, bias=False), (4, 20)),
    (nn.Linear(9, 1), (2, 3, 9)),
    (nn.Linear(1, 9), (1,)),
    (nn.Conv1d(3, 4, 3, stride=2, padding=1), (4, 3, 11)),
    (nn.Conv1d(4, 6, 2, groups=2, dilation=3, bias=False), (4, 4, 11)),
    (nn.Conv2d(3, 8, (3, 2), stride=(2, 1), padding=(1, 0), dilation=(1, 2)), (4, 3, 9, 8)),
    (nn.Conv2d(4, 4, 3, padding="same", groups=4), (4, 4, 6, 5)),
    (nn.Conv2d(2, 3, 4, padding="same", padding_mode="reflect"), (4, 2, 6, 5)),
    (nn.Conv2d(2, 3, (1, 3), padding=(0, 2), padding_mode="circular"), (2, 6, 5)),
    (nn.Conv3d(2, 3, (1, 2, 3), stride=(1, 2, 1), padding=(0, 1, 1)), (2, 2, 3, 4, 5)),
]


@pytest.mark.parametrize("mapping", ["double", "single"])
@pytest.mark.parametrize("through", ["product", "tiles"])
@pytest.mark.parametrize(
    ("layer", "shape"), LAYERS, ids=[f"{k}-{x}" for k, (x, _) in enumerate(LAYERS)]
)
def test_without_wires_a_layer_is_the_plain_one(layer, shape, through, mapping):
    # 24 bits of ADC leave 1e-7 of a tile's largest current
    adc = ADC() if through == "product" else ADC(bits=24, range="sample")
    config = CrossbarConfig(tile=(8, 4), mapping=mapping, adc=adc, **NO_WIRES)
    layer, x = double(layer), inputs(*shape)
    found, wanted = patch_model(layer, config)(x), layer(x)
    assert found.shape == wanted.shape
    tolerance = 1e-12 if through == "product" else 3e-6
    torch.testing.assert_close(found, wanted, rtol=0, atol=tolerance * wanted.abs().max().item())


def by_hand(weight, x, config):
    """Outputs of a linear layer (m, n), its tiles solved one by one by nodal analysis."""
    m, n = weight.shape
    scale, (rows, columns) = np.abs(weight).max(), config.tile
    span = config.g_on - config.g_off
    single = config.mapping == "single"
    y = np.zeros((len(x), n))
    width = columns - single
    for i in range(0, m, rows):
        for j in range(0, n, width):
            part, volts = weight[i : i + rows, j : j + width] / scale, x[:, i : i + rows]
            if single:
                fraction = np.c_[(part + 1) / 2, np.full(len(part), 0.5)]
                current = volts @ nodal_transfer_matrix(config.g_off + fraction * span, config.ohms)
                found = 2 * (current[:, :-1] - current[:, -1:])
            else:
                found = sum(
                    sign
                    * (volts @ nodal_transfer_matrix(
                        config.g_off + np.clip(sign * part, 0, 1) * span, config.ohms))
                    for sign in (1, -1)
                )  # fmt: skip
            y[:, j : j + width] += found * scale / span
    return y


@pytest.mark.parametrize("mapping", ["double", "single"])
@pytest.mark.parametrize("ohms", [(5, 2, 2, 5), (50, 1, 0, 0)])
def test_tiles_are_solved_each_on_its_own(mapping, ohms):
    # Not as one crossbar of G+ - G-, and not padded: other circuits, other currents.
    config = CrossbarConfig(tile=(8, 6), mapping=mapping, resistances=ohms, r_on=1e3, r_off=1e4)
    layer, x = double(nn.Linear(19, 14, bias=False)), inputs(3, 19)
    wanted = by_hand(layer.weight.detach().numpy().T, x.numpy(), config)
    found = patch_model(layer, config)(x).numpy()
    # nodal analysis is refined to 1e-13; the difference of crossbars loses a digit or two
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-11 * np.abs(wanted).max())
    # a float32 model: rounding of G and W, amplified by G+ - G-
    found = patch_model(layer.float(), config)(x.float()).numpy()
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-4 * np.abs(wanted).max())


def test_a_convolution_is_a_linear_layer_of_its_windows():
    config = CrossbarConfig(tile=(8, 8), **WIRES)
    convolution, x = double(nn.Conv2d(3, 10, 2)), inputs(4, 3, 5, 5)
    linear = double(nn.Linear(12, 10))
    linear.weight.data, linear.bias.data = convolution.weight.data.flatten(1), convolution.bias.data
    windows = torch.nn.functional.unfold(x, 2).mT
    wanted = patch_model(linear, config)(windows).mT.reshape(4, 10, 4, 4)
    torch.testing.assert_close(patch_model(convolution, config)(x), wanted, rtol=0, atol=1e-12)


@pytest.mark.parametrize("dac", [DAC(), DAC(bits=4, range="sample"), DAC(bits=1, range=2.0)])
@pytest.mark.parametrize(
    "adc",
    [
        ADC(),
        ADC(bits=6, range="sample", overflow=0.1),
        ADC(bits=1, range=1e-4),
        ADC(bits=6, range="sample", scale="log"),
    ],
)
@pytest.mark.parametrize("kind", ["linear", "convolution"])
def test_samples_do_not_see_each_other(dac, adc, kind):
    config = CrossbarConfig(tile=(8, 8), dac=dac, adc=adc, read_noise=0.01, **WIRES)
    layer, x = (
        (nn.Linear(20, 9), inputs(5, 20))
        if kind == "linear"
        else (nn.Conv2d(2, 9, 3), inputs(5, 2, 5, 5))
    )
    patched = patch_model(double(layer), config)
    reads = next(iter(crossbars(patched).values())).reads
    together = patched(x)
    for k in range(5):
        reads.start(k)
        # summed in another order by BLAS: the last bits, where no converter hides them
        torch.testing.assert_close(
            patched(x[k : k + 1])[0], together[k], rtol=0, atol=1e-12 * together.abs().max().item()
        )
    reads.start(0)
    loud = x.clone()
    loud[1:] *= 1000
    assert torch.equal(patched(loud)[0], together[0])


def test_converters_of_few_bits():
    x = torch.tensor([-2.0, -0.6, -0.2, 0.0, 0.2, 0.6, 2.0], dtype=torch.float64)
    from simrun_torch_crossbar.converters import linear, logarithmic

    full = torch.tensor(1.0, dtype=torch.float64)
    assert linear(x, 1, full).tolist() == [-1, -1, -1, 1, 1, 1, 1]
    assert linear(x, 2, full).tolist() == [-1, -1, 0, 0, 0, 1, 1]
    assert linear(x, 3, full).mul(3).round().tolist() == [-3, -2, -1, 0, 1, 2, 3]
    assert not linear(x, 3, torch.zeros(())).any()
    # currents far below 1 A, which a logarithm without a range makes negative
    small = logarithmic(x * 1e-6, 3, full * 1e-6, decades=2.0)
    np.testing.assert_allclose(small * 1e6, [-1, -1, -0.1, 0, 0.1, 1, 1], rtol=1e-12)
    assert logarithmic(x * 1e-6, 1, full * 1e-6, 2.0).tolist() == [-1e-6] * 3 + [1e-6] * 4


def test_a_weight_of_one_sign_and_of_zeros():
    for sign in (1, -1, 0):
        layer, x = double(nn.Linear(6, 4)), inputs(3, 6)
        layer.weight.data = sign * layer.weight.data.abs()
        found = patch_model(layer, CrossbarConfig(tile=(4, 4), **NO_WIRES))(x)
        torch.testing.assert_close(found, layer(x), rtol=0, atol=1e-13)


def test_the_quantile_clips_the_largest_weights():
    layer = double(nn.Linear(100, 1, bias=False))
    layer.weight.data = torch.arange(1.0, 101, dtype=torch.float64)[None]
    patched = patch_model(layer, CrossbarConfig(quantile=0.9, **NO_WIRES))
    patched.solve()
    wanted = layer.weight.clamp(max=90)
    torch.testing.assert_close(patched._effective, wanted, rtol=0, atol=1e-11)


def test_a_stuck_column_of_a_tile_stays_in_its_tile():
    layer, x = double(nn.Linear(8, 8, bias=False)), inputs(3, 8)
    patched = patch_model(layer, CrossbarConfig(tile=(4, 4), **WIRES))
    before = patched(x)
    with torch.no_grad():
        patched.conductances[0, 0, :4, 1] = 0  # changed in place: solved again
    after = patched(x)
    assert not torch.allclose(before[:, 1], after[:, 1])
    assert not torch.equal(before[:, 2], after[:, 2])  # its neighbours carry less
    assert torch.equal(before[:, 4:], after[:, 4:])


def test_the_state_round_trip(tmp_path):
    config = CrossbarConfig(tile=(8, 8), stuck=Stuck(r_on=0.1), r_off=Spread(mean=1e5, std=1e3),
                            adc=ADC(bits=8, range=1e-3), seed=3)  # fmt: skip
    net = nn.Sequential(nn.Conv2d(1, 3, 3), nn.ReLU(), nn.Flatten(), nn.Linear(48, 5))
    x = inputs(2, 1, 6, 6).float()
    torch.manual_seed(1)
    patched = patch_model(net, config)
    torch.save(patched.state_dict(), tmp_path / "state.pt")
    for module in net:
        if hasattr(module, "reset_parameters"):
            module.reset_parameters()
    other = patch_model(net, config)
    assert not torch.equal(other(x), patched(x))
    other.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    assert torch.equal(other(x), patched(x))


class Net(nn.Module):
    """Shared layers, an attention block, and a recurrent cell made of Linear."""

    def __init__(self):
        super().__init__()
        self.cell = nn.Linear(12, 8)
        self.again = self.cell
        self.block = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        self.lstm = nn.LSTM(8, 8, batch_first=True)
        self.head = nn.Linear(8, 3)

    def forward(self, x):
        state = x.new_zeros(len(x), 8)
        states = []
        for step in range(x.shape[1]):
            layer = self.cell if step % 2 else self.again
            state = torch.tanh(layer(torch.cat([x[:, step], state], -1)))
            states.append(state)
        return self.head(self.lstm(self.block(torch.stack(states, 1)))[0][:, -1])


def test_chosen_modules_are_replaced_and_the_rest_is_left():
    net, x = double(Net()).eval(), inputs(4, 5, 4)
    patched = patch_model(net, CrossbarConfig(**NO_WIRES))
    assert set(crossbars(patched)) == {"cell", "block.linear1", "block.linear2", "head"}
    assert patched.again is patched.cell
    assert isinstance(net.cell, nn.Linear), "the model itself isn't changed"
    with torch.no_grad():  # where a TransformerEncoderLayer would take its fast path
        torch.testing.assert_close(patched(x), net(x), rtol=0, atol=1e-12)
    some = patch_model(net, CrossbarConfig(**WIRES), include=["block.*", "head"], exclude=["h*"])
    assert set(crossbars(some)) == {"block.linear1", "block.linear2"}
    with torch.no_grad():
        assert not torch.allclose(some(x), net(x))
    assert isinstance(patch_model(nn.Linear(2, 2), CrossbarConfig()), CrossbarLinear)
    assert isinstance(patch_model(nn.Sequential(nn.Conv2d(1, 1, 1)), CrossbarConfig())[0],
                      CrossbarConv2d)  # fmt: skip


def test_groups_and_budgets_change_no_bit_of_w():
    config = CrossbarConfig(tile=(16, 12), **WIRES)
    layer, found = double(nn.Linear(70, 50)), []
    for limit in (None, 1, 200_000):
        patched = patch_model(layer, config)
        patched.group_limit = limit
        patched.solve()
        found.append(patched._effective)
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])


def test_watching_changes_no_bit_and_sees_the_currents():
    layer, x = double(nn.Linear(20, 9)), inputs(4, 20)
    patched = patch_model(layer, CrossbarConfig(tile=(8, 6), **WIRES))
    before, seen = patched(x), []
    patched.watch = seen.append
    assert torch.equal(patched(x), before)
    assert [part.row for part in seen] == [0, 1, 2]
    assert seen[0].currents.shape == (2, 1, 4, 1, 9)
    W = transfer_matrix(patched.conductances[1, 0, 16:, 6:], patched.config.ohms)
    wanted = 0.2 * x[:, 16:] @ W  # without a range x = 1 is v_max, 0.2 V
    torch.testing.assert_close(seen[2].currents[1, 0, :, 0, 6:], wanted, rtol=1e-12, atol=0)


class Held(nn.Linear):
    def forward(self, x):
        return super().forward(x) + 1


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("model", "error", "message"),
    [
        (lambda: nn.Linear(3, 3).to(torch.complex64), TypeError, "complex64"),
        (lambda: nn.Linear(3, 3).half(), TypeError, "float16"),
        (lambda: nn.LazyLinear(3), ValueError, "no weights yet"),
        (lambda: nn.Linear(0, 3), ValueError, r"\(3, 0\)"),
        (lambda: Held(3, 3), ValueError, "Held has no layer"),
        (lambda: nn.ReLU(), ValueError, "ReLU has no layer"),
        (
            lambda: torch.ao.nn.quantized.dynamic.Linear(3, 3),
            TypeError,
            r"fc \(Linear\) is quantised",
        ),
    ],
    ids=["complex", "half", "lazy", "empty", "own forward", "none", "quantised"],
)
def test_what_no_device_can_hold_is_refused(model, error, message):
    module = model()
    if "fc" in message:
        module = nn.Sequential()
        module.add_module("fc", model())
    with pytest.raises(error, match=message):
        patch_model(module, CrossbarConfig())


def test_bad_weights_and_patterns_are_refused_by_name_and_value():
    net = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2))
    with torch.no_grad():
        net[1].weight[1, 2] = float("nan")
    with pytest.raises(ValueError, match=r"1 \(Linear\): weight\[1, 2\] = nan"):
        patch_model(net, CrossbarConfig())
    with pytest.raises(ValueError, match="no module's name matches '2'"):
        patch_model(net, CrossbarConfig(), include=["2"])
    net[1].weight = nn.Parameter(torch.eye(3)[:2].to_sparse())
    with pytest.raises(TypeError, match=r"1 \(Linear\): weights are torch.sparse_coo"):
        patch_model(net, CrossbarConfig())


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"r_on": 5000, "r_off": 2500}, "r_on = 5000 ohm must be below r_off = 2500"),
        ({"r_on": -1}, "greater than 0"),
        ({"r_on": float("nan")}, "r_on"),
        ({"r_off": float("inf")}, "inf isn't finite"),
        ({"tile": (0, 8)}, "greater than 0"),
        ({"tile": (8, 1), "mapping": "single"}, "one is the reference"),
        ({"line_resistance": -2}, "greater than or equal to 0"),
        ({"resistances": (1, 1, 1, 1), "line_resistance": 2}, "given beside"),
        ({"stuck": {"r_on": 0.6, "open": 0.6}}, "more than all"),
        ({"adc": {"bits": 0}}, "greater than or equal to 1"),
        ({"adc": {"overflow": 1.0}}, "less than 1"),
        ({"variability": {"distribution": "samples"}}, "samples: 0 given"),
        ({"liine_resistance": 2}, "liine_resistance"),
    ],
)
def test_bad_settings_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        CrossbarConfig(**settings)


def test_an_unknown_range_is_explained():
    x = torch.ones(2, 3)
    for config in (CrossbarConfig(dac=DAC(bits=4)), CrossbarConfig(adc=ADC(bits=4))):
        with pytest.raises(RuntimeError, match="call calibrate"):
            patch_model(nn.Linear(3, 3), config)(x)
