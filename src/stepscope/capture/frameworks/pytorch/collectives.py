"""Communication: collectives the script calls itself, and DDP's own account of its overlap.

DistributedDataParallel exchanges gradients inside the backward pass, on threads or streams of
its own; how much of that the backward pass hides is measured by DDP itself, on the first ten
iterations and every hundredth after. We read that account.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch

from stepscope.capture.frameworks.pytorch.progress import progress
from stepscope.capture.frameworks.pytorch.replacing import hide_from_compiler, replace
from stepscope.capture.guard import Probe
from stepscope.spool import Kind

_probe = Probe("collectives", coarse=True)

COLLECTIVES = (
    "all_gather",
    "all_gather_into_tensor",
    "all_gather_object",
    "all_reduce",
    "all_to_all",
    "all_to_all_single",
    "barrier",
    "broadcast",
    "broadcast_object_list",
    "gather",
    "monitored_barrier",
    "recv",
    "reduce",
    "reduce_scatter",
    "reduce_scatter_tensor",
    "scatter",
    "send",
)
ACCOUNTED_STEPS = 10
"""Every one of the first steps is in the account."""
READ_GROWTH = 1.5
"""Later, the account is read each time there are this many times as many steps: it is a mean over
the run, and what is read is kept."""

_parallel: weakref.ReferenceType[Any] | None = None
_next_reading = 1
_pass_count = 0
_exchange_count = 0


def install() -> None:
    """Replace the collectives of `torch.distributed`, where this build has them."""
    distributed: Any = torch.distributed
    if not distributed.is_available():
        return
    for name in COLLECTIVES:
        if hasattr(distributed, name):
            replace(distributed, name, _timed)
    hide_from_compiler()


def note_parallel_module(module: torch.nn.Module) -> None:
    """Remember the DistributedDataParallel wrapper whose account to read, and count its
    training passes, and those that exchange gradients."""
    global _parallel, _pass_count, _exchange_count
    if type(module).__name__ != "DistributedDataParallel":
        return
    if _parallel is None:
        _parallel = weakref.ref(module)
        progress.on_boundary(_probe.protect(_read_account))
    if torch.is_grad_enabled():
        _pass_count += 1
        if getattr(module, "require_backward_grad_sync", True):
            _exchange_count += 1


def _read_account() -> None:
    global _next_reading
    steps = progress.step_count
    module = _parallel() if _parallel is not None else None
    if module is None or steps < _next_reading:
        return
    _next_reading = steps + 1 if steps < ACCOUNTED_STEPS else int(READ_GROWTH * steps)
    account = module._get_ddp_logging_data()
    if account.get("avg_backward_compute_time", 0):
        _probe.fact(
            "ddp",
            step_count=steps,
            pass_count=_pass_count,
            exchange_count=_exchange_count,
            backward_compute_ns=account["avg_backward_compute_time"],
            backward_comm_ns=account["avg_backward_comm_time"],
            backward_overlap_ns=account["avg_backward_compute_comm_overlap_time"],
            forward_compute_ns=account["avg_forward_compute_time"],
            bucket_bytes=account.get("bucket_sizes", ""),
            backend=account.get("backend_name", ""),
            world_size=account.get("world_size", 0),
        )


def _timed(original: Callable[..., Any]) -> Callable[..., Any]:
    is_compiling = torch.compiler.is_compiling

    def timed(*args: Any, **kwargs: Any) -> Any:
        if is_compiling():
            return original(*args, **kwargs)
        span = _probe.begin(Kind.COMMUNICATION, original.__name__)
        try:
            return original(*args, **kwargs)
        finally:
            _probe.end(span)

    return timed
