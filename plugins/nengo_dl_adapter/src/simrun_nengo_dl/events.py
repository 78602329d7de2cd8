"""Finds the events of a probe with ``format: events`` on the device, before samples are copied."""

from __future__ import annotations

from typing import Any

import numpy as np

from simrun.events import Events
from simrun_nengo_dl.compat import load_nengo_dl
from simrun_nengo_dl.probes import Recording

load_nengo_dl()

import tensorflow as tf

# what is looked through at a time, in elements: it bounds the memory that looking takes
SLAB = 1 << 18
# where more of the elements than this are events, dense samples are as small
SPARSE = 1 / 8


def samples(buffer: Any, item: Recording, count: int) -> Events | np.ndarray[Any, Any]:
    """The first ``count`` rows of a probe's buffer: as events where they are few, else dense.

    What counts as an event is what `simrun.events.encode` says: any bit set. The copies that
    come from the device are of the events alone.

    Parameters
    ----------
    buffer : tensor, shape (at least count, *item.shape)
    item : Recording
    count : int
    """
    if item.spec.attrs.get("format") == "events":
        found = _events(buffer, item, count)
        if found is not None:
            return found
    if not count:  # a view would keep the buffer, which has rows that aren't samples
        return np.empty((0, *item.spec.shape), item.spec.dtype)
    return np.asarray(buffer)[:count].reshape(count, *item.spec.shape)


def _events(buffer: Any, item: Recording, count: int) -> Events | None:
    size = int(np.prod(item.shape, dtype=np.int64))
    rows = max(SLAB // max(size, 1), 1)
    counts, indices, values, most = [], [], [], SPARSE * size * count
    with tf.device(buffer.device):
        for start in range(0, count, rows):
            slab = buffer[start : min(start + rows, count)]
            each = _count(slab)
            counts.append(each.numpy())
            most -= counts[-1].sum()
            if most < 0:
                return None
            index, value = _pick(slab)
            indices.append(index.numpy())
            values.append(value.numpy())
    if not counts:
        nothing = np.empty(0, np.int32)
        return Events(np.empty(0, np.int64), nothing, np.empty(0, item.spec.dtype))
    return Events(*map(np.concatenate, (counts, indices, values)))


def _bits(slab: Any) -> Any:
    """Which elements have a bit set; shape (rows, size)."""
    flat = tf.reshape(slab, (tf.shape(slab)[0], -1))
    # unsigned: TensorFlow compares int32 on the host
    whole = {2: tf.uint16, 4: tf.uint32, 8: tf.uint64}[slab.dtype.size]
    return tf.not_equal(tf.bitcast(flat, whole), tf.zeros((), whole))


@tf.function(reduce_retracing=True)
def _count(slab: Any) -> Any:
    """Events of each row."""
    return tf.reduce_sum(tf.cast(_bits(slab), tf.int64), axis=1)


@tf.function(reduce_retracing=True)
def _pick(slab: Any) -> Any:
    """Position in its row, and value, of each event, row by row."""
    place = tf.where(_bits(slab))
    value = tf.gather_nd(tf.reshape(slab, (tf.shape(slab)[0], -1)), place)
    return tf.cast(place[:, 1], tf.int32), value
