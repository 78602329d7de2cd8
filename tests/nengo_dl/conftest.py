"""The networks, imported when a test needs them: TensorFlow takes seconds."""

import pytest


@pytest.fixture(scope="session")
def nets():
    import nets_for_nengo_dl

    return nets_for_nengo_dl
