"""simrun: long simulations inside a fixed memory budget.

>>> import simrun
>>> sorted(simrun.__all__)
['export', 'hookimpl', 'open_run', 'plan', 'run']
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from simrun.hookspecs import hookimpl

if TYPE_CHECKING:
    from simrun.api import export, open_run, plan, run

__all__ = ["export", "hookimpl", "open_run", "plan", "run"]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    # lazily, so that the command line starts fast
    if name in __all__:
        from simrun import api

        return getattr(api, name)
    raise AttributeError(f"module 'simrun' has no attribute {name!r}")
