"""What pytest loads wherever simrun is installed: an option and two fixtures. Nothing heavy."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

pytest.register_assert_rewrite(
    *(f"simrun.testing.{name}" for name in ("adapter_driver", "adapter_suite")),
    *(f"simrun.testing.{name}" for name in ("sink_driver", "sink_suite", "sink_model")),
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--simrun-thorough``."""
    parser.getgroup("simrun").addoption(
        "--simrun-thorough",
        action="store_true",
        help="conformance suites of simrun: try everything, which takes minutes",
    )


@pytest.fixture
def simrun_thorough(request: pytest.FixtureRequest) -> bool:
    """Whether a suite is to try everything, and not a sample of it."""
    return bool(request.config.getoption("--simrun-thorough"))


@pytest.fixture(scope="session")
def simrun_children() -> Iterator[Any]:
    """Processes in which suites run what may not, or can't, run in this one."""
    from simrun.testing.children import Children

    children = Children()
    yield children
    children.close()
