import pytest
from simrun_torch_crossbar.kernels import cpu


@pytest.fixture(params=["kernels", "torch"])
def path(request, monkeypatch):
    """Both ways of solving: with the compiled kernels, and with torch alone."""
    if request.param == "torch":
        monkeypatch.setattr(cpu, "available", lambda: False)
    elif not cpu.available():
        pytest.skip("no C++ compiler here")
    return request.param
