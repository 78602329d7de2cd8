"""What `simrun new-plugin` writes installs, and passes its own tests at once."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from click.testing import CliRunner

from simrun.cli import main


def new_plugin(*arguments):
    return CliRunner().invoke(main, ["new-plugin", *map(str, arguments)])


@pytest.mark.parametrize("kind", ["adapter", "sink"])
def test_a_new_plugin_passes_its_own_tests(kind, tmp_path):
    made = new_plugin(kind, f"lab_{kind}", "--into", tmp_path)
    assert made.exit_code == 0, made.output
    package = tmp_path / f"simrun-lab-{kind}"
    assert str(package) in made.output
    site = install(package, tmp_path / "site")
    path = os.pathsep.join([str(site), *(p for p in sys.path if "tests" not in Path(p).parts)])
    environment = os.environ | {"PYTHONPATH": path}
    listed = subprocess.run([sys.executable, "-m", "simrun", "plugins"], capture_output=True,
                            text=True, env=environment)  # fmt: skip
    assert f"lab_{kind}" in listed.stdout
    # nengo brings a pytest plugin that pytest 9 refuses
    words = [sys.executable, "-m", "pytest", "-qrs", "-p", "no:nengo", "-p", "no:cacheprovider"]
    done = subprocess.run(words, cwd=package, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
    skipped = [line for line in done.stdout.splitlines() if line.startswith("SKIPPED")]
    assert all("no disk can be mounted" in line for line in skipped), skipped


def install(package, site):
    """As pip does; by pip itself where the build backend is installed."""
    if find_spec("hatchling"):
        words = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-index",
                 "--no-build-isolation", "--target", site, package]  # fmt: skip
        subprocess.run(words, check=True)
        return site
    info = site / f"{package.name.replace('-', '_')}-0.1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package.name}\nVersion: 0.1.0\n")
    lines = (package / "pyproject.toml").read_text().partition("entry-points.simrun]\n")[2]
    (info / "entry_points.txt").write_text("[simrun]\n" + lines.splitlines()[0].replace('"', ""))
    for source in (package / "src").iterdir():
        (site / source.name).symlink_to(source)
    return site


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("My-Lab", "small letters, digits"),
        ("2d", "small letters, digits"),
        ("steps", "has a meaning in every config"),
        ("npy", "has a meaning in every config"),
    ],
)
def test_names_that_no_plugin_can_have(name, words, tmp_path):
    made = new_plugin("adapter", name, "--into", tmp_path)
    assert made.exit_code == 2
    assert words in made.output
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_overwritten(tmp_path):
    (tmp_path / "simrun-lab").mkdir()
    made = new_plugin("sink", "lab", "--into", tmp_path)
    assert made.exit_code == 2
    assert "exists" in made.output
    assert list((tmp_path / "simrun-lab").iterdir()) == []
