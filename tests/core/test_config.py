from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Literal

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field, model_validator

from simrun import document
from simrun.adapter import AdapterEntry, ProbeRequest
from simrun.config import config_model, load_document, located, plugin_names, validate
from simrun.errors import ConfigError, PluginError
from simrun.sink import SinkEntry


class Inner(BaseModel):
    model_config = ConfigDict(extra="forbid")
    depth: int = 1


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid")
    size: int = Field(1, ge=1)
    inner: Inner | None = None
    many: list[Inner] = []

    @model_validator(mode="after")
    def _even(self):
        if self.size == 13:
            raise ValueError("13 brings bad luck")
        return self


class Probe(ProbeRequest):
    format: Literal["dense", "events"] = "dense"


class SinkOptions(BaseModel):
    compression: Literal["none", "zstd"] = "none"


ADAPTER = AdapterEntry("toy", "", Section, lambda request: None, Probe)
NPY = SinkEntry("npy", "", lambda request: None, lambda request: None)
HDF5 = SinkEntry("hdf5", "", lambda request: None, lambda request: None, SinkOptions)
MINIMAL = {"plugin": "toy", "model": "m.py:build", "steps": 10, "output": {"path": "out"}}
FULL = """\
plugin: toy
model: network.py:build
model_args: {neurons: 20_000, tau: 1e-3, "on": [1, 2.5, yes, null, "text"]}
duration: 8 s
seed: 1
probes:
  - {name: spikes, object: exc.neurons, attribute: output, sample_every: 10}
  - name: rate
    object: exc.neurons
    sample_every: 100 ms
    reduce: mean
  - {name: raster, object: exc.neurons, format: events}
memory: {device: 2GiB, host: 4000000000}
chunk: auto
output: {path: runs/ws, sink: hdf5, compression: zstd, durability: power}
checkpoint: {every: 10 min}
observers: [my_lab_notify]
toy: {size: 3, inner: {depth: 2}, many: [{depth: 4}]}
"""


def read(text, tmp_path, *overrides, sink=NPY, **keywords):
    path = tmp_path / "config.yaml"
    path.write_text(text)
    return validate(load_document(path, overrides, **keywords), ADAPTER, sink)


def fault(changes, sink=NPY):
    with pytest.raises(ConfigError) as caught:
        validate(load_document(MINIMAL | changes), ADAPTER, sink)
    return caught.value.message


def test_the_whole_config_of_the_design(tmp_path):
    config = read(FULL, tmp_path, sink=HDF5)
    assert config.model_args == {"neurons": 20000, "tau": 0.001, "on": [1, 2.5, True, None, "text"]}
    assert config.duration == "8 s"
    assert config.steps is None
    assert [type(probe) for probe in config.probes] == [Probe] * 3
    assert config.probes[2].format == "events"
    assert config.probes[1].sample_every == "100 ms"
    assert config.memory.device == 2 * 2**30
    assert config.chunk is None
    assert config.output.path == tmp_path / "runs/ws"
    assert config.sink_options() == {"compression": "zstd"}
    assert config.checkpoint.seconds == 600
    assert config.settings == Section(size=3, inner=Inner(depth=2), many=[Inner(depth=4)])


def test_a_config_is_frozen(tmp_path):
    config = read("\n".join(f"{k}: {json.dumps(v)}" for k, v in MINIMAL.items()), tmp_path)
    with pytest.raises(ValueError, match="frozen"):
        config.seed = 3


def test_resolved_reads_back_as_the_same_config(tmp_path):
    config = read(FULL, tmp_path, sink=HDF5)
    text = yaml.safe_dump(config.resolved())
    again = read(text, tmp_path, sink=HDF5)
    assert again.resolved() == config.resolved()


@pytest.mark.parametrize(
    ("override", "changes"),
    [
        ("seed=2", True), ("model_args.neurons=3", True), ("probes.0.sample_every=20", True),
        ("toy.size=4", True), ("model=other.py:build", True), ("probes.2.format=dense", True),
        ("memory.host=1GiB", False), ("chunk=7", False), ("output.path=elsewhere", False),
        ("output.compression=none", False), ("checkpoint.every=1 s", False),
        ("observers=[]", False), ("duration=9 s", False), ("toy.size=3", False),
    ],
)  # fmt: skip
def test_the_identity_holds_what_can_change_the_samples(tmp_path, override, changes):
    before = read(FULL, tmp_path, sink=HDF5).identity()
    after = read(FULL, tmp_path, override, sink=HDF5).identity()
    assert (json.dumps(before) != json.dumps(after)) is changes


