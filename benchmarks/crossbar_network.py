"""Whole networks on crossbars: what each phase takes, and inference against the plain network.

    python benchmarks/crossbar_network.py [layer] [resnet]

`layer`: 1000 x 1000 in 512 x 512 tiles, patched and tuned with 10 inputs (MemTorch: 437 s and
1.85 GB on a like machine). `resnet`: a network of ResNet-18's size, 128 x 128 tiles, double column.
"""

import ctypes
import datetime
import statistics
import sys
import time
from pathlib import Path

import torch
from torch import nn

from simrun_torch_crossbar import CrossbarConfig, crossbars, patch_model, tune

WIRES = {"r_on": 1e5, "r_off": 1e6, "source_resistance": 5, "line_resistance": 2}


class Block(nn.Module):
    def __init__(self, a, b, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(a, b, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(b)
        self.conv2 = nn.Conv2d(b, b, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(b)
        self.short = nn.Conv2d(a, b, 1, stride, bias=False) if stride > 1 else nn.Identity()

    def forward(self, x):
        y = torch.relu(self.bn1(self.conv1(x)))
        return torch.relu(self.bn2(self.conv2(y)) + self.short(x))


def resnet18():
    widths = [(64, 64, 1), (64, 64, 1), (64, 128, 2), (128, 128, 1), (128, 256, 2), (256, 256, 1),
              (256, 512, 2), (512, 512, 1)]  # fmt: skip
    return nn.Sequential(
        nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1),
        *[Block(*width) for width in widths], nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Linear(512, 1000),
    )  # fmt: skip


def peak_mb(reset=False):
    if reset:
        ctypes.CDLL(None).malloc_trim(0)
        Path("/proc/self/clear_refs").write_text("5")
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(x.split()[1]) for x in lines if x.startswith("VmHWM")) / 1024


def phase(name, call):
    before = peak_mb(reset=True)
    start = time.perf_counter()
    result = call()
    took = time.perf_counter() - start
    print(f"| {name} | {took:.2f} s | {peak_mb() - before:.0f} MiB more |", flush=True)
    return result, took


def solve(patched):
    for layer in crossbars(patched).values():
        layer.solve()


@torch.no_grad()
def inference(plain, patched, x, repeats):
    times = {plain: [], patched: []}
    for model in times:
        model(x)
    for _ in range(repeats):
        for model, took in times.items():
            start = time.perf_counter()
            model(x)
            took.append(time.perf_counter() - start)
    a, b = (statistics.median(times[model]) for model in (plain, patched))
    print(f"| inference of {len(x)} | plain {1e3 * a:.2f} ms, crossbars {1e3 * b:.2f} ms | ratio "
          f"{b / a:.2f} |", flush=True)  # fmt: skip


def measure(model, config, inputs, repeats):
    model.eval()
    weights = sum(x.numel() for x in model.parameters())
    patched, first = phase("map and program", lambda: patch_model(model, config))
    tiles = sum(x.grid.tiles * x.groups for x in crossbars(patched).values())
    _, second = phase(f"solve {tiles} tiles", lambda: solve(patched))
    _, third = phase(f"tune with {len(inputs)} inputs", lambda: tune(patched, inputs))
    print(f"| in all, {weights / 1e6:.1f} M weights | {first + second + third:.2f} s | |")
    inference(model, patched, inputs, repeats)


if __name__ == "__main__":
    chosen = sys.argv[1:] or ["layer", "resnet"]
    torch.manual_seed(0)
    print(f"{datetime.date.today()}, torch {torch.__version__}, {torch.get_num_threads()} threads")
    if "layer" in chosen:
        print("\n1000 x 1000 in 512 x 512 tiles\n\n| what | time | |\n|---|---|---|")
        config = CrossbarConfig(tile=(512, 512), **WIRES)
        measure(nn.Linear(1000, 1000), config, torch.randn(10, 1000), 200)
    if "resnet" in chosen:
        print("\nResNet-18's size, 128 x 128 tiles\n\n| what | time | |\n|---|---|---|")
        measure(resnet18(), CrossbarConfig(**WIRES), torch.randn(4, 3, 224, 224), 3)
