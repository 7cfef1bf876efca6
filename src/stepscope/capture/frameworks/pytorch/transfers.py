"""Latest transfers between two ranks (`isend`, `irecv`, and `send` and `recv`, which call them).

The recorder of PyTorch has them for NCCL only. They are counted and kept here, so that a job that
has nothing else can be found stuck. A transfer has ended once the job has waited for it or has
dropped its handle.
"""

from __future__ import annotations

import time
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from stepscope.capture.frameworks.pytorch.patching import patch_in_place
from stepscope.capture.guard import Probe

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


def install() -> None:
    """Patch the transfers of `torch.distributed`, which compares those of its batches with the
    functions of one of its modules."""
    from torch.distributed import distributed_c10d

    for name, peer, group_peer in (("isend", "dst", "group_dst"), ("irecv", "src", "group_src")):
        patch_in_place(getattr(distributed_c10d, name), _noting(peer, group_peer))


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
        is_compiling = torch.compiler.is_compiling

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
