"""Figures over all samples so far, added up one by one, so that chunks change no bit of them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch


@dataclass(frozen=True)
class Tally:
    """Counts and sums over samples; `add` returns a new one.

    Parameters
    ----------
    samples, right, right_ideal, agree : int
        Samples; those that the crossbars and the ideal network classify rightly; those that
        both classify alike.
    squares, ideal_squares : float
        Of the outputs' differences from the ideal network's, and of the latter.
    target_squares : float
        Of the outputs' differences from targets that aren't classes.
    values : int
        Outputs so compared.
    """

    samples: int = 0
    right: int = 0
    right_ideal: int = 0
    agree: int = 0
    squares: float = 0.0
    ideal_squares: float = 0.0
    target_squares: float = 0.0
    values: int = 0

    def add(self, y: torch.Tensor, ideal: torch.Tensor | None, target: np.ndarray | None) -> Tally:
        """Take in some samples' outputs, those of the ideal network, and targets."""
        facts = dict(vars(self))
        facts["samples"] += len(y)
        found = y.double().cpu().numpy()
        if ideal is not None:
            wanted = ideal.double().cpu().numpy()
            for one, other in zip(found, wanted, strict=True):
                facts["squares"] += float(np.square(one - other).sum())
                facts["ideal_squares"] += float(np.square(other).sum())
            if y.ndim == 2:
                facts["agree"] += int((found.argmax(1) == wanted.argmax(1)).sum())
        if target is None:
            return Tally(**facts)
        if is_classes(target, y.shape):
            facts["right"] += int((found.argmax(1) == target).sum())
            if ideal is not None:
                facts["right_ideal"] += int((wanted.argmax(1) == target).sum())
            return Tally(**facts)
        for one, other in zip(found, target.astype(float), strict=True):
            facts["target_squares"] += float(np.square(one - other).sum())
            facts["values"] += one.size
        return Tally(**facts)

    def figures(self, classes: bool, targets: bool, compared: bool) -> dict[str, float]:
        """What the summary shows, given what there was to compare with."""
        if not self.samples:
            return {}
        found: dict[str, float] = {}
        if targets and classes:
            found["accuracy"] = self.right / self.samples
            if compared:
                found["accuracy, ideal network"] = self.right_ideal / self.samples
        elif targets:
            found["RMS error"] = math.sqrt(self.target_squares / max(self.values, 1))
        if compared:
            if targets and classes:
                found["agreement with the ideal network"] = self.agree / self.samples
            if self.ideal_squares:
                error = math.sqrt(self.squares / self.ideal_squares)
                found["relative error to the ideal network"] = error
        return found


def is_classes(target: np.ndarray, outputs: tuple[int, ...]) -> bool:
    """Whether targets are the numbers of classes for outputs (samples, classes)."""
    return target.ndim == 1 and target.dtype.kind in "iu" and len(outputs) == 2
