"""What all tests share."""

import pytest


@pytest.fixture
def record_count(request, record_property):
    """Note what a test counted or measured; printed at the end."""

    def note(count):
        record_property("count", count)
        request.config.stash.setdefault(COUNTS, []).append((request.node.nodeid, count))

    return note


COUNTS = pytest.StashKey[list]()


def pytest_terminal_summary(terminalreporter, config):
    for node, count in config.stash.get(COUNTS, []):
        terminalreporter.write_line(f"{count!s:>6} {node}")
