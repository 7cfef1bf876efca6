"""Configuration of PyTorch's libkineto with the monitor as its daemon, for detailed windows.

libkineto reads the address of its daemon from the environment when its thread starts
(`frameworks.pytorch.window`). The sockets are in a private directory with a short name: a path with
the longest socket name must fit into the 108 bytes of a socket address.
"""

from __future__ import annotations

import os

DIRECTORY_VARIABLE = "STEPSCOPE_KINETO"
"""Variable of the job with the directory."""
USE_DAEMON_VARIABLE = "KINETO_USE_DAEMON"
"""Variable with which libkineto looks for a daemon, set by a user who has another one."""
TRACE_DIRECTORY_VARIABLE = "KINETO_ONDEMAND_TRACE_DIR"
"""Variable with the only directory into which libkineto writes files for a daemon, from PyTorch
2.15 on (https://github.com/pytorch/kineto/pull/1426)."""
PREFIX = "stepscope-k"
MAX_DIRECTORY_LENGTH = 108 - 1 - len("/dynoconfigclient") - 36
POLL_S = 1
"""Interval at which libkineto polls its daemon, in whole seconds. Its default is five."""
SYSTEM_CONFIGURATION = "/etc/libkineto.conf"
CONFIGURATION = "kineto.conf"


def make_directory() -> str | None:
    """Create a directory for the sockets.

    The caller removes it at the end of the job.

    Returns:
        None if libkineto already has a daemon, or if no directory with a short enough path can be
        created.
    """
    import tempfile

    if USE_DAEMON_VARIABLE in os.environ or "KINETO_IPC_SOCKET_DIR" in os.environ:
        return None
    for base in (tempfile.gettempdir(), "/tmp", "/dev/shm"):  # noqa: S108 - mkdtemp is safe there
        if len(base) + 1 + len(PREFIX) + 8 > MAX_DIRECTORY_LENGTH:
            continue
        try:
            directory = tempfile.mkdtemp(prefix=PREFIX, dir=base)
            _write_configuration(directory)
        except OSError:
            continue
        return directory
    return None


def libkineto_variables(directory: str, spool: str) -> dict[str, str]:
    """Return the environment in which libkineto polls the socket in *directory*, and writes files
    of windows into the *spool*."""
    environment = {"KINETO_IPC_SOCKET_DIR": directory, TRACE_DIRECTORY_VARIABLE: spool}
    if "KINETO_CONFIG" not in os.environ:
        environment["KINETO_CONFIG"] = os.path.join(directory, CONFIGURATION)
    return environment


def _write_configuration(directory: str) -> None:
    """Write a configuration that shortens the poll interval and keeps the system's settings."""
    try:
        with open(SYSTEM_CONFIGURATION, encoding="utf-8") as file:
            existing = file.read().rstrip("\n") + "\n"
    except (OSError, UnicodeDecodeError):
        existing = ""
    with open(os.path.join(directory, CONFIGURATION), "w", encoding="utf-8") as file:
        file.write(f"{existing}ON_DEMAND_CONFIG_UPDATE_INTERVAL_SECS={POLL_S}\n")
