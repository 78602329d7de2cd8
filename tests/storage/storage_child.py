"""Runs a sink to its end in processes that can be killed.

``python storage_child.py SINK DIRECTORY DURABLE`` runs once. ``python storage_child.py serve``
forks one such run for each line of JSON on its input, which is a hundred times faster than to
start Python: ``{"sink", "directory", "durable", "kill_at", "after"}`` kills the run right before
or after its so-manieth change of the file system. Answers with one line: the exit status, and
the number of changes where the run survived.
"""

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

# every call by which a sink changes the file system, and by which it makes that last
CHANGES = ("pwrite", "replace", "rename", "fsync", "unlink", "link", "mkdir", "truncate")


class Killer:
    """Counts changes of the file system, and dies at one of them.

    Writes by position that follow one another, the columns of one append, count as one: to die
    after its first is to die amidst them.
    """

    def __init__(self, kill_at, after):
        self.count = 0
        self.last = None
        for name in CHANGES:
            setattr(os, name, self._wrap(name, kill_at, after))

    def _wrap(self, name, kill_at, after):
        function = getattr(os, name)

        def counted(*args, **kwargs):
            again = name == self.last == "pwrite"
            self.last = name
            if again:
                return function(*args, **kwargs)
            self.count += 1
            if self.count == kill_at and not after:
                os.kill(os.getpid(), signal.SIGKILL)
            result = function(*args, **kwargs)
            if self.count == kill_at:
                os.kill(os.getpid(), signal.SIGKILL)
            return result

        return counted


def run(job, report):
    from storage_cases import make_small
    from storage_cases import run as run_sink

    make_small()
    killer = Killer(job.get("kill_at"), job.get("after", False))
    seconds = job.get("seconds")
    if seconds is not None:
        pid = os.getpid()
        threading.Thread(
            target=lambda: (time.sleep(seconds), os.kill(pid, signal.SIGKILL)), daemon=True
        ).start()
    begin = time.monotonic()
    run_sink(job["sink"], job["directory"], durable=job.get("durable", False))
    os.write(report, json.dumps([killer.count, time.monotonic() - begin]).encode())


def serve():
    from storage_cases import classes

    for name in ("npy", "hdf5", "zarr"):  # import before the forks
        classes(name)
    for line in sys.stdin:
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            status = 1
            try:
                run(json.loads(line), writing)
                status = 0
            finally:
                sys.stderr.flush()
                os._exit(status)
        os.close(writing)
        with os.fdopen(reading) as answer:
            text = answer.read() or "[null, null]"
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        print(json.dumps([status, *json.loads(text)]), flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve()
    else:
        from storage_cases import make_small
        from storage_cases import run as run_once

        make_small()
        run_once(sys.argv[1], sys.argv[2], durable=sys.argv[3] == "durable")
