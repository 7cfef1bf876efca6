"""Nesting of intervals in one pass of compiled code, where it could be built.

nesting.c    the loops
"""

from __future__ import annotations

import ctypes
import functools
from pathlib import Path
from typing import Any

from stepscope import native_library

LIBRARY = native_library.NativeLibrary(Path(__file__).parent)


@functools.cache
def open_nesting() -> Any:
    """Load the library; None where it was not built."""
    library: Any = LIBRARY.open()
    if library is None:
        return None
    integers, count = ctypes.c_void_p, ctypes.c_int64
    library.stepscope_nest.argtypes = (integers, integers, count, count, *(3 * (integers,)))
    library.stepscope_nest.restype = None
    library.stepscope_add_up.argtypes = (integers, count, integers)
    library.stepscope_add_up.restype = None
    return library
