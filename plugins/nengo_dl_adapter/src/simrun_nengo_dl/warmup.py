"""Runs a program once before anything is measured or planned."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import tensorflow as tf

from simrun_nengo_dl.failures import out_of_memory
from simrun_nengo_dl.program import Program

_STATUS, _CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


_STEPS = 3  # in its first turn a loop doesn't touch all memory that it has


def warm_up(graph: Any, program: Program) -> int | None:
    """Trace, compile and run: what the process holds has its final size afterwards.

    No step is run where that could have an effect: where Python functions, generators or
    variables take part. Elsewhere a few steps are run and forgotten.

    Returns
    -------
    int or None
        Bytes that a step takes beyond what was held before it, the new state included; None
        where it wasn't measured.
    """
    state = program.initial_state()
    capacity = program.usual_capacity()
    try:
        program.run_dry(0, state, capacity)
        graph.build_post()
        return _measured(program, state, capacity) if program.is_pure() else None
    except (tf.errors.OpError, MemoryError) as error:
        if out_of_memory(error) is None:
            raise
    # such a chunk's samples are too much: let the run find out what is not
    program.forget()
    gc.collect()
    program.prepare(1, state)
    graph.build_post()
    return None


def _measured(program: Program, state: Any, capacity: int) -> int | None:
    """Bytes that a step takes beyond what is held, inputs and samples apart."""
    steps = min(_STEPS, capacity)
    program.run_dry(steps, state, capacity)  # threads and allocators grow the first time
    gc.collect()
    try:
        _CLEAR.write_text("5")  # the peak is counted from here
    except OSError:  # not Linux, or not allowed
        return None
    before = _bytes("VmRSS")
    program.run_dry(steps, state, capacity)
    peak = max(_bytes("VmHWM") - before - program.dry_bytes(steps, capacity), 0)
    # a graph's kernels run in an order that varies, and with it what is held at one time
    return peak if program.xla else peak * 3 // 2


def _bytes(field: str) -> int:
    lines = _STATUS.read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field))
