"""Native forms of the operators that XLA can't compile, put into one graph at a time.

nengo-dl sends many neuron types, synapses and processes to Python, and multiplies sparse
matrices and draws random numbers by kernels that XLA doesn't have. `install` replaces the
builders of one ``TensorGraph``; nengo-dl's own registries stay as they are.

A builder is mostly a formula for one step. What can't be written as a formula but depends on
time alone is computed ahead on the host (`ahead`); what depends on the network's values and is
Python stays on the graph path, and `why_not_xla` says so by name.
"""

from __future__ import annotations

from typing import Any

from nengo.builder.neurons import SimNeurons
from nengo.builder.processes import SimProcess
from nengo.builder.transforms import SparseDotInc
from nengo_dl.op_builders import SparseDotSet
from nengo_dl.signals import SignalDict

from . import neurons, spiking
from .ahead import AheadProcess
from .reasons import python_neurons, why_not_xla
from .slices import SlicedSignals
from .sparse import PaddedRows
from .synapses import input_process

__all__ = ["AheadProcess", "install", "python_neurons", "why_not_xla"]


def install(graph: Any, *, xla: bool) -> list[AheadProcess]:
    """Replace the builders of ``graph`` that need it; call it before ``build_pre``.

    Each call starts from nengo-dl's own builders, so that one can turn from one way of
    executing to the other.

    Parameters
    ----------
    graph : nengo_dl.tensor_graph.TensorGraph
        Only its ``op_builder.op_builds`` and the class of its ``signals`` are changed.
    xla : bool
        False: only random spiking is replaced, everything else stays nengo-dl's own, bit for
        bit. True: whatever has a native form, whether to compile at all or to run faster.

    Returns
    -------
    list of AheadProcess
        What the host must compute before each chunk; empty without ``xla``. The loop passes
        the rows as ``signals.simrun_ahead`` (a dict by ``key``, each (steps, minibatch, size))
        and its index as ``signals.simrun_step``. Usable after the graph's ``build_post``.
    """
    builder = graph.op_builder
    if not hasattr(builder, "own_builds"):
        builder.own_builds = builder.op_builds
    graph.signals.__class__ = SlicedSignals if xla else SignalDict
    builder.op_builds = dict(builder.own_builds)
    for index, ops in enumerate(graph.plan):
        native = spiking.builder(ops, graph, index, xla=xla)
        if native is None and xla:
            native = _compilable(ops, graph, index)
        if native is not None:
            builder.op_builds[ops] = native
    return [build for build in builder.op_builds.values() if isinstance(build, AheadProcess)]


def _compilable(ops: Any, graph: Any, index: int) -> Any:
    op = ops[0]
    if isinstance(op, SimNeurons):
        return neurons.builder(ops)
    if isinstance(op, SparseDotInc | SparseDotSet):
        return PaddedRows(ops, graph)
    if isinstance(op, SimProcess):
        return AheadProcess(ops, index) if op.input is None else input_process(ops)
    return None
