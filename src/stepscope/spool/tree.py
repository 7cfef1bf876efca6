"""Names of spool files, the size limit of a spool, and the end of its recording.

Time at which the recording of the job's processes ends, in a file of the spool. It is written
before the job starts. The processes stop recording at about that time, and the reader of the spool
drops what they record later, so that all processes have the same end.
"""

from __future__ import annotations

import os
import time
from collections import namedtuple

from stepscope.spool.record import SEGMENT_BYTES

SPOOL_VARIABLE = "STEPSCOPE_SPOOL"
"""Environment variable that names the spool; the whole job inherits it."""
COARSE = "c"
FINE = "f"
ROWS = "r"
"""Class of logs of rows; see `row_log`."""
START = "s"
"""Class of logs of stack samples from before the step sampler, or of a process without it."""
ENTRY = "e"
"""Class of logs of stack samples that a thread takes of itself where it begins something."""
PROGRAMS_FILE = "programs"
MAX_PROGRAMS = 1000
"""Limit on the processes of a node of which stacks are recorded before anything else."""
PROGRAM = "program"
"""Role of a process of which only stacks are recorded."""
_EXTENSIONS = {COARSE: "log", FINE: "log", START: "log", ENTRY: "log", ROWS: "rows"}
FINE_SHARE = 0.75
"""Fine records and rows may fill this share of the limit; the rest is reserved for steps and
phases."""

MIN_LIMIT_BYTES = 8 * SEGMENT_BYTES
"""Room for the samples of the monitor, and for two segments of each log of one thread, of which
fine ones may fill `FINE_SHARE`."""

SHARED_MEMORY_FACTOR = 4
"""Free space of a shared-memory file system from which a spool goes there, as a multiple of the
spool's limit: DataLoader workers pass their batches through it."""


class SpoolFullError(OSError):
    """The spool has reached its size limit."""


def process_start_ticks(pid: int | str = "self") -> int | None:
    """Return the clock ticks from boot to the start of a process; None if it does not run.

    Together with the pid it identifies a process uniquely until the next boot; field 22 of
    /proc/<pid>/stat (proc(5)).
    """
    fields = read_process_fields(pid)
    if fields is None or fields[0] in {b"Z", b"X"}:
        return None
    return int(fields[19])


def find_launch_ns(start_ticks: int | None) -> int | None:
    """Return the monotonic time at which the kernel created a process; None if it is unknown.

    Args:
        start_ticks: clock ticks from boot, which count the time in standby, to its start.
    """
    if start_ticks is None:
        return None
    try:
        since_boot_ns = start_ticks * 1_000_000_000 // os.sysconf("SC_CLK_TCK")
        age_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME) - since_boot_ns
    except (OSError, ValueError):
        return None
    return time.monotonic_ns() - age_ns if age_ns >= 0 else None


def process_parent(pid: int | str = "self") -> str | None:
    """Identify the parent of a process by pid and start; None if it is unknown."""
    fields = read_process_fields(pid)
    if fields is None:
        return None
    parent_pid = int(fields[1])
    ticks = process_start_ticks(parent_pid)
    return None if ticks is None else f"{parent_pid}-{ticks}"


def machine_id() -> str:
    """Identify this machine since its last start, and the space of process ids."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return f"{file.read().strip()}/{os.stat('/proc/self/ns/pid').st_ino}"
    except OSError:
        return f"unknown/{os.getpid()}"


def is_monitor(pid: int) -> bool:
    """Return True if a process is a monitor, and not another one that has got its pid."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return b"stepscope.monitor" in file.read()
    except OSError:
        return False


def is_suspended(pid: int) -> bool:
    """Return True if a signal or a debugger has stopped a process."""
    fields = read_process_fields(pid)
    return fields is not None and fields[0] in {b"T", b"t"}


