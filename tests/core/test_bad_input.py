"""Broken configs and model files: one clear message, the right exit code, nothing left behind."""

from __future__ import annotations

import subprocess
import sys

import pytest
from click.testing import CliRunner
from toy_plugin import install

from simrun import discovery
from simrun.cli import main

CONFIG, PLUGIN, SIMULATION = 2, 3, 4
GOOD = """\
plugin: toy
model: model.py:build
steps: 10
seed: 1
probes:
  - {name: x, object: x}
output: {path: out}
"""
LAUGHS = "a0: &a0 [ha, ha, ha, ha, ha, ha, ha, ha, ha, ha]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 30)
)
MERGES = "a0: &a0 {x: 1}\n" + "".join(
    f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 10)}]}}\n" for n in range(1, 30)
)


def swap(old, new):
    assert old in GOOD
    return GOOD.replace(old, new)


def probe(text):
    return swap("{name: x, object: x}", text)


# name: (text of the config, exit code, words that the message must hold)
FILES = {
    "tabs": (swap("  - {name", "\t- {name"), CONFIG, ["config.yaml:6", "no tabs"]),
    "tab after a key": ("plugin:\n\ttoy\n", CONFIG, ["config.yaml:2", "no tabs"]),
    "an open bracket": (swap("x}\n", "x\n"), CONFIG, ["config.yaml:7", "begins in line 6"]),
    "an open quote": (swap("model: ", "model: '"), CONFIG, ["not valid YAML", "quoted scalar"]),
    "two colons": (swap("toy", "a: b"), CONFIG, ["config.yaml:1", "colon"]),
    "bad indentation": (swap("seed", "   seed"), CONFIG, ["config.yaml:4", "indented too far"]),
    "an unknown alias": (swap("10", "*ten"), CONFIG, ["config.yaml:3", "alias 'ten'"]),
    "a key set twice": (GOOD + "seed: 2\n", CONFIG, ["config.yaml:8: seed: set twice", "yaml:4"]),
    "a nested key twice": (probe("{name: x, name: y, object: x}"), CONFIG,
                           ["config.yaml:6: probes.0.name: set twice"]),
    "a billion laughs": (LAUGHS, CONFIG, ["100,000 values", "aliases"]),
    "a billion merges": (MERGES, CONFIG, ["100,000 values", "aliases"]),
    "an alias of itself": ("plugin: &a [*a]\n", CONFIG, ["config.yaml:1", "alias of itself"]),
    "a merge of itself": ("plugin: &a {<<: *a}\n", CONFIG, ["nested too deeply"]),
    "a merge of a number": ("<<: 3\n", CONFIG, ["config.yaml:1", "<< takes a mapping"]),
    "a python object": (swap("1\n", "!!python/object/apply:os.system ['true']\n"), CONFIG,
                        ["config.yaml:4", "!!python/object/apply:os.system isn't allowed"]),
    "a tag of one's own": (swap("10", "!steps 10"), CONFIG, ["config.yaml:3", "!steps"]),
    "binary data": (swap("model.py:build", "!!binary aGVsbG8="), CONFIG, ["!!binary"]),
    "a list": ("- plugin: toy\n", CONFIG, ["config.yaml: found a list", "mapping of keys"]),
    "a word": ("toy\n", CONFIG, ["config.yaml: found a str"]),
    "nothing": ("", CONFIG, ["config.yaml: found nothing"]),
    "comments only": ("# plugin: toy\n", CONFIG, ["config.yaml: found nothing"]),
    "two documents": (GOOD + "---\n" + GOOD, CONFIG, ["config.yaml:8", "another document"]),
    "a program": ("import nengo\n\nwith nengo.Network() as net:\n    pass\n", CONFIG,
                  ["config.yaml:3", "not valid YAML"]),
    "XML": ("<config><plugin>toy</plugin></config>", CONFIG, ["found a str"]),
    "an INI file": ("[run]\nplugin = toy\n", CONFIG, ["config.yaml:2", "not valid YAML"]),
    "deep nesting": ("plugin: " + "[" * 500, CONFIG, ["nested too deeply"]),
    "fairly deep nesting": ("plugin: " + "[" * 60 + "]" * 60, CONFIG, ["over 50 levels deep"]),
    "over a megabyte": (GOOD + "#" * 2**20, CONFIG, ["larger than 256 KiB"]),
    "Latin-1": (GOOD.encode() + "# Größe".encode("latin-1"), CONFIG,
                ["config.yaml:8: not UTF-8 text (byte 0xf6)", "save it as UTF-8"]),
    "UTF-16": (GOOD.encode("utf-16"), CONFIG, ["config.yaml:1: not UTF-8"]),
    "a zero byte": (GOOD + "\0", CONFIG, ["config.yaml:8: not valid YAML: a control character"]),
    "an escape": (GOOD + "x: \x1b[31m", CONFIG, ["config.yaml:8", "control character"]),
    "a number as a key": (GOOD + "1: 2\n", CONFIG, ["config.yaml:8: a key must be text", "'1'"]),
    "a list as a key": (GOOD + "? [a, b]\n: 2\n", CONFIG, ["config.yaml:8: a key must be text"]),
    "yes as a key": (GOOD + "on: 2\n", CONFIG, ["config.yaml:8: a key must be text; found 'on'"]),
    "an endless number": (swap("10", "9" * 5000), CONFIG, ["config.yaml:3", "no valid int"]),
}  # fmt: skip
KEYS = {
    "a misspelt key": (swap("steps", "stpes"), CONFIG,
                       ["config.yaml:3: stpes: unknown key; did you mean steps?", "allowed"]),
    "an unknown key": (GOOD + "colour: red\n", CONFIG, ["config.yaml:8: colour: unknown key"]),
    "another simulator's section": (GOOD + "nengo_dl: {minibatch_size: 1}\n", CONFIG,
                                    ["config.yaml:8: nengo_dl: unknown key", "toy"]),
    "a misspelt setting": (GOOD + "toy: {balast: 3}\n", CONFIG,
                           ["config.yaml:8: toy.balast: unknown key; did you mean ballast?"]),
    "a setting of the wrong type": (GOOD + "toy:\n  ballast: much\n", CONFIG,
                                    ["config.yaml:9: toy.ballast: found 'much'", "whole number"]),
    "a setting out of range": (GOOD + "toy: {dt: -0.001}\n", CONFIG,
                               ["toy.dt: found -0.001; allowed: greater than 0"]),
    "a section that is a list": (GOOD + "toy: [1]\n", CONFIG, ["toy: found a list", "mapping"]),
    "no plugin": (swap("plugin: toy\n", ""), CONFIG, ["plugin: missing", "simrun plugins"]),
    "a plugin that is a number": (swap("toy", "7"), CONFIG, ["yaml:1: plugin: found 7", "quotes"]),
    "no model": (swap("model: model.py:build\n", ""), CONFIG, ["model: missing", "FILE.py"]),
    "no output": (swap("output: {path: out}\n", ""), CONFIG, ["output: missing", "--output"]),
    "an output without a path": (swap("{path: out}", "{sink: npy}"), CONFIG,
                                 ["config.yaml:7: output.path: missing"]),
    "an output that is empty": (swap("path: out", "path: ''"), CONFIG, ["output.path: found ''"]),
    "an output that is a path": (swap("{path: out}", "out"), CONFIG, ["output: found 'out'"]),
    "an unknown option of the sink": (swap("path: out", "path: out, compression: zip"), CONFIG,
                                      ["config.yaml:7: output.compression: unknown key"]),
    "an unknown durability": (swap("path: out", "path: out, durability: full"), CONFIG,
                              ["found 'full'; allowed: process or power"]),
    "neither steps nor duration": (swap("steps: 10\n", ""), CONFIG, ["steps: missing", "8000"]),
    "steps and duration": (GOOD + "duration: 1 s\n", CONFIG, ["yaml:8: duration", "keep one"]),
    "negative steps": (swap("10", "-10"), CONFIG, ["config.yaml:3: steps: found -10", "greater"]),
    "no steps at all": (swap("10", "0"), CONFIG, ["steps: found 0"]),
    "half a step": (swap("10", "2.5"), CONFIG, ["steps: found 2.5; allowed: a whole number"]),
    "steps in words": (swap("10", "ten"), CONFIG, ["steps: found 'ten'"]),
    "steps that are true": (swap("10", "yes"), CONFIG, ["steps: found true"]),
    "infinite steps": (swap("10", ".inf"), CONFIG, ["steps: found inf"]),
    "more steps than numbers": (swap("10", "1" + "0" * 20), CONFIG, ["steps: found 1000"]),
    "a duration without a unit": (swap("steps: 10", "duration: 8"), CONFIG,
                                  ["config.yaml:3: duration: found 8", "text"]),
    "a duration with an odd unit": (swap("steps: 10", "duration: 8 parsec"), CONFIG,
                                    ["duration: found '8 parsec'", "50 ms"]),
    "a duration of nothing": (swap("steps: 10", "duration: 0 s"), CONFIG, ["found '0 s'"]),
    "a duration where steps have none": (swap("steps: 10", "duration: 8 s") + "toy: {dt: null}\n",
                                         CONFIG, ["config.yaml:3: duration", "steps"]),
    "a negative seed": (swap("seed: 1", "seed: -1"), CONFIG, ["config.yaml:4: seed: found -1"]),
    "a seed in words": (swap("seed: 1", "seed: lucky"), CONFIG, ["seed: found 'lucky'"]),
    "a chunk of nothing": (GOOD + "chunk: 0\n", CONFIG, ["chunk: found 0; allowed: auto"]),
    "a chunk in words": (GOOD + "chunk: large\n", CONFIG, ["chunk: found 'large'; allowed: auto"]),
    "a size that could mean two": (GOOD + "memory: {host: 4G}\n", CONFIG,
                                   ["config.yaml:8: memory.host: found '4G'", "4GiB", "4GB"]),
    "a negative size": (GOOD + "memory: {host: -1GiB}\n", CONFIG, ["memory.host: found '-1GiB'"]),
    "an unknown memory": (GOOD + "memory: {gpu: 4GiB}\n", CONFIG, ["memory.gpu: unknown key"]),
    "a budget for nothing": (GOOD + "memory: {host: 1MiB}\n", CONFIG,
                             ["budget is too small", "1.00 MiB", "memory.host"]),
    "more samples than disk": (swap("10", "4_000_000_000_000_000"), CONFIG,
                               ["doesn't fit on the disk", "free", "sample_every"]),
    "checkpoints every 10": (GOOD + "checkpoint: {every: 10}\n", CONFIG,
                             ["checkpoint.every: found 10"]),
    "arguments in a list": (GOOD + "model_args: [1, 2]\n", CONFIG, ["model_args: found a list"]),
    "observers in a word": (GOOD + "observers: mail\n", CONFIG, ["observers: found 'mail'"]),
    "several faults": (swap("10", "-10").replace("seed: 1", "sede: 1"), CONFIG,
                       ["config.yaml:3: steps", "config.yaml:4: sede"]),
}  # fmt: skip
PROBES = {
    "probes in a mapping": (swap("  - {name: x, object: x}", "  x: {object: x}"), CONFIG,
                            ["config.yaml:5: probes: found a mapping; allowed: a list"]),
    "a probe that is a word": (probe("x"), CONFIG, ["config.yaml:6: probes.0: found 'x'"]),
    "a probe without a name": (probe("{object: x}"), CONFIG, ["yaml:6: probes.0.name: missing"]),
    "a probe of nothing": (probe("{name: x}"), CONFIG, ["config.yaml:6: probes.0.object: missing"]),
    "a probe of what isn't there": (probe("{name: x, object: y}"), CONFIG,
                                    ["config.yaml:6: probes.0.object: found 'y'"]),
    "two probes of one name": (GOOD.replace("out}", "out}").replace(
        "object: x}\n", "object: x}\n  - {name: x, object: step}\n"), CONFIG,
        ["config.yaml:7: probes.1.name: 'x' is the name of probes.0 already"]),
    "a name that is a path": (probe("{name: ../x, object: x}"), CONFIG, ["name: found '../x'"]),
    "an endless name": (probe(f"{{name: {'x' * 300}, object: x}}"), CONFIG, ["200 characters"]),
    "a misspelt key of a probe": (probe("{name: x, object: x, sample_evry: 2}"), CONFIG,
                                  ["sample_evry: unknown key; did you mean sample_every?"]),
    "an unknown reduction": (probe("{name: x, object: x, reduce: median}"), CONFIG,
                             ["reduce: found 'median'; allowed: last, mean, sum or max"]),
    "a period of nothing": (probe("{name: x, object: x, sample_every: 0}"), CONFIG,
                            ["probes.0.sample_every: found 0", "at least 1 step"]),
    "a negative period": (probe("{name: x, object: x, sample_every: -5 ms}"), CONFIG,
                          ["probes.0.sample_every: found '-5 ms'"]),
    "a period shorter than dt": (probe("{name: x, object: x, sample_every: 0.1 ms}"), CONFIG,
                                 ["config.yaml:6: probes.0.sample_every", "at least one step"]),
    "a period in a list": (probe("{name: x, object: x, sample_every: [1]}"), CONFIG,
                           ["probes.0.sample_every"]),
    "no probes": (probe("").replace("  - \n", ""), CONFIG, ["probes", "nothing is recorded"]),
}  # fmt: skip
MODELS = {
    "no such file": ({"model": "nowhere.py:build"}, "", CONFIG,
                     ["config.yaml:2: model: no file", "nowhere.py"]),
    "a misspelt file": ({"model": "modle.py:build"}, "", CONFIG, ["did you mean model.py?"]),
    "no function named": ({"model": "model.py"}, "", CONFIG, ["'model.py' names no function"]),
    "an empty function": ({"model": "'model.py:'"}, "", CONFIG, ["names no function"]),
    "an expression": ({"model": "model.py:build()"}, "", CONFIG, ["names no function"]),
    "no such function": ({"model": "model.py:make"}, "def build(): pass", CONFIG,
                         ["config.yaml:2: model: model.py has no function 'make'", "build"]),
    "a misspelt function": ({"model": "model.py:biuld"}, "def build(): pass", CONFIG,
                            ["did you mean build?"]),
    "not a function": ({}, "build = 3", CONFIG, ["is a int, not a function"]),
    "no such module": ({"model": "no_such_module_xyz:build"}, "", CONFIG,
                       ["config.yaml:2: model: no module named 'no_such_module_xyz'", "FILE.py"]),
    "a directory": ({"model": "folder.py:build"}, "", CONFIG, ["model: no file", "folder.py"]),
    "a syntax error": ({}, "x = 1\ndef build(:\n", CONFIG, ["model.py, line 2", "invalid syntax"]),
    "bad indentation": ({}, "def build():\nreturn 1\n", CONFIG, ["model.py, line 2", "indented"]),
    "an import that is missing": ({}, "import no_such_module_abc\n", SIMULATION,
                                  ["ModuleNotFoundError", "no_such_module_abc", "line 1"]),
    "raises when imported": ({}, "x = 1\n1 / 0\n", SIMULATION,
                             ["ZeroDivisionError", "model.py, line 2"]),
    "exits when imported": ({}, "import sys\nsys.exit(0)\n", SIMULATION, ["SystemExit"]),
    "raises when called": ({}, "def build():\n    return {}['neurons']\n", SIMULATION,
                           ["model.py:build raised KeyError: 'neurons'", "line 2"]),
    "raises many lines": ({}, "def build():\n    raise ValueError('a\\nTraceback\\nb')\n",
                          SIMULATION, ["ValueError: a"]),
    "never ends calling itself": ({}, "def build():\n    return build()\n", SIMULATION,
                                  ["RecursionError"]),
    "returns nothing": ({}, "def build():\n    pass\n", SIMULATION, ["returned None", "return"]),
    "returns something else": ({}, "def build():\n    return 3\n", CONFIG,
                               ["config.yaml:2: model: model.py:build returned a int"]),
    "an argument too many": ({"model_args": "{n: 1, m: 2}"}, "def build(n): pass", CONFIG,
                             ["model_args", "unexpected keyword argument 'm'", "(n)"]),
    "an argument too few": ({}, "def build(n): pass", CONFIG,
                            ["model_args", "missing a required argument: 'n'"]),
    "not UTF-8": ({}, b"name = 'Gr\xf6\xdfe'\n", CONFIG, ["model.py", "utf-8"]),
    "more than memory holds": ({"model_args": "{n: 4_000_000_000_000}"}, "", SIMULATION,
                               ["toy, opening the model, raised", "Unable to allocate"]),
}  # fmt: skip
PLUGINS = {
    "an unknown simulator": (
        swap("toy", "spice_netlist_xyz"),
        ["isn't installed", "simrun plugins"],
    ),
    "a misspelt simulator": (swap("toy", "toyy"), ["did you mean toy?"]),
    "one that isn't installed": (swap("toy", "nengo"), ["pip install simrun-nengo"]),
    "one that is broken": (swap("toy", "broken"), ["simrun-broken 1.0", "can't be imported: boom"]),
    "a sink that is none": (
        swap("path: out", "path: out, sink: toy"),
        ["'toy' isn't a sink", "plugin: toy"],
    ),
    "an unknown sink": (
        swap("path: out", "path: out, sink: papyrus"),
        ["sink 'papyrus' isn't inst"],
    ),
    "an unknown observer": (
        GOOD + "observers: [mail_xyz]\n",
        ["observer 'mail_xyz' isn't install"],
    ),
    "a sink for a simulator": (
        swap("plugin: toy", "plugin: npy"),
        ["'npy' isn't a simulator", "output: {sink: npy}"],
    ),
    "a broken observer": (GOOD + "observers: [broken]\n", ["simrun-broken 1.0"]),
}


