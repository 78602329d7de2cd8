from click.testing import CliRunner

import simrun
from simrun.cli import main


def test_inspect_verify(project, tmp_path):
    simrun.run(project())
    folder = tmp_path / "out"
    result = CliRunner().invoke(main, ["inspect", "--verify", str(folder)])
    assert result.exit_code == 0
    assert "every checksum agrees" in result.output
    path = folder / "data" / "x.npy"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    result = CliRunner().invoke(main, ["inspect", "--verify", str(folder)])
    assert result.exit_code == 5
    assert "x.npy: checksum differs" in result.output
