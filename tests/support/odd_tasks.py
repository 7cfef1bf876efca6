"""Tasks of workers that misbehave, beside the real ones: what a view might do at its worst."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stepscope.server import tasks
from stepscope.server.open_runs import OpenRuns

_held: list[bytearray] = []


def view(
    runs: OpenRuns, *, location: str, revision: int, name: str, given: Mapping[str, str]
) -> Any:
    """A view by a name that no real one has."""
    match name.removeprefix("timeline-"):
        case "pid":
            return os.getpid()
        case "sleep":  # says who sleeps, then does
            Path(given["pid"]).write_text(str(os.getpid()))
            time.sleep(float(given["seconds"]))
            return os.getpid()
        case "die":
            os._exit(1)
        case "grow":
            _held.append(bytearray(os.urandom(1)) * int(given["bytes"]))
            return os.getpid()
        case "huge":
            return "x" * int(given["bytes"])
        case "fail":
            raise ZeroDivisionError("division by <b>zero</b>")
    return tasks.view(runs, location=location, revision=revision, name=name, given=given)


TASKS = tasks.TASKS | {"view": view}
