"""nengo-dl's build of a network, without the Keras model that nothing here uses."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import nengo
import numpy as np

from simrun.errors import ConfigError, SimulationError
from simrun_nengo_dl.compat import load_nengo_dl
from simrun_nengo_dl.failures import Faults
from simrun_nengo_dl.settings import Settings

nengo_dl = load_nengo_dl()

import tensorflow as tf
from nengo.builder.operator import SimPyFunc
from nengo_dl.simulator import Simulator, with_self
from nengo_dl.utils import align_func

from simrun_nengo_dl.operators.ahead import AheadProcess


class _Built(Simulator):
    """A nengo-dl simulator whose network is built and whose variables exist, no more."""

    @with_self
    def _build_keras(self, progress: Any = None) -> None:
        self.node_inputs: dict[Any, Any] = {}
        self.tensor_graph.build()
        self.keras_model = None


def build_network(network: nengo.Network, settings: Settings, seed: int | None) -> Any:
    """Build a network with nengo-dl.

    Returns
    -------
    nengo_dl.tensor_graph.TensorGraph
        Its variables hold the initial values, or those of ``load_params``.

    Raises
    ------
    ConfigError
        ``load_params`` doesn't fit.
    SimulationError
        nengo or nengo-dl refuses the network.
    """
    _configure(network, settings)
    device = _device(settings.device)
    precision = nengo.rc.get("precision", "bits")
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="No GPU support detected")
            # it isn't known yet: `operators` may have one, and says so where it hasn't
            warnings.filterwarnings("ignore", message=".* does not have a native TensorFlow impl")
            simulator = _Built(
                network,
                dt=settings.dt,
                seed=seed,
                device=device,
                unroll_simulation=settings.unroll_simulation,
                minibatch_size=settings.minibatch_size,
                progress_bar=False,
            )
    except (tf.errors.ResourceExhaustedError, MemoryError):
        raise
    except Exception as error:
        raise SimulationError(
            f"model: nengo-dl can't build it: {type(error).__name__}: {error}"
        ) from error
    finally:
        # nengo-dl changes it for all of nengo, and forgets to change it back when it fails
        nengo.rc.set("precision", "bits", precision)
    tensor_graph = simulator.tensor_graph
    simulator.close()  # only the graph lives on
    return tensor_graph


def load_params(tensor_graph: Any, path: Path) -> None:
    """Load weights that nengo-dl's ``Simulator.save_params`` wrote, in its order.

    Raises
    ------
    ConfigError
        No such file, or made by another network or with other settings.
    """
    hint = "it must come from save_params of the same network with the same settings"
    if not path.is_file():
        raise ConfigError(f"nengo_dl.load_params: no file {path}", hint)
    variables = list(tensor_graph.weights)
    with_state = [*variables, *tensor_graph.saved_state.values()]
    try:
        archive = np.load(path)
        values = [archive[f"arr_{i}"] for i in range(len(archive.files))]
    except (OSError, ValueError, KeyError, AttributeError) as error:
        raise ConfigError(f"nengo_dl.load_params: can't read {path}: {error}", hint) from None
    targets = with_state if len(values) == len(with_state) else variables
    if len(values) != len(targets):
        raise ConfigError(
            f"nengo_dl.load_params: {path} holds {len(values)} arrays, the network has "
            f"{len(variables)} parameters and {len(with_state) - len(variables)} states",
            hint,
        )
    for i, (target, value) in enumerate(zip(targets, values, strict=True)):
        if tuple(target.shape) != value.shape:
            raise ConfigError(
                f"nengo_dl.load_params: array {i} of {path} has shape {value.shape}, the "
                f"network's {target.name} has {tuple(target.shape)}",
                hint,
            )
        target.assign(value)


def watch_functions(tensor_graph: Any, labels: dict[Any, str], faults: Faults) -> None:
    """Let ``faults`` know which function of the model raises; the trace looks them up late."""
    by_signal = {
        id(tensor_graph.model.sig[node]["out"]): f"node {labels.get(node) or node}"
        for node in tensor_graph.model.toplevel.all_nodes
    }
    for operator in _operators(tensor_graph):
        if isinstance(operator, SimPyFunc) and operator.fn is not None:
            label = by_signal.get(id(operator.output))
            if label is None:
                label = _name(operator.fn)
            function = operator.fn
            if operator.output is not None:  # None and NaN are to be caught with the label, too
                function = align_func(tensor_graph.dtype)(function)
                function = _sized(function, operator.output.size)
            operator.fn = faults.watch(function, label, operator.t is not None)


def _sized(function: Callable[..., Any], size: int) -> Callable[..., Any]:
    """The same function, which must return ``size`` values in each step."""

    @functools.wraps(function, updated=())
    def sized(*arguments: Any) -> Any:
        values = function(*arguments)
        if np.size(values) != size:
            raise ValueError(f"it returned {np.size(values)} values, its size is {size}")
        return values

    return sized


def watch_steps(tensor_graph: Any, labels: dict[Any, str], faults: Faults) -> None:
    """The same for what ``build_post`` makes: input nodes' and processes' step functions."""
    for node, functions in tensor_graph.input_funcs.items():
        if not isinstance(functions, np.ndarray):
            label = f"node {labels.get(node) or node}"
            functions[:] = [faults.watch(f, label, timed=True) for f in functions]
    for operators, build in _builds(tensor_graph):
        steps = getattr(build, "step_fs", None)
        for operator, row in zip(operators, steps or (), strict=False):
            label = f"process {type(operator.process).__name__}"
            row[:] = [faults.watch(f, label, timed=True) for f in row]


def host_roots(tensor_graph: Any, labels: dict[Any, str]) -> Iterator[tuple[str, Any]]:
    """The Python functions that the simulation calls, and the arrays that belong to them.

    To be asked for before `watch_functions` and `watch_steps` put their own in between.
    """
    for node, functions in tensor_graph.input_funcs.items():
        if not isinstance(functions, np.ndarray):
            for function in functions:
                yield f"node {labels.get(node) or node}", function
    for operator in _operators(tensor_graph):
        if isinstance(operator, SimPyFunc) and operator.fn is not None:
            yield _name(operator.fn), operator.fn
    for operators, build in _builds(tensor_graph):
        for operator, row in zip(operators, getattr(build, "step_fs", ()), strict=False):
            for step in row:
                yield f"process {type(operator.process).__name__}", step
        for array in getattr(build, "step_states", ()):
            yield "the processes' state", array
        neurons = getattr(operators[0], "neurons", None)
        if neurons is not None:
            for operator in operators:
                yield f"neuron type {type(operator.neurons).__name__}", operator.neurons


def phases(tensor_graph: Any, labels: dict[Any, str]) -> list[list[tuple[str, Any]]]:
    """The Python functions, by when they are called: a phase's for a whole chunk, then the next's.

    First the input nodes', then each group of processes that is computed ahead, then what the
    network's loop calls. To be asked for before `watch_functions` and `watch_steps`.
    """
    nodes = [
        (f"node {labels.get(node) or node}", function)
        for node, functions in tensor_graph.input_funcs.items()
        if not isinstance(functions, np.ndarray)
        for function in functions
    ]
    ahead, loop = [], []
    for operator in _operators(tensor_graph):
        if isinstance(operator, SimPyFunc) and operator.fn is not None:
            loop.append((_name(operator.fn), operator.fn))
    for operators, build in _builds(tensor_graph):
        steps = [
            (f"process {type(operator.process).__name__}", step)
            for operator, row in zip(operators, getattr(build, "step_fs", ()), strict=False)
            for step in row
        ]
        if isinstance(build, AheadProcess):
            ahead.append(steps)
        else:
            loop += steps
    return [nodes, *ahead, loop]


def _name(function: Any) -> str:
    return f"function {getattr(function, '__qualname__', type(function).__qualname__)}"


def _operators(tensor_graph: Any) -> Iterator[Any]:
    for group in tensor_graph.plan:
        yield from group


def _builds(tensor_graph: Any) -> Iterator[tuple[Any, Any]]:
    for operators, build in tensor_graph.op_builder.op_builds.items():
        yield operators, getattr(build, "built_process", build)


def _configure(network: nengo.Network, settings: Settings) -> None:
    """Fill in what the network's own ``nengo_dl.configure_settings`` leaves open."""
    wanted: dict[str, Any] = {}
    if nengo_dl.config.get_setting(network, "inference_only") is None and not settings.load_params:
        # weights that were trained were saved by a network that could be trained
        wanted["inference_only"] = True
    if settings.dtype is not None:
        wanted["dtype"] = settings.dtype
    if wanted:
        with network:
            nengo_dl.configure_settings(**wanted)


def _device(name: str) -> str | None:
    if name == "auto":
        return None
    kind, _, number = name.partition(":")
    if kind == "gpu":
        there = len(tf.config.list_physical_devices("GPU"))
        if int(number or 0) >= there:
            raise ConfigError(
                f"nengo_dl.device: {name}, but TensorFlow sees {there} GPUs",
                "choose `auto` or `cpu`, or install TensorFlow with CUDA",
            )
    return f"/{kind}:{number or 0}"
