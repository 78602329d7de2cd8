"""Networks for the adapter's tests, as a user's model file has them."""

import torch
from torch import nn


def small():
    return nn.Sequential(
        nn.Conv2d(1, 6, 3, padding=1), nn.BatchNorm2d(6), nn.ReLU(), nn.Conv2d(6, 8, 3, stride=2),
        nn.ReLU(), nn.Flatten(), nn.Linear(128, 50), nn.ReLU(), nn.Linear(50, 10),
    )  # fmt: skip


def wide(size=2000):
    return nn.Sequential(nn.Linear(size, size), nn.ReLU(), nn.Linear(size, 10))


def deep():
    return nn.Sequential(*[m for _ in range(6) for m in (nn.Linear(512, 512), nn.Tanh())])


def convolutions():
    return nn.Sequential(
        nn.Conv2d(3, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(),
        nn.Conv2d(64, 64, 3, padding=1, stride=2), nn.ReLU(), nn.Flatten(),
        nn.Linear(64 * 16 * 16, 10),
    )  # fmt: skip


class Pairs(torch.utils.data.Dataset):
    def __len__(self):
        return 70

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(index)
        return torch.randn(1, 10, 10, generator=generator), index % 10


def pairs():
    return Pairs()
