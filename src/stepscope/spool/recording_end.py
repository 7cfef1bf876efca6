"""Time at which the recording of the job's processes ends, in a file of the spool.

It is written before the job starts. The processes stop recording at about that time, and the reader
of the spool drops what they record later, so that all processes have the same end.
"""

from __future__ import annotations

FILE_NAME = "recording-end"


def write_recording_end(spool: str, end_ns: int) -> None:
    """Write the end, in monotonic nanoseconds.

    Raises:
        OSError: the spool cannot be written.
    """
    with open(f"{spool}/{FILE_NAME}", "w", encoding="ascii") as file:
        file.write(str(end_ns))


def read_recording_end(spool: str) -> int | None:
    """Read the end, in monotonic nanoseconds; None without one."""
    try:
        with open(f"{spool}/{FILE_NAME}", encoding="ascii") as file:
            return int(file.read())
    except (OSError, ValueError):
        return None
