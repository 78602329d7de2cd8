"""Trains both networks on scikit-learn's digits, scaled to 10 x 10, and writes what a run reads:
images.npy and labels.npy (of the test set), linear.pt and convolutional.pt. Ten seconds.

    python train.py
"""

import network
import numpy as np
import torch
from sklearn.datasets import load_digits
from torch.nn import functional


def digits():
    """Images (samples, 100) in 0 … 1 and labels, in a fixed random order."""
    found = load_digits()
    small = torch.from_numpy(found.images).float()[:, None] / 16
    images = functional.interpolate(small, size=(10, 10), mode="bilinear").flatten(1)
    order = torch.from_numpy(np.random.default_rng(0).permutation(len(images)))
    return images[order], torch.from_numpy(found.target)[order]


def train(model, images, labels, epochs=30):
    optimizer = torch.optim.Adam(model.parameters(), 5e-3, weight_decay=1e-4)
    for _ in range(epochs):
        for some in torch.randperm(len(images)).split(64):
            optimizer.zero_grad()
            functional.cross_entropy(model(images[some]), labels[some]).backward()
            optimizer.step()
    return model.eval()


if __name__ == "__main__":
    images, labels = digits()
    test = slice(1200, None)
    np.save("images.npy", images[test].numpy())
    np.save("labels.npy", labels[test].numpy())
    for build in (network.linear, network.convolutional):
        torch.manual_seed(0)
        model = train(build(), images[:1200], labels[:1200])
        with torch.no_grad():
            right = (model(images[test]).argmax(1) == labels[test]).float().mean()
        torch.save(model.state_dict(), f"{build.__name__}.pt")
        print(f"{build.__name__}: {right:.1%} of the test set")
