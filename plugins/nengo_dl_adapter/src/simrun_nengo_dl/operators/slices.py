"""Reads and writes of parts of a base array as slices.

nengo-dl keeps many signals in one array, and writes a part of it by a scatter: under XLA that
is a loop over single elements. Nearly all parts are a few runs of neighbours; a slice of each
is a copy of memory. The values are the same.
"""

from __future__ import annotations

from itertools import groupby
from typing import Any

import tensorflow as tf
from nengo_dl.signals import SignalDict
from tensorflow.compiler.tf2xla.python import xla

_FEW = 16  # runs of neighbours; above that, nengo-dl's gather and scatter


class SlicedSignals(SignalDict):
    """nengo-dl's ``SignalDict`` for a graph that XLA compiles."""

    def scatter(self, dst: Any, val: Any, mode: str = "update") -> None:
        """Write ``val`` to the part ``dst`` of its base array, or add it (mode "inc")."""
        base = self.bases[dst.key]
        fresh = isinstance(base, tuple)  # nothing was written yet; what isn't, isn't read
        axis = int(dst.minibatched)
        whole = base[axis] if fresh else base.shape[axis]
        if dst.slices == ((0, whole),) or len(dst.slices) > _FEW:
            super().scatter(dst, val, mode)
            return
        shape = list(base if fresh else base.shape)
        base = tf.zeros(shape, val.dtype) if fresh else base
        shape[axis] = dst.shape[0]
        val = tf.reshape(val, shape)
        at = 0
        for start, stop in dst.slices:
            part = _cut(val, axis, at, at + stop - start)
            if mode == "inc":
                part += _cut(base, axis, start, stop)
            corner = [0] * len(shape)
            corner[axis] = start
            base = xla.dynamic_update_slice(base, part, corner)
            at += stop - start
        self.bases[dst.key] = base

    def gather(self, src: Any, force_copy: bool = False) -> Any:
        """Read the part ``src`` of its base array."""
        # for an outer product nengo-dl repeats one part as often as the other has values
        runs = [(part, len(list(same))) for part, same in groupby(src.slices)]
        if len(src.slices) == 1 or len(runs) > _FEW:
            return super().gather(src, force_copy)
        axis, base = int(src.minibatched), self.bases[src.key]
        parts = [_repeat(_cut(base, axis, *part), axis, count) for part, count in runs]
        return tf.reshape(tf.concat(parts, axis), src.full_shape)


def _cut(x: Any, axis: int, start: int, stop: int) -> Any:
    return x[:, start:stop] if axis else x[start:stop]


def _repeat(x: Any, axis: int, count: int) -> Any:
    """``count`` times ``x``, one after the other along ``axis``, without indices of each value."""
    if count == 1:
        return x
    shape = list(x.shape)
    x = tf.broadcast_to(tf.expand_dims(x, axis), [*shape[:axis], count, *shape[axis:]])
    return tf.reshape(x, [*shape[:axis], count * shape[axis], *shape[axis + 1 :]])
