"""Threads of NumPy's linear algebra, which the commands do not use."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def one_thread_in_numpy() -> Iterator[None]:
    """Keep NumPy from starting a thread per core when it is imported in the body.

    The variable is removed afterwards: a job that a command starts must not inherit it.
    """
    if "OPENBLAS_NUM_THREADS" in os.environ:
        yield
        return
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    try:
        yield
    finally:
        del os.environ["OPENBLAS_NUM_THREADS"]
