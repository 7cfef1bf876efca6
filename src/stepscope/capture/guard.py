"""The only exception guard around code that runs inside the user's program.

A probe records one activity (data loading, the backward pass, …). An exception inside a probe
disables that probe, is noted once in the run, and never reaches the job. With STEPSCOPE_STRICT=1
it is raised instead, for stepscope's tests.
"""

from __future__ import annotations

import functools
import os
import struct
import time

from stepscope.capture import session
from stepscope.capture.session import DEPTH_MASK, ThreadLogs, local, thread_logs
from stepscope.spool import ROLL_WORD, Flag, Kind, ProbeBase, native

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, ParamSpec

    Arguments = ParamSpec("Arguments")

OpenSpan = tuple[memoryview, int, ThreadLogs]
"""Position of an open interval: words, index, and the logs that wrote it."""

STRICT = os.environ.get("STEPSCOPE_STRICT") == "1"
_now = time.monotonic_ns
_WORD = 0xFFFF_FFFF_FFFF_FFFF
_FLAGS_AND_DEPTH = 0xFF_FFFF


class Probe(ProbeBase):
    """Recorder of one activity, which can be disabled separately.

    Args:
        name: names the missing data in the run's note when the probe fails.
        coarse: its records are steps and phases, which have a separate budget in the spool.
    """

    __slots__ = ()

    def __init__(self, name: str, *, coarse: bool = False) -> None:
        self.name = name
        self.alive = True
        self._is_coarse = coarse

    def start_in_python(self, kind: int, name: str = "", value: int = 0) -> OpenSpan | None:
        """Start an interval; None while nothing is recorded. Never raises.

        It runs several times per step with cold caches, where every instruction costs time. So it
        tests nothing twice, and does not store the end: new segments are zeroed.
        """
        live = session.live
        if not live or not self.alive:
            return None
        try:
            try:
                logs = local.logs
                if logs.generation != live:
                    logs = thread_logs()
                meta = logs.metas[kind, name, None]
            except (AttributeError, KeyError):  # no logs of the thread, or a new name
                logs = thread_logs()
                if logs is None:
                    return None
                meta = logs.session.meta((kind, name, None))
            if native is not None:
                native.note_logs(logs)
            log = logs.coarse if self._is_coarse else logs.fine
            next_index, words = log.cursor
            i = next_index()
            if i >= ROLL_WORD:
                words, i = log.roll(words, i)
            words[i + 2] = meta | logs.depth & DEPTH_MASK
            words[i + 3] = value & _WORD
            words[i] = _now()
            logs.depth += 1
        except Exception as error:  # noqa: BLE001 - the guard
            self.fail(error)
            return None
        return words, i, logs

    def end_in_python(
        self, span: OpenSpan | None, *, value: int | None = None, flags: int = 0
    ) -> None:
        """End an interval that `start` returned. Never raises."""
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

    def label(self, span: OpenSpan | None, kind: int, name: str, labels: str) -> None:
        """Give an open interval labels, a JSON object; `kind` and `name` are its own. Never raises.
        It takes longer than `start`."""
        if span is None:
            return
        try:
            words, i, logs = span
            if logs.generation == session.generation:
                key = (kind, name, labels)
                meta = logs.metas.get(key) or logs.session.meta(key)
                words[i + 2] = meta | words[i + 2] & _FLAGS_AND_DEPTH
        except Exception as error:  # noqa: BLE001 - the guard
            self.fail(error)

    def abandon(self, span: OpenSpan | None) -> None:
        """Close an interval whose end was not observed: zero duration, no result."""
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

    def write_in_python(  # noqa: PLR0917 - one record, in the order of its words
        self, kind: int, name: str, start_ns: int, end_ns: int, value: int = 0, flags: int = 0
    ) -> None:
        """Record an interval with known start and end, in monotonic nanoseconds. Never raises."""
        if not self.alive:
            return
        try:
            logs = thread_logs()
            if logs is None:
                return
            if native is not None:
                native.note_logs(logs)
            key = (kind, name, None)
            meta = logs.metas.get(key) or logs.session.meta(key)
            log = logs.coarse if self._is_coarse else logs.fine
            word = value & _WORD
            log.write(meta | flags << 16 | logs.depth & DEPTH_MASK, start_ns, end_ns, word)
        except Exception as error:  # noqa: BLE001 - the guard
            self.fail(error)

    if native is None or TYPE_CHECKING:
        start, end, write = start_in_python, end_in_python, write_in_python

    def scalar(self, name: str, value: float, t_ns: int, *, step: int | None = None) -> None:
        """Record a number, such as a loss, at a monotonic time. Never raises.

        Args:
            step: number of the step, if the adapter knows it.
        """
        (bits,) = struct.unpack("=Q", struct.pack("=d", value))
        self.write(Kind.SCALAR, name, t_ns, 0 if step is None else step + 1, bits, Flag.MARK)

    def fact(self, fact: str, **fields: Any) -> None:
        """Record a fact about the job. Never raises."""
        try:
            current = session.current()
            if current is not None and self.alive:
                current.fact(fact, **fields)
        except Exception as error:  # noqa: BLE001 - the guard
            self.fail(error)

    def note(self, text: str) -> None:
        """Record that data is missing, and the reason, as a sentence. Never raises."""
        try:
            current = session.current()
            if current is not None:
                current.note(text)
        except Exception as error:  # noqa: BLE001 - the guard
            self.fail(error)

    def protect(self, function: Callable[Arguments, object]) -> Callable[Arguments, None]:
        """Wrap a function so that it is safe to call from the job; its result is discarded."""

        @functools.wraps(function)
        def protected(*args: Arguments.args, **kwargs: Arguments.kwargs) -> None:
            if self.alive:
                try:
                    function(*args, **kwargs)
                except Exception as error:  # noqa: BLE001 - the guard
                    self.fail(error)

        return protected

    def fail(self, error: Exception) -> None:
        """Disable the probe and write a note into the run."""
        if STRICT:
            raise error
        self.alive = False
        try:
            current = session.current()
            if current is not None:
                location = _innermost_line(error)
                current.note(
                    f"stopped recording {self.name} after an error: {error!r} at {location}"
                )
        except Exception:  # noqa: BLE001, S110 - no spool, or the repr of the error fails
            pass


def install_parts(framework: str, *parts: Callable[[], object]) -> None:
    """Call each function that installs a part of an adapter. One that fails is noted by the name of
    its module, and stops no other.

    Args:
        framework: name of the framework.
        parts: the functions.
    """
    for part in parts:
        name = part.__module__.rpartition(".")[2].replace("_", " ")
        Probe(f"{name} of {framework}").protect(part)()


def describe(value: object) -> str:
    """Return the repr of an object of the job, or the name of its class if its repr raises."""
    try:
        return repr(value)
    except Exception:  # noqa: BLE001 - the guard
        return f"<{type(value).__name__}>"


def _innermost_line(error: Exception) -> str:
    traceback = error.__traceback__
    location = "an unknown line"
    while traceback is not None:
        code = traceback.tb_frame.f_code
        location = f"{os.path.basename(code.co_filename)}:{traceback.tb_lineno}"
        traceback = traceback.tb_next
    return location
