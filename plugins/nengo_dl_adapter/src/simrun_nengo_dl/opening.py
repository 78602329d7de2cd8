"""Opens a simulation: from the config's request to a network that is built, traced and warm."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import nengo
import numpy as np

from simrun.adapter import OpenRequest
from simrun.errors import ConfigError, OutOfMemoryError, SimulationError
from simrun.models import call_model
from simrun_nengo_dl.compat import load_nengo_dl

load_nengo_dl()

import tensorflow as tf
from nengo_dl.builder import Builder

from simrun_nengo import networks
from simrun_nengo.host_state import HostState
from simrun_nengo.inputs import check_names, open_data
from simrun_nengo_dl import build, inputs, operators, probes
from simrun_nengo_dl.failures import Faults, out_of_memory
from simrun_nengo_dl.loop import Loop
from simrun_nengo_dl.program import Program
from simrun_nengo_dl.settings import Settings
from simrun_nengo_dl.sharing import Sharing
from simrun_nengo_dl.simulation import NengoDLSimulation
from simrun_nengo_dl.warmup import warm_up


def open_simulation(request: OpenRequest) -> NengoDLSimulation:
    """Build and trace a network (the factory of the nengo_dl adapter).

    Raises
    ------
    ConfigError
        What the config got wrong: probes, inputs, load_params, a device that isn't there.
    SimulationError
        The model's code raised, or nengo-dl can't build or compile the network.
    OutOfMemoryError
        The network itself doesn't fit.
    """
    try:
        return _open(request)
    except (tf.errors.OpError, MemoryError) as error:
        failure = out_of_memory(error)
        if failure is None:
            raise
    raise OutOfMemoryError(
        f"the network itself doesn't fit: {failure.where} memory ran out while it was built "
        f"({failure.message})",
        "use a smaller network or minibatch, float32, or a device with more memory",
    )


def _open(request: OpenRequest) -> NengoDLSimulation:
    settings: Settings = request.settings
    _use_threads(settings.threads)
    returned = call_model(request.model, request.base, request.model_args)
    network, own_probes = networks.split_model(returned, request.model)
    seed = request.seed
    if network.seed is None:
        # nengo would draw one, and another process that goes on with the run another one
        network.seed = 0 if seed is None else seed
    labels = networks.object_labels(network)
    named = networks.name_probes(network, own_probes, request.probes, settings.dt)
    graph = build.build_network(network, settings, seed)
    if settings.load_params:
        build.load_params(graph, request.base / settings.load_params)
    recordings = probes.make_recordings(graph, named, settings.minibatch_size is not None)
    fed, constants = _input_nodes(graph, labels, settings, request)
    program, workspace, notes = _program(graph, settings, recordings, fed, constants)
    host = HostState(build.host_roots(graph, labels))
    sharing = Sharing(build.phases(graph, labels))
    notes += [
        f"{' and '.join(pair)} reach the same objects, but aren't called step by step together: "
        "if one changes what the other reads, the run stops and says how to mend it"
        for pair in sharing.pairs
    ]
    faults = Faults()
    build.watch_functions(graph, labels, faults)
    build.watch_steps(graph, labels, faults)
    notes += [f"can't be rolled back after running out of memory: {o}" for o in host.obstacles]
    if not nengo_dl_setting(network, "use_loop", True):
        notes.append("the network's use_loop=False is ignored: steps are executed in a loop")
    facts = {
        "compile": "xla" if program.xla else "graph",
        "dtype": str(graph.dtype),
        "dt": settings.dt,
        "minibatch_size": settings.minibatch_size,
        "unroll_simulation": settings.unroll_simulation,
        "seed": graph.seed,
        "inference_only": graph.inference_only,
    }
    simulation = NengoDLSimulation(
        graph, program, recordings, fed, host, sharing, faults, notes, facts, workspace
    )
    simulation.available = inputs.available(fed)
    simulation.sources = tuple(item.file for item in fed if item.file is not None)
    if settings.load_params:
        simulation.sources += (request.base / settings.load_params,)
    return simulation


def nengo_dl_setting(network: nengo.Network, name: str, default: Any) -> Any:
    """What ``nengo_dl.configure_settings`` was told for a network."""
    return load_nengo_dl().config.get_setting(network, name, default)


def _program(
    graph: Any,
    settings: Settings,
    recordings: Sequence[probes.Recording],
    fed: Sequence[inputs.InputNode],
    constants: Sequence[tuple[nengo.Node, Any]],
) -> tuple[Program, int | None, list[str]]:
    """The compiled loop, warm; the bytes that a step takes; which way was taken and why."""
    wanted, why = settings.compile, ["the config asks for it"]
    if wanted != "graph":
        ahead = operators.install(graph, xla=True)
        why = operators.why_not_xla(graph)
        if not why:
            program = Program(Loop(graph, recordings, fed, constants, ahead, xla=True))
            try:
                workspace = warm_up(graph, program)
            except (tf.errors.OpError, ValueError, TypeError) as error:
                if out_of_memory(error) is not None:
                    raise
                why = [f"TensorFlow can't compile it: {_first_line(error)}"]
            else:
                return program, workspace, ["executed as one XLA program per chunk (compile: xla)"]
        if wanted == "xla":
            raise ConfigError(
                f"nengo_dl.compile: this network can't be compiled by XLA: {'; '.join(why)}",
                "choose `auto` or `graph`, or change what is named",
            )
        graph.op_builder = Builder(graph.plan)
    ahead = operators.install(graph, xla=False)
    program = Program(Loop(graph, recordings, fed, constants, ahead, xla=False))
    try:
        workspace = warm_up(graph, program)
    except (tf.errors.OpError, ValueError, TypeError) as error:
        if out_of_memory(error) is not None:
            raise
        raise SimulationError(f"model: TensorFlow can't trace it: {_first_line(error)}") from error
    return (
        program,
        workspace,
        [
            *(f"executed kernel by kernel (compile: graph), as {reason}" for reason in why),
            *(f"neurons of type {kind} run in Python" for kind in operators.python_neurons(graph)),
        ],
    )


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    told = [line for line in lines if "unsupported" in line.lower() or "Error" in line]
    return (told or lines or [type(error).__name__])[0][:300]


def _input_nodes(
    graph: Any, labels: dict[Any, str], settings: Settings, request: OpenRequest
) -> tuple[list[inputs.InputNode], list[tuple[nengo.Node, Any]]]:
    """Nodes without input: those whose values change, and the constants."""
    by_label: dict[str, nengo.Node] = {}
    for node in graph.invariant_inputs:
        label = labels.get(node) or graph.io_names[node]
        by_label[graph.io_names[node] if label in by_label else label] = node
    files = check_names(settings.inputs, by_label, "nengo_dl.inputs")
    fed, constants = [], []
    for label, node in by_label.items():
        if label in files:
            path, where = settings.inputs[label], f"nengo_dl.inputs.{label}"
            data, file = open_data(path, request.base, where, node.size_out, graph.minibatch_size)
            fed.append(inputs.InputNode(node, label, data, file))
        elif isinstance(node.output, np.ndarray):
            constants.append((node, node.output))
        elif node.output is not None:
            fed.append(inputs.InputNode(node, label))
    return fed, constants


def _use_threads(threads: int | None) -> None:
    if threads is None:
        return
    try:
        tf.config.threading.set_intra_op_parallelism_threads(threads)
        tf.config.threading.set_inter_op_parallelism_threads(threads)
    except RuntimeError:
        raise ConfigError(
            "nengo_dl.threads: TensorFlow runs already, with the threads that it has",
            "leave `threads` out, or start a new process",
        ) from None
