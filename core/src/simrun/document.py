"""A config file as plain data that remembers where each key stands. The only reader of YAML."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from simrun.errors import ConfigError

#: A place in a document: keys and list indices.
KeyPath = tuple[str | int, ...]
#: PyYAML reads some 25 kB a second at worst; no config comes near this.
MAX_BYTES = 256 << 10
MAX_VALUES = 100_000
MAX_DEPTH = 50
_TAG = "tag:yaml.org,2002:"


def dotted(path: KeyPath) -> str:
    """A key path as people write it: ``probes.0.name``."""
    return ".".join(map(str, path))


@dataclass
class Document:
    """A config before validation.

    Parameters
    ----------
    data : dict
        Strings, numbers, booleans, None, lists and dicts.
    base : pathlib.Path
        The folder that relative paths start from: the file's, or the current one.
    origins : dict
        For each key path where it was set: ``"config.yaml:12"``, ``"--set"``.
    source : str
        The file as the user named it; empty for a dict.
    """

    data: dict[str, Any]
    base: Path
    origins: dict[KeyPath, str] = field(default_factory=dict)
    source: str = ""

    def where(self, path: KeyPath) -> str:
        """``config.yaml:12: probes.0.name`` for a key path, or for its nearest parent."""
        parents = (path[:length] for length in range(len(path), 0, -1))
        origin = next((self.origins[p] for p in parents if p in self.origins), self.source)
        return ": ".join(part for part in (origin, dotted(path)) if part)

    def put(self, path: KeyPath, value: Any, origin: str) -> None:
        """Set what the command line overrides; sections that are missing are made."""
        node: Any = self.data
        for depth, part in enumerate(path):
            last = depth == len(path) - 1
            if isinstance(node, list):
                if not (isinstance(part, int) and 0 <= part < len(node)):
                    name = dotted(path[:depth])
                    raise ConfigError(
                        f"{origin}: {name} is a list of {len(node)}, it has no item {part!r}",
                        f"items are counted from 0: {name}.0",
                    )
            elif isinstance(node, dict):
                part = str(part)
                if not last and node.get(part) is None:
                    node[part] = {}
            else:
                raise ConfigError(
                    f"{origin}: {dotted(path[:depth])} is {node!r}, it has no key {part!r}"
                )
            if last:
                node[part] = value
            else:
                node = node[part]
        for known in [known for known in self.origins if known[: len(path)] == path]:
            del self.origins[known]
        self.origins[path] = origin


def load_document(
    source: str | Path | Mapping[str, Any],
    overrides: Iterable[str] = (),
    *,
    plugin: str | None = None,
    output: str | Path | None = None,
    steps: int | None = None,
) -> Document:
    """Read a config file, or take a dict, and apply what the command line overrides.

    The YAML is read by a safe loader: plain values only, no duplicate keys, aliases that
    expand to a bounded size. Numbers are read as YAML 1.2 has it (``1e-3`` is a number, dates
    are text).

    Parameters
    ----------
    source : path or mapping
    overrides : iterable of str
        ``a.b=value`` each; the value is YAML, list items are counted from 0.
    plugin, output, steps : optional
        Replace the config's; a relative ``output`` starts from the current folder.

    Raises
    ------
    ConfigError
        No such file, not YAML, not a mapping, or an override that doesn't fit; with line.
    """
    if isinstance(source, Mapping):
        document = Document(_plain(source), Path.cwd())
    else:
        name, file = str(source), Path(source)
        data, origins = _parse(_read(file), name)
        if not isinstance(data, dict):
            found = "nothing" if data is None else f"a {type(data).__name__}"
            raise ConfigError(
                f"{name}: found {found}; a config is a mapping of keys to values",
                "start with `plugin: NAME` and `model: FILE.py:FUNCTION`, a line each",
            )
        document = Document(data, file.resolve().parent, origins, name)
    for override in overrides:
        key, equals, text = override.partition("=")
        path = tuple(int(part) if part.isdecimal() else part for part in key.strip().split("."))
        if not equals or "" in path:
            raise ConfigError(f"--set {override}: not an override", "write --set a.b=value")
        value, _ = _parse(text, f"--set {override}", lines=False)
        document.put(path, value, "--set")
    if plugin is not None:
        document.put(("plugin",), plugin, "--plugin")
    if output is not None:
        document.put(("output", "path"), str(Path.cwd() / output), "--output")
    if steps is not None:
        document.data.pop("duration", None)
        document.put(("steps",), steps, "--steps")
    return document


def _plain(value: Any) -> Any:
    """A copy whose mappings and sequences are dicts and lists of its own."""
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value


def _read(file: Path) -> str:
    try:
        if file.is_dir():
            raise ConfigError(f"{file}: is a directory", "name a config file, such as config.yaml")
        with file.open("rb") as stream:
            raw = stream.read(MAX_BYTES + 1)
    except (FileNotFoundError, NotADirectoryError):
        raise ConfigError(f"{file}: no such file") from None
    except (OSError, ValueError) as error:
        raise ConfigError(f"{file}: can't be read: {error}") from None
    if len(raw) > MAX_BYTES:
        raise ConfigError(f"{file}: larger than 256 KiB; data belongs in files of its own")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise ConfigError(
            f"{file}:{line}: not UTF-8 text (byte 0x{raw[error.start]:02x})", "save it as UTF-8"
        ) from None


def _parse(text: str, name: str, lines: bool = True) -> tuple[Any, dict[KeyPath, str]]:
    """The plain data of a YAML text, and the origin of each key path."""
    builder = _Builder(name, lines)
    try:
        node = yaml.compose(text, _Loader)
        return builder.build(node, ()) if node is not None else None, builder.origins
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position)
        raise builder.fault(line, f"not valid YAML: a control character ({error.reason})") from None
    except yaml.MarkedYAMLError as error:
        raise builder.fault(*_explain(error)) from None
    except RecursionError:
        raise builder.fault(0, "nested too deeply") from None


def _explain(error: yaml.MarkedYAMLError) -> tuple[int, str, str]:
    """Line (from 0), message and hint of a YAML syntax error."""
    problem = ", ".join(part for part in (error.context, error.problem) if part)
    begun, mark = error.context_mark, error.problem_mark or error.context_mark
    if begun and mark and begun.line != mark.line:
        problem += f" (it begins in line {begun.line + 1})"
    if "'\\t'" in problem:
        hint = "indent with spaces; YAML allows no tabs"
    elif "mapping values" in problem:
        hint = "is a line indented too far, or does text with a colon need quotes?"
    else:
        hint = ""
    return (mark.line if mark else 0), f"not valid YAML: {problem}", hint


class _Builder:
    """Makes plain values of YAML nodes, within bounds, and notes the line of each."""

    def __init__(self, name: str, lines: bool) -> None:
        self.name = name
        self.lines = lines
        self.origins: dict[KeyPath, str] = {}
        self.values = 0

    def fault(self, line: int, message: str, hint: str = "") -> ConfigError:
        return ConfigError(
            f"{self.name}:{line + 1}: {message}" if self.lines else f"{self.name}: {message}", hint
        )

    def build(self, node: yaml.Node, path: KeyPath) -> Any:
        line = node.start_mark.line
        self.values += 1
        if self.values > MAX_VALUES:
            raise self.fault(line, f"more than {MAX_VALUES:,} values once aliases are expanded")
        if len(path) > MAX_DEPTH:
            raise self.fault(line, f"nested over {MAX_DEPTH} levels deep, or an alias of itself")
        if self.lines:
            self.origins.setdefault(path, f"{self.name}:{line + 1}")
        if isinstance(node, yaml.SequenceNode) and node.tag == _TAG + "seq":
            return [self.build(item, (*path, i)) for i, item in enumerate(node.value)]
        if isinstance(node, yaml.MappingNode) and node.tag == _TAG + "map":
            return self._mapping(node, path)
        make = _SCALARS.get(node.tag) if isinstance(node, yaml.ScalarNode) else None
        if make is None:
            tag = node.tag.replace(_TAG, "!!")
            raise self.fault(line, f"the tag {tag} isn't allowed", "write plain values")
        try:
            return make(node.value)
        except (ValueError, KeyError):
            raise self.fault(
                line, f"{node.value[:40]!r} is no valid {node.tag[len(_TAG) :]}"
            ) from None

    def _mapping(self, node: yaml.MappingNode, path: KeyPath) -> dict[str, Any]:
        merged: dict[str, Any] = {}
        own: dict[str, Any] = {}
        for key, value in node.value:
            line = key.start_mark.line
            if key.tag == _TAG + "merge":
                bases = value.value if isinstance(value, yaml.SequenceNode) else [value]
                for base in bases:
                    if not isinstance(base, yaml.MappingNode):
                        raise self.fault(line, "<< takes a mapping, or a list of them")
                    merged = self.build(base, path) | merged
                continue
            if key.tag != _TAG + "str":
                raise self.fault(line, f"a key must be text; found {key.value!r:.60}", "quote it")
            if key.value in own:
                place = (*path, key.value)
                raise self.fault(
                    line, f"{dotted(place)}: set twice; first at {self.origins.get(place, 'it')}"
                )
            if self.lines:
                self.origins[(*path, key.value)] = f"{self.name}:{line + 1}"
            own[key.value] = self.build(value, (*path, key.value))
        return merged | own


class _Loader(yaml.SafeLoader):
    """The safe loader with YAML 1.2's numbers (``1e-3`` is one) and without dates."""