def test_a_sparse_config_needs_four_keys():
    config = validate(load_document(MINIMAL), ADAPTER, NPY)
    assert config.output.path == Path.cwd() / "out"
    assert config.output.sink == "npy"
    assert config.sink_options() == {}
    assert config.settings == Section()
    assert config.memory.host is None


def test_keys_with_nothing_behind_them_are_left_out():
    config = validate(load_document(MINIMAL | {"probes": None, "toy": None}), ADAPTER, NPY)
    assert config.probes == ()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"stpes": 3}, r"^stpes: unknown key; did you mean steps\? allowed: plugin, .* toy$"),
        ({"settings": {}}, "settings: unknown key"),
        ({"toy": {"sise": 2}}, r"toy.sise: unknown key; did you mean size\? allowed: size, inner"),
        ({"toy": {"inner": {"dept": 2}}}, r"toy.inner.dept: unknown key; did you mean depth\?"),
        ({"toy": {"many": [{}, {"dept": 2}]}}, r"toy.many.1.dept: unknown key; did you mean depth"),
        ({"toy": {"size": 13}}, "^toy: 13 brings bad luck$"),
        ({"toy": {"size": "big"}}, r"toy.size: found 'big'; allowed: a whole number$"),
        ({"toy": {"size": 0}}, r"toy.size: found 0; allowed: greater than or equal to 1"),
        ({"toy": 5}, r"toy: found 5; allowed: a mapping of keys to values"),
        ({"steps": True}, r"steps: found true; allowed: a whole number"),
        ({"steps": 2.5}, r"steps: found 2.5; allowed: a whole number"),
        ({"steps": "10"}, r"steps: found '10'; allowed: a whole number"),
        ({"steps": 2**60}, "steps: found .* allowed: less than or equal to"),
        ({"steps": None}, r"^steps: missing; write `steps: 8000` or `duration: 8 s`"),
        ({"duration": "1 s"}, "duration: given beside `steps`"),
        ({"steps": None, "duration": 8}, r"duration: found 8; allowed: text"),
        ({"steps": None, "duration": "8"}, r"duration: found '8'; allowed: .* 8 s"),
        ({"seed": -1}, "seed: found -1; allowed: greater than"),
        ({"chunk": 0}, "chunk: found 0; allowed: auto, or a number of steps from 1"),
        ({"chunk": "big"}, "chunk: found 'big'; allowed: auto"),
        ({"plugin": ["toy"]}, "plugin: found a list; allowed: text$"),
        ({"plugin": 5}, r"plugin: found 5; allowed: text \(put it in quotes\)"),
        ({"model": None}, r"model: missing; the function that builds the model"),
        ({"output": None}, r"output: missing; write `output: {path: runs/NAME}`"),
        ({"output": {}}, r"output.path: missing; the run's directory"),
        ({"output": {"path": 3}}, r"output.path: found 3; allowed: a path"),
        ({"output": {"path": "o", "durability": "total"}}, "allowed: process or power"),
        ({"output": {"path": "o", "compression": "zstd"}}, r"output.compression: unknown key"),
        ({"memory": {"host": "8G"}}, r"memory.host: found '8G'; allowed: 8GiB .* or 8GB"),
        ({"memory": {"hots": "8GiB"}}, r"memory.hots: unknown key; did you mean host\?"),
        ({"checkpoint": {"every": 10}}, r"checkpoint.every: found 10; allowed: text"),
        ({"model_args": [1]}, r"model_args: found a list; allowed: a mapping"),
        ({"model_args": {"a": object()}}, r"model_args.a: found .*; allowed: plain values"),
        ({"observers": "notify"}, r"observers: found 'notify'; allowed: a list"),
        ({"probes": {"name": "x"}}, r"probes: found a mapping; allowed: a list"),
        ({"probes": ["x"]}, r"probes.0: found 'x'; allowed: a mapping of keys"),
        ({"probes": [{"object": "x"}]}, r"probes.0.name: missing; Unique name"),
        ({"probes": [{"name": True, "object": "x"}]}, r"probes.0.name: found true; allowed: text"),
        ({"probes": [{"name": "../x", "object": "x"}]}, r"probes.0.name: found '../x'"),
        ({"probes": [{"name": "x", "object": "x", "reduce": "median"}]},
         r"probes.0.reduce: found 'median'; allowed: last, mean, sum or max"),
        ({"probes": [{"name": "x", "object": "x", "sample_every": "1 parsec"}]},
         r"probes.0.sample_every: found '1 parsec'; allowed: a duration"),
        ({"probes": [{"name": "x", "object": "x", "sample_every": 0}]},
         r"probes.0.sample_every: found 0; allowed: at least 1 step"),
        ({"probes": [{"name": "x", "object": "x", "sample_every": True}]},
         r"probes.0.sample_every: found True; allowed: a number of steps"),
        ({"probes": [{"name": "x", "object": "a"}, {"name": "x", "object": "b"}]},
         r"probes.1.name: 'x' is the name of probes.0 already"),
    ],
)  # fmt: skip
def test_faults_name_place_find_and_remedy(changes, message):
    assert re.search(message, fault(changes)), fault(changes)