@pytest.fixture
def bad(project, tmp_path, installed):
    """Runs a bad config by both commands."""

    def run(config, code, words, *arguments):
        content = config if isinstance(config, bytes) else config.encode()
        (tmp_path / "config.yaml").write_bytes(content)
        before = sorted(path.name for path in tmp_path.iterdir() if path.name != "__pycache__")
        for command in ("plan", "run"):
            result = CliRunner().invoke(main, [command, "config.yaml", *arguments])
            check(result.exit_code, result.stdout, result.stderr, code, words)
        after = sorted(path.name for path in tmp_path.iterdir() if path.name != "__pycache__")
        assert after == before

    return run


def check(found_code, stdout, stderr, code, words):
    assert found_code == code, stderr
    too_much = "budget is too small" in stderr or "doesn't fit on the disk" in stderr
    assert stdout == "" or too_much  # the plan's table says where it goes
    first, *others = stderr.splitlines()
    assert first.startswith("error: ")
    assert all(line.startswith("  ") for line in others)  # one message, its hint indented
    assert "Traceback" not in stderr
    assert len(stderr) < 2000
    for word in words:
        assert word in stderr


@pytest.mark.parametrize("name", FILES)
def test_files(bad, name):
    bad(*FILES[name])


@pytest.mark.parametrize("name", KEYS)
def test_keys(bad, name):
    bad(*KEYS[name])


