"""Processes forked from the launcher."""

from __future__ import annotations

import json
import signal
import subprocess
import sys

import pytest

FORK = """
import atexit, fcntl, json, os, resource, subprocess, sys, threading
from stepscope.cli.job.forking import can_fork, fork_process

def work():
    atexit.register(print, "at exit")
    print(json.dumps({
        "words": open("/proc/self/cmdline").read().rstrip(chr(0)).split(chr(0)),
        "files": [os.path.realpath(f"/proc/self/fd/{number}") for number in range(3)],
        "inherited": [n for n in (log, unrelated) if os.path.exists(f"/proc/self/fd/{n}")],
        "is_leader": os.getsid(0) == os.getpid(),
        "input": os.read(0, 1).decode(),
    }))
    END

log, unrelated = os.memfd_create("log"), fcntl.fcntl(0, fcntl.F_DUPFD, 200)
resource.setrlimit(resource.RLIMIT_NOFILE, (100, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
print("of the launcher", end="")
assert can_fork()
process = fork_process(("stepscope.monitor", "run"), work, log)
try:
    process.wait(0)
except subprocess.TimeoutExpired:
    pass
code = process.wait(20)
assert (process.poll(), process.wait()) == (code, code)
process.terminate()  # of another process, maybe, if it were sent
stop = threading.Event()
thread = threading.Thread(target=stop.wait)
thread.start()
assert not can_fork()
stop.set()
thread.join()
print()
print(json.dumps([code, os.pread(log, 10_000, 0).decode().splitlines()]))
"""


@pytest.mark.parametrize(
    ("end", "code", "last"),
    [
        ("", 0, []),
        ("sys.exit(3)", 3, []),
        ("sys.exit('The run exists.')", 1, ["The run exists."]),
        ("raise OSError('full')", 1, ["OSError: full"]),
        ("sys.stdout.flush(); os.kill(os.getpid(), 9)", -signal.SIGKILL, None),
    ],
)
def test_a_forked_process_is_like_one_that_was_started(
    end: str, code: int, last: list[str] | None
) -> None:
    ended = subprocess.run(
        [sys.executable, "-W", "error", "-c", FORK.replace("END", end)],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    first, result = ended.stdout.splitlines()
    assert (first, ended.stderr) == ("of the launcher", "")
    exit_code, lines = json.loads(result)
    assert exit_code == code
    state = json.loads(next(line for line in lines if line.startswith("{")))
    assert state["words"] == ["stepscope.monitor", "run"]
    null, out, err = state["files"]
    assert (null, state["input"], state["is_leader"]) == ("/dev/null", "", True)
    assert out == err
    assert "memfd:log" in out
    assert state["inherited"] == []
    assert ("at exit" in lines) == (last is not None)
    assert last is None or set(last) <= set(lines)
