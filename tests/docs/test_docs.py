"""Every code block of the README and the docs is executed, page by page, top to bottom.

A fence with ``title="FILE"`` is written to that file; ``console`` runs each line after ``$``;
``python`` runs in one process a page; ``sh`` and ``toml`` are checked against the repository,
``matlab``, which isn't here, against the file that it reads.
"""

import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
FENCE = re.compile(r"^```(\w+)(?: title=\"([^\"]+)\")?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
DISTRIBUTIONS = {
    tomllib.loads(path.read_text())["project"]["name"]: path.parent
    for path in ROOT.glob("**/pyproject.toml")
    if "project" in tomllib.loads(path.read_text()) and ".venv" not in str(path)
}


def blocks(page):
    return [match.groups() for match in FENCE.finditer(page.read_text())]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_pages_blocks_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    # pages that build on the README's example find it
    for _, title, text in blocks(ROOT / "README.md"):
        if title:
            (tmp_path / title).write_text(text)
    script, number = [], 0

    def run_script():
        nonlocal number
        if script:
            number += 1
            path = tmp_path / f"block{number}.py"
            path.write_text("\n".join(script))
            command([sys.executable, str(path)])
            script.clear()

    for language, title, text in blocks(page):
        if title:
            (tmp_path / title).write_text(text)
        elif language == "python":
            script.append(text)
        elif language == "console":
            run_script()
            for line in text.splitlines():
                if line.startswith("$ "):
                    words = shlex.split(line[2:])
                    assert words[0] == "simrun"
                    command([sys.executable, "-m", *words])
        elif language == "sh":
            for line in text.splitlines():
                check_shell(line)
        elif language == "text":
            # a table that simrun printed once; signatures, which test_hooks checks
            assert page.name in ("memory.md", "hooks.md")
        elif language == "yaml":
            check_yaml(text, tmp_path)
        elif language == "matlab":
            run_script()
            check_matlab(text)
        else:
            assert language == "toml", f"{page.name}: a block of {language} that nothing checks"
            tomllib.loads(text)
    run_script()


def command(words):
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0, f"{shlex.join(words)}\n{done.stdout}\n{done.stderr}"


def check_shell(line):
    words = shlex.split(line)
    if words[0] == "bash":
        assert (ROOT / words[1]).is_file()
    else:
        assert words[:2] == ["pip", "install"], line
        name, _, extra = words[2].partition("[")
        assert name in DISTRIBUTIONS
        if extra:
            project = tomllib.loads((DISTRIBUTIONS[name] / "pyproject.toml").read_text())["project"]
            assert extra.rstrip("]") in project["optional-dependencies"]


def check_matlab(text):
    """What it reads is there, by HDF5's own names."""
    import h5py

    calls = re.findall(r"(h5read|h5readatt)\('([^']+)', '([^']+)'(?:, '([^']+)')?\)", text)
    assert len(calls) == text.count("h5read")
    for function, path, place, attribute in calls:
        with h5py.File(path) as file:
            if function == "h5readatt":
                assert attribute in file[place].attrs
            else:
                assert file[place].size


SRUN, SCONTROL = '#!/bin/sh\nexec "$@"\n', '#!/bin/sh\necho "$@" >> requeued\n'


def test_the_slurm_job_goes_on_until_it_is_done(tmp_path):
    """The page's script, with what Slurm would do faked: run the step, requeue."""
    pages = [*blocks(ROOT / "README.md"), *blocks(ROOT / "docs" / "howto.md")]
    for _, title, text in pages:
        if title:
            (tmp_path / title).write_text(text)
    fakes = tmp_path / "bin"
    fakes.mkdir()
    simrun = f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m simrun "$@"\n'
    for name, text in {"srun": SRUN, "scontrol": SCONTROL, "simrun": simrun}.items():
        (fakes / name).write_text(text)
        (fakes / name).chmod(0o755)
    environment = os.environ | {"PATH": f"{fakes}:{os.environ['PATH']}", "SLURM_JOB_ID": "7"}
    # a job whose time is up at once, the same requeued too often, and one that has time
    hasty = (tmp_path / "job.sh").read_text().replace("config.yaml", "config.yaml --max-hours 1e-9")
    (tmp_path / "hasty.sh").write_text(hasty)
    requeued = tmp_path / "requeued"
    for script, restarts, code, lines in [
        ("hasty.sh", "0", 0, ["requeue 7"]),
        ("hasty.sh", "20", 75, ["requeue 7"]),
        ("job.sh", "1", 0, ["requeue 7"]),
    ]:
        done = subprocess.run(
            ["bash", script], cwd=tmp_path, capture_output=True, text=True,
            env=environment | {"SLURM_RESTART_COUNT": restarts},
        )  # fmt: skip
        assert done.returncode == code, done.stderr
        assert requeued.read_text().splitlines() == lines
    assert "#SBATCH --requeue --open-mode=append --signal=USR1@" in hasty


def check_yaml(text, folder):
    """A part of a config: put into a whole one, it is valid."""
    import yaml

    from simrun import api

    part = yaml.safe_load(text)
    whole = {
        "plugin": "nengo_dl",
        "model": "network.py:build",
        "output": {"path": str(folder / "none")},
    }
    if not part.keys() & {"steps", "duration"}:
        whole["steps"] = 10
    for key, value in part.items():
        whole[key] = whole[key] | value if isinstance(whole.get(key), dict) else value
    api.check(whole)


@pytest.mark.parametrize("page", [*PAGES, ROOT / "ARCHITECTURE.md"], ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)", page.read_text()):
        if not target.startswith("http"):
            assert (page.parent / target).exists(), target
