"""What a run is configured with: `RunConfig`, and its validation."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import GenericAlias
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    AliasChoices,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    SerializeAsAny,
    ValidatorFunctionWrapHandler,
    WithJsonSchema,
    WrapValidator,
    create_model,
)

from simrun.adapter import AdapterEntry, ProbeRequest, resolve
from simrun.document import Document, load_document
from simrun.errors import ConfigError, PluginError
from simrun.faults import check, show
from simrun.sink import SinkEntry
from simrun.units import MAX_STEPS, parse_bytes, parse_duration

__all__ = [
    "PluginNames",
    "RunConfig",
    "config_model",
    "load_document",
    "located",
    "output_model",
    "plugin_names",
    "validate",
]


def _duration(value: str) -> str:
    parse_duration(value)
    return value


def _folder(value: Any) -> Any:
    if value == "" or "\0" in str(value):
        raise ValueError(f"found {show(value)}; allowed: the path of a folder")
    return value


def _chunk(value: Any) -> Any:
    if value == "auto":
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"found {show(value)}; allowed: auto, or a number of steps from 1")
    return value


def _steps(value: Any, check: ValidatorFunctionWrapHandler) -> Any:
    return value if value == "all" else check(value)


Bytes = Annotated[int, BeforeValidator(parse_bytes)]
Duration = Annotated[str, AfterValidator(_duration)]
Steps = Annotated[
    int,
    Field(strict=True, ge=1, le=MAX_STEPS),
    WrapValidator(_steps),
    WithJsonSchema(
        {"anyOf": [{"const": "all"}, {"type": "integer", "minimum": 1, "maximum": MAX_STEPS}]}
    ),
]
ChunkSteps = Annotated[
    int | None,
    BeforeValidator(_chunk),
    WithJsonSchema({"anyOf": [{"const": "auto"}, {"type": "integer", "minimum": 1}]}),
]
PluginName = Annotated[
    str, Field(description="the simulator; `simrun plugins` lists those installed.")
]
_SECTION = ConfigDict(extra="forbid", frozen=True)


class MemoryConfig(BaseModel):
    """The ``memory`` section: the budget, such as ``4GiB``; left out, what is free."""

    model_config = _SECTION
    device: Bytes | None = Field(
        default=None, description="Most bytes the simulation takes on its device."
    )
    host: Bytes | None = Field(
        default=None, description="Most resident bytes of the whole process."
    )


class OutputConfig(BaseModel):
    """The ``output`` section. A sink's own options stand beside these keys."""

    model_config = _SECTION
    path: Annotated[Path, BeforeValidator(_folder)] = Field(
        description="the run's directory; relative paths start from the config."
    )
    sink: str = Field(default="npy", description="Storage back end.")
    durability: Literal["process", "power"] = Field(
        default="process",
        description="What a commit survives: the process's death, or a power cut.",
    )


class CheckpointConfig(BaseModel):
    """The ``checkpoint`` section."""

    model_config = _SECTION
    every: Duration | None = Field(
        default=None,
        description="Time between checkpoints, such as `10 min`; left out: as time allows.",
    )
    every_bytes: Bytes | None = Field(
        default=None, description="Also after so many bytes of samples, such as `2GiB`."
    )

    @property
    def seconds(self) -> float | None:
        """``every`` in seconds."""
        return None if self.every is None else parse_duration(self.every)


class RunConfig(BaseModel):
    """A whole config, validated. `validate` makes one.

    ``output.path`` is absolute; ``model`` and an adapter's own paths start from ``base``.
    """

    model_config = _SECTION | ConfigDict(protected_namespaces=(), populate_by_name=False)
    plugin: PluginName
    model: str = Field(
        description="the function that builds the model: FILE.py:FUNCTION or MODULE:FUNCTION."
    )
    model_args: dict[str, JsonValue] = Field(
        default={}, description="Keyword arguments of the function."
    )
    steps: Steps | Literal["all"] | None = Field(
        default=None,
        description="Steps to simulate, or `all` that there is data for; or give `duration`.",
    )
    duration: Duration | None = Field(
        default=None, description="Model time to simulate, such as `8 s`."
    )
    seed: Annotated[int, Field(strict=True, ge=0, lt=2**32)] | None = None
    probes: tuple[SerializeAsAny[ProbeRequest], ...] = Field(
        default=(), description="Recorded beside what the model itself declares."
    )
    memory: MemoryConfig = MemoryConfig()
    chunk: ChunkSteps = Field(default=None, description="Steps per chunk, or `auto`.")
    output: OutputConfig = Field(description="write `output: {path: runs/NAME}` or give --output.")
    checkpoint: CheckpointConfig = CheckpointConfig()
    observers: tuple[str, ...] = Field(default=(), description="Further plugins.")
    settings: SerializeAsAny[BaseModel] = Field(description="The adapter's own section.")

    def resolved(self) -> dict[str, Any]:
        """Every setting, defaults included, as plain values that `load_document` takes."""
        values = self.model_dump(mode="json", by_alias=True)
        return {key: value for key, value in values.items() if value is not None}

    def identity(self) -> dict[str, Any]:
        """The settings that can change the samples, as plain values; for a hash."""
        keys = {"plugin", "model", "model_args", "seed", "probes", "settings"}
        return self.model_dump(mode="json", include=keys)

    def sink_options(self) -> dict[str, Any]:
        """The keys of ``output`` that belong to the sink, as plain values."""
        return self.output.model_dump(mode="json", exclude=set(OutputConfig.model_fields))