def test_a_sinks_options_are_its_own():
    assert fault({"output": {"path": "o", "compression": "zip"}}, HDF5) == (
        "output.compression: found 'zip'; allowed: none or zstd"
    )
    assert "did you mean compression?" in fault({"output": {"path": "o", "compresion": 1}}, HDF5)


def test_every_fault_is_reported_with_its_line(tmp_path):
    text = FULL.replace("seed: 1", "sede: 1").replace("size: 3", "size: x").replace("mean", "meen")
    with pytest.raises(ConfigError) as caught:
        read(text, tmp_path, sink=HDF5)
    path = tmp_path / "config.yaml"
    assert sorted(line.partition("; ")[0] for line in caught.value.message.splitlines()) == [
        f"{path}:11: probes.1.reduce: found 'meen'",
        f"{path}:18: toy.size: found 'x'",
        f"{path}:5: sede: unknown key",
    ]


def test_overrides(tmp_path):
    config = read(
        FULL, tmp_path, "probes.0.sample_every=5", "model_args.tau=2e-3", "toy.inner=null",
        "memory.host=1GiB", "model_args.new.deep=[1, x]", 'model_args.text="5"', sink=HDF5,
    )  # fmt: skip
    assert config.probes[0].sample_every == 5
    assert config.model_args["tau"] == 0.002
    assert config.model_args["new"] == {"deep": [1, "x"]}
    assert config.model_args["text"] == "5"
    assert config.settings.inner is None
    assert config.memory.host == 2**30


def test_the_command_lines_own_options_win(tmp_path, monkeypatch):
    monkeypatch.chdir("/")
    text = FULL.replace("plugin: toy", "plugin: other")
    config = read(text, tmp_path, "duration=3 s", plugin="toy", output="var/x", steps=7, sink=HDF5)
    assert (config.plugin, config.steps, config.duration) == ("toy", 7, None)
    assert config.output.path == Path("/var/x")


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("seed", "--set seed: not an override"),
        ("=3", "not an override"),
        ("a..b=3", "not an override"),
        ("steps=", "^--set: steps: missing"),
        ("steps=x", r"^--set: steps: found 'x'"),
        ("stpes=3", r"^--set: stpes: unknown key; did you mean steps"),
        ("probes.9.name=x", "--set: probes is a list of 3, it has no item 9"),
        ("probes.name=x", "--set: probes is a list of 3, it has no item 'name'"),
        ("seed.x=1", "--set: seed is 1, it has no key 'x'"),
        ("seed=[1", r"--set seed=\[1: not valid YAML"),
        ("probes.0.reduce=median", "^--set: probes.0.reduce: found 'median'"),
        ("probes.0={}", "^--set: probes.0.name: missing"),
    ],
)
def test_faults_of_overrides(tmp_path, override, message):
    text = FULL.replace("duration: 8 s", "steps: 8")
    with pytest.raises(ConfigError, match=message):
        read(text, tmp_path, override, sink=HDF5)


def test_numbers_are_read_as_people_mean_them(tmp_path):
    path = tmp_path / "c.yaml"
    values = "[1e-3, 1_000, 0x1f, 0o17, 010, 2020-01-01, 1:30, .5, -.inf, 1., +2, ~, Yes, OFF, e3]"
    path.write_text(f"a: {values}")
    assert load_document(path).data["a"] == [
        0.001, 1000, 31, 15, 10, "2020-01-01", "1:30", 0.5, -math.inf, 1.0, 2, None, True, False,
        "e3",
    ]  # fmt: skip


