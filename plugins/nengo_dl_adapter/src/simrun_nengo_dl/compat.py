"""Imports nengo_dl on TensorFlow versions that it wasn't made for, and mends what broke.

nengo-dl 3.6 wants Keras 2 under its old module names. TensorFlow 2.13 moved those to
``keras.src``; since 2.16 Keras 2 is the package ``tf_keras``, chosen by the environment
variable ``TF_USE_LEGACY_KERAS``. Stand-ins under the old names are in ``sys.modules`` only
while nengo_dl is imported. Versions that need nothing are left alone.
"""

from __future__ import annotations

import gc
import importlib
import os
import subprocess
import sys
import tempfile
import types
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from simrun.errors import PluginError


@cache
def load_nengo_dl() -> Any:
    """Import nengo_dl, and TensorFlow before it; every other module of ours comes here first.

    Raises
    ------
    PluginError
        TensorFlow, Keras 2 or nengo_dl can't be imported, or Keras 3 is loaded already.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    os.environ["TF_USE_LEGACY_KERAS"] = "1"
    _tune_xla()
    try:
        with _without_chatter():
            tf = importlib.import_module("tensorflow")
            _use_little_gpu_memory(tf)
            with _old_keras_names(tf), _no_gpu_subprocess(tf), warnings.catch_warnings():
                # "not tested with your Nengo version": our tests do that
                warnings.filterwarnings("ignore", module="nengo_dl")
                nengo_dl = importlib.import_module("nengo_dl")
    except ImportError as error:
        raise PluginError(
            f"nengo_dl: {error}",
            'pip install "tensorflow>=2.16" "tf-keras>=2.16" "nengo>=4.0" "nengo-dl>=3.6"',
        ) from error
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"  # nengo_dl lowers it
    _mend_linear_filter()
    # half a million objects that stay: each collection would look through them for .3 seconds
    gc.collect()
    gc.freeze()
    return nengo_dl


# XLA ends the process for a flag that it doesn't know: only releases that were tried
_TUNED = ("2.21.",)
# The default lets kernels of a program run at once, by handing them from thread to thread, which
# takes longer than most of a network's kernels do. Large ones are split among threads anyway.
_TUNING = "--xla_cpu_enable_concurrency_optimized_scheduler=false"


def _tune_xla() -> None:
    """Set XLA's flags; whoever has set one of them keeps it."""
    try:
        known = version("tensorflow").startswith(_TUNED)
    except PackageNotFoundError:  # a TensorFlow of another name
        return
    flags = os.environ.get("XLA_FLAGS", "")
    if known and _TUNING.split("=")[0] not in flags:
        os.environ["XLA_FLAGS"] = f"{flags} {_TUNING}".strip()


@contextmanager
def _without_chatter() -> Iterator[None]:
    """Keep off the terminal what TensorFlow's libraries write there before they read settings.

    It is shown after all when the import fails.
    """
    sys.stderr.flush()
    terminal = os.dup(2)
    try:
        with tempfile.TemporaryFile() as chatter:
            os.dup2(chatter.fileno(), 2)
            try:
                yield
            except BaseException:
                chatter.seek(0)
                os.write(terminal, chatter.read())
                raise
            finally:
                sys.stderr.flush()
                os.dup2(terminal, 2)
    finally:
        os.close(terminal)


def _use_little_gpu_memory(tf: Any) -> None:
    """Let TensorFlow take GPU memory as it needs it, so that the budget means something."""
    for gpu in tf.config.list_physical_devices("GPU"):
        try:
            tf.config.experimental.set_memory_growth(gpu, True)
        except RuntimeError:  # TensorFlow is in use already, with settings of its own
            return


@contextmanager
def _old_keras_names(tf: Any) -> Iterator[None]:
    release = tuple(int(part) for part in tf.__version__.split(".")[:2])
    if release < (2, 13):
        yield
        return
    home = "keras" if release < (2, 16) else "tf_keras"
    # the lazy loader behind tf.keras must find its Keras before the stand-ins are there
    if not tf.keras.layers.Layer.__module__.startswith(home):
        raise PluginError(
            "nengo_dl: TensorFlow has loaded Keras 3 already; nengo-dl needs Keras 2",
            "import simrun's nengo_dl plugin before Keras, or set TF_USE_LEGACY_KERAS=1",
        )
    functional = importlib.import_module(f"{home}.src.engine.functional")
    layers = importlib.import_module(f"{home}.src.layers")
    names = {name: types.ModuleType(name) for name in ("keras", "keras.engine", "keras.layers")}
    keras: Any = names["keras"]
    keras.engine, keras.layers = names["keras.engine"], names["keras.layers"]
    keras.engine.functional = functional
    keras.layers.BatchNormalizationV1 = layers.BatchNormalizationV1
    keras.layers.BatchNormalizationV2 = getattr(
        layers, "BatchNormalizationV2", layers.BatchNormalization
    )
    names["keras.engine.functional"] = functional
    before = {name: sys.modules.get(name) for name in names}
    sys.modules.update(names)
    try:
        yield
    finally:
        for name, module in before.items():
            if module is None:
                del sys.modules[name]
            else:
                sys.modules[name] = module


@contextmanager
def _no_gpu_subprocess(tf: Any) -> Iterator[None]:
    """Answer nengo_dl's question for a GPU here; it would start a TensorFlow to ask it."""
    call = subprocess.call

    def answer(command: Any, *args: Any, **kwargs: Any) -> int:
        if "list_physical_devices" in str(command):
            return int(not tf.config.list_physical_devices("GPU"))
        return call(command, *args, **kwargs)

    subprocess.call = answer
    try:
        yield
    finally:
        subprocess.call = call


class _FlatD:
    """A synapse whose step has its passthrough D as a vector, as it was before nengo 4."""

    def __init__(self, process: Any) -> None:
        self._process = process

    def __getattr__(self, name: str) -> Any:
        return getattr(self._process, name)

    def make_step(self, *args: Any, **kwargs: Any) -> Any:
        step = self._process.make_step(*args, **kwargs)
        if getattr(step, "D", None) is not None:
            step.D = step.D.reshape(-1)
        return step


def _mend_linear_filter() -> None:
    """Make LinearFilter synapses with a passthrough work with nengo 4 (D became a matrix)."""
    from nengo_dl.process_builders import LinearFilterBuilder

    build_pre = LinearFilterBuilder.build_pre

    def mended(self: Any, signals: Any, config: Any) -> None:
        ops = self.ops
        self.ops = [
            types.SimpleNamespace(
                input=op.input, output=op.output, state=op.state, process=_FlatD(op.process)
            )
            for op in ops
        ]
        try:
            build_pre(self, signals, config)
        finally:
            self.ops = ops

    LinearFilterBuilder.build_pre = mended
