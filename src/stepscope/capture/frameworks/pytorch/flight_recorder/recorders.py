"""Flight recorders of the running PyTorch, and transfers between two ranks.

The functions that PyTorch offers to Python hold the interpreter lock while they write a dump: 13 ms
for 2,000 collectives, in which no other thread of the job continues. The C++ function behind them
needs no lock, since PyTorch's own watchdog threads call it. So it is called directly where the
library exports it:

    std::string c10d::dump_fr_trace(bool collectives, bool stack_traces, bool only_active)

The name that it has in the library states the types of its arguments, and by the tag B5cxx11 that
it returns a std::string of libstdc++: pointer, size and 16 further bytes, returned through a hidden
pointer (https://itanium-cxx-abi.github.io/cxx-abi/abi.html#mangling-type). Where there is no such
symbol, the functions for Python are used, and read rarely enough to stay within the budget.

Latest transfers between two ranks (`isend`, `irecv`, and `send` and `recv`, which call them). The
recorder of PyTorch has them for NCCL only. They are counted and kept here, so that a job that has
nothing else can be found stuck. A transfer has ended once the job has waited for it or has dropped
its handle.
"""

from __future__ import annotations

import ctypes
import json
import os
import time
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from stepscope.capture.frameworks.internals import PYTORCH
from stepscope.capture.frameworks.pytorch.patching import is_compiling, patch_in_place
from stepscope.capture.guard import Probe

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


_probe = Probe("transfers between ranks")
MAX_KEPT = 32
"""Latest transfers that are kept."""
PEER_POSITION = 1
GROUP_POSITION = 2


class _Transfer(NamedTuple):
    number: int
    kind: str
    peer: int | None
    group: str
    shape: tuple[int, ...]
    dtype: str
    t_ns: int
    """Monotonic."""
    handle: weakref.ReferenceType[Any]


_latest: deque[_Transfer] = deque(maxlen=MAX_KEPT)
_count = 0


def install_transfers() -> None:
    """Patch the transfers of `torch.distributed`, which compares those of its batches with the
    functions of one of its modules."""
    for name, peer, group_peer in (("isend", "dst", "group_dst"), ("irecv", "src", "group_src")):
        function = PYTORCH.find(name)
        if function is not None:
            patch_in_place(function, _noting(peer, group_peer))


def count_transfers() -> int:
    """Return the number of transfers that the process has started."""
    return _count


def describe_transfers() -> list[dict[str, Any]]:
    """Describe the latest transfers, in the order of the calls, for the line of a dump."""
    return [
        {
            "number": one.number,
            "kind": one.kind,
            "peer": one.peer,
            "group": one.group,
            "sizes": "x".join(map(str, one.shape)),
            "dtypes": one.dtype,
            "has_ended": _has_ended(one.handle()),
            "t_ns": one.t_ns,
        }
        for one in list(_latest)
        if one.peer is not None
    ]


def _has_ended(handle: Any) -> bool:
    return handle is None or handle.is_completed()


def _noting(*peer_names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        def noted(*args: Any, **kwargs: Any) -> Any:
            handle = original(*args, **kwargs)
            if handle is not None and not is_compiling():
                note(original.__name__, handle, args, kwargs, peer_names)
            return handle

        return noted

    return wrap


def _note(
    kind: str,
    handle: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    peer_names: tuple[str, ...],
) -> None:
    """Note a transfer that has begun.

    Args:
        kind: name of the function.
        handle: its result.
        args, kwargs: its arguments.
        peer_names: names of the arguments for the other rank: of the job, and of the group.
    """
    global _count
    _count += 1
    group = args[GROUP_POSITION] if len(args) > GROUP_POSITION else kwargs.get("group")
    of_job, of_group = (kwargs.get(name) for name in peer_names)
    rank = args[PEER_POSITION] if len(args) > PEER_POSITION else of_job
    if rank is None and of_group is not None:
        rank = _global_rank(group, of_group)
    tensor = args[0] if args else kwargs["tensor"]
    _latest.append(
        _Transfer(
            _count,
            kind,
            rank,
            _name_group(group),
            tuple(tensor.shape),
            str(tensor.dtype).removeprefix("torch."),
            time.monotonic_ns(),
            weakref.ref(handle),
        )
    )


note = _probe.protect(_note)


def _name_group(group: Any) -> str:
    from torch.distributed import distributed_c10d

    group = distributed_c10d.GroupMember.WORLD if group is None else group
    return str(group.group_name)


def _global_rank(group: Any, number: int) -> int:
    from torch.distributed import distributed_c10d

    if group is None:
        return number
    return distributed_c10d.get_global_rank(group, number)