def read_process_fields(pid: int | str) -> list[bytes] | None:
    """Read the fields of /proc/<pid>/stat from the state on; None without the process."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            stat = file.read()
    except OSError:
        return None
    return stat[stat.rfind(b")") + 2 :].split()


def process_name(pid: int, start_ticks: int, serial: int) -> str:
    """Return the name of one process image; `serial` counts the exec calls of the process."""
    return f"{pid}-{start_ticks}-{serial}"


def process_directory(root: str, pid: int, start_ticks: int) -> str:
    """Return the directory of a process that is described by another one."""
    return f"{root}/p-{process_name(pid, start_ticks, 0)}"


def remove_process_directory(directory: str) -> None:
    """Remove the directory of a process in which nothing could be written."""
    try:
        for name in os.listdir(directory):
            os.unlink(f"{directory}/{name}")
        os.rmdir(directory)
    except OSError:
        pass


def process_is_alive(directory: str) -> bool:
    """Return True while the process image that created a directory of the spool is running."""
    stem, _, serial = directory.rpartition("-")
    pid, ticks = (int(part) for part in os.path.basename(stem).removeprefix("p-").split("-"))
    if process_start_ticks(pid) != ticks:
        return False
    return not os.path.exists(f"{stem}-{int(serial) + 1}")


class LogName(namedtuple("LogName", ("thread", "log_class", "segment"))):
    """Name of one file of a log: `<thread><class>-<segment>.log`, or `.rows` of a log of rows."""

    __slots__ = ()

    @property
    def log(self) -> str:
        """Name of the log that the segment belongs to."""
        return f"{self.thread}{self.log_class}"

    @property
    def file_name(self) -> str:
        """The name on disk."""
        return f"{self.log}-{self.segment}.{_EXTENSIONS[self.log_class]}"

    @classmethod
    def parse(cls, file_name: str) -> LogName | None:
        """Parse a file name; None if it is not the name of a segment."""
        stem, dot, extension = file_name.rpartition(".")
        log, dash, segment = stem.rpartition("-")
        if not (dot and dash and segment.isdecimal() and len(log) > 1):
            return None
        if not log[:-1].isdecimal() or _EXTENSIONS.get(log[-1]) != extension:
            return None
        return cls(int(log[:-1]), log[-1], int(segment))


def segment_bytes(directory: str) -> int:
    """Return the size of the logs of one process; segments have one size, so they are counted."""
    try:
        names = os.listdir(directory)
    except FileNotFoundError:
        return 0
    rows = (f"{directory}/{name}" for name in names if name.endswith((".rows", ".dump")))
    return sum(map(_file_bytes, rows)) + SEGMENT_BYTES * sum(n.endswith(".log") for n in names)


def _file_bytes(path: str) -> int:
    try:
        return 512 * os.stat(path).st_blocks  # a small file occupies a page
    except FileNotFoundError:  # the monitor has read and removed it
        return 0


class SpoolTree:
    """The directory of one spool: process directories and total size.

    Args:
        root: its path.
        limit_bytes: size limit of the logs.
        node: node of a run that several nodes write: processes of two nodes can have one pid and
            one start, so that their names in the run end in that of the node.
    """

    def __init__(self, root: str, limit_bytes: int, node: str | None = None) -> None:
        self.root = root
        self.limit_bytes = limit_bytes
        self._suffix = "" if node is None else f"@{node}"

    def make_process_directory(self) -> tuple[str, str]:
        """Create the directory of this process.

        Its serial is one above the highest existing one: directories of earlier images may have
        been removed, and their names must not be reused.

        Returns:
            The name of the process, and the path of the directory.

        Raises:
            OSError: the spool cannot be written.
        """
        pid, ticks = os.getpid(), process_start_ticks() or 0
        stem = f"{pid}-{ticks}-"
        serials = [
            int(name[len(stem) :]) for name in self.process_directories() if name.startswith(stem)
        ]
        name = process_name(pid, ticks, max(serials, default=-1) + 1)
        path = f"{self.root}/p-{name}"
        os.mkdir(path, 0o700)
        return name, path

    def count_program(self) -> None:
        """Count one more process of which only stacks are to be recorded: each has a manifest.

        Raises:
            SpoolFullError: there are `MAX_PROGRAMS`.
            OSError: the spool cannot be written.
        """
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
        descriptor = os.open(f"{self.root}/{PROGRAMS_FILE}", flags, 0o600)
        try:
            if os.fstat(descriptor).st_size >= MAX_PROGRAMS:
                raise SpoolFullError(f"{MAX_PROGRAMS} programs are recorded")
            os.write(descriptor, b"\n")
        finally:
            os.close(descriptor)

    def process_directories(self) -> dict[str, str]:
        """Return the paths of process directories by process name."""
        try:
            entries = os.listdir(self.root)
        except FileNotFoundError:
            return {}
        return {
            entry[2:] + self._suffix: f"{self.root}/{entry}"
            for entry in entries
            if entry.startswith("p-")
        }

    def used_bytes(self) -> int:
        """Return the total size of all segments."""
        return sum(map(segment_bytes, self.process_directories().values()))

    def reserve(self, log_class: str, size: int = SEGMENT_BYTES) -> None:
        """Check that one more file fits, by default a segment.

        Raises:
            SpoolFullError: the file would exceed the limit of its class.
        """
        share = 1.0 if log_class == COARSE else FINE_SHARE
        if self.used_bytes() + size > self.limit_bytes * share:
            raise SpoolFullError(f"the spool {self.root} has reached its limit")


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
