"""Finds and calls the function that builds a model: ``file.py:function`` or ``module:function``."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from simrun.errors import ConfigError, SimulationError

# where model files have been loaded from in this process
_folders: set[str] = set()
# before the name of a model file's module: it can't clash with an installed package
_MODEL = "simrun_model_"


def load_function(reference: str, base: Path) -> Callable[..., Any]:
    """Import the function that a config's ``model`` names.

    Parameters
    ----------
    reference : str
        ``FILE.py:FUNCTION``, the file relative to ``base``, or ``MODULE:FUNCTION``.
    base : pathlib.Path
        Also put in front of ``sys.path``, so that the model file can import its neighbours.

    Raises
    ------
    ConfigError
        Malformed reference, no such file, module or function, or not callable.
    SimulationError
        The module raised while it was imported.
    """
    place, separator, name = reference.rpartition(":")
    if not separator or not place or not name.isidentifier():
        raise ConfigError(
            f"model: {reference!r} names no function",
            "write FILE.py:FUNCTION or MODULE:FUNCTION, for example network.py:build",
        )
    module = _load_file(base / place, base) if place.endswith(".py") else _load_module(place, base)
    if not hasattr(module, name):
        functions = [k for k, v in vars(module).items() if callable(v) and not k.startswith("_")]
        near = get_close_matches(name, functions, 1)
        hint = (
            f"did you mean {near[0]}?" if near else f"it defines: {', '.join(functions) or 'none'}"
        )
        raise ConfigError(f"model: {place} has no function {name!r}", hint)
    function: Callable[..., Any] = getattr(module, name)
    if not callable(function):
        raise ConfigError(
            f"model: {reference} is a {type(function).__name__}, not a function",
            "name a function that builds and returns the model",
        )
    return function


def call_model(reference: str, base: Path, arguments: Mapping[str, Any]) -> Any:
    """Call the model's function with the config's ``model_args`` and return what it returns.

    Raises
    ------
    ConfigError
        As `load_function`, or the arguments don't fit the function's signature.
    SimulationError
        The function raised, or returned None.
    """
    function = load_function(reference, base)
    try:
        inspect.signature(function).bind(**arguments)
    except TypeError as error:
        raise ConfigError(
            f"model_args: {error}",
            f"{reference} takes {inspect.signature(function)}",
        ) from None
    try:
        model = function(**arguments)
    except Exception as error:
        raise SimulationError(blame(f"model: {reference}", error)) from error
    if model is None:
        raise SimulationError(f"model: {reference} returned None", "end it with `return network`")
    return model


def _load_file(path: Path, base: Path) -> Any:
    if not path.is_file():
        near = get_close_matches(path.name, [p.name for p in path.parent.glob("*.py")], 1)
        hint = f"did you mean {near[0]}?" if near else f"paths start from {base}"
        raise ConfigError(f"model: no file {path}", hint)
    _prepend(base)
    _put_first(path.resolve().parent)
    name = f"{_MODEL}{path.stem}"  # the same in every process
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # pickling a model's classes needs it
    try:
        spec.loader.exec_module(module)
    except SyntaxError as error:
        raise ConfigError(
            f"model: {path}, line {error.lineno}: {error.msg}", "mend the file"
        ) from None
    except (Exception, SystemExit) as error:
        raise SimulationError(blame(f"model: {path}", error)) from error
    return module


def _load_module(name: str, base: Path) -> Any:
    _prepend(base)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(error.name + ".")):
            raise ConfigError(
                f"model: no module named {name!r}", "for a file write FILE.py:FUNCTION"
            ) from None
        raise SimulationError(blame(f"model: {name}", error)) from error
    except (Exception, SystemExit) as error:
        raise SimulationError(blame(f"model: {name}", error)) from error


def _put_first(folder: Path) -> None:
    """Let a model file import its neighbours, and not those of a model loaded before it."""
    here = str(folder)
    others = _folders - {here}
    for name, module in list(sys.modules.items()):
        # thousands of modules where a simulator is loaded: strings, not paths
        file = getattr(module, "__file__", None)
        if file and file.rpartition("/")[0] in others and not name.startswith(_MODEL):
            del sys.modules[name]
    _folders.add(here)
    if here in sys.path:
        sys.path.remove(here)
    sys.path.insert(0, here)


def _prepend(base: Path) -> None:
    if str(base) not in sys.path:
        sys.path.insert(0, str(base))


def blame(what: str, error: BaseException) -> str:
    """One line that says what was raised, and where in the code of the user or of a plugin.

    Parameters
    ----------
    what : str
        What raised, for example ``"model: network.py:build"``.
    """
    ours = Path(__file__).parent
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if ours not in Path(frame.filename).parents
        and "importlib" not in frame.filename
        and not frame.filename.endswith(".pyx")  # a library's compiled part
    ]
    # the user's own code says more than the library that it called
    own = [frame for frame in frames if "site-packages" not in frame.filename] or frames
    at = f" (at {own[-1].filename}, line {own[-1].lineno})" if own else ""
    first = next(iter(str(error).splitlines()), "")
    return f"{what} raised {type(error).__name__}: {first:.500}{at}"


def sources(base: Path, files: Iterable[Path]) -> dict[str, str]:
    """SHA-256 of files, and of the modules imported from below a folder, by their paths.

    Parameters
    ----------
    base : pathlib.Path
        Names are relative to it where they can be, so that the folder may be moved. Of modules
        those count that lie below it and aren't installed: the user's own.
    files : iterable of pathlib.Path
    """
    base = base.resolve()
    paths = {path.resolve() for path in files}
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        top = name.partition(".")[0]
        # our own, which may be installed from a checkout that holds the config too
        ours = top.startswith("simrun") and not top.startswith(_MODEL)
        # thousands of modules may be loaded: most are left out before the disk is asked
        if not file or ours or top in sys.stdlib_module_names or "site-packages" in file:
            continue
        path = Path(file).resolve()
        if path.is_relative_to(base) and "site-packages" not in path.parts and path.is_file():
            paths.add(path)
    found = {}
    for path in sorted(paths):
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        found[str(path.relative_to(base) if path.is_relative_to(base) else path)] = digest
    return found


def fingerprint(reference: str, base: Path) -> str | None:
    """SHA-256 of the source file that a config's ``model`` names; None where there is none."""
    place = reference.rpartition(":")[0]
    if place.endswith(".py"):
        path = base / place
    else:
        _prepend(base)
        try:
            spec = importlib.util.find_spec(place)
        except (ImportError, ValueError):
            return None
        if spec is None or spec.origin is None:
            return None
        path = Path(spec.origin)
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else None
