"""Fork server of the workers: a process that has imported all modules and opened nothing.

The imports take half a second, so that the process is started before anything else; hence this
module imports nothing of the project.
"""

from __future__ import annotations

import multiprocessing
import signal
from multiprocessing import forkserver
from multiprocessing.context import ForkServerContext

TASKS = "stepscope.server.tasks"


def worker_context(tasks: str = TASKS) -> ForkServerContext:
    """Configure the multiprocessing context of the workers.

    Args:
        tasks: module with `TASKS`, to import in the fork server.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["__main__", tasks, "stepscope.server.preloaded"])
    return context


def start_fork_server() -> None:
    """Start the process, which imports while the server does the same. It ignores Ctrl-C."""
    worker_context()
    previous = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        forkserver.ensure_running()
    finally:
        signal.signal(signal.SIGINT, previous)
