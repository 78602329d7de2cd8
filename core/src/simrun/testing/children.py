"""Runs methods of a suite in processes of their own, which may be killed or run out of things.

Each test file has a server: a fresh interpreter that imports the file, calls the suite's
``prepare``, and forks for each job. So a job starts in milliseconds, and shares nothing with
the test but the disk.
"""

from __future__ import annotations

import contextlib
import importlib.util
import inspect
import json
import os
import select
import signal
import subprocess
import sys
import traceback
from pathlib import Path
from typing import Any

LIMIT_SECONDS = 300.0


class Killed(Exception):  # noqa: N818 - it isn't an error, it is what was asked for
    """The process of a job was killed."""


class InOtherProcesses:
    """A suite with methods that `Children` runs; subclasses are made at the top of a file."""

    #: The file of the subclass.
    file: Path

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        # now, as a model's folder that is also the test's may be forgotten by `simrun.models`
        cls.file = Path(inspect.getfile(cls))

    def prepare(self) -> None:
        """Called in other processes before anything else."""


class Children:
    """The servers of a test session, each started when it is first needed."""

    def __init__(self) -> None:
        self._servers: dict[str, subprocess.Popen[str]] = {}

    def run(self, suite: InOtherProcesses, job: str, **arguments: Any) -> Any:
        """Call a method of the suite in another process; what it returns, as JSON values.

        Parameters
        ----------
        suite : InOtherProcesses
        job : str
            Name of the method. It prints nothing to stdout.
        arguments
            Its keyword arguments, as JSON values.

        Raises
        ------
        Killed
            The process died by SIGKILL.
        AssertionError
            The method raised; with the traceback.
        """
        self.begin(suite, job, **arguments)
        return self.end(suite)

    def begin(self, suite: InOtherProcesses, job: str, **arguments: Any) -> None:
        """Start what `run` does, and return at once; `end` waits for it."""
        cls = type(suite)
        order = {"class": cls.__qualname__, "job": job, "arguments": arguments}
        pipe = self._server(str(suite.file)).stdin
        assert pipe is not None
        pipe.write(json.dumps(order) + "\n")
        pipe.flush()

    def end(self, suite: InOtherProcesses) -> Any:
        """Wait for the job that was begun; as `run`."""
        file = str(suite.file)
        pipe = self._servers[file].stdout
        assert pipe is not None
        line = pipe.readline()
        if not line:
            raise AssertionError(f"the process that imports {file} died; see its stderr")
        status, answer = json.loads(line)
        if status == -signal.SIGKILL:
            raise Killed
        if "error" in (answer or {"error": f"the process ended with status {status}"}):
            raise AssertionError((answer or {}).get("error", f"exit status {status}"))
        return answer["result"]

    def close(self) -> None:
        """End the servers."""
        for server in self._servers.values():
            server.communicate()
        self._servers.clear()

    def _server(self, file: str) -> subprocess.Popen[str]:
        if file not in self._servers:
            path = os.pathsep.join(p or os.curdir for p in sys.path)
            self._servers[file] = subprocess.Popen(
                [sys.executable, "-m", "simrun.testing.children", file],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env=os.environ | {"PYTHONPATH": path},
            )
        return self._servers[file]


def serve(file: str) -> None:
    """Answer orders until the input ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a library prints must not be taken for an answer
    module = _load(file)
    prepared: dict[str, Any] = {}
    for line in sys.stdin:
        order = json.loads(line)
        name = order["class"]
        try:
            if name not in prepared:
                prepared[name] = getattr(module, name)()
                prepared[name].prepare()
            result = _forked(prepared[name], order)
        except Exception:
            result = [1, {"error": traceback.format_exc()}]
        answers.write(json.dumps(result) + "\n")
        answers.flush()


def _load(file: str) -> Any:
    # so that the file may import its neighbours, whatever pytest's import mode
    sys.path.insert(0, str(Path(file).parent))
    name = Path(file).stem
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _forked(suite: Any, order: dict[str, Any]) -> list[Any]:
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        _job(suite, order, writing)
    os.close(writing)
    if not select.select([reading], [], [], LIMIT_SECONDS)[0]:
        os.kill(child, signal.SIGKILL)
    with os.fdopen(reading) as pipe:
        text = pipe.read()
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return [status, json.loads(text) if text else None]


def _job(suite: Any, order: dict[str, Any], writing: int) -> None:
    try:
        try:
            answer = {"result": getattr(suite, order["job"])(**order["arguments"])}
        except Exception:
            answer = {"error": traceback.format_exc()}
        with contextlib.suppress(OSError):
            os.write(writing, json.dumps(answer).encode())
        sys.stderr.flush()
    finally:
        os._exit(0)


if __name__ == "__main__":
    serve(sys.argv[1])