class _SinkName(BaseModel):
    sink: str = "npy"


class PluginNames(BaseModel):
    """The plugins that a config names; everything else in it may still be wrong."""

    plugin: PluginName
    output: _SinkName = _SinkName()
    observers: tuple[str, ...] = ()

    @property
    def sink(self) -> str:
        """Name of the storage back end."""
        return self.output.sink


def plugin_names(document: Document) -> PluginNames:
    """Read only which plugins a config names.

    Raises
    ------
    ConfigError
        ``plugin`` is missing, or one of the names isn't text.
    """
    return check(PluginNames, document)


def validate(document: Document, adapter: AdapterEntry, sink: SinkEntry) -> RunConfig:
    """Check the whole config: core's part, the adapter's section, the sink's options.

    Raises
    ------
    ConfigError
        With a line for each fault: where it is, what was found, what is allowed.
    PluginError
        The adapter's or the sink's own model can't be imported.
    """
    _one_section(document, adapter)
    config = check(config_model(adapter, sink), document)
    faults = [*_length(config, document), *_twice(config, document)]
    if faults:
        raise ConfigError("\n".join(faults))
    path = document.base / config.output.path.expanduser()
    return config.model_copy(update={"output": config.output.model_copy(update={"path": path})})


def config_model(adapter: AdapterEntry, sink: SinkEntry) -> type[RunConfig]:
    """`RunConfig` with the adapter's section, its probes and the sink's options filled in."""
    if adapter.name in RunConfig.model_fields:
        raise PluginError(f"adapter {adapter.name!r}: the name is a key of every config")
    section = Field(
        default_factory=dict,
        validate_default=True,
        alias=adapter.name,
        validation_alias=AliasChoices(adapter.name, *adapter.sections),
    )
    fields: dict[str, Any] = {
        "probes": (
            GenericAlias(tuple, (resolve(adapter.probe_model), ...)),
            RunConfig.model_fields["probes"],
        ),
        "output": (output_model(sink), RunConfig.model_fields["output"]),
        "settings": (resolve(adapter.config_model), section),
    }
    return create_model("RunConfig", __base__=RunConfig, **fields)


def output_model(sink: SinkEntry) -> type[OutputConfig]:
    """`OutputConfig` with the sink's options."""
    if sink.config_model is None:
        return OutputConfig
    return create_model("OutputConfig", __base__=(OutputConfig, resolve(sink.config_model)))


@contextmanager
def located(document: Document) -> Iterator[None]:
    """Put file and line before a `ConfigError` that begins with a key path of the config.

    So an adapter that raises ``ConfigError("probes.0.object: …")`` need know nothing of files.
    """
    try:
        yield
    except ConfigError as error:
        key, colon, _ = error.message.partition(": ")
        path = tuple(int(part) if part.isdecimal() else part for part in key.split("."))
        where = document.where(path)
        if colon and where != key and path[0] in document.data:
            error.message = where + error.message[len(key) :]
        raise


def _one_section(document: Document, adapter: AdapterEntry) -> None:
    given = [name for name in (adapter.name, *adapter.sections) if name in document.data]
    if len(given) > 1:
        raise ConfigError(
            f"{document.where((given[1],))}: given beside `{given[0]}`, of which it would take the "
            "place; keep one of them"
        )


def _length(config: RunConfig, document: Document) -> Iterator[str]:
    if config.steps is None and config.duration is None:
        yield f"{document.where(('steps',))}: missing; write `steps: 8000` or `duration: 8 s`"
    if config.steps is not None and config.duration is not None:
        yield f"{document.where(('duration',))}: given beside `steps`; keep one of them"


def _twice(config: RunConfig, document: Document) -> Iterator[str]:
    first: dict[str, int] = {}
    for index, probe in enumerate(config.probes):
        if first.setdefault(probe.name, index) != index:
            where = document.where(("probes", index, "name"))
            yield f"{where}: {probe.name!r} is the name of probes.{first[probe.name]} already"
