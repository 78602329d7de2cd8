"""The attractor and the population's rates: plot.py RUN OUT.png"""

import sys

import matplotlib.pyplot as plt
import numpy as np

import simrun


def main(path, picture):
    with simrun.open_run(path) as run:
        x, y, z = np.asarray(run["trajectory"]).T
        rate = np.asarray(run["rate"])
        figure = plt.figure(figsize=(11, 5))
        attractor = figure.add_subplot(1, 2, 1, projection="3d")
        attractor.plot(x, y, z, linewidth=0.6)
        attractor.set(title="decoded trajectory", xlabel="x", ylabel="y", zlabel="z")
        population = figure.add_subplot(1, 2, 2)
        order = np.argsort(rate[: len(rate) // 2].mean(axis=0))
        seconds = run.times("rate")
        image = population.imshow(
            rate[:, order[-400:]].T,
            aspect="auto",
            origin="lower",
            cmap="magma",
            extent=(0, seconds[-1], 0, 400),
        )
        population.set(title="the 400 busiest neurons", xlabel="time (s)", ylabel="neuron")
        figure.colorbar(image, label="rate (Hz)")
        figure.tight_layout()
        figure.savefig(picture, dpi=120)
    print(f"{picture}: {len(x)} samples, x from {x.min():.1f} to {x.max():.1f}")


if __name__ == "__main__":
    main(*sys.argv[1:3])
