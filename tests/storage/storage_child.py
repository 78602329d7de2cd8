"""Runs a sink to its end in processes that can be killed: a script for `fork_server`.

A job is ``{"sink", "directory", "durable", "kill_at"}``; ``kill_at`` kills the run right before
its so-manieth change of the file system. The answer is the number of changes and the seconds.
"""

import os
import signal
import time

from storage_cases import classes, make_small
from storage_cases import run as run_sink

from fork_server import serve

# every call by which a sink changes the file system, and by which it makes that last
CHANGES = ("pwrite", "replace", "rename", "fsync", "unlink", "link", "mkdir", "truncate")


class Killer:
    """Counts changes of the file system, and dies before one of them.

    Writes by position that follow one another, the columns of one append, count as one.
    """

    def __init__(self, kill_at):
        self.count = 0
        self.last = None
        for name in CHANGES:
            setattr(os, name, self._wrap(name, kill_at))

    def _wrap(self, name, kill_at):
        function = getattr(os, name)

        def counted(*args, **kwargs):
            again = name == self.last == "pwrite"
            self.last = name
            self.count += not again
            if self.count == kill_at:
                os.kill(os.getpid(), signal.SIGKILL)
            return function(*args, **kwargs)

        return counted


def run(job):
    make_small()
    killer = Killer(job.get("kill_at"))
    begin = time.monotonic()
    run_sink(job["sink"], job["directory"], durable=job.get("durable", False))
    return killer.count, time.monotonic() - begin


if __name__ == "__main__":
    for name in ("npy", "hdf5", "zarr"):  # imported before the forks
        classes(name)
    serve(run)
