"""Limits by the number of cores."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

from stepscope.cores import available_cores

ARENAS = """
import ctypes, os, sys, threading, xml.etree.ElementTree as tree
from stepscope.cores import limit_arenas
if sys.argv[1] == "limited":
    limit_arenas()
barrier = threading.Barrier(int(sys.argv[2]))
def allocate():
    barrier.wait()  # all threads exist at a time, so that none inherits the arena of another
    bytes(10_000)
    barrier.wait()
threads = [threading.Thread(target=allocate) for _ in range(barrier.parties)]
for thread in threads: thread.start()
for thread in threads: thread.join()
libc = ctypes.CDLL(None)
libc.fdopen.restype = ctypes.c_void_p
file = libc.fdopen(1, b"w")
libc.malloc_info(0, ctypes.c_void_p(file))
libc.fflush(ctypes.c_void_p(file))
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="needs the GNU C library")
def test_threads_allocate_from_one_arena_per_core() -> None:
    threads = available_cores() + 2
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("MALLOC_", "GLIBC_"))}

    def count_arenas(mode: str) -> int:
        command = [sys.executable, "-c", ARENAS, mode, str(threads)]
        done = subprocess.run(command, check=True, capture_output=True, env=environment)
        return done.stdout.count(b"<heap nr=")

    assert count_arenas("limited") == available_cores()
    assert count_arenas("unlimited") > available_cores()
