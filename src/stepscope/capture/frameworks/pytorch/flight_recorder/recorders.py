"""Access to the flight recorders of the running PyTorch.

The functions that PyTorch offers to Python hold the interpreter lock while they write a dump: 13 ms
for 2,000 collectives, in which no other thread of the job continues. The C++ function behind them
needs no lock, since PyTorch's own watchdog threads call it. So it is called directly where the
library exports it:

    std::string c10d::dump_fr_trace(bool collectives, bool stack_traces, bool only_active)

The name that it has in the library states the types of its arguments, and by the tag B5cxx11 that
it returns a std::string of libstdc++: pointer, size and 16 further bytes, returned through a hidden
pointer (https://itanium-cxx-abi.github.io/cxx-abi/abi.html#mangling-type). Where there is no such
symbol, the functions for Python are used, and read rarely enough to stay within the budget.
"""

from __future__ import annotations

import ctypes
import json
import os
from collections.abc import Callable
from typing import Any

import torch

SIZE_VARIABLES = ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE")
DEFAULT_SIZE = 2000
"""Size of the ring of recent versions, in collectives."""
_NAMES = (
    ("fr", "_dump_fr_trace", "dump_fr_trace", "libtorch_cpu.so"),
    ("nccl", "_dump_nccl_trace", "dump_nccl_trace", "libtorch_cuda.so"),
)
"""Name of the recorder, of its function for Python and in C++, and its library. Builds with CUDA
have a second recorder for NCCL."""

Dump = Callable[[], bytes]


class Recorder:
    """One recorder of this process.

    Args:
        name: `fr`, or `nccl` for the one of NCCL.
        dump_for_python: function of PyTorch that returns the content as a pickle.
        status_for_python: function that returns it as JSON.
        direct: the function in C++; None if it is not exported.
    """

    def __init__(
        self,
        name: str,
        dump_for_python: Callable[..., bytes],
        status_for_python: Callable[..., bytes],
        direct: Dump | None,
    ) -> None:
        self.name = name
        self._dump_for_python = dump_for_python
        self._status_for_python = status_for_python
        self._direct = direct

    @property
    def holds_lock(self) -> bool:
        """True if a dump holds the interpreter lock."""
        return self._direct is None

    def dump(self) -> bytes:
        """Return the recorded collectives, as a pickle of plain data."""
        if self._direct is not None:
            return self._direct()
        return self._dump_for_python(includeStackTraces=False)

    def read_progress(self) -> tuple[int, int]:
        """Return the number of collectives that were started and that have ended."""
        status = json.loads(self._status_for_python(includeCollectives=False))["pg_status"]
        started = [int(group["last_enqueued_collective"]) for group in status.values()]
        ended = [int(group["last_completed_collective"]) for group in status.values()]
        return sum(max(0, n) for n in started), sum(max(0, n) for n in ended)


def find_recorders() -> list[Recorder]:
    """Find the recorders of this version of PyTorch; none in old versions."""
    module: Any = getattr(torch._C, "_distributed_c10d", None)
    recorders = []
    for name, for_python, symbol, library in _NAMES:
        dump = getattr(module, for_python, None)
        status = getattr(module, f"{for_python}_json", None)
        if dump is not None and status is not None:
            recorders.append(Recorder(name, dump, status, _find_symbol(symbol, library)))
    return recorders


def ring_size() -> int:
    """Return how many collectives a recorder keeps, as PyTorch reads it from the environment; 0 if
    it is off."""
    for variable in SIZE_VARIABLES:
        text = os.environ.get(variable)
        if text:
            return int(text) if text.strip().isdecimal() else DEFAULT_SIZE
    return DEFAULT_SIZE


class _String(ctypes.Structure):
    """A std::string of libstdc++. Its characters are allocated if they are more than 15."""

    _fields_ = (
        ("characters", ctypes.c_void_p),
        ("size", ctypes.c_size_t),
        ("rest", ctypes.c_uint64 * 2),
    )


_LOCAL_CAPACITY = 15


def _find_symbol(name: str, library: str) -> Dump | None:
    path = os.path.join(os.path.dirname(torch.__file__), "lib", library)
    mode = os.RTLD_NOW | getattr(os, "RTLD_NOLOAD", 0)  # the job has loaded it, or there is none
    try:
        function = ctypes.CDLL(path, mode=mode)[f"_ZN4c10d{len(name)}{name}B5cxx11Ebbb"]
        delete = ctypes.CDLL("libstdc++.so.6", mode=mode)["_ZdlPv"]
    except (OSError, AttributeError):
        return None
    function.restype = _String
    function.argtypes = [ctypes.c_bool] * 3
    delete.restype = None
    delete.argtypes = [ctypes.c_void_p]

    def dump() -> bytes:
        text = function(True, False, False)
        if text.size <= _LOCAL_CAPACITY:  # no dump is that short
            return b""
        try:
            return ctypes.string_at(text.characters, text.size)
        finally:
            delete(text.characters)

    return dump
