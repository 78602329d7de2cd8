from __future__ import annotations

import gc
import inspect
import subprocess
import sys
import types
import weakref

import pytest
import toy_plugin
from toy_plugin import install

import simrun
from simrun import discovery, hookspecs
from simrun.adapter import AdapterEntry
from simrun.errors import PluginError
from simrun.plugins import describe, implementations, notify, select
from simrun.sink import SinkEntry


def module(name="lab", /, **functions):
    """A plugin module whose functions are all marked as hooks."""
    made = types.ModuleType(name, "A plugin of a lab.")
    for key, function in functions.items():
        setattr(made, key, simrun.hookimpl(function))
    return made


def adapters(*names):
    return lambda: [AdapterEntry(name, "", toy_plugin.ToyConfig, toy_plugin.Toy) for name in names]


def fault(*args, **keywords):
    with pytest.raises(PluginError) as caught:
        select(*args, **keywords)
    assert caught.value.exit_code == 3
    return str(caught.value)


# -- discovery


def test_discovery_imports_nothing(installed):
    install(installed, {"heavy": "no_such_module_at_all"}, "heavy-thing")
    code = (
        "import sys; from simrun.discovery import discovered\n"
        "names = {r.name for r in discovered()}\n"
        "assert {'toy', 'heavy'} <= names, names; assert 'toy_plugin' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_discovered_plugins_know_their_distribution(installed):
    (toy,) = [record for record in discovery.discovered() if record.name == "toy"]
    assert (toy.distribution, toy.version) == ("simrun-toy", "1.0")


def test_the_first_distribution_of_a_name_on_the_path_counts(installed, tmp_path, monkeypatch):
    older = install(tmp_path / "older", {"toy": "older_toy"})
    monkeypatch.setattr(sys, "path", [*sys.path, str(older)])
    (toy,) = [record for record in discovery.discovered() if record.name == "toy"]
    assert toy.entry_point.value == "toy_plugin"


@pytest.mark.parametrize("content", ["[simrun]\nnonsense\n", "[simrun]\n= x\n", "[simrun]\nx ="])
def test_unreadable_metadata_breaks_only_itself(installed, content):
    folder = install(installed, {}, "broken-thing")
    (folder / "broken_thing-1.0.dist-info" / "entry_points.txt").write_text(content)
    assert select("toy", "npy").adapter.name == "toy"
    broken = [row for row in describe() if row.status != "ok"]
    assert len(broken) == 1
    assert "broken_thing-1.0" in broken[0].distribution or broken[0].distribution == "broken-thing"


# -- selection


def test_a_run_gets_what_it_names_and_a_manager_of_its_own(installed):
    first, second = select("toy", "npy"), select("toy", "npy")
    assert first.adapter.name == "toy"
    assert first.sink.name == "npy"
    assert first.manager is not second.manager
    assert {name for name, _ in first.manager.list_name_plugin()} == {"simrun", "toy"}


def test_nothing_else_is_imported(installed):
    (installed / "bystander.py").write_text("raise SystemExit('imported')")
    install(installed, {"bystander": "bystander"}, "by-stander")
    select("toy", "npy")
    assert "bystander" not in sys.modules


def test_reading_needs_no_adapter():
    assert select(None, "npy").adapter is None


def test_plugins_win_over_the_defaults(installed):
    mine = module(simrun_estimate_memory=lambda steps: ("mine", steps))
    hook = select("toy", "npy", extra=[mine]).manager.hook
    assert hook.simrun_estimate_memory(simulation=None, steps=5) == ("mine", 5)


def test_wrappers_go_around_the_defaults(installed):
    def simrun_execute_chunk(chunk):
        return (yield) + chunk

    mine = types.ModuleType("wraps")
    mine.simrun_execute_chunk = simrun.hookimpl(wrapper=True)(simrun_execute_chunk)
    inner = module(simrun_execute_chunk=lambda: 100)
    hook = select("toy", "npy", extra=[mine, inner]).manager.hook
    assert hook.simrun_execute_chunk(simulation=None, chunk=7) == 107


def test_an_adapter_given_as_an_object_need_not_be_installed():
    assert select("mine", "npy", extra=[module(simrun_adapters=adapters("mine"))]).adapter


def test_one_module_may_stand_behind_two_names(installed):
    install(installed, {"toy_too": "toy_plugin"}, "toy-too")
    assert select("toy", "npy", ["toy_too"]).adapter


def test_two_observers_of_one_class():
    class Observer:
        @simrun.hookimpl
        def simrun_run_ended(self, record):
            record.append(self)

    seen = []
    one, two = Observer(), Observer()
    manager = select(None, "npy", extra=[one, two]).manager
    assert notify(manager, "simrun_run_ended", seen) == []
    assert seen == [two, one]


# -- missing


@pytest.mark.parametrize(
    ("name", "distribution"),
    [
        ("nengo", "simrun-nengo"),
        ("torch_crossbar", "simrun-torch-crossbar"),
        ("nengo_dl", "simrun-nengo-dl"),
        ("zarr", "simrun-storage-zarr"),
    ],
)
def test_a_missing_plugin_is_answered_with_the_pip_line(monkeypatch, name, distribution):
    monkeypatch.setattr(discovery, "discovered", list)
    assert fault(name, "npy") == f"adapter {name!r} isn't installed\n  pip install {distribution}"
    assert f"sink {name!r}" in fault(None, name)


@pytest.mark.parametrize("name", ["Toy", "tyo", "toyy"])
def test_a_misspelt_plugin_is_answered_with_the_near_match(installed, name):
    assert "did you mean toy?" in fault(name, "npy")


def test_a_misspelt_plugin_that_is_missing_too(monkeypatch):
    monkeypatch.setattr(discovery, "discovered", list)
    assert "did you mean nengo_dl? It isn't installed either: pip install simrun-nengo-dl" in fault(
        "nengo-dl", "npy"
    )


def test_an_unknown_plugin_is_answered_with_where_to_look(installed):
    assert "`simrun plugins` lists what is installed" in fault("quantum_annealer", "npy")


def test_an_adapter_asked_for_as_a_sink(installed):
    text = fault(None, "toy")
    assert "'toy' isn't a sink" in text
    assert "plugin: toy" in text


@pytest.mark.parametrize(
    ("version", "advice"), [(0, "upgrade the plugin"), (2, "pip install --upgrade simrun")]
)
def test_a_plugin_for_other_hooks_is_refused_by_name(version, advice):
    plugin = module("of_another_time", simrun_run_ended=lambda record: None)
    plugin.SIMRUN_HOOKS = version
    with pytest.raises(PluginError) as caught:
        select(None, "npy", extra=[plugin])
    assert "of_another_time" in caught.value.message
    assert f"version {version} of simrun's hooks, this simrun has version 1" in caught.value.message
    assert advice in caught.value.hint
    plugin.SIMRUN_HOOKS = hookspecs.VERSION
    select(None, "npy", extra=[plugin])


# -- broken


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("import no_such_module", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("raise SystemExit(3)", "SystemExit: 3"),
        ("1 / 0", "ZeroDivisionError"),
        ("def f(:", "SyntaxError"),
        ("class E(BaseException): pass\nraise E('odd')", "E: odd"),
        ("", "implements no hook of simrun"),
        ("import simrun\n@simrun.hookimpl\ndef simrun_adapter(): pass",
         "there is no hook 'simrun_adapter'\n  did you mean simrun_adapters?"),
        ("import simrun\n@simrun.hookimpl\ndef simrun_adapters(): return 1 / 0",
         "simrun_adapters raised ZeroDivisionError"),
        ("import simrun\n@simrun.hookimpl\ndef simrun_adapters(): return ['toy']",
         "simrun_adapters returned 'toy'\n  return a list of AdapterEntry"),
        ("import simrun\n@simrun.hookimpl\ndef simrun_adapters(): return None", "TypeError"),
        ("import simrun\n@simrun.hookimpl\ndef simrun_run_ended(record=None): pass",
         "simrun_run_ended: argument 'record' has a default; pluggy would never pass it"),
        ("import simrun\n@simrun.hookimpl\ndef simrun_execute_chunk(simulation, chnk): pass",
         "simrun_execute_chunk: the hook has no argument 'chnk'; did you mean chunk?\n"
         "  allowed: simrun_execute_chunk(simulation, chunk), or fewer of them"),
        ("import simrun\n@simrun.hookimpl\ndef simrun_run_ended(*record): pass",
         "argument '*record' would never be passed"),
        ("import simrun\n@simrun.hookimpl\ndef simrun_run_ended(*, record): pass",
         "argument 'record' would never be passed"),
        ("def simrun_run_ended(record): pass", "simrun_run_ended isn't marked as a hook"),
        ("import simrun\n@simrun.hookimpl(wrapper=True)\ndef simrun_run_ended(record): yield",
         "simrun_run_ended can't be wrapped"),
        ("import simrun\n@simrun.hookimpl(specname='simrun_run_end')\ndef end(record): pass",
         "did you mean simrun_run_ended?"),
    ],
)  # fmt: skip
def test_a_broken_plugin_fails_the_run_that_selects_it_alone(installed, source, reason):
    (installed / "broken_lab.py").write_text(source)
    install(installed, {"lab": "broken_lab"}, "lab-thing")
    sys.modules.pop("broken_lab", None)
    text = fault("toy", "npy", ["lab"])
    assert text.startswith("plugin 'lab' (lab-thing 1.0)")
    assert reason in text
    assert select("toy", "npy").adapter
    rows = {row.name: row for row in describe()}
    assert rows["toy"].status == "ok"
    assert rows["lab"].status.startswith("plugin 'lab' (lab-thing 1.0)")


