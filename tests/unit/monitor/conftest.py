"""Real processes to monitor, and a stub of the NVIDIA driver's library."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.nvml_stub import compile_nvml


@pytest.fixture
def start() -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Start `python -c CODE`; its process group is killed after the test."""
    started: list[subprocess.Popen[bytes]] = []

    def run(code: str) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [sys.executable, "-S", "-E", "-c", code],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        started.append(process)
        return process

    yield run
    for process in started:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()


@pytest.fixture(scope="session")
def nvml_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Directory with a `libnvidia-ml.so.1` compiled from `stub/nvml.c`."""
    return compile_nvml(tmp_path_factory.mktemp("nvml"))
