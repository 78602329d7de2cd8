"""The voltage that reaches each device of a 128 x 128 tile: ir_drop.py OUT.png"""

import sys

import matplotlib.pyplot as plt
import torch

from simrun_torch_crossbar import Resistances, node_voltages

N, VOLTS = 128, 0.2


def main(picture):
    generator = torch.Generator().manual_seed(0)
    G = 1 / 2500 + torch.rand(N, N, generator=generator, dtype=torch.float64) * (
        1 / 1800 - 1 / 2500
    )
    figure, axes = plt.subplots(1, 3, figsize=(9, 3), layout="constrained", sharey=True)
    for axis, ohm in zip(axes, (0.05, 0.5, 5), strict=True):
        wires = Resistances.of(source_resistance=ohm, line_resistance=ohm)
        V = torch.full((1, N), VOLTS, dtype=torch.float64)
        word, bit = node_voltages(G, V, wires)
        share = (word - bit)[0] / VOLTS * 100
        image = axis.imshow(share, cmap="viridis", vmin=0, vmax=100)
        axis.set(title=f"{ohm:g} Ω", xlabel="bit line")
        print(f"{ohm:g} ohm: devices see {share.min():.1f} to {share.max():.1f} % of {VOLTS} V")
    axes[0].set_ylabel("word line")
    figure.colorbar(image, ax=axes, label="device voltage (% of the input)")
    figure.savefig(picture, dpi=200)


if __name__ == "__main__":
    main(*sys.argv[1:])