def test_two_distributions_with_a_plugin_of_one_name(installed):
    install(installed, {"toy": "toy_plugin"}, "other-toy")
    text = fault("toy", "npy")
    assert "two distributions offer a plugin 'toy': " in text
    assert "simrun-toy 1.0" in text
    assert "other-toy 1.0" in text
    assert {row.status != "ok" for row in describe() if row.name == "toy"} == {True}


def test_two_plugins_with_an_adapter_of_one_name(installed):
    install(installed, {"lab": "toy_plugin_again"}, "lab-thing")
    (installed / "toy_plugin_again.py").write_text("from toy_plugin import simrun_adapters")
    text = fault("toy", "npy", ["lab"])
    assert text.startswith("simrun_adapters: 'toy' is offered by plugin 'toy' (simrun-toy 1.0) and")


def test_a_second_npy_sink_is_refused():
    sink = SinkEntry("npy", "", lambda r: None, lambda r: None)
    mine = module(simrun_sinks=lambda: [sink])
    assert "'npy' is offered by simrun itself and by plugin 'lab'" in fault(None, "npy", (), [mine])


def test_two_modules_of_one_name():
    one, two = (module(simrun_run_ended=lambda record: None) for _ in range(2))
    assert "a plugin named 'lab' is registered already" in fault(None, "npy", (), [one, two])


