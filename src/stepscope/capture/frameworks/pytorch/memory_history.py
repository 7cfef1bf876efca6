"""Snapshots of device memory where an allocation fails, on request: option `--memory-history`.

The allocator keeps its latest actions once the job has initialised CUDA, which stepscope never
does, and calls an observer before it raises torch.OutOfMemoryError
(https://docs.pytorch.org/docs/stable/torch_cuda_memory.html).
"""

from __future__ import annotations

import functools
import os
import pickle
from collections.abc import Callable
from itertools import count
from typing import Any

import torch

from stepscope.capture import session
from stepscope.capture.frameworks.internals import PYTORCH
from stepscope.capture.guard import Probe
from stepscope.spool import MEMORY_HISTORY_VARIABLE, ROWS, SpoolFullError, snapshot_file

MAX_SNAPSHOTS = 4
"""A job that goes on after a failure may fail again and again."""
PICKLE_PROTOCOL = 4
_probe = Probe("memory snapshots")


def install() -> None:
    """Keep the history if it is requested."""
    length = os.environ.get(MEMORY_HISTORY_VARIABLE)
    if not length:
        return
    functions = PYTORCH.find_all("cuda_lazy_call", "record_memory_history", "memory_snapshot")
    if functions is None:
        return
    call_when_initialised, record, take_snapshot = functions
    call_when_initialised(_probe.protect(functools.partial(_start, record, take_snapshot, length)))


def _start(record: Callable[..., None], take_snapshot: Callable[[], Any], length: str) -> None:
    """Start the history, in the thread that initialises CUDA."""
    record(context="alloc", stacks="python", max_entries=int(length))
    numbers = count()

    def observe(_device: int, _requested: int, _total: int, _free: int) -> None:
        current, number = session.current(), next(numbers)
        if current is None or number >= MAX_SNAPSHOTS:
            return
        content = pickle.dumps(take_snapshot(), PICKLE_PROTOCOL)
        try:
            current.tree.reserve(ROWS, len(content))
            _write(snapshot_file(current.directory, number), content)
        except (SpoolFullError, OSError) as error:
            current.note(f"a memory snapshot of {len(content)} bytes was not written: {error}")

    # Only builds with CUDA have the function.
    torch._C._cuda_attach_out_of_memory_observer(_probe.protect(observe))  # type: ignore[attr-defined]


def _write(path: str, content: bytes) -> None:
    temporary = f"{path}.tmp"
    try:
        with open(temporary, "wb") as file:
            file.write(content)
        os.rename(temporary, path)
    except OSError:
        if os.path.exists(temporary):
            os.unlink(temporary)
        raise
