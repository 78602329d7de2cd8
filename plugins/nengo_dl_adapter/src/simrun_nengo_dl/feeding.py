"""Makes the tensors of a chunk's inputs: filled on the host, in memory that chunks share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from simrun_nengo_dl.inputs import InputNode, aligned_empty, fill


class Feed:
    """The values of input nodes and of processes computed ahead, chunk by chunk.

    Parameters
    ----------
    tensor_graph : nengo_dl.tensor_graph.TensorGraph
    nodes : sequence of InputNode
    ahead : sequence of operators.AheadProcess
    """

    def __init__(self, tensor_graph: Any, nodes: Sequence[InputNode], ahead: Sequence[Any]) -> None:
        self._tg, self._nodes, self._ahead = tensor_graph, nodes, ahead
        self._sizes = [item.node.size_out for item in nodes] + [item.size for item in ahead]
        self.forget()

    def forget(self) -> None:
        """Free the memory."""
        self._length = -1
        self._whole: list[np.ndarray[Any, Any]] = []
        self._arrays: list[np.ndarray[Any, Any]] = []
        self._tensors: list[Any] = []

    def tensors(
        self, start: int, steps: int, length: int, phase_done: Callable[[], None], *, copied: bool
    ) -> list[Any]:
        """Tensors of shape (length, minibatch, size), the first ``steps`` rows of them filled.

        Parameters
        ----------
        phase_done : callable
            Called after the nodes, and after each process.
        copied : bool
            Whether the device copies its inputs. It may keep the copy with the tensor: then
            each chunk gets a new one. On a CPU a tensor is the array's own memory.
        """
        if length != self._length:
            self._resize(length)
        arrays = self._arrays
        functions = self._tg.input_funcs
        fill(
            [(x, i, functions[i.node]) for x, i in zip(arrays, self._nodes, strict=False)],
            start,
            steps,
            float(self._tg.dt),
        )
        phase_done()
        for array, process in zip(arrays[len(self._nodes) :], self._ahead, strict=True):
            array[:steps] = process.rows(start, steps)
            phase_done()
        if copied or not self._tensors:
            self._tensors = [
                tf.experimental.dlpack.from_dlpack(x.__dlpack__()) for x in arrays if x.shape[2]
            ]
        return self._tensors

    def _resize(self, length: int) -> None:
        """Arrays of so many rows, of the memory that there is if it is enough."""
        tg = self._tg
        if not self._whole or len(self._whole[0]) < length:
            self.forget()
            self._whole = [
                aligned_empty((length, tg.minibatch_size, size), tg.dtype) for size in self._sizes
            ]
        self._arrays, self._tensors = [array[:length] for array in self._whole], []
        self._length = length
