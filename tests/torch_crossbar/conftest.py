import pytest
import torch

from simrun_torch_crossbar.kernels import cpu

# Tiles of the tests are small, and other work may share the machine. More threads are tested
# where they are what is tested.
torch.set_num_threads(1)


@pytest.fixture(params=["kernels", "torch"])
def path(request, monkeypatch):
    """Both ways of solving: with the compiled kernels, and with torch alone."""
    if request.param == "torch":
        monkeypatch.setattr(cpu, "available", lambda: False)
    elif not cpu.available():
        pytest.skip("no C++ compiler here")
    return request.param
