"""Parts of the names of runtime functions (CUDA, HIP) that launch work or capture graphs."""

from __future__ import annotations

WORK_LAUNCHES = ("LaunchKernel", "LaunchCooperativeKernel", "Memcpy", "Memset")
"""Parts of the names of calls that put one piece of work on a device."""
COPY_LAUNCH, SET_LAUNCH = "Memcpy", "Memset"
"""Those of `WORK_LAUNCHES` that put a copy or a set there; all others launch kernels."""
CAPTURE_BEGIN, CAPTURE_END = "StreamBeginCapture", "StreamEndCapture"
"""Between them, on the same thread, launches are captured into a graph and put no work on a
device."""
GRAPH_LAUNCH = "GraphLaunch"
"""Part of the names of calls that put the work of a whole graph on a device."""