@pytest.mark.parametrize("name", PROBES)
def test_probes(bad, name):
    bad(*PROBES[name])


@pytest.mark.parametrize("name", MODELS)
def test_models(bad, name, tmp_path):
    keys, source, code, words = MODELS[name]
    (tmp_path / "folder.py").mkdir()
    if source:
        content = source if isinstance(source, bytes) else source.encode()
        (tmp_path / "model.py").write_bytes(content)
    config = GOOD.replace("model: model.py:build", f"model: {keys.get('model', 'model.py:build')}")
    if "model_args" in keys:
        config += f"model_args: {keys['model_args']}\n"
    bad(config, code, words)


@pytest.mark.parametrize("name", PLUGINS)
def test_plugins(bad, name, installed, monkeypatch):
    # whatever is installed where these tests run: simrun alone, and what they install
    every = discovery.discovered
    monkeypatch.setattr(
        discovery, "discovered", lambda: [p for p in every() if p.name not in discovery.KNOWN]
    )
    (installed / "broken_for_tests.py").write_text("raise type('boom', (BaseException,), {})()")
    install(installed, {"broken": "broken_for_tests"}, "simrun-broken")
    text, words = PLUGINS[name]
    bad(text, PLUGIN, words)


def test_a_config_that_is_not_there(bad):
    for name in ["nowhere.yaml", "nowhere/config.yaml", "config.yaml/config.yaml"]:
        result = CliRunner().invoke(main, ["run", name])
        check(result.exit_code, result.stdout, result.stderr, CONFIG, [name])


