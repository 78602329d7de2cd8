"""Conformance suites for plugins: subclass `AdapterSuite` or `SinkSuite` in a test file.

Installed with the core; the suites need pytest, which is imported when one is asked for. How to
use them is in docs/testing.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from simrun.testing.adapter_suite import AdapterSuite
    from simrun.testing.sink_suite import SinkSuite

__all__ = ["AdapterSuite", "SinkSuite"]


def __getattr__(name: str) -> Any:
    # lazily: pytest loads this package in every run where simrun is installed
    if name == "AdapterSuite":
        from simrun.testing.adapter_suite import AdapterSuite

        return AdapterSuite
    if name == "SinkSuite":
        from simrun.testing.sink_suite import SinkSuite

        return SinkSuite
    raise AttributeError(f"module 'simrun.testing' has no attribute {name!r}")
