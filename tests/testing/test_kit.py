"""The kit itself: light to load, and honest about what it can't do."""

import subprocess
import sys

import pytest

from simrun.testing import faults
from simrun.testing.power import PowerCut


def loaded(statement):
    """Names of the modules that a fresh interpreter has after a statement."""
    program = f"{statement}\nimport sys\nprint(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    return set(done.stdout.split())


def test_what_every_pytest_run_loads_is_light():
    without = loaded("import pytest, pluggy")
    extra = loaded("import pytest, pluggy, simrun.testing.pytest_plugin") - without
    assert extra == {
        "simrun", "simrun.hookspecs", "simrun.testing", "simrun.testing.pytest_plugin",
    }  # fmt: skip


def test_the_package_needs_pytest_only_when_a_suite_is_asked_for():
    assert "pytest" not in loaded("import simrun.testing, simrun.testing.faults")
    assert "pytest" in loaded("from simrun.testing import AdapterSuite")
    with pytest.raises(ImportError):
        from simrun.testing import NoSuchSuite  # noqa: F401


def test_an_unknown_label_is_refused():
    with pytest.raises(ValueError, match="before append"):
        faults.kill_at("somewhere")


def test_a_power_cut_takes_what_was_not_synced(tmp_path):
    import os

    folder = tmp_path / "disk"
    (folder / "inner").mkdir(parents=True)
    cut = PowerCut(folder)

    def sync(path):
        descriptor = os.open(path, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)

    with cut.watching():
        for name in ("synced", "unnamed", "inner/deep"):
            (folder / name).write_bytes(b"first")
            sync(folder / name)
        (folder / "unsynced").write_bytes(b"lost")
        (folder / "unnamed").rename(tmp_path / "away")
        sync(folder)
        sync(folder / "inner")
        (tmp_path / "away").rename(folder / "unnamed")
        with (folder / "synced").open("ab") as file:
            file.write(b" and second")
    cut.leave(tmp_path / "left")
    left = {path.relative_to(tmp_path / "left").as_posix(): path.read_bytes()
            for path in (tmp_path / "left").rglob("*") if path.is_file()}  # fmt: skip
    assert left == {"synced": b"first", "unsynced": b"", "inner/deep": b"first"}


def test_a_line_of_code_fails_once(tmp_path):
    path = tmp_path / "code.py"
    path.write_text("def f():\n    x = 1\n    y = 2\n    return x + y\n")
    namespace = {}
    exec(compile(path.read_text(), str(path), "exec"), namespace)
    with faults.failing_line([path]) as lines:
        assert namespace["f"]() == 3
    assert [number for _, number in lines.seen] == [2, 3, 4]
    with faults.failing_line([path], 2), pytest.raises(MemoryError, match="line 3"):
        namespace["f"]()
    assert namespace["f"]() == 3
