"""`simrun plot`: what is drawn of each kind of probe, and how little is read for it."""

import sys

import numpy as np
import pytest
from click.testing import CliRunner

import simrun
from simrun import plotting
from simrun.cli import main
from simrun.records import ProbeSpec


class Recorded:
    """A run of one probe whose array counts what is read of it."""

    dt = 0.001

    def __init__(self, values, **changes):
        self.values, self.read = values, 0
        _, *shape = values.shape
        dims = tuple(f"d{i}" for i in range(len(shape)))
        spec = {"name": "p", "shape": tuple(shape), "dtype": values.dtype, "dims": dims,
                "period": 1.0, "reduce": "last", "attrs": {}} | changes  # fmt: skip
        self.probes = (ProbeSpec(**spec),)
        self.shape = values.shape

    def probe(self, name):
        return self.probes[0]

    def samples(self, name):
        return len(self.values)

    def times(self, name):
        return np.arange(1, len(self.values) + 1) * self.dt

    def __getitem__(self, name):
        outer = self

        class Counted:
            def __getitem__(self, key):
                part = np.array(outer.values[key])
                outer.read += part.nbytes
                return part

        return Counted()


def spikes(count, size):
    rng = np.random.default_rng(1)
    return np.where(rng.random((count, size)) < 0.1, np.float32(1000), np.float32(0))


@pytest.mark.parametrize(
    ("values", "changes", "kind"),
    [
        (spikes(50, 20), {}, "raster"),
        (spikes(50, 20), {"attrs": {"format": "events"}}, "raster"),
        (spikes(50, 20), {"reduce": "mean", "period": 5.0}, "heat"),
        (np.linspace(0, 1, 150).reshape(50, 3), {}, "lines"),
        (np.linspace(0, 1, 50), {}, "lines"),
        (np.linspace(0, 1, 1000).reshape(50, 4, 5), {}, "heat"),
    ],
)
def test_the_kind_follows_from_the_values(values, changes, kind):
    found = plotting.panel(Recorded(values, **changes), "p", 0.0, None)
    assert found.kind == kind
    np.testing.assert_array_equal(found.values, values.reshape(50, -1))


def test_a_range_of_time():
    values = np.arange(100.0)
    found = plotting.panel(Recorded(values), "p", 0.011, 0.02)
    np.testing.assert_array_equal(found.values[:, 0], np.arange(10, 20))
    np.testing.assert_allclose(found.time, np.arange(11, 21) / 1000, rtol=1e-12)


@pytest.mark.parametrize("kind", ["raster", "heat"])
def test_little_is_read_of_a_long_run(tmp_path, kind):
    """100 GB that take no room: a file of zeros with something in its first rows."""
    rows, size = 1_250_000, 20_000
    values = np.memmap(tmp_path / "long", np.float32, "w+", shape=(rows, size))
    rng = np.random.default_rng(1)
    values[:900] = spikes(900, size) if kind == "raster" else rng.random((900, size))
    run = Recorded(values)
    found = plotting.panel(run, "p", 0.0, None)
    assert found.kind == kind
    assert values.nbytes == 100e9
    assert run.read <= 2 * plotting.READ_BYTES
    assert found.values.shape[1] == plotting.MOST_CHANNELS
    if kind == "raster":
        assert "the first 838 of 1,250,000 samples" in found.title
    else:
        assert "every 1,492th sample" in found.title
        assert found.time[-1] > 1245
    del values


def test_the_command(project, tmp_path):
    pytest.importorskip("matplotlib")
    simrun.run(project(probes=[
        {"name": "x", "object": "x"}, {"name": "mean", "object": "x", "sample_every": 10,
                                       "reduce": "mean"},
    ]))  # fmt: skip
    run = CliRunner().invoke(main, ["plot", "out"])
    assert run.output == "drew out/plot.png\n"
    assert (tmp_path / "out" / "plot.png").read_bytes().startswith(b"\x89PNG")
    assert CliRunner().invoke(main, ["plot", "out", "mean", "--out", "a.svg"]).exit_code == 0
    assert "mean" in (tmp_path / "a.svg").read_text()
    for arguments, words in [
        (["x", "--out", "a.svg"], "a.svg exists"),
        (["xx"], "did you mean 'x'?"),
        (["--from", "5"], "no samples to draw"),
        (["--out", "a.xyz"], "a.xyz"),
    ]:
        failed = CliRunner().invoke(main, ["plot", "out", *arguments])
        assert failed.exit_code == 2
        assert words in failed.stderr
    simrun.run(
        project(
            steps=120,
            probes=[
                {"name": "x", "object": "x"},
                {"name": "mean", "object": "x", "sample_every": 10, "reduce": "mean"},
            ],
        )
    )  # fmt: skip - a picture in the folder is no reason to refuse it


def test_without_matplotlib(project, monkeypatch):
    simrun.run(project())
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    failed = CliRunner().invoke(main, ["plot", "out"])
    assert failed.exit_code == 3
    assert 'pip install "simrun[plot]"' in failed.stderr