def test_anchors_and_merge_keys(tmp_path):
    path = tmp_path / "c.yaml"
    path.write_text("base: &b {x: 1, y: 2}\nlist:\n  - {<<: *b, y: 3}\n  - *b\n")
    document = load_document(path)
    assert document.data["list"] == [{"x": 1, "y": 3}, {"x": 1, "y": 2}]
    assert document.data["list"][1] is not document.data["base"]
    assert document.where(("list", 0, "y")) == f"{path}:3: list.0.y"


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
        max_leaves=10,
    )
)
@example("0E0")  # for PyYAML's own writer this isn't a number
@example({"1e3": ["010", "2020-01-01", "0o7", "<<", "=", 1e-5, 1e30, -0.0]})
def test_what_is_written_is_read_back(tmp_path_factory, value):
    path = tmp_path_factory.getbasetemp() / "any.yaml"
    path.write_text(document.dump({"value": value}), encoding="utf-8")
    assert load_document(path).data == {"value": value}


@given(st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
def test_any_file_is_read_or_refused(tmp_path_factory, content):
    path = tmp_path_factory.getbasetemp() / "bytes.yaml"
    path.write_bytes(content)
    with pytest.raises(ConfigError) as caught:  # no such text is a config by accident
        validate(load_document(path), ADAPTER, NPY)
    assert str(path) in caught.value.message


def test_a_dict_is_copied_and_takes_tuples_and_paths(tmp_path):
    args = {"shape": (1, 2)}
    source = MINIMAL | {"output": {"path": tmp_path / "x"}, "model_args": args}
    document = load_document(source, ["model_args.shape.0=5"])
    config = validate(document, ADAPTER, NPY)
    assert config.model_args == {"shape": [5, 2]}
    assert config.output.path == tmp_path / "x"
    assert args == {"shape": (1, 2)}


def test_plugin_names_look_at_nothing_else():
    document = load_document({"plugin": "a", "steps": "?", "output": {"sink": "b", "x": 1}})
    names = plugin_names(document)
    assert (names.plugin, names.sink, names.observers) == ("a", "b", ())
    assert plugin_names(load_document({"plugin": "a"})).sink == "npy"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({}, "plugin: missing; the simulator; `simrun plugins` lists those installed"),
        ({"plugin": "a", "output": 3}, "output: found 3; allowed: a mapping"),
        ({"plugin": "a", "output": {"sink": 3}}, "output.sink: found 3; allowed: text"),
        ({"plugin": "a", "observers": [{}]}, "observers.0: found a mapping; allowed: text"),
    ],
)
def test_faults_of_plugin_names(data, message):
    with pytest.raises(ConfigError, match=message):
        plugin_names(load_document(data))


def test_an_adapters_error_gets_file_and_line(tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text(FULL)
    document = load_document(path)
    for key, line in [("probes.1.object", 9), ("model", 2), ("toy.load", 18)]:
        with pytest.raises(ConfigError) as caught, located(document):
            raise ConfigError(f"{key}: no such thing", "look again")
        assert str(caught.value) == f"{path}:{line}: {key}: no such thing\n  look again"
    for message in ["no key at all", "output.nothing elsewhere", "cause: unknown", "/a.b: c"]:
        with pytest.raises(ConfigError) as caught, located(document):
            raise ConfigError(message)
        assert caught.value.message == message


def test_the_schema_is_that_of_the_whole_config():
    schema = config_model(ADAPTER, HDF5).model_json_schema()
    assert {"plugin", "probes", "toy", "output"} <= set(schema["properties"])
    assert "compression" in schema["$defs"]["OutputConfig"]["properties"]
    assert schema["additionalProperties"] is False


def test_an_adapter_may_not_be_named_like_a_key():
    entry = AdapterEntry("memory", "", Section, lambda request: None)
    with pytest.raises(PluginError, match="'memory'"):
        config_model(entry, NPY)


def test_a_config_model_that_cannot_be_imported_is_the_plugins_fault():
    entry = AdapterEntry("toy", "", "no_such_module_xyz:Model", lambda request: None)
    with pytest.raises(PluginError, match="no_such_module_xyz:Model: ModuleNotFoundError"):
        config_model(entry, NPY)
