"""Location of the run of a script that profiles itself.

The processes of one distributed job record into one run, as its launchers do under `stepscope run`:
without a directory, its name follows from the identity of the job, so that all nodes agree on it.
"""

from __future__ import annotations

import os
import sys
import time

from stepscope.capture.notebook import LAUNCHER
from stepscope.errors import RunExistsError, UsageError
from stepscope.spool import machine_id, process_parent, process_start_ticks

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from stepscope.job_environment import JobIdentity

RUNS_DIRECTORY = "stepscope-runs"
COMPLETED, IN_PROGRESS, STOPPING = "Completed", "InProgress", "Stopping"
"""States of a job in the status of a node."""
HEARTBEAT_TIMEOUT_NS = 60_000_000_000
"""Time without a heartbeat after which a process on another machine counts as ended."""


def find_location(run: str | None, identity: JobIdentity | None) -> str:
    """Find the directory of a run.

    Args:
        run: the directory that the script names; None for a default one.
        identity: the job, if it has several processes.

    Raises:
        RunExistsError: the directory holds a run that this process cannot join.
        UsageError: it is a URL.
    """
    if run is None:
        return _find_default(identity)
    if _is_url(run):
        raise UsageError(
            f"start_profiling cannot record into {run}: it needs a directory. To record into an "
            "object store, start the script with `stepscope run --out URL -- CMD`."
        )
    location = os.path.abspath(run)
    info = _read(location, "run.json")
    if info is not None and not _may_join(location, info, identity):
        if identity is None or info.get("job") is None:
            raise RunExistsError(f"{location} already holds a run. Use a new directory.")
        raise RunExistsError(
            f"{location} already holds a run of the job {info['job']}, and this process belongs to "
            f"the job {identity.text}, or that job has ended. Use a new directory."
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
    return identity.is_unique or _is_of_this_start(location)


def _is_of_this_start(location: str) -> bool:
    """Return True unless the job of a run has ended.

    After a failure it goes on where the agent that has started one of its processes, such as that
    of torchrun, has started this one, too.
    """
    launchers = _list_launchers(location)
    if not launchers or any(_is_alive(*launcher) for launcher in launchers):
        return True
    has_completed = all(status.get("state") == COMPLETED for _, status in launchers)
    agents = [(launcher.get("machine"), launcher.get("parent")) for launcher, _ in launchers]
    return not has_completed and (machine_id(), process_parent()) in agents


def _list_launchers(location: str) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """List the launchers of a run, each with the status of its node, empty before the first; a
    heartbeat is as late as the file system or the clock of the node says."""
    directory = os.path.join(location, "launchers")
    launchers = []
    for name in os.listdir(directory) if os.path.isdir(directory) else []:
        launcher = _read(directory, name)
        path = os.path.join(location, "nodes", name.removesuffix(".json"), "status.json")
        status = _read(path)
        if launcher is not None and status is not None:
            written_ns = os.stat(path).st_mtime_ns
            heartbeat_ns = max(written_ns, status.get("heartbeat_ns", 0))
            launchers.append((launcher, {**status, "heartbeat_ns": heartbeat_ns}))
        elif launcher is not None:
            launchers.append((launcher, {}))
    return launchers


def _is_alive(launcher: dict[str, Any], status: dict[str, Any]) -> bool:
    """Return True if a launcher runs; on another machine, if its latest heartbeat is recent."""
    if launcher.get("machine") == machine_id():
        ticks = process_start_ticks(launcher.get("pid", 0))
        return ticks is not None and ticks == launcher.get("start_ticks")
    heard_ns = status.get("heartbeat_ns") or launcher.get("registered_ns", 0)
    is_final = status.get("state", IN_PROGRESS) not in {IN_PROGRESS, STOPPING}
    return not is_final and time.time_ns() - heard_ns <= HEARTBEAT_TIMEOUT_NS


def _is_url(location: str) -> bool:
    scheme, separator, _ = location.partition("://")
    return bool(separator) and scheme.isalnum()  # `re` would take a millisecond in every process


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
