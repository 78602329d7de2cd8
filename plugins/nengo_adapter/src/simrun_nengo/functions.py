"""The Python functions that a built network calls: which they are, and whose."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import nengo
from nengo.builder.neurons import SimNeurons
from nengo.builder.operator import SimPyFunc
from nengo.builder.processes import SimProcess

from simrun.errors import SimrunError, SimulationError
from simrun.models import blame


def owners(network: nengo.Network, labels: Mapping[Any, str]) -> dict[int, str]:
    """The label of the node or connection that each function or process belongs to, by its id."""
    found: dict[int, str] = {}
    for node in network.all_nodes:
        if callable(node.output) or isinstance(node.output, nengo.Process):
            found[id(node.output)] = f"node {labels.get(node, node)}"
    for connection in network.all_connections:
        if callable(connection.function):
            name = labels.get(connection, connection)
            found.setdefault(id(connection.function), f"the function of connection {name}")
    return found


def name(operator: Any, owned: Mapping[int, str]) -> str:
    """Whose an operator is, in words."""
    thing = getattr(operator, "fn", getattr(operator, "process", None))
    return owned.get(id(thing)) or str(operator)


def roots(
    operators: Sequence[Any], steps: Sequence[Any], owned: Mapping[int, str]
) -> Iterator[tuple[str, Any]]:
    """What may remember something in Python, for `simrun_nengo.host_state.HostState`.

    Parameters
    ----------
    operators, steps : sequences
        Operators, and the step function that each has made.
    """
    for operator, step in zip(operators, steps, strict=True):
        label = name(operator, owned)
        if isinstance(operator, SimPyFunc):
            yield label, operator.fn
        elif isinstance(operator, SimProcess):
            function = closure(step).get("step_f", step)
            # filters of nengo's keep all they remember in signals
            if not isinstance(function, nengo.synapses.LinearFilter.Step):
                yield label, function
        elif isinstance(operator, SimNeurons):
            for rng in operator.state_extra.values():
                yield label, rng
            if not _nengos(type(operator.neurons)):
                yield label, operator.neurons
        elif not _nengos(type(operator)):
            yield label, step


def explain(error: Exception, label: str, when: str) -> SimrunError:
    """An error for the user: whose function, when, what."""
    if isinstance(error, SimrunError):
        return error
    return SimulationError(
        blame(f"{label} failed {when}:", error),
        "the function belongs to the model; nothing of this chunk was kept",
    )


def closure(function: Any) -> dict[str, Any]:
    """The variables that a function has from where it was made."""
    names, cells = function.__code__.co_freevars, function.__closure__ or ()
    return {key: cell.cell_contents for key, cell in zip(names, cells, strict=True)}


def _nengos(kind: type) -> bool:
    return kind.__module__.partition(".")[0] == "nengo"
