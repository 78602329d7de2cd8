"""Raster of some neurons and the rate of all, read from the run's folder: plot.py RUN OUT.png"""

import sys

import matplotlib.pyplot as plt
import numpy as np

import simrun


def main(path, picture):
    with simrun.open_run(path) as run:
        shown = slice(0, 2000, 10)
        spikes, seconds = run["spikes"], run.times("spikes")
        step, neuron = np.nonzero(np.asarray(spikes[:2000, shown]))
        figure, (raster, rate) = plt.subplots(2, 1, sharex=False, figsize=(9, 6))
        raster.plot(seconds[step], neuron * 10, ",k")
        raster.set(title="spikes of every tenth neuron", xlabel="time (s)", ylabel="neuron")
        mean = np.asarray(run["rate"]).mean(axis=1)
        rate.plot(run.times("rate"), mean)
        rate.set(title="mean rate of all neurons", xlabel="time (s)", ylabel="rate (Hz)")
        figure.tight_layout()
        figure.savefig(picture, dpi=120)
    print(f"{picture}: {len(seconds)} steps, mean rate {mean.mean():.1f} Hz")


if __name__ == "__main__":
    main(*sys.argv[1:3])
