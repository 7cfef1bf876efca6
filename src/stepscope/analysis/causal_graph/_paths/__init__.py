"""Passes over directed graphs in compiled code, where it could be built.

paths.c    the loops
"""

from __future__ import annotations

import ctypes
import functools
from pathlib import Path
from typing import Any

from stepscope import native_library

LIBRARY = native_library.NativeLibrary(Path(__file__).parent)


@functools.cache
def open_paths() -> Any:
    """Load the library; None where it was not built."""
    library: Any = LIBRARY.open()
    if library is None:
        return None
    integers, count = ctypes.c_void_p, ctypes.c_int64
    library.stepscope_order_points.argtypes = (count, *(4 * (integers,)))
    library.stepscope_order_points.restype = count
    library.stepscope_schedule.argtypes = (count, *(5 * (integers,)))
    library.stepscope_schedule.restype = None
    library.stepscope_latest.argtypes = (count, *(4 * (integers,)))
    library.stepscope_latest.restype = None
    library.stepscope_trace_path.argtypes = (count, *(3 * (integers,)))
    library.stepscope_trace_path.restype = count
    return library
