"""Sparse transforms without a sparse matrix product: rows padded to a few widths."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf
from nengo.builder.transforms import SparseDotInc
from nengo.transforms import SparseMatrix
from nengo_dl.builder import OpBuilder

_WASTE = 0.75  # a row at least this full stays in a bucket; a narrower one opens the next


class PaddedRows(OpBuilder):
    """``Y (+)= A X`` by gathering each row's inputs and summing them, in order of the columns.

    A row is summed in two halves: each addition waits for the one before it, so two chains of
    them take about half the time. Rows are put into buckets of like fan-in, each padded to its
    widest row. The sum of a row has one order whatever the chunk or the number of threads.

    The padded weights are laid out once per chunk, from the graph's parameters, outside the
    loop.
    """

    def __init__(self, ops: Any, graph: Any) -> None:
        super().__init__(ops)
        self._graph = graph

    def build_pre(self, signals: Any, config: Any) -> None:
        """See `nengo_dl.builder.OpBuilder`."""
        super().build_pre(signals, config)
        self.mode = "inc" if type(self.ops[0]) is SparseDotInc else "update"
        self.Y_data = signals.combine([op.Y for op in self.ops])
        self.X_data = signals.combine([op.X for op in self.ops])
        A_data = signals.combine([op.A for op in self.ops])

        params = self._graph.base_params | self._graph.saved_state
        weights = tf.gather(tf.convert_to_tensor(params[A_data.key]), A_data.tf_indices)
        weights = tf.concat([weights, tf.zeros(1, weights.dtype)], 0)  # the padding's weight
        rows, cols = block_diagonal(self.ops)
        self.order, buckets = padded_rows(rows, cols, self.Y_data.shape[0])
        self.buckets = [(cols, tf.gather(weights, entries)) for cols, entries in buckets]

    def build_step(self, signals: Any) -> None:
        """See `nengo_dl.builder.OpBuilder`."""
        X = signals.gather(self.X_data)
        sums = [
            tf.reduce_sum(tf.gather(X, cols, axis=1) * weights, axis=3)
            for cols, weights in self.buckets
        ]
        halves = tf.concat(sums, axis=1)
        Y = halves[:, :, 0] + halves[:, :, 1]
        if self.order is not None:
            Y = tf.gather(Y, self.order, axis=1)
        signals.scatter(self.Y_data, Y, mode=self.mode)


def block_diagonal(ops: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return row and column of each stored entry, the ops' matrices laid along a diagonal."""
    rows, cols, corner = [], [], np.zeros(2, np.int64)
    for op in ops:
        matrix = op.A.initial_value
        if isinstance(matrix, SparseMatrix):
            row, col = np.asarray(matrix.indices).T
        else:
            coo = matrix.tocoo()
            row, col = coo.row, coo.col
        rows.append(row + corner[0])
        cols.append(col + corner[1])
        corner += op.A.shape[:2]
    return np.concatenate(rows), np.concatenate(cols)


def padded_rows(
    rows: np.ndarray, cols: np.ndarray, n_rows: int
) -> tuple[np.ndarray | None, list[tuple[np.ndarray, np.ndarray]]]:
    """Lay sparse entries out as few dense tables.

    Parameters
    ----------
    rows, cols : (entries,) array of int
    n_rows : int

    Returns
    -------
    order : (n_rows,) array of int32 or None
        Where each row is in the concatenated buckets; None if they are in order.
    buckets : list of (columns, entries)
        Each (rows of the bucket, 2, width / 2), int32. Padding is column 0 and entry
        ``len(rows)``.
    """
    by_row = np.lexsort((cols, rows))
    fan_in = np.bincount(rows, minlength=n_rows)
    first = np.concatenate([[0], np.cumsum(fan_in)])
    widest_first = np.argsort(-fan_in, kind="stable")
    buckets, at = [], 0
    while at < n_rows:
        width = fan_in[widest_first[at]]
        end = at + np.count_nonzero(fan_in[widest_first[at:]] >= _WASTE * width)
        members = np.sort(widest_first[at:end])
        widest_first[at:end] = members
        slot = np.arange(width + width % 2)
        filled = slot < fan_in[members, None]
        position = np.where(filled, first[members, None] + slot, 0)
        entries = np.where(filled, by_row[position], len(rows)) if len(rows) else position
        columns = np.where(filled, cols[by_row[position]], 0) if len(rows) else position
        halves = (len(members), 2, len(slot) // 2)
        columns, entries = (x.reshape(halves).astype(np.int32) for x in (columns, entries))
        buckets.append((columns, entries))
        at = end
    order = np.empty(n_rows, np.int32)
    order[widest_first] = np.arange(n_rows)
    return (None if len(buckets) == 1 else order), buckets
