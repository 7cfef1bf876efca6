"""The process that workers are forked from: it has imported everything and opened nothing.

It takes half a second to get there, so it is begun before anything else; hence no imports here.
"""

from __future__ import annotations

import multiprocessing
import signal
from multiprocessing import forkserver
from multiprocessing.context import ForkServerContext

TASKS = "stepscope.server.tasks"


def forking(tasks: str = TASKS) -> ForkServerContext:
    """What workers are made by.

    Args:
        tasks: module with `TASKS`, which they will need.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["__main__", tasks, "stepscope.server.preloaded"])
    return context


def begin() -> None:
    """Let it import while the server does the same for itself. Ctrl-C is no matter of its."""
    forking()
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        forkserver.ensure_running()
    finally:
        signal.signal(signal.SIGINT, before)
