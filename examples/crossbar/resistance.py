"""Accuracy against line resistance, with and without tuning: resistance.py OUT.png"""

import sys

import matplotlib.pyplot as plt
import network
import numpy as np
import torch

from simrun_torch_crossbar import CrossbarConfig, patch_model, tune

OHMS = [0, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20]
STYLE = {"linear": "C0", "convolutional": "C1"}


@torch.no_grad()
def accuracy(model, images, labels, ohm, tuned):
    config = CrossbarConfig(
        r_on=1800, r_off=18000, source_resistance=ohm, line_resistance=ohm, tile=(128, 128)
    )
    patched = patch_model(model, config)
    if tuned:
        tune(patched, images[:200])
    return float((patched(images[200:]).argmax(1) == labels[200:]).float().mean())


def main(picture):
    images = torch.from_numpy(np.load("images.npy"))
    labels = torch.from_numpy(np.load("labels.npy"))
    figure, axes = plt.subplots(figsize=(4.5, 3.2), layout="constrained")
    for name, color in STYLE.items():
        model = getattr(network, name)().eval()
        model.load_state_dict(torch.load(f"{name}.pt", weights_only=True))
        for tuned, line in ((False, "--"), (True, "-")):
            found = [accuracy(model, images, labels, ohm, tuned) for ohm in OHMS]
            label = f"{name}, {'tuned' if tuned else 'as programmed'}"
            axes.plot(OHMS, np.array(found) * 100, line, color=color, marker="o", ms=3, label=label)
            print(f"{label}: " + ", ".join(f"{x:.1%}" for x in found))
    axes.set_xscale("symlog", linthresh=0.1, linscale=0.5)
    axes.set_xticks(OHMS, [f"{ohm:g}" for ohm in OHMS])
    axes.minorticks_off()
    axes.set(xlabel="line and source resistance (Ω)", ylabel="accuracy (%)", ylim=(0, 100))
    axes.legend(frameon=False, fontsize=7, handlelength=4)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(picture, dpi=200)


if __name__ == "__main__":
    main(*sys.argv[1:])
