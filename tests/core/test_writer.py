"""Small blocks are stored together, in order, and nothing else about them changes."""

import numpy as np

from simrun.events import Events, decode, encode
from simrun.records import ProbeBlock
from simrun.writer import BATCH_BYTES, _joined


def blocks(count, rows=2, size=3):
    samples = np.arange(count * rows * size, dtype=np.float32).reshape(count, rows, size)
    return [ProbeBlock(i * rows, (i + 1) * rows, {"p": x}) for i, x in enumerate(samples)], samples


def test_small_blocks_become_one():
    batch, samples = blocks(50)
    (block,) = _joined(batch)
    assert (block.start, block.stop) == (0, 100)
    np.testing.assert_array_equal(block.samples["p"], samples.reshape(100, 3))


def test_a_large_last_block_is_not_copied():
    batch, _ = blocks(3)
    large = ProbeBlock(6, 7, {"p": np.zeros((1, BATCH_BYTES), np.float32)})
    first, last = _joined([*batch, large])
    assert (first.start, first.stop) == (0, 6)
    assert last is large


def test_one_block_stays_and_events_are_joined():
    batch, samples = blocks(4)
    assert list(_joined(batch[:1])) == batch[:1]
    as_events = [ProbeBlock(b.start, b.stop, {"p": encode(b.samples["p"])}) for b in batch]
    (block,) = _joined(as_events)
    assert isinstance(block.samples["p"], Events)
    dense = decode(block.samples["p"], (3,), np.dtype("float32"))
    np.testing.assert_array_equal(dense, samples.reshape(8, 3))
    mixed = [batch[0], as_events[1]]
    assert list(_joined(mixed)) == mixed
