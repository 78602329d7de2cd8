"""Says by name what keeps a network from being compiled by XLA, and what would change that."""

from __future__ import annotations

from typing import Any

from nengo_dl.neuron_builders import GenericNeuronBuilder
from nengo_dl.op_builders import SimPyFuncBuilder
from nengo_dl.process_builders import GenericProcessBuilder

from .ahead import AheadProcess


def why_not_xla(graph: Any) -> list[str]:
    """List what XLA can't compile in a graph, after `install` with ``xla=True``.

    Returns
    -------
    list of str
        One line per operator: which object, why, what to do. Empty if nothing is in the way.
        A TensorNode's function isn't looked into: TensorFlow names it when compiling fails.
    """
    reasons = []
    for ops, build in graph.op_builder.op_builds.items():
        build = getattr(build, "built_neurons", getattr(build, "built_process", build))
        for op in ops:
            if isinstance(build, SimPyFuncBuilder):
                what, hint = f"Python function {_function_name(op.fn)}", _NODE
                signal = op.x
            elif isinstance(build, GenericNeuronBuilder):
                what, hint, signal = f"neuron type {type(op.neurons).__name__}", _NEURONS, op.J
            elif isinstance(build, GenericProcessBuilder) and not isinstance(build, AheadProcess):
                what, hint, signal = f"{op.process} with an input", _PROCESS, op.input
            else:
                continue
            reasons.append(f"{_owner(graph.model, signal)}: {what} runs in Python; {hint}")
    return reasons


def python_neurons(graph: Any) -> list[str]:
    """Names of the neuron types that are executed in Python, after `install`."""
    names = set()
    for ops, build in graph.op_builder.op_builds.items():
        if isinstance(getattr(build, "built_neurons", build), GenericNeuronBuilder):
            names.add(type(ops[0].neurons).__name__)
    return sorted(names)


_NODE = "a nengo_dl.TensorNode with a TensorFlow function, or a node without input, compiles"
_NEURONS = "one of nengo's own neuron types compiles"
_PROCESS = "a LinearFilter, Lowpass, Alpha or Triangle synapse compiles"


def _function_name(function: Any) -> str:
    return getattr(function, "__qualname__", type(function).__name__)


def _owner(model: Any, signal: Any) -> str:
    for obj, signals in model.sig.items():
        if any(other is not None and other.base is signal.base for other in signals.values()):
            return str(obj)
    return str(signal)
