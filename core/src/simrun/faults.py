"""Checks a document against a pydantic model and says what is wrong in words of the config."""

from __future__ import annotations

import re
from collections.abc import Iterator
from difflib import get_close_matches
from typing import Any, TypeVar, get_args

from pydantic import AliasChoices, BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from simrun.document import Document, KeyPath
from simrun.errors import ConfigError

M = TypeVar("M", bound=BaseModel)

# what is allowed, by the beginning of pydantic's name for the error
_PHRASES = {
    "int_": "a whole number",
    "float_": "a number",
    "bool_": "true or false",
    "string_type": "text",
    "path_": "a path",
    "list_": "a list",
    "tuple_": "a list",
    "dict_": "a mapping of keys to values",
    "model_": "a mapping of keys to values",
    "invalid-json": "plain values: numbers, text, lists, mappings",
}


def check(model: type[M], document: Document) -> M:
    """Validate a document's data.

    Raises
    ------
    ConfigError
        One line for each key at fault: where it is, what was found, what is allowed.
    """
    # a key with nothing behind it, as when all its lines are commented out, is a key left out
    data = {key: value for key, value in document.data.items() if value is not None}
    try:
        return model.model_validate(data)
    except ValidationError as error:
        by_path: dict[KeyPath, list[ErrorDetails]] = {}
        for detail in error.errors(include_url=False):
            by_path.setdefault(_path_of(detail, data), []).append(detail)
        faults = [
            f"{document.where(path)}: {_describe(path, details, model)}"
            for path, details in by_path.items()
        ]
        raise ConfigError("\n".join(faults)) from None


def _path_of(detail: ErrorDetails, data: Any) -> KeyPath:
    """The part of an error's location that stands in the config (unions add to it)."""
    location = detail["loc"]
    for length, part in enumerate(location):
        inside = isinstance(part, int) if isinstance(data, list) else isinstance(data, dict)
        if not inside or (isinstance(data, dict) and part not in data):
            return location[: length + 1] if detail["type"] == "missing" else location[:length]
        data = data[part]
    return location


def _describe(path: KeyPath, details: list[ErrorDetails], model: type[BaseModel]) -> str:
    first = details[0]
    if first["type"] == "extra_forbidden":
        keys = [field.alias or name for name, field in _fields(model, path[:-1]).items()]
        near = get_close_matches(str(path[-1]), keys, 1)
        return (
            f"unknown key;{f' did you mean {near[0]}?' if near else ''} allowed: {', '.join(keys)}"
        )
    if first["type"] == "missing":
        field = _fields(model, path[:-1]).get(str(path[-1]))
        return f"missing; {field.description}" if field and field.description else "missing"
    found = show(first["input"])
    if first["type"] == "value_error":
        text = str(first.get("ctx", {}).get("error", first["msg"]))
        if text.startswith("found ") or isinstance(first["input"], dict | BaseModel):
            return text
        return f"found {found}: {text}"
    allowed = list(dict.fromkeys(map(_allowed, details)))
    return f"found {found}; allowed: {' or '.join(allowed)}"


def _fields(model: type[BaseModel], path: KeyPath) -> dict[str, FieldInfo]:
    """The fields of the model, or union of models, that validates what stands at ``path``."""
    models = [model]
    for part in path:
        if isinstance(part, str):
            fields = [f for m in models for n, f in m.model_fields.items() if part in _names(n, f)]
            models = [inner for field in fields for inner in _models_in(field.annotation)]
    return {name: field for m in models for name, field in m.model_fields.items()}


def _names(name: str, field: FieldInfo) -> tuple[Any, ...]:
    """What a field is called in a config."""
    also = field.validation_alias
    return (name, field.alias, *(also.choices if isinstance(also, AliasChoices) else ()))


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _models_in(argument)


def _allowed(detail: ErrorDetails) -> str:
    kind = detail["type"]
    if kind == "literal_error":
        return str(detail.get("ctx", {}).get("expected", "")).replace("'", "")
    phrase = next((text for start, text in _PHRASES.items() if kind.startswith(start)), None)
    if phrase == "text" and not isinstance(detail["input"], list | dict):
        return "text (put it in quotes)"
    message = re.sub(r"^(Input|Value) should (be )?", "", detail["msg"])
    return phrase or message[:1].lower() + message[1:]


def show(value: Any) -> str:
    """A value as an error message names it: as in YAML, short."""
    if value is None or isinstance(value, bool):
        return {None: "nothing", True: "true", False: "false"}[value]
    if isinstance(value, dict | list):
        return f"a {'mapping' if isinstance(value, dict) else 'list'}"
    return f"{value!r:.60}"
