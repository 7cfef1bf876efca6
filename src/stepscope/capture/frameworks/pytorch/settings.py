"""Settings of torch and of the interpreter that change how fast the job runs."""

from __future__ import annotations

import os
import sys
import time
import traceback
from typing import Any

import torch

from stepscope.capture.debug_variables import DEBUG_VARIABLES
from stepscope.capture.frameworks.progress import progress
from stepscope.capture.frameworks.pytorch.window import is_job_profiling
from stepscope.capture.guard import Probe

RECORDED_STEPS = (1, 10, 100)
"""Steps after which settings are read; some scripts change them after a warm-up."""
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
    if progress.step_count not in RECORDED_STEPS:
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
