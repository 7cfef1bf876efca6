"""Communication: collectives called by the script, and DDP's statistics of its overlap.

`flight_recorder` reads every collective; a call of the script is recorded here, too, before it can
end the process.

DistributedDataParallel exchanges gradients during the backward pass, on separate threads or
streams. DDP measures how much of the exchange the backward pass hides, in the first ten iterations
and in every hundredth one after that. This module reads those statistics (DDP logging data).
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch

from stepscope.capture.frameworks.progress import Idle, progress
from stepscope.capture.frameworks.pytorch import flight_recorder
from stepscope.capture.frameworks.pytorch.flight_recorder import recorders
from stepscope.capture.frameworks.pytorch.patching import (
    count_bytes,
    hide_from_compiler,
    is_compiling,
    patch,
    read_attribute,
)
from stepscope.capture.guard import Probe
from stepscope.spool import Flag, Kind

_probe = Probe("collectives", coarse=True)
_rendezvous_probe = Probe("waits for other ranks to start", coarse=True)

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
PARALLEL_CLASS = "DistributedDataParallel"
"""Name of the class of modules that exchange gradients."""
MEASURED_STEPS = 10
"""DDP measures each of the first steps."""
READ_GROWTH = 1.5
"""Later, the statistics are read each time the number of steps has grown by this factor: they are
means over the run, and every reading is stored."""

_ddp_module: weakref.ReferenceType[Any] | None = None
_next_read_step = 1
_pass_count = 0
_exchange_count = 0


def install() -> None:
    """Patch the collectives of `torch.distributed`, if this build has them."""
    distributed: Any = torch.distributed
    if not distributed.is_available():
        return
    for name in COLLECTIVES:
        if hasattr(distributed, name):
            patch(distributed, name, _timed)
    recorders.install_transfers()
    patch(distributed, "init_process_group", _starting)
    progress.on_boundary(_keep_reading, Idle)
    hide_from_compiler()


def _starting(original: Callable[..., Any]) -> Callable[..., Any]:
    def started(*args: Any, **kwargs: Any) -> Any:
        span = _rendezvous_probe.start(Kind.RENDEZVOUS, original.__name__)
        try:
            result = original(*args, **kwargs)
        finally:
            _rendezvous_probe.end(span)
        flight_recorder.keep_reading()
        return result

    return started


def _keep_reading() -> None:
    """Read the recorder of collectives; a fork of the job stops that."""
    distributed: Any = torch.distributed
    if distributed.is_initialized():
        flight_recorder.keep_reading()


def _count_parallel_pass(module: torch.nn.Module) -> None:
    """Count training passes of a module of `PARALLEL_CLASS`, and those with an exchange.

    The first such module is the one whose statistics are read.
    """
    global _ddp_module, _pass_count, _exchange_count
    if _ddp_module is None:
        _ddp_module = weakref.ref(module)
        progress.on_boundary(
            _probe.protect(_read_statistics), lambda: Idle(due_step=_next_read_step)
        )
    if torch.is_grad_enabled():
        _pass_count += 1
        if read_attribute(module, "require_backward_grad_sync") is not False:
            _exchange_count += 1


count_parallel_pass = _probe.protect(_count_parallel_pass)


def _read_statistics() -> None:
    global _next_read_step
    steps = progress.step_count
    module = _ddp_module() if _ddp_module is not None else None
    if module is None or steps < _next_read_step:
        return
    _next_read_step = steps + 1 if steps < MEASURED_STEPS else int(READ_GROWTH * steps)
    statistics = module._get_ddp_logging_data()
    if statistics.get("avg_backward_compute_time", 0):
        _probe.fact(
            "ddp",
            step_count=steps,
            pass_count=_pass_count,
            exchange_count=_exchange_count,
            backward_compute_ns=statistics["avg_backward_compute_time"],
            backward_comm_ns=statistics["avg_backward_comm_time"],
            backward_overlap_ns=statistics["avg_backward_compute_comm_overlap_time"],
            forward_compute_ns=statistics["avg_forward_compute_time"],
            bucket_bytes=statistics.get("bucket_sizes", ""),
            backend=statistics.get("backend_name", ""),
            world_size=statistics.get("world_size", 0),
        )


def _timed(original: Callable[..., Any]) -> Callable[..., Any]:
    def timed(*args: Any, **kwargs: Any) -> Any:
        if is_compiling():
            return original(*args, **kwargs)
        flight_recorder.keep_reading()
        span = _probe.start(Kind.COMMUNICATION, original.__name__, _count_bytes(args, kwargs))
        flags = Flag.ASYNC if kwargs.get("async_op") else 0
        try:
            return original(*args, **kwargs)
        finally:
            _probe.end(span, flags=flags)

    return timed


def _count_bytes(args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    """Count the bytes of the tensor that a collective is called with first; 0 without one.

    The record of a call has them from its start: it remains where the call ends the process.
    """
    tensor = args[0] if args else next(iter(kwargs.values()), None)
    if type(tensor) is not torch.Tensor or tensor.layout is not torch.strided:
        return 0
    return count_bytes(tensor)
