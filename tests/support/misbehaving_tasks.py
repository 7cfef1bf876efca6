"""Tasks of workers that misbehave, in addition to the real ones."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stepscope.server import tasks
from stepscope.server.worker import OpenRuns

_memory: list[bytearray] = []


def view(
    runs: OpenRuns, *, location: str, revision: int, name: str, query: Mapping[str, str]
) -> Any:
    """Misbehave for a name that no real view has."""
    match name.removeprefix("timeline-"):
        case "pid":
            return os.getpid()
        case "block":  # writes its PID first
            Path(query["pid"]).write_text(str(os.getpid()))
            threading.Event().wait(float(query["seconds"]))
            return os.getpid()
        case "die":
            os._exit(1)
        case "grow":
            _memory.append(bytearray(os.urandom(1)) * int(query["bytes"]))
            return os.getpid()
        case "huge":
            return "x" * int(query["bytes"])
        case "fail":
            raise ZeroDivisionError("division by <b>zero</b>")
    return tasks.view(runs, location=location, revision=revision, name=name, query=query)


TASKS = tasks.TASKS | {"view": view}
