"""The recording session of one process: where its logs are, what its names mean.

A session starts with the first record, not with an import, so that the many short Python
processes of a job leave no trace. A forked child starts a session of its own.
"""

from __future__ import annotations

import os
import sys
import threading
from typing import Any

from stepscope.spool import Journal, SpanLog, SpoolTree, make_meta

SPOOL_VARIABLE = "STEPSCOPE_SPOOL"
LIMIT_VARIABLE = "STEPSCOPE_SPOOL_LIMIT"
DEFAULT_LIMIT_BYTES = 256 * 1024 * 1024
NAMES_LIMIT = 1 << 16
NAMES_EXHAUSTED = "(more names than a run keeps)"

generation = 0
"""Grows at every fork and session change; a span of another generation is not ours to end."""

recording = True
"""False between `stop_profiling` and `start_profiling`."""

local = threading.local()
"""`.logs` holds the `ThreadLogs` of the running thread once it has recorded something."""

_current: Session | None = None
_unavailable: str | None = None
_lock = threading.Lock()


Key = tuple[int, str, str | None]
"""Kind, name, and labels as a JSON object."""


class ThreadLogs:
    """The logs of one thread: coarse for steps and phases, fine for everything else.

    They have separate budgets in the spool, so that no flood of annotations can cost a step.
    """

    __slots__ = ("coarse", "depth", "fine", "generation", "metas", "session")

    def __init__(self, session: Session) -> None:
        thread = threading.get_native_id()
        self.session = session
        self.metas = session.metas
        self.coarse = SpanLog(session.tree, session.directory, thread, "c")
        self.fine = SpanLog(session.tree, session.directory, thread, "f")
        self.depth = 0
        self.generation = generation


class Session:
    """Names, facts and logs of this process image."""

    def __init__(self, spool: str, limit_bytes: int) -> None:
        self.tree = SpoolTree(spool, limit_bytes)
        self.name, self.directory = self.tree.make_process_directory()
        self.journal = Journal(f"{self.directory}/journal.jsonl")
        self.metas: dict[Key, int] = {}
        self._names: dict[tuple[str, str | None], int] = {}
        self._facts: set[str] = set()
        self._lock = threading.Lock()
        self.journal.write("process", **_describe_process())

    def meta(self, key: Key) -> int:
        """The meta word for records of this kind, name and labels; interns the name.

        The hot path looks into `metas` first. A name that cannot be journalled (the disk is
        full) is left out of the record rather than losing the record.
        """
        kind, name, labels = key
        try:
            meta = make_meta(self._intern((name, labels)), kind)
        except OSError:
            return make_meta(0, kind)
        self.metas[key] = meta
        return meta

    def fact(self, fact: str, **fields: Any) -> None:
        """Record something learnt about the job, once for equal fields."""
        key = f"{fact}{sorted(fields.items())!r}"
        if key not in self._facts:
            self._facts.add(key)
            self.journal.write("fact", fact=fact, **fields)

    def note(self, text: str) -> None:
        """Record what is missing and why."""
        self.journal.write("note", text=text)

    def _intern(self, key: tuple[str, str | None]) -> int:
        with self._lock:
            number = self._names.get(key)
            if number is not None:
                return number
            if len(self._names) >= NAMES_LIMIT and key[0] != NAMES_EXHAUSTED:
                exhausted = (NAMES_EXHAUSTED, None)
                number = self._names.get(exhausted)
                if number is not None:
                    return number
                key = exhausted
            number = len(self._names) + 1
            self.journal.write("name", id=number, text=key[0], labels=key[1])
            self._names[key] = number
            return number


def current() -> Session | None:
    """The session of this process, made on first use; None when nothing is to be recorded."""
    return _current if _current is not None else _open()


def thread_logs() -> ThreadLogs | None:
    """The logs of the running thread; None when nothing is to be recorded."""
    if not recording:
        return None
    try:
        logs: ThreadLogs = local.logs
    except AttributeError:
        session = current()
        if session is None:
            return None
        logs = local.logs = ThreadLogs(session)
    return logs


def attach(spool: str, limit_bytes: int = DEFAULT_LIMIT_BYTES) -> None:
    """Record into *spool* from now on; child processes inherit it."""
    global _current, _unavailable, generation
    os.environ[SPOOL_VARIABLE] = spool
    os.environ[LIMIT_VARIABLE] = str(limit_bytes)
    local.__dict__.clear()
    _current = None
    _unavailable = None
    generation += 1


def _open() -> Session | None:
    global _current, _unavailable
    spool = os.environ.get(SPOOL_VARIABLE)
    if not spool or _unavailable is not None:
        return None
    with _lock:
        if _current is None and _unavailable is None:
            try:
                limit = int(os.environ.get(LIMIT_VARIABLE, DEFAULT_LIMIT_BYTES))
                _current = Session(spool, limit)
            except (OSError, ValueError) as error:
                _unavailable = str(error)
                _warn(f"nothing is recorded in process {os.getpid()}: {error}")
    return _current


def _warn(text: str) -> None:
    try:
        sys.stderr.write(f"stepscope: {text}\n")
    except (OSError, ValueError, AttributeError):  # no stderr, or a closed one
        pass


def _describe_process() -> dict[str, Any]:
    ranks = {key.lower(): os.environ.get(key) for key in ("RANK", "LOCAL_RANK", "WORLD_SIZE")}
    return {
        "pid": os.getpid(),
        "parent_pid": os.getppid(),
        "command": list(getattr(sys, "orig_argv", sys.argv)),
        "python": sys.version.split()[0],
        **{key: int(text) for key, text in ranks.items() if text and text.isdecimal()},
    }


def _after_fork_in_child() -> None:
    """The parent's logs are mapped in the child too; only the parent may write to them."""
    global _current, _lock, generation
    _current = None
    _lock = threading.Lock()
    generation += 1
    local.__dict__.clear()


os.register_at_fork(after_in_child=_after_fork_in_child)
