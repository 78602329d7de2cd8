from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import time

import pytest
from command_line import invoke, python, start
from toy_plugin import install

from simrun import discovery, doctor
from simrun.cli import main

# -- for programs, shells and the ill


def test_a_plan_for_programs(project):
    found = json.loads(invoke("plan", project(steps=50), "--json").stdout)
    assert (found["start"], found["end"], found["chunk"]) == (0, 50, 50)
    assert found["peak"]["host"] == sum(i["fixed"] + 50 * i["per_step"] for i in found["memory"])
    assert [probe["name"] for probe in found["probes"]] == ["x"]
    assert found["samples"] == 50 * 3 * 8


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_completion_script(shell):
    assert "_SIMRUN_COMPLETE" in invoke("completion", shell).stdout


def test_completion_knows_commands_and_plugins(installed):
    from click.shell_completion import BashComplete

    def complete(*words):
        shell = BashComplete(main, {}, "simrun", "_SIMRUN_COMPLETE")
        return [item.value for item in shell.get_completions(list(words[:-1]), words[-1])]

    assert complete("ins") == ["inspect"]
    assert "toy" in complete("run", "--plugin", "t")


def test_the_doctor_names_what_is_broken_and_what_is_missing(installed, tmp_path):
    install(tmp_path, {"ill": "ill_plugin"}, "simrun-ill")
    (tmp_path / "ill_plugin.py").write_text(
        "import simrun\nfrom simrun.sink import SinkEntry\n\n\n"
        "@simrun.hookimpl\ndef simrun_sinks():\n"
        "    return [SinkEntry('ill', 'x', 'no_such_module_xyz:Sink', 'no_such_module_xyz:R')]\n"
    )
    path = os.pathsep.join([str(tmp_path), os.environ["PYTHONPATH"]])
    child = python("-m", "simrun", "doctor", "--json", env=os.environ | {"PYTHONPATH": path})
    assert child.returncode == 3
    found = json.loads(child.stdout)
    problems = {plugin["name"]: plugin["problem"] for plugin in found["plugins"]}
    assert "No module named 'no_such_module_xyz'" in problems["ill"]
    assert problems["toy"] == problems["npy"] == ""
    assert found["memory"][0]["bytes"] > 0
    assert found["disk"] > 0
    known = {plugin["name"] for plugin in found["plugins"]}
    for name, distribution in discovery.KNOWN.items():
        if name in doctor.NEEDS:
            continue
        advice = {"what": f"plugin {name}", "how": f"pip install {distribution}"}
        assert (advice in found["missing"]) == (name not in known)


def test_a_plugin_without_its_extra_is_missing_and_not_ill(installed, tmp_path, monkeypatch):
    monkeypatch.setattr(doctor, "_problem", lambda kind, name: "boom" if name == "toy" else "")
    monkeypatch.setattr(doctor, "NEEDS", {"toy": "no-such-distribution-xyz"})
    found = doctor.examine(tmp_path)
    assert "toy" not in {plugin["name"] for plugin in found["plugins"]}
    assert not any(plugin["problem"] for plugin in found["plugins"])


def test_the_doctors_table(installed, monkeypatch):
    monkeypatch.setattr(doctor, "_problem", lambda kind, name: "boom" if name == "toy" else "")
    text = invoke("doctor", code=3).stdout
    assert re.search(r"toy +adapter +simrun-toy 1.0 +boom", text)
    assert re.search(r"npy +sink +simrun \S+ +good", text)
    assert "memory, the machine's free memory" in text


# -- progress


def test_a_log_gets_few_plain_lines(project):
    config = project(steps=2000, chunk=1, toy={"seconds_per_step": 0.0015})
    began = time.monotonic()
    lines = invoke(config).stderr.splitlines()
    seconds = time.monotonic() - began  # on a busy machine many more than 3
    assert lines[0].startswith("steps 1 to 2,000 in chunks of 1; memory up to ")
    steps = [line for line in lines if line.startswith("step ")]
    # the first commit, the end, and one each two seconds
    assert 2 <= len(steps) <= 3 + seconds / 2
    assert re.fullmatch(
        r"step 2,000 of 2,000 \(100%\), [\d,]+ steps/s, memory .*iB of .* GiB, 46.9 KiB written",
        steps[-1],
    )
    assert re.search(r"steps/s, .* left, memory", steps[0])
    assert all("\x1b" not in line for line in lines)


def test_a_terminal_gets_a_bar_and_is_left_as_it_was(project):
    config = project(chunk=10, toy={"seconds_per_step": 0.03})
    terminal, ours = pty.openpty()
    environment = os.environ | {"TERM": "xterm", "COLUMNS": "100", "LINES": "40"}
    with start(config, stdout=subprocess.PIPE, stderr=ours, env=environment) as process:
        os.close(ours)
        shown = b""
        while True:
            try:
                piece = os.read(terminal, 4096)
            except OSError:  # the other end is closed
                break
            shown += piece
            if not piece:
                break
        process.communicate(timeout=30)
    os.close(terminal)
    assert process.returncode == 0
    text = shown.decode()
    assert "━" in text
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)
    assert "opening the model (0 s)" in plain
    assert re.search(r"step \d+ of 100 ━+", plain)
    assert re.search(r"\d+% \d+\.?\d* steps/s, .* left", plain)
    assert re.search(r"memory .* [MG]iB of .* GiB, .* written, chunks of 10", plain)
    assert text.count("\x1b[?25l") == text.count("\x1b[?25h")  # the cursor is shown again