def test_a_config_that_is_a_directory(project):
    result = CliRunner().invoke(main, ["."])
    check(result.exit_code, result.stdout, result.stderr, CONFIG, ["is a directory"])


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("model.py", ["output.path", "model.py is a file"]),
        ("model.py/out", ["output.path", "is a file, or in one", "name a folder"]),
        ("/proc/simrun/out", ["output.path", "can't write to"]),
        ("full", ["output.path", "isn't empty and is no run of simrun"]),
    ],
)
def test_outputs_that_can_not_be(project, tmp_path, path, words):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.tex").write_text("years of work")
    (tmp_path / "config.yaml").write_text(swap("path: out", f"path: {path}"))
    before = sorted(tmp_path.rglob("*.*"))
    result = CliRunner().invoke(main, ["config.yaml"])
    check(result.exit_code, result.stdout, result.stderr, CONFIG, words)
    assert [p for p in sorted(tmp_path.rglob("*.*")) if "__pycache__" not in p.parts] == before


def test_an_output_of_another_config(project, tmp_path):
    (tmp_path / "config.yaml").write_text(GOOD)
    assert CliRunner().invoke(main, ["config.yaml"]).exit_code == 0
    kept = (tmp_path / "out" / "manifest.json").read_bytes()
    result = CliRunner().invoke(main, ["config.yaml", "--set", "seed=2"])
    words = ["holds a run of another config", "seed: was 1, is 2", "output.path"]
    check(result.exit_code, result.stdout, result.stderr, CONFIG, words)
    assert (tmp_path / "out" / "manifest.json").read_bytes() == kept


