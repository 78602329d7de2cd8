"""The plugins of one run: selected, imported, checked, in a pluggy manager of their own."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

import pluggy

from simrun import defaults, discovery, hookspecs
from simrun.adapter import AdapterEntry
from simrun.errors import PluginError
from simrun.sink import SinkEntry

OBSERVER_HOOKS = ("simrun_run_started", "simrun_chunk_committed", "simrun_run_ended")
OFFER_HOOKS = {"simrun_adapters": AdapterEntry, "simrun_sinks": SinkEntry}
_HOOKS = {name: hook for name, hook in vars(hookspecs).items() if hasattr(hook, "simrun_spec")}
_CORE = "simrun itself"


@dataclass(frozen=True, slots=True)
class Selection:
    """The plugins of one run: the manager, and the entries that the run uses."""

    manager: pluggy.PluginManager
    adapter: AdapterEntry | None
    sink: SinkEntry


@dataclass(frozen=True, slots=True)
class PluginInfo:
    """What ``simrun plugins`` tells of an adapter, a sink, or the other hooks of a plugin."""

    name: str
    kind: str
    summary: str
    distribution: str
    version: str
    status: str = "ok"


def select(
    adapter: str | None, sink: str, observers: Sequence[str] = (), extra: Sequence[Any] = ()
) -> Selection:
    """Import and register the plugins of a run, and nothing else.

    Parameters
    ----------
    adapter : str or None
        Name of the adapter; None: none is needed, as for reading.
    sink : str
        Name of the sink.
    observers : sequence of str
        Names of further plugins.
    extra : sequence
        Plugins given as modules or objects, installed or not.

    Raises
    ------
    PluginError
        A plugin is missing, can't be imported, or implements hooks wrongly.
    """
    plugins = _Plugins()
    plugins.add(defaults, "simrun", _CORE)  # first, so that every other plugin goes before it
    for plugin in extra:
        plugins.add_given(plugin)
    if adapter is not None and adapter not in plugins.adapters | plugins.sinks:
        plugins.add_installed(adapter, "adapter")
    if sink not in plugins.sinks | plugins.adapters:
        plugins.add_installed(sink, "sink")
    for name in observers:
        plugins.add_installed(name, "observer")
    return Selection(
        plugins.manager,
        None if adapter is None else plugins.entry(adapter, plugins.adapters, "adapter"),
        plugins.entry(sink, plugins.sinks, "sink"),
    )


def notify(manager: pluggy.PluginManager, hook: str, record: Any) -> list[tuple[str, Exception]]:
    """Call an observer hook of every plugin; a failing one doesn't keep the others from it.

    Returns
    -------
    list of (str, Exception)
        Name of each plugin that failed, and its error.
    """
    failures: list[tuple[str, Exception]] = []
    for implementation in reversed(getattr(manager.hook, hook).get_hookimpls()):
        try:
            implementation.function(*[record for _ in implementation.argnames])
        except Exception as error:
            failures.append((implementation.plugin_name, error))
        except SystemExit as error:
            failures.append((implementation.plugin_name, RuntimeError(f"SystemExit: {error}")))
    return failures


def describe() -> list[PluginInfo]:
    """All installed plugins, each imported by itself; a broken one only breaks its own row."""
    rows = _rows(defaults, "simrun", "simrun", _version(), _CORE)
    for found in discovery.discovered():
        try:
            discovery.find(found.name, "plugin")
            rows += _rows(found.load(), found.name, found.distribution, found.version, found.origin)
        except PluginError as error:
            row = PluginInfo(found.name, "?", "", found.distribution, found.version, error.message)
            rows.append(row)
    return rows


_KINDS = {"adapter": "a simulator", "sink": "a sink"}


@dataclass
class _Plugins:
    """The plugins of a run while they are put together."""

    manager: pluggy.PluginManager = field(default_factory=lambda: pluggy.PluginManager("simrun"))
    adapters: dict[str, tuple[Any, str]] = field(default_factory=dict)
    sinks: dict[str, tuple[Any, str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.manager.add_hookspecs(hookspecs)

    def add(self, plugin: Any, name: str, origin: str) -> None:
        hooks = implementations(plugin, origin)
        if self.manager.has_plugin(name):
            raise PluginError(f"{origin}: a plugin named {name!r} is registered already")
        try:
            self.manager.register(plugin, name)
        except ValueError as error:
            # pluggy compares with ==
            raise PluginError(
                f"{origin} can't be told from another plugin: {error}", "register modules"
            ) from None
        for hook, offered in (("simrun_adapters", self.adapters), ("simrun_sinks", self.sinks)):
            for entry in _entries(hooks, hook, origin):
                if entry.name in offered:
                    raise PluginError(
                        f"{hook}: {entry.name!r} is offered by {offered[entry.name][1]} and by "
                        f"{origin}",
                        "uninstall or deselect one of them",
                    )
                offered[entry.name] = (entry, origin)

    def add_given(self, plugin: Any) -> None:
        name = getattr(plugin, "__name__", None) or type(plugin).__name__
        if not inspect.ismodule(plugin):
            # several objects of a class may observe
            count = sum(type(other) is type(plugin) for other in self.manager.get_plugins())
            name = f"{name}-{count + 1}" if count else name
        self.add(plugin, name, f"plugin {name!r} (given as an object)")

    def add_installed(self, name: str, kind: str) -> None:
        if self.manager.has_plugin(name):
            return
        found = discovery.find(name, kind)
        plugin = found.load()
        # one module may stand behind several names
        if not any(plugin is other for _, other in self.manager.list_name_plugin()):
            self.add(plugin, name, found.origin)

    def entry(self, name: str, offered: dict[str, tuple[Any, str]], kind: str) -> Any:
        if name not in offered:
            if name in self.adapters or name in self.sinks:
                use = f"plugin: {name}" if kind == "sink" else f"output: {{sink: {name}}}"
                raise PluginError(f"{name!r} isn't {_KINDS[kind]}", f"use it as `{use}`")
            others = ", ".join([*self.adapters, *self.sinks])
            raise PluginError(
                f"plugin {name!r} offers no {kind} of that name",
                f"on offer: {others}; `simrun plugins` lists all",
            )
        return offered[name][0]


def implementations(plugin: Any, origin: str) -> dict[str, Callable[..., Any]]:
    """The hooks that a plugin implements, each checked against its specification.

    Parameters
    ----------
    origin : str
        The plugin and its distribution, for messages.

    Raises
    ------
    PluginError
        No hooks; an unknown hook; an argument that the hook hasn't, or with a default (pluggy
        would never pass it); a hook's function that isn't marked.
    """
    if inspect.isclass(plugin):
        raise PluginError(f"{origin} is a class", "register a module, or an object of the class")
    wanted = getattr(plugin, "SIMRUN_HOOKS", hookspecs.VERSION)
    if wanted != hookspecs.VERSION:
        older = isinstance(wanted, int) and wanted < hookspecs.VERSION
        raise PluginError(
            f"{origin} is written for version {wanted} of simrun's hooks, this simrun has version "
            f"{hookspecs.VERSION}",
            "upgrade the plugin" if older else "upgrade simrun: pip install --upgrade simrun",
        )
    found: dict[str, Callable[..., Any]] = {}
    for name in dir(plugin):
        member = inspect.getattr_static(plugin, name, None)
        if isinstance(member, property):
            continue
        function: Any = getattr(plugin, name, None)
        options = getattr(function, "simrun_impl", None)
        if not isinstance(options, dict):
            if name in _HOOKS and callable(function) and not hasattr(function, "simrun_spec"):
                raise PluginError(
                    f"{origin}: {name} isn't marked as a hook", "put @simrun.hookimpl above it"
                )
            continue
        hook = options.get("specname") or name
        if hook not in _HOOKS:
            near = get_close_matches(hook, _HOOKS, 1)
            raise PluginError(
                f"{origin}: there is no hook {hook!r}",
                f"did you mean {near[0]}?" if near else f"the hooks are: {', '.join(_HOOKS)}",
            )
        _check_arguments(function, hook, origin)
        decides = _HOOKS[hook].simrun_spec["firstresult"]
        if (options["wrapper"] or options["hookwrapper"]) and not decides:
            raise PluginError(f"{origin}: {hook} can't be wrapped", "implement it plainly")
        found[hook] = function
    if not found:
        raise PluginError(f"{origin} implements no hook of simrun", "mark them @simrun.hookimpl")
    return found


def _check_arguments(function: Any, hook: str, origin: str) -> None:
    allowed = list(inspect.signature(_HOOKS[hook]).parameters)
    signature = f"{hook}({', '.join(allowed)})"
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind is not parameter.POSITIONAL_OR_KEYWORD:
            fault = f"argument {str(parameter)!r} would never be passed"
        elif parameter.default is not parameter.empty:
            fault = f"argument {parameter.name!r} has a default; pluggy would never pass it"
        elif parameter.name not in allowed:
            near = get_close_matches(parameter.name, allowed, 1)
            fault = f"the hook has no argument {parameter.name!r}"
            fault += f"; did you mean {near[0]}?" if near else ""
        else:
            continue
        raise PluginError(f"{origin}: {hook}: {fault}", f"allowed: {signature}, or fewer of them")


def _entries(hooks: dict[str, Callable[..., Any]], hook: str, origin: str) -> list[Any]:
    """What a plugin's ``simrun_adapters`` or ``simrun_sinks`` offers."""
    if hook not in hooks:
        return []
    kind = OFFER_HOOKS[hook]
    try:
        result: Iterable[Any] = hooks[hook]()
        entries = list(result)
    except (Exception, SystemExit) as error:
        raise PluginError(f"{origin}: {hook} raised {type(error).__name__}: {error}") from error
    for entry in entries:
        if not isinstance(entry, kind):
            raise PluginError(
                f"{origin}: {hook} returned {entry!r:.60}", f"return a list of {kind.__name__}"
            )
    return entries


def _rows(plugin: Any, name: str, distribution: str, version: str, origin: str) -> list[PluginInfo]:
    hooks = implementations(plugin, origin)
    rows = [
        PluginInfo(entry.name, kind, entry.summary, distribution, version)
        for hook, kind in (("simrun_adapters", "adapter"), ("simrun_sinks", "sink"))
        for entry in _entries(hooks, hook, origin)
    ]
    others = [hook for hook in hooks if hook not in OFFER_HOOKS]
    if others and plugin is not defaults:
        kind = "observer" if all(hook in OBSERVER_HOOKS for hook in others) else "extension"
        summary = (inspect.getdoc(plugin) or "").partition("\n")[0]
        rows.append(PluginInfo(name, kind, summary, distribution, version))
    return rows


def _version() -> str:
    from simrun import __version__

    return __version__
