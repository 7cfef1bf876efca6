"""Settings that change how fast the job runs, compilations of torch.compile, rank of the process.

Compilations of torch.compile, through the compiler's callbacks. The callbacks surround every
compilation, including recompilations for new shapes and the deferred compilation of a backward pass
at its first call. The compiler merges overlapping compilations of several threads into one, so that
a start is always followed by its end.
"""

from __future__ import annotations

import os
import sys
import time
import traceback
from typing import Any

import torch

from stepscope.capture.frameworks.progress import progress
from stepscope.capture.frameworks.pytorch.window import is_job_profiling
from stepscope.capture.guard import OpenSpan, Probe
from stepscope.job_environment import DEBUG_VARIABLES, read_ranks
from stepscope.spool import Kind

RECORDED_STEPS = (1, 10, 100)
"""Steps after which settings are read; some scripts change them after a warm-up. While a debug
switch is on they are read more often, to see when it is turned off."""
SWITCHES = (
    "anomaly_detection", "trace_function", "profile_function", "profiles_operators",
    "traces_allocations",
)  # fmt: skip
"""Debug switches that a script can turn off."""
VARIABLES = ("OMP_NUM_THREADS", *DEBUG_VARIABLES)
DEEPER_FRAMES = 8
"""Frames by which the second stack is deeper, of the two whose capture is timed."""
_probe = Probe("settings")
_recorded: dict[str, Any] = {}


def install() -> None:
    """Read the settings at step boundaries."""
    progress.on_some_boundaries(_probe.protect(_record))


def _record() -> None:
    """Record the settings if they differ from those recorded before."""
    global _recorded
    is_on = any(_recorded.get(name) for name in SWITCHES)
    if progress.step_count not in RECORDED_STEPS and not is_on:
        return
    settings = {
        "anomaly_detection": torch.is_anomaly_enabled(),
        "deterministic_algorithms": torch.are_deterministic_algorithms_enabled(),
        "cudnn_benchmark": bool(torch.backends.cudnn.benchmark),
        "float32_matmul_precision": _get_matmul_precision(),
        "intra_op_threads": torch.get_num_threads(),
        "inter_op_threads": torch.get_num_interop_threads(),
        "trace_function": _name_function(sys.gettrace()),
        "profile_function": _name_function(sys.getprofile()),
        "profiles_operators": is_job_profiling(),
        "traces_allocations": _traces_allocations(),
        "variables": {name: os.environ[name] for name in VARIABLES if os.environ.get(name)},
        "stack_capture": (_recorded.get("stack_capture") or _time_stack_capture())
        if torch.is_anomaly_enabled()
        else None,
    }
    if settings != _recorded:
        _recorded = settings
        _probe.fact("settings", step_count=progress.step_count, **settings)


def _time_stack_capture() -> dict[str, int]:
    """Time what anomaly detection does for every operation: format the current stack."""
    depth = len(traceback.extract_stack())
    shallow, deep = (min(_time_at_depth(extra) for _ in range(3)) for extra in (0, DEEPER_FRAMES))
    return {
        "depth": depth,
        "capture_ns": shallow,
        "frame_ns": max(0, deep - shallow) // DEEPER_FRAMES,
    }


def _time_at_depth(extra: int) -> int:
    if extra:
        return _time_at_depth(extra - 1)
    start = time.perf_counter_ns()
    traceback.format_list(traceback.extract_stack())
    return time.perf_counter_ns() - start


def _get_matmul_precision() -> str | None:
    """Return the precision, None if the script set it for single backends."""
    try:
        return torch.get_float32_matmul_precision()
    except RuntimeError:
        return None


def _name_function(function: Any) -> str | None:
    """Name a function that the interpreter calls at every call or line: a debugger or a tool.

    The function of torch's profiler is left out: it is there for some steps only, as in a window.
    """
    if function is None or type(function).__name__ == "TraceContext":
        return None
    kind = function if hasattr(function, "__qualname__") else type(function)
    return f"{kind.__module__}.{kind.__qualname__}"


def _traces_allocations() -> bool:
    tracemalloc = sys.modules.get("tracemalloc")
    return tracemalloc is not None and tracemalloc.is_tracing()


_compilation_probe = Probe("compilations", coarse=True)
_open: OpenSpan | None = None


def install_compiling() -> None:
    """Register the callbacks; a PyTorch without them (before 2.4) is left alone."""
    callbacks: Any = sys.modules["torch._dynamo.callback"]
    if hasattr(callbacks, "on_compile_start") and hasattr(callbacks, "on_compile_end"):
        callbacks.on_compile_start(_start)
        callbacks.on_compile_end(_end)


@_compilation_probe.protect
def _start(arguments: Any = None, *_: Any) -> None:
    """Start an interval. Older versions pass no description of the compilation."""
    global _open
    trigger = getattr(getattr(arguments, "callback_trigger", None), "name", "")
    _open = _compilation_probe.start(Kind.COMPILE, trigger.lower(), value=_attempt(arguments))


def _end(*_: Any) -> None:
    global _open
    span, _open = _open, None
    _compilation_probe.end(span)


def _attempt(arguments: Any) -> int:
    """Return the number of earlier compilations of the code: the last part of an id like `3/1`."""
    _, separator, attempt = str(getattr(arguments, "compile_id", "")).rpartition("/")
    digits = attempt.partition("_")[0]
    return int(digits) if separator and digits.isdecimal() else 0


def find_rank() -> int | None:
    """Return the rank of this process in `torch.distributed`, or else the one that its environment
    states; None without any."""
    distributed = _find_distributed()
    rank: int | None = read_ranks().rank if distributed is None else int(distributed.get_rank())
    return rank


def find_world_size() -> int | None:
    """Return the number of ranks, likewise."""
    distributed = _find_distributed()
    size: int | None = (
        read_ranks().world_size if distributed is None else int(distributed.get_world_size())
    )
    return size


def _find_distributed() -> Any:
    """Return `torch.distributed` if the process takes part in a job of several; None otherwise."""
    distributed: Any = sys.modules.get("torch.distributed")
    is_used = distributed is not None and distributed.is_available()
    return distributed if is_used and distributed.is_initialized() else None
