"""What makes PyTorch's libkineto ask our monitor for detailed windows.

libkineto reads its daemon's address from the environment when torch is imported. Its sockets lie
in a private directory with a short name: with the longest of their names a path has to fit into
the 108 bytes of a socket's address.
"""

from __future__ import annotations

import os

DIRECTORY_VARIABLE = "STEPSCOPE_KINETO"
"""The directory again, so that a daemon of the user's own is not taken for ours."""
PREFIX = "stepscope-k"
LONGEST_DIRECTORY = 108 - 1 - len("/dynoconfigclient") - 36
POLL_S = 1
"""How often libkineto asks; whole seconds, five where we do not say."""
SYSTEM_CONFIGURATION = "/etc/libkineto.conf"
CONFIGURATION = "kineto.conf"


def make_directory() -> str | None:
    """A directory for the sockets; None where libkineto has a daemon already, or no place fits.

    The caller removes it when the job is over.
    """
    import tempfile

    if "KINETO_USE_DAEMON" in os.environ or "KINETO_IPC_SOCKET_DIR" in os.environ:
        return None
    for base in (tempfile.gettempdir(), "/tmp", "/dev/shm"):  # noqa: S108 - mkdtemp is safe there
        if len(base) + 1 + len(PREFIX) + 8 > LONGEST_DIRECTORY:
            continue
        try:
            directory = tempfile.mkdtemp(prefix=PREFIX, dir=base)
            _write_configuration(directory)
        except OSError:
            continue
        return directory
    return None


def variables(directory: str) -> dict[str, str]:
    """Environment of a job whose libkineto is to ask the socket in *directory*."""
    found = {
        "KINETO_USE_DAEMON": "1",
        "KINETO_IPC_SOCKET_DIR": directory,
        DIRECTORY_VARIABLE: directory,
    }
    if "KINETO_CONFIG" not in os.environ:
        found["KINETO_CONFIG"] = os.path.join(directory, CONFIGURATION)
    return found


def _write_configuration(directory: str) -> None:
    """Ask more often than libkineto would; what the system's own file says still holds."""
    try:
        with open(SYSTEM_CONFIGURATION, encoding="utf-8") as file:
            existing = file.read().rstrip("\n") + "\n"
    except (OSError, UnicodeDecodeError):
        existing = ""
    with open(os.path.join(directory, CONFIGURATION), "w", encoding="utf-8") as file:
        file.write(f"{existing}ON_DEMAND_CONFIG_UPDATE_INTERVAL_SECS={POLL_S}\n")
