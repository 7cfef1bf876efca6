"""The recording session of one process: its logs and its interned names.

A session starts with the first record, not with an import, so that the many short Python
processes of a job write nothing; or, as that of a program, when the stacks of a process that has
recorded nothing yet are to be written. A forked child starts a separate session.

Signal handlers and garbage-collection callbacks record too and may interrupt any function here,
so no function waits for a lock that the same thread may hold.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
import time
from itertools import count

from stepscope.capture.last_words import note_uncaught, record_error_output, write_crashes_to
from stepscope.errors import explain_os_error
from stepscope.job_environment import read_ranks
from stepscope.spool import (
    CRASH_FILE,
    ENTRY,
    OUTPUT_FILE,
    PROGRAM,
    SPOOL_VARIABLE,
    START,
    DropCounts,
    Journal,
    Kind,
    LogsBase,
    RowLog,
    SpanLog,
    SpoolTree,
    find_launch_ns,
    make_meta,
    native,
    note_refusal,
    note_refusal_in_spool,
    note_survival,
    process_start_ticks,
    read_recording_end,
    remove_process_directory,
    set_generation,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

LIMIT_VARIABLE = "STEPSCOPE_SPOOL_LIMIT"
DEFAULT_LIMIT_BYTES = 256 * 1024 * 1024
NAMES_LIMIT = 1 << 16
NAMES_EXHAUSTED = "(name limit of the run reached)"
DEPTH_MASK = 0x7FFF
"""Bits of the depth that a record stores. Intervals without an end increase the depth forever."""

generation = 1
"""Increases at every fork and session change; a span of another generation must not be ended."""

live = 1
"""The generation whose logs may be written to; 0 while recording is off."""

set_generation(generation, live)  # the library may have those of an earlier import

local = threading.local()
"""`.logs` is the `ThreadLogs` of the running thread, from its first record on."""

ready_ns: int | None = None
"""Monotonic time at which the interpreter was ready; None where the start-up hook did not run."""

_started_ns = time.monotonic_ns()
_current: Session | None = None
_program: Session | None = None
"""Session of a process of which only stacks are recorded; `_current` from its first record on."""
_unavailable: str | None = None
_opening = False
_lock = threading.RLock()


Key = tuple[int, str, "str | None"]
"""Kind, name, and labels as a JSON object."""


class ThreadLogs(LogsBase):
    """The logs of one thread: coarse for steps and phases, fine for all other records.

    They have separate budgets in the spool, so that a flood of annotations cannot displace steps.
    """

    __slots__ = ("open", "session")

    def __init__(self, session: Session) -> None:
        self.session = session
        self.metas = session.metas
        self.coarse = session.new_log("c")
        self.fine = session.new_log("f")
        self.depth = 0
        self.open: dict[object, OpenAnnotation] = {}
        self.generation = generation


OpenAnnotation = tuple[memoryview, int, int, "OpenAnnotation | None"]
"""Words, index, depth increment, and the enclosing open interval of the same object."""


class Session:
    """Names, facts and logs of this process image.

    Args:
        spool: the spool.
        limit_bytes: its size limit.
        end_ns: monotonic time at which recording ends; None if it does not.
        is_program: only stacks are recorded so far.
    """

    def __init__(
        self, spool: str, limit_bytes: int, end_ns: int | None = None, *, is_program: bool = False
    ) -> None:
        self.end_ns = end_ns
        self.tree = SpoolTree(spool, limit_bytes)
        if is_program:
            self.tree.count_program()
        try:
            self.name, self.directory = self.tree.make_process_directory()
        except OSError as error:
            if not is_program:
                note_refusal_in_spool(spool, error)
            raise
        self.drops = DropCounts.create(self.directory)
        self._private_drops = DropCounts.create_private()
        self.journal = Journal(f"{self.directory}/journal.jsonl")
        self.metas: dict[Key | str, int] = {}
        self._names: dict[tuple[str, str | None], int] = {}
        self._name_numbers = count(1)
        self._segment_numbers: dict[tuple[int, str], count[int]] = {}
        self._logs: dict[int, ThreadLogs | None] = {}
        """Logs by native id of the thread; None for one that has asked for logs once."""
        self._facts: set[str] = set()
        self._row_log: RowLog | None = None
        self.rank: int | None = None
        """Rank that the environment stated at the first record."""
        self.describe_process(role=PROGRAM if is_program else None)
        record_error_output(f"{self.directory}/{OUTPUT_FILE}")
        write_crashes_to(f"{self.directory}/{CRASH_FILE}")

    def describe_process(self, role: str | None = None) -> None:
        """Write a description of the process; the last one counts.

        Raises:
            OSError: the spool cannot be written.
        """
        description = _describe_process()
        self.rank = description.get("rank")
        if role is not None:
            description["role"] = role
        try:
            self.journal.write("process", **description)
        except OSError as error:
            if role is None:
                note_refusal(self.directory, error)
            else:
                remove_process_directory(self.directory)
            raise

    def thread_logs(self) -> ThreadLogs:
        """Return the logs of the running thread, which `local` lacks.

        A thread that a framework has started outside of Python, as the pools of TensorFlow are, has
        a new thread state in each call of Python. It continues its logs: new ones would open a file
        per call. Those of a thread that asks once, as all threads of Python do, are not kept, since
        they occupy memory.
        """
        thread = threading.get_native_id()
        logs = self._logs.get(thread)
        if logs is None:
            logs = ThreadLogs(self)
            self._logs[thread] = logs if thread in self._logs else None
        return logs

    def new_log(self, log_class: str) -> SpanLog:
        """Create a log for the running thread. Of steps and annotations, drops are counted."""
        thread = threading.get_native_id()
        numbers = self._segment_numbers.setdefault((thread, log_class), count())
        drops = self._private_drops if log_class in {START, ENTRY} else self.drops
        return SpanLog(self.tree, self.directory, thread, log_class, drops, numbers=numbers)

    @property
    def row_log(self) -> RowLog:
        """The log of rows, created on first use: a process has one."""
        if self._row_log is None:
            thread = threading.get_native_id()
            self._row_log = RowLog(self.tree, self.directory, thread, self.drops)
        return self._row_log

    def meta(self, key: Key | str) -> int:
        """Return the meta word for records of this kind, name and labels; interns the name.

        A text alone is the name of an annotation without labels.

        The hot path looks it up in `metas` first. If the name cannot be journalled (the disk is
        full), the record is written without a name instead of being dropped.
        """
        kind, name, labels = (Kind.ANNOTATION, key, None) if isinstance(key, str) else key
        try:
            if len(self._names) < NAMES_LIMIT:
                meta = self.metas[key] = make_meta(self._intern((name, labels)), kind)
                return meta
            # Not stored in `metas`, which must not grow with every new name.
            number = self._names.get((name, labels)) or self._intern((NAMES_EXHAUSTED, None))
            return make_meta(number, kind)
        except OSError:
            return make_meta(0, kind)

    def fact(self, fact: str, **fields: Any) -> None:
        """Record a fact about the job, once for equal fields."""
        key = f"{fact}{sorted(fields.items())!r}"
        if key not in self._facts:
            self._facts.add(key)
            self.journal.write("fact", fact=fact, **fields)

    def note(self, text: str) -> None:
        """Record that data is missing, and the reason."""
        self.journal.write("note", text=text)

    def make_metas(self, kind: int, names: list[str]) -> list[int]:
        """Return the meta words of records of one kind by name, as `meta`, with one write."""
        new: dict[tuple[str, str | None], int] = {}
        for name in names:
            if (name, None) not in self._names and len(self._names) + len(new) < NAMES_LIMIT:
                new[name, None] = next(self._name_numbers)
        try:
            lines = [{"id": n, "text": name, "labels": None} for (name, _), n in new.items()]
            self.journal.write_all("name", lines)
        except OSError:
            pass  # without a name
        else:
            self._names.update(new)
        return [make_meta(self._names.get((name, None), 0), kind) for name in names]

    def _intern(self, key: tuple[str, str | None]) -> int:
        number = self._names.get(key)
        if number is None:  # two threads may both intern a new name, which is harmless
            number = next(self._name_numbers)
            self.journal.write("name", id=number, text=key[0], labels=key[1])
            self._names[key] = number
        return number


def current() -> Session | None:
    """Return the session of this process, created on first use; None while recording is off."""
    return _current if _current is not None else _open()


def begin() -> Session | None:
    """Return the session, of a process that has recorded nothing that of a program; None while
    recording is off."""
    session = _current or _program
    return session if session is not None else _open(is_program=True)


def is_open() -> bool:
    """Return True if there is a session."""
    return _current is not None or _program is not None


def thread_logs() -> ThreadLogs | None:
    """Return the logs of the running thread; None while recording is off."""
    if not live:
        return None
    logs: ThreadLogs | None = getattr(local, "logs", None)
    if logs is None or logs.generation != live:
        session = current()
        if session is None:
            return None
        logs = local.logs = session.thread_logs()
        if native is not None:
            native.note_logs(logs)
    return logs


def pause() -> None:
    """Stop recording until `resume`; open intervals can still be ended."""
    _set_generation(generation, 0)


def resume() -> None:
    """Resume recording, unless its time is over."""
    _set_generation(generation, generation)
    pause_at_end()


def pause_at_end() -> bool:
    """Stop recording if its time is over; True if it is."""
    if _current is None or not is_over(_current.end_ns):
        return False
    pause()
    return True


def is_over(end_ns: int | None) -> bool:
    """Return True if recording has ended, which it does at a monotonic time; None if never."""
    return end_ns is not None and time.monotonic_ns() >= end_ns


def attach(spool: str, limit_bytes: int = DEFAULT_LIMIT_BYTES) -> None:
    """Record into *spool* from now on; child processes inherit it."""
    global _current, _program, _unavailable
    os.environ[SPOOL_VARIABLE] = spool
    os.environ[LIMIT_VARIABLE] = str(limit_bytes)
    _current = _program = None
    _unavailable = None
    _set_generation(generation + 1, live)
    resume()


def detach() -> None:
    """Stop recording until `attach`."""
    global _current, _program
    pause()
    os.environ.pop(SPOOL_VARIABLE, None)
    os.environ.pop(LIMIT_VARIABLE, None)
    _current = _program = None
    _set_generation(generation + 1, live)


def _set_generation(number: int, live_number: int) -> None:
    global generation, live
    generation, live = number, live_number
    set_generation(number, live_number)


def _open(*, is_program: bool = False) -> Session | None:
    """Open the session; a process whose stacks are recorded has one already."""
    global _current, _program, _unavailable, _opening
    spool = os.environ.get(SPOOL_VARIABLE)
    if not spool or _unavailable is not None:
        pause()  # from now on a mark costs almost nothing
        return None
    with _lock:
        session = _current or (_program if is_program else None)
        if session is None and _unavailable is None and not _opening:
            _opening = True
            try:
                session = _program
                if session is None:
                    limit = int(os.environ.get(LIMIT_VARIABLE, DEFAULT_LIMIT_BYTES))
                    session = _make_session(spool, limit, is_program=is_program)
                else:
                    session.describe_process()
                if session is not None and is_program:
                    _program = session
                else:
                    _current, _program = session, None
            except (OSError, ValueError, ImportError) as error:
                session = _program = None
                if not is_program:
                    _unavailable = explain_os_error(error)
                    warn(f"process {os.getpid()} is not recorded: {_unavailable}")
            finally:
                _opening = False
    return session


def _make_session(spool: str, limit_bytes: int, *, is_program: bool) -> Session | None:
    """Make the session; None after the end of the recording.

    Raises:
        OSError: the spool cannot be written.
    """
    global _unavailable
    end_ns = read_recording_end(spool)
    if is_over(end_ns):
        _unavailable = "the recording of the job has ended"
        pause()
        return None
    return Session(spool, limit_bytes, end_ns, is_program=is_program)


def warn(text: str) -> None:
    """Print a message to the user of the job, if stderr can be written.

    The message bypasses the buffer of stderr: a buffer that cannot be flushed (a closed descriptor,
    a full disk) changes the exit status of the interpreter to 120.
    """
    line = f"stepscope: {text}\n"
    try:
        stream = sys.stderr
        try:
            descriptor = stream.fileno()
        except (OSError, ValueError, AttributeError):  # a stream without a descriptor
            stream.write(line)
        else:
            os.write(descriptor, line.encode(errors="backslashreplace"))
    except (OSError, ValueError, AttributeError):  # missing, closed or full stderr
        pass


def _describe_process() -> dict[str, Any]:
    return {
        "pid": os.getpid(),
        "parent_pid": os.getppid(),
        "started_monotonic_ns": time.monotonic_ns(),
        "launched_monotonic_ns": find_launch_ns(process_start_ticks()),
        "ready_monotonic_ns": ready_ns,
        "command": list(getattr(sys, "orig_argv", sys.argv)),
        "python": sys.version.split()[0],
        **read_ranks().known,
    }


def _after_fork_in_child() -> None:
    """Discard the session: the parent's logs stay mapped, but only the parent may write to them."""
    global _current, _program, _lock, _opening, ready_ns
    _current = _program = None
    _opening = False
    if ready_ns is not None:
        ready_ns = time.monotonic_ns()
    _lock = threading.RLock()
    paused = not live
    _set_generation(generation + 1, live)
    if not paused:
        resume()
    local.__dict__.clear()


def _note_end() -> None:
    """Record that the interpreter ends by itself, for a job whose exit status is not seen, and the
    exception that ends it, if there is one. A process that starts after another one has failed, and
    ends by itself, shows that the job has survived that."""
    error = getattr(sys, "last_type", None)  # set if an exception ended the script
    exception = error.__name__ if error else None
    spool = os.environ.get(SPOOL_VARIABLE)
    try:
        ending = _current or _program
        if ending is not None:
            ending.journal.write("end", exception=exception, t_ns=time.monotonic_ns())
        if spool and exception is not None:
            note_uncaught(spool, exception)
        elif spool:
            note_survival(spool, _started_ns)
    except OSError:  # the disk is full, or the spool is gone
        pass


if sys.platform != "win32":  # which has no forks
    os.register_at_fork(after_in_child=_after_fork_in_child)
atexit.register(_note_end)
