"""Two networks for images of 10 x 10 pixels: 100-50-10 linear, and a convolutional one."""

from torch import nn


def linear():
    return nn.Sequential(nn.Linear(100, 50), nn.ReLU(), nn.Linear(50, 10))


def convolutional():
    return nn.Sequential(
        nn.Unflatten(1, (1, 10, 10)),
        nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.Flatten(),
        nn.Linear(400, 10),
    )  # fmt: skip