def test_an_override_that_is_wrong(bad):
    bad(GOOD, CONFIG, ["--set: seed: found 'x'"], "--set", "seed=x")
    bad(GOOD, CONFIG, ["--set: probes is a list of 1"], "--set", "probes.1.name=x")
    bad(GOOD, CONFIG, ["--output: output.path"], "--output", "\0")


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        (*KEYS["a misspelt key"],),
        (*FILES["a billion laughs"],),
        (*FILES["deep nesting"],),
        (PLUGINS["one that is broken"][0], PLUGIN, PLUGINS["one that is broken"][1]),
    ],
)
def test_the_real_program(project, tmp_path, installed, text, code, words):
    (installed / "broken_for_tests.py").write_text("raise type('boom', (BaseException,), {})()")
    install(installed, {"broken": "broken_for_tests"}, "simrun-broken")
    (tmp_path / "config.yaml").write_text(text)
    done = subprocess.run(
        [sys.executable, "-c", "from simrun.cli import main; main()", "config.yaml"],
        capture_output=True,
        text=True,
    )
    check(done.returncode, done.stdout, done.stderr, code, words)
    assert not (tmp_path / "out").exists()


def test_the_corpus_is_large_enough_and_its_base_is_good(project, tmp_path):
    assert sum(map(len, (FILES, KEYS, PROBES, MODELS, PLUGINS))) >= 100
    (tmp_path / "config.yaml").write_text(GOOD)
    result = CliRunner().invoke(main, ["config.yaml"])
    assert result.exit_code == 0, result.output
