"""The one guard around everything that runs inside the user's program.

A probe is one thing that is watched (data loading, the backward pass, …). Whatever fails inside
a probe switches that probe off, is said once in the run, and never reaches the job. With
STEPSCOPE_STRICT=1 it is raised instead: for our own tests.
"""

from __future__ import annotations

import functools
import os
import time

from stepscope.capture import session
from stepscope.capture.session import DEPTH_MASK, ThreadLogs, local, thread_logs
from stepscope.spool import ROLL_WORD, Flag

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, ParamSpec

    Arguments = ParamSpec("Arguments")

OpenSpan = tuple[memoryview, int, ThreadLogs]
"""Where an open interval stands: words, index, and the logs that wrote it."""

STRICT = os.environ.get("STEPSCOPE_STRICT") == "1"
_now = time.monotonic_ns
_WORD = 0xFFFF_FFFF_FFFF_FFFF


class Probe:
    """One thing that is watched, with its own switch.

    Args:
        name: what the run says was lost when the probe fails.
        coarse: its records belong to steps and phases, which have their own room in the spool.
    """

    __slots__ = ("_log", "alive", "name")

    def __init__(self, name: str, *, coarse: bool = False) -> None:
        self.name = name
        self.alive = True
        self._log = "coarse" if coarse else "fine"

    def begin(self, kind: int, name: str = "", value: int = 0) -> OpenSpan | None:
        """Begin an interval; None when nothing is recorded. Never raises."""
        if not self.alive:
            return None
        try:
            live = session.live
            if not live:
                return None
            try:
                logs = local.logs
                if logs.generation != live:
                    logs = thread_logs()
            except AttributeError:
                logs = thread_logs()
            if logs is None:
                return None
            key = (kind, name, None)
            meta = logs.metas.get(key) or logs.session.meta(key)
            log = logs.coarse if self._log == "coarse" else logs.fine
            take, words = log.place
            i = take()
            if i >= ROLL_WORD:
                words, i = log.roll(words, i)
            words[i + 1] = 0
            words[i + 2] = meta | logs.depth & DEPTH_MASK
            words[i + 3] = value & _WORD
            words[i] = _now()
            logs.depth += 1
        except Exception as error:  # noqa: BLE001 - the guard
            self.fail(error)
            return None
        return words, i, logs

    def end(self, span: OpenSpan | None, *, value: int | None = None, flags: int = 0) -> None:
        """End an interval that `begin` returned. Never raises."""
        if span is None:
            return
        try:
            words, i, logs = span
            if logs.generation != session.generation:
                return
            if flags:
                words[i + 2] |= flags << 16
            if value is not None:
                words[i + 3] = value & _WORD
            words[i + 1] = _now()
            logs.depth -= 1
        except Exception as error:  # noqa: BLE001 - the guard
            self.fail(error)

    def abandon(self, span: OpenSpan | None) -> None:
        """End an interval whose end nobody saw: it keeps its start and has no result."""
        if span is None:
            return
        try:
            words, i, logs = span
            if logs.generation == session.generation:
                words[i + 2] |= Flag.NO_RESULT << 16
                words[i + 1] = words[i]
                logs.depth -= 1
        except Exception as error:  # noqa: BLE001 - the guard
            self.fail(error)

    def write(  # noqa: PLR0917 - one record, in the order of its words
        self, kind: int, name: str, start_ns: int, end_ns: int, value: int = 0, flags: int = 0
    ) -> None:
        """Record an interval whose extent is known, in monotonic nanoseconds. Never raises."""
        if not self.alive:
            return
        try:
            logs = thread_logs()
            if logs is None:
                return
            key = (kind, name, None)
            meta = logs.metas.get(key) or logs.session.meta(key)
            log = logs.coarse if self._log == "coarse" else logs.fine
            word = value & _WORD
            log.write(meta | flags << 16 | logs.depth & DEPTH_MASK, start_ns, end_ns, word)
        except Exception as error:  # noqa: BLE001 - the guard
            self.fail(error)

    def fact(self, fact: str, **fields: Any) -> None:
        """Record something learnt about the job. Never raises."""
        try:
            current = session.current()
            if current is not None and self.alive:
                current.fact(fact, **fields)
        except Exception as error:  # noqa: BLE001 - the guard
            self.fail(error)

    def protect(self, function: Callable[Arguments, object]) -> Callable[Arguments, None]:
        """Make a function of ours safe to call from the job; its result is not returned."""

        @functools.wraps(function)
        def protected(*args: Arguments.args, **kwargs: Arguments.kwargs) -> None:
            if self.alive:
                try:
                    function(*args, **kwargs)
                except Exception as error:  # noqa: BLE001 - the guard
                    self.fail(error)

        return protected

    def fail(self, error: Exception) -> None:
        """Switch the probe off and say so in the run."""
        if STRICT:
            raise error
        self.alive = False
        try:
            current = session.current()
            if current is not None:
                where = _innermost_line(error)
                current.note(f"{self.name} is not recorded any more: {error!r} at {where}")
        except Exception:  # noqa: BLE001, S110 - the spool is gone, or the error's own repr fails
            pass


def _innermost_line(error: Exception) -> str:
    traceback = error.__traceback__
    where = "an unknown line"
    while traceback is not None:
        code = traceback.tb_frame.f_code
        where = f"{os.path.basename(code.co_filename)}:{traceback.tb_lineno}"
        traceback = traceback.tb_next
    return where