def test_objects_that_compare_equal_are_told_apart_from_nothing():
    class Vague:
        @simrun.hookimpl
        def simrun_run_ended(self, record):
            pass

        def __eq__(self, other):
            return True

        __hash__ = None

    assert "can't be told from another plugin" in fault(None, "npy", (), [Vague(), Vague()])


def test_a_class_is_no_plugin():
    assert "is a class" in fault(None, "npy", (), [toy_plugin.Toy])


def test_properties_of_an_object_are_left_alone():
    class Watcher:
        @property
        def live(self):
            raise AssertionError("evaluated")

        @simrun.hookimpl
        def simrun_run_ended(self, record):
            pass

    assert list(implementations(Watcher(), "x")) == ["simrun_run_ended"]


def test_every_hook_can_be_implemented_with_its_arguments_as_specified():
    specs = [n for n, f in vars(hookspecs).items() if hasattr(f, "simrun_spec")]
    assert len(specs) == 8
    for name in specs:
        arguments = ", ".join(inspect.signature(getattr(hookspecs, name)).parameters)
        mine = module(**{name: eval(f"lambda {arguments}: None")})
        assert list(implementations(mine, "x")) == [name]


# -- observers


def test_a_failing_observer_keeps_no_other_from_being_told():
    def fails(record):
        raise ValueError("broken")

    def leaves(record):
        raise SystemExit(1)

    told = []
    plugins = [
        module("a", simrun_run_ended=lambda record: told.append(record)),
        module("b", simrun_run_ended=fails),
        module("c", simrun_run_ended=leaves),
        module("d", simrun_run_ended=lambda record: told.append(record)),
    ]
    manager = select(None, "npy", extra=plugins).manager
    failures = notify(manager, "simrun_run_ended", "the end")
    assert told == ["the end"] * 2
    assert sorted((name, str(error)) for name, error in failures) == [
        ("b", "broken"),
        ("c", "SystemExit: 1"),
    ]


def test_an_observer_may_take_no_argument_and_interrupts_go_through():
    told = []
    manager = select(None, "npy", extra=[module(simrun_run_ended=lambda: told.append(1))]).manager
    assert notify(manager, "simrun_run_ended", "x") == []
    assert told == [1]

    def interrupts(record):
        raise KeyboardInterrupt

    manager = select(None, "npy", extra=[module(simrun_run_ended=interrupts)]).manager
    with pytest.raises(KeyboardInterrupt):
        notify(manager, "simrun_run_ended", "x")


# -- listing


def test_describe_lists_kinds_and_summaries(installed):
    (installed / "lab_notify.py").write_text(
        '"""Sends mail."""\nimport simrun\n@simrun.hookimpl\ndef simrun_run_ended(record): pass\n'
    )
    (installed / "lab_policy.py").write_text(
        '"""Own policy.\n\nMore."""\nimport simrun\n'
        "@simrun.hookimpl\ndef simrun_recover_oom(event): pass\n"
    )
    install(installed, {"notify": "lab_notify", "policy": "lab_policy"}, "lab-thing")
    rows = {row.name: (row.kind, row.summary, row.distribution, row.status) for row in describe()}
    assert rows["toy"] == ("adapter", "counts in integers, for tests", "simrun-toy", "ok")
    assert rows["npy"][0] == "sink"
    assert rows["notify"] == ("observer", "Sends mail.", "lab-thing", "ok")
    assert rows["policy"] == ("extension", "Own policy.", "lab-thing", "ok")


def test_a_plugin_that_prints_does_not_reach_stdout(installed, capsys):
    (installed / "loud.py").write_text("print('hello')\nfrom toy_plugin import *\n1 / 0")
    install(installed, {"loud": "loud"}, "loud-thing")
    describe()
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "hello" in captured.err


def test_a_manager_holds_on_to_nothing_when_its_run_is_over(installed):
    manager = weakref.ref(select("toy", "npy").manager)
    gc.collect()
    assert manager() is None
