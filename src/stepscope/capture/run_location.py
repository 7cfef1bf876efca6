"""Location of the run of a script that profiles itself.

The processes of one distributed job record into one run, as its launchers do under `stepscope run`:
without a directory, its name follows from the identity of the job, so that all nodes agree on it.
"""

from __future__ import annotations

import os
import sys
import time

from stepscope.capture.notebook import LAUNCHER
from stepscope.errors import RunExistsError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from stepscope.job_environment import JobIdentity

RUNS_DIRECTORY = "stepscope-runs"
COMPLETED = "Completed"
"""State of a job in the status of a node."""


def find_location(run: str | None, identity: JobIdentity | None) -> str:
    """Find the directory of a run.

    Args:
        run: the directory that the script names; None for a default one.
        identity: the job, if it has several processes.

    Raises:
        RunExistsError: the directory holds a run that this process cannot join.
    """
    if run is None:
        return _find_default(identity)
    location = os.path.abspath(run)
    info = _read(location, "run.json")
    if info is not None and not _may_join(location, info, identity):
        if identity is None or info.get("job") is None:
            raise RunExistsError(f"{location} already holds a run. Use a new directory.")
        raise RunExistsError(
            f"{location} already holds a run of the job {info['job']}, and this process belongs to "
            f"the job {identity.text}, or that job has completed. Use a new directory."
        )
    return location


def _find_default(identity: JobIdentity | None) -> str:
    name = _name_by_time() if identity is None else identity.run_name
    number = 1
    while True:
        suffix = "" if number == 1 else f"-{number}"
        location = os.path.abspath(os.path.join(RUNS_DIRECTORY, name + suffix))
        info = _read(location, "run.json")
        if not os.path.exists(location) or (
            identity is not None and (info is None or _may_join(location, info, identity))
        ):
            return location
        number += 1


def _may_join(location: str, info: dict[str, Any], identity: JobIdentity | None) -> bool:
    if identity is None or info.get("job") != identity.text:
        return False
    # The next job may have the same name where a person has chosen it.
    return identity.is_unique or not _has_completed(location)


def _has_completed(location: str) -> bool:
    nodes = os.path.join(location, "nodes")
    names = os.listdir(nodes) if os.path.isdir(nodes) else []
    states = [(_read(nodes, name, "status.json") or {}).get("state") for name in names]
    return bool(states) and all(state == COMPLETED for state in states)


def _read(*parts: str) -> dict[str, Any] | None:
    import json  # only where a run is begun

    try:
        with open(os.path.join(*parts), encoding="utf-8") as file:
            content = json.load(file)
    except (OSError, ValueError):
        return None
    return content if isinstance(content, dict) else None


def _name_by_time() -> str:
    script = os.path.basename(sys.argv[0] if sys.argv and sys.argv[0] else "job")
    script = "notebook" if script == LAUNCHER else script
    stem = "".join(c if c.isalnum() or c in "._-" else "-" for c in script.removesuffix(".py"))
    return f"{time.strftime('%Y%m%d-%H%M%S')}-{stem[:40]}"
