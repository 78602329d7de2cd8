"""Each distribution stands alone: pip gets what it needs, and nothing of another family."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SIMULATORS = {"tensorflow", "tf-keras", "torch", "nengo", "nengo-dl", "nengo-ocl"}
STORAGE = {"h5py", "zarr", "fsspec", "s3fs"}
# beside these each needs the core
OWN = {
    "core": set(),
    "plugins/nengo_dl_adapter": {"tensorflow", "tf-keras", "nengo", "nengo-dl"},
    "plugins/nengo_adapter": {"nengo"},
    "plugins/torch_crossbar": {"torch"},
    "plugins/storage_hdf5": {"h5py"},
    "plugins/storage_zarr": {"zarr"},
}


@pytest.mark.parametrize("folder", OWN)
def test_a_distribution_asks_for_no_other_family(folder):
    project = tomllib.loads((ROOT / folder / "pyproject.toml").read_text())["project"]
    needed = {re.match(r"[\w.-]+", line)[0].lower() for line in project["dependencies"]}
    assert needed & (SIMULATORS | STORAGE) == OWN[folder]
    assert ("simrun" in needed) == (folder != "core")
    own = {name for name in needed if name.startswith("simrun-")}
    assert own == ({"simrun-nengo"} if folder == "plugins/nengo_dl_adapter" else set())
    assert project["requires-python"] == ">=3.11"


@pytest.mark.slow
@pytest.mark.parametrize("folder", OWN)
def test_it_installs_alone(folder, tmp_path):
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "v"], check=True)
    binaries = tmp_path / "v" / "bin"
    pip = [binaries / "pip", "install", "--quiet", "--constraint", ROOT / "tests/constraints.txt"]
    needed = {ROOT / "core", ROOT / folder}
    if folder == "plugins/nengo_dl_adapter":
        needed.add(ROOT / "plugins/nengo_adapter")
    subprocess.run([*pip, *needed], check=True)
    listed = subprocess.run([binaries / "pip", "list", "--format=freeze"],
                            capture_output=True, text=True, check=True).stdout  # fmt: skip
    installed = {line.partition("==")[0].lower() for line in listed.splitlines()}
    assert installed & (SIMULATORS | STORAGE) >= OWN[folder]
    assert not (SIMULATORS - OWN[folder]) & installed
    table = subprocess.run([binaries / "simrun", "plugins"],
                           capture_output=True, text=True, check=True).stdout  # fmt: skip
    assert "npy" in table
    assert "broken" not in table
