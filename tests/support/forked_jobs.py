"""Scripts of jobs in forks of one process that has imported PyTorch, which takes seconds of CPU.

The process imports nothing of stepscope. Each fork takes over the variables, the path and the
arguments of its job and then imports `sitecustomize`, as an interpreter does at its start, so that
every job has an installation of stepscope of its own. The only difference is that PyTorch is
imported before it and not after it, as in a script that calls `start_profiling` late.

As a program, it reads jobs from standard input, a line of JSON each, and answers each with a line
on standard output: exit status and CPU seconds.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

JOB_TIMEOUT_S = 300
"""Only a job that hangs takes as long, however busy the machine is."""
PRELOADED = (
    "numpy", "torch", "torch._dynamo", "torch.utils.checkpoint", "torch.utils.data",
)  # fmt: skip


class JobForks:
    """The process that forks, started with the first job.

    Args:
        python: interpreter of the jobs.
    """

    def __init__(self, python: str) -> None:
        self._command = [python, __file__]
        self._process: subprocess.Popen[str] | None = None
        self._lock = threading.Lock()
        self.cpu_s = 0.0
        """CPU time of its jobs so far, which this process is told when it waits for the end."""

    def run(
        self,
        script: Path,
        arguments: tuple[str, ...],
        variables: Mapping[str, str],
        rank_count: int = 1,
    ) -> subprocess.CompletedProcess[str]:
        """Run a script to its end, in one process or several ranks.

        Those that hang are killed by SIGALRM.
        """
        argv = [str(script), *arguments]
        with self._lock, tempfile.TemporaryDirectory() as directory:
            output, errors = Path(directory) / "out", Path(directory) / "err"
            job = {
                "argv": argv,
                "processes": [dict(variables, **rank) for rank in _list_ranks(rank_count)],
                "cwd": str(Path.cwd()),
                "output": str(output),
                "errors": str(errors),
            }
            code, cpu_s = self._run(job)
            self.cpu_s += cpu_s
            return subprocess.CompletedProcess(argv, code, output.read_text(), errors.read_text())

    def _run(self, job: dict[str, Any]) -> tuple[int, float]:
        if self._process is None:
            pipe = subprocess.PIPE
            self._process = subprocess.Popen(self._command, stdin=pipe, stdout=pipe, text=True)
        requests, answers = self._process.stdin, self._process.stdout
        assert requests is not None
        assert answers is not None
        requests.write(json.dumps(job) + "\n")
        requests.flush()
        code, cpu_s = json.loads(answers.readline())
        return code, cpu_s

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.communicate()


FORKS = JobForks(os.environ.get("JOB_PYTHON", sys.executable))


def _list_ranks(count: int) -> list[dict[str, str]]:
    """Return the variables of each rank, as torchrun sets them; none for a single process."""
    if count == 1:
        return [{}]
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    store = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    sizes = {"WORLD_SIZE": str(count), "LOCAL_WORLD_SIZE": str(count)}
    return [{**store, **sizes, "RANK": str(n), "LOCAL_RANK": str(n)} for n in range(count)]


def _serve(answers: int) -> tuple[dict[str, Any], dict[str, str]]:
    """Fork for the processes of each job; returns the job and the variables in each fork only."""
    for line in sys.stdin:
        job = json.loads(line)
        pids = []
        for variables in job["processes"]:
            pid = os.fork()
            if not pid:
                return job, variables
            pids.append(pid)
        ended = [os.wait4(pid, 0) for pid in pids]
        code = next((os.waitstatus_to_exitcode(status) for _, status, _ in ended if status), 0)
        cpu_s = sum(usage.ru_utime + usage.ru_stime for _, _, usage in ended)
        os.write(answers, f"{json.dumps([code, cpu_s])}\n".encode())
    os._exit(0)


def _take_over(job: dict[str, Any], variables: dict[str, str]) -> None:
    """Make this process one that has started the job's script, up to the first line of it."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    for descriptor, path in ((0, os.devnull), (1, job["output"]), (2, job["errors"])):
        opened = os.open(path, flags if descriptor else os.O_RDONLY, 0o600)
        os.dup2(opened, descriptor)
        os.close(opened)
    signal.alarm(JOB_TIMEOUT_S)
    os.chdir(job["cwd"])
    os.environ.clear()
    os.environ.update(variables)
    sys.argv = job["argv"]
    sys.orig_argv = [sys.executable, *sys.argv]
    sys.path[:] = [*os.environ["PYTHONPATH"].split(os.pathsep), *sys.path[1:]]
    sys.modules.pop("sitecustomize", None)
    import sitecustomize  # noqa: F401 - that of stepscope

    sys.path.insert(0, str(Path(sys.argv[0]).parent))
    main = type(sys)("__main__")
    main.__file__ = sys.argv[0]
    sys.modules["__main__"] = main


def _leave() -> None:
    """End after all other exit handlers, without taking PyTorch down, which takes 0.4 s of CPU."""
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(status)


if __name__ == "__main__":
    import atexit
    import gc
    import importlib

    status = 0
    atexit.register(_leave)
    for name in PRELOADED:
        importlib.import_module(name)
    gc.freeze()  # leaves the memory shared
    answers = os.dup(1)
    os.dup2(2, 1)
    _take_over(*_serve(answers))
    os.close(answers)
    source = Path(sys.argv[0]).read_text()
    try:
        exec(compile(source, sys.argv[0], "exec"), vars(sys.modules["__main__"]))  # noqa: S102
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
        raise
    except BaseException:
        status = 1
        raise