class _Dumper(yaml.SafeDumper):
    """Quotes what PyYAML's readers or ours would take for another thing than a string."""


_Loader.yaml_implicit_resolvers = {}
for _kind, _pattern in {
    "null": r"~|null|Null|NULL|",
    "bool": r"yes|no|on|off|true|false",
    "int": r"[-+]?[0-9][0-9_]*|0o[0-7]+|0x[0-9a-fA-F]+",
    "float": r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.inf|\.nan",
    "merge": r"<<",
}.items():
    _flags = re.IGNORECASE if _kind in ("bool", "float") else 0
    for _class in (_Loader, _Dumper):
        _class.add_implicit_resolver(_TAG + _kind, re.compile(rf"(?:{_pattern})$", _flags), None)


def dump(data: Mapping[str, Any]) -> str:
    """YAML that `load_document` reads back as the same data."""
    return yaml.dump(data, Dumper=_Dumper, sort_keys=False)


def _integer(text: str) -> int:
    digits = text.replace("_", "")
    return int(digits, {"0x": 16, "0o": 8}.get(digits[:2], 10))


_SCALARS: dict[str, Callable[[str], Any]] = {
    _TAG + "str": str,
    _TAG + "null": lambda text: None,
    _TAG + "bool": lambda text: yaml.SafeLoader.bool_values[text.lower()],
    _TAG + "int": _integer,
    _TAG + "float": lambda text: float(re.sub(r"\.(?=inf|nan)", "", text.lower())),
}
