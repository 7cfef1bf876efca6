"""Texts of stacks, as the table `stacks` has them, and the samples outside of the step sampler.

All samplers of a process share the texts: a call of a line has one number. What they may record in
facts, and how many stacks, is limited for each, so that the start of a job leaves room for its
steps.
"""

from __future__ import annotations

import sys
import threading
import time
from contextlib import suppress
from itertools import islice
from opcode import opname
from types import CodeType

from stepscope.capture import session
from stepscope.capture.frames import Libraries, shorten
from stepscope.capture.guard import Probe
from stepscope.capture.stack_reading import is_import, read_frames
from stepscope.spool import ENTRY, Flag, Kind

TYPE_CHECKING = False
if TYPE_CHECKING:
    from stepscope.capture.stack_reading import FrameState

MAX_SOURCE_LINES = 1000
MAX_CALLS = 20
"""Limit on the recorded calls of one line."""
MAX_FUNCTIONS = 300
MAX_NAMES = 100
"""Limit on the recorded names that one function uses."""
MAX_STACKS = 2000
"""Limit on the different stacks of one writer; further ones have the frames of user code only."""
MAX_USER_STACKS = 4000
MIN_ENTRY_INTERVAL_NS = 50_000_000
"""Time between two samples that a thread takes of itself, of the same occasion."""
IMPORT_TEXT = "import|<frozen importlib._bootstrap>|python"
MARK_BITS = Flag.MARK << 16

_GENERATOR = 0x20  # inspect.CO_GENERATOR
_RUNS_CODE = ("CALL", "PRECALL", "BINARY", "COMPARE", "CONTAINS")
"""Start of the names of instructions that run code of their operands, which may be in C."""
_probe = Probe("stack samples at checkpoints and evaluations")


class Budget:
    """Facts that one sampler may still record."""

    __slots__ = ("functions_left", "lines_left")

    def __init__(self) -> None:
        self.functions_left = MAX_FUNCTIONS
        self.lines_left = MAX_SOURCE_LINES


class StackTexts:
    """Texts of the stacks of one session."""

    def __init__(self, owner: session.Session) -> None:
        self.session = owner
        self.libraries = Libraries()
        self._frames: dict[int, tuple[str, bool, CodeType]] = {}
        """By identity: the hash of a code object is computed from all of its constants."""
        self._sources: dict[tuple[str, int], list[str]] = {}
        """Texts of calls by file and line; the first one is the line itself."""
        self._calls: dict[tuple[int, int], str] = {}
        """Text of the frame of user code by code and instruction."""

    def describe(self, frames: list[FrameState], budget: Budget) -> tuple[list[str], int]:
        """Return the texts of frames, outermost first, and the line of the innermost frame of user
        code, 0 without one.

        Args:
            frames: innermost first.
        """
        user_line = 0
        texts: list[str] = []
        for code, line, instruction in shorten(frames, self.libraries):
            text, is_user, _ = self._frames.get(id(code)) or self._describe(code, budget)
            if is_user and not user_line:
                user_line = line
                text = self._calls.get((id(code), instruction)) or self._mark_call(
                    text, code, line, instruction, budget
                )
            if text and not (text is IMPORT_TEXT and texts and texts[-1] is IMPORT_TEXT):
                texts.append(text)
        texts.reverse()
        return texts, user_line

    def _describe(self, code: CodeType, budget: Budget) -> tuple[str, bool, CodeType]:
        library = self.libraries.find(code)
        if library == "stepscope":  # frames of the adapters are not work of the job
            return self._frames.setdefault(id(code), ("", False, code))
        if is_import(code):
            return self._frames.setdefault(id(code), (IMPORT_TEXT, False, code))
        suffix = "<generator>" if code.co_flags & _GENERATOR and code.co_name[0] != "<" else ""
        text = f"{qualified_name(code)}{suffix}|{code.co_filename}|{library}".replace(";", ",")
        if not library:
            if not budget.functions_left:  # another sampler may have room
                return text, True, code
            # A function is told by what it uses: it opens files, or makes tensors.
            budget.functions_left -= 1
            name, uses = qualified_name(code), list(code.co_names[:MAX_NAMES])
            line = code.co_firstlineno
            with suppress(OSError):  # the spool has no room
                self.session.fact(
                    "function", file=code.co_filename, name=name, uses=uses, line=line
                )
        return self._frames.setdefault(id(code), (text, not library, code))

    def _mark_call(
        self, text: str, code: CodeType, line: int, instruction: int, budget: Budget
    ) -> str:
        """Return the text of a frame of user code with the number of the call that it runs, if that
        is known, and record the texts of line and call: findings quote them as evidence."""
        texts = self._sources.get((code.co_filename, line))
        if texts is None:
            if not budget.lines_left:
                return text
            import linecache

            budget.lines_left -= 1
            texts = [linecache.getline(code.co_filename, line).strip()]
            self._sources[code.co_filename, line] = texts
            if texts[0]:
                self._write_source(code, line, texts)
        call = _read_call(code, instruction) if texts[0] else ""
        if call:
            if call not in texts[1:] and len(texts) <= MAX_CALLS:
                texts.append(call)
                self._write_source(code, line, texts)
            if call in texts[1:]:
                number = texts.index(call, 1)
                name, separator, rest = text.partition("|")
                text = f"{name}<call {number}>{separator}{rest}"
        self._calls[id(code), instruction] = text
        return text

    def _write_source(self, code: CodeType, line: int, texts: list[str]) -> None:
        """Record the last text of a line."""
        call, text = len(texts) - 1, texts[-1][:200]
        with suppress(OSError):
            self.session.fact("source", file=code.co_filename, line=line, call=call, text=text)


def qualified_name(code: CodeType) -> str:
    """Return the name of a function with that of its class; before Python 3.11 without."""
    return getattr(code, "co_qualname", code.co_name)


def _read_call(code: CodeType, instruction: int) -> str:
    """Return the source of the expression that an instruction evaluates; '' if it is no call or
    operation, for older versions of Python, and without the source."""
    positions = getattr(code, "co_positions", None)
    bytecode = code.co_code
    if positions is None or not 0 <= instruction < len(bytecode):
        return ""
    while instruction and opname[bytecode[instruction]] == "CACHE":  # of a call of Python code
        instruction -= 2
    if not opname[bytecode[instruction]].startswith(_RUNS_CODE):
        return ""
    start, end, column, end_column = next(islice(positions(), instruction // 2, None), [None] * 4)
    if start is None or end is None or column is None or end_column is None:
        return ""
    import linecache

    lines = [linecache.getline(code.co_filename, n).encode() for n in range(start, end + 1)]
    if not all(lines):
        return ""
    lines[-1] = lines[-1][:end_column]
    # The position of a method that is called on a line of its own begins behind the dot.
    column -= lines[0][:column].endswith(b".")
    lines[0] = lines[0][column:]
    return " ".join(b"".join(lines).decode(errors="replace").split())


_texts: StackTexts | None = None


def texts_of(owner: session.Session) -> StackTexts:
    """Return the texts of a session, which is that of this process."""
    global _texts
    texts = _texts
    if texts is None or texts.session is not owner:
        texts = _texts = StackTexts(owner)
    return texts


class SampleWriter:
    """Writer of samples outside of the step sampler, into a log of the calling thread.

    Args:
        owner: the session.
        log_class: class of the log.
    """

    def __init__(self, owner: session.Session, log_class: str) -> None:
        self.session = owner
        self._log = owner.new_log(log_class)
        self._texts = texts_of(owner)
        self._budget = Budget()
        self._metas: dict[str, int] = {}

    def write(self, samples: list[tuple[int, list[FrameState]]]) -> None:
        """Write samples, each with its time and its frames from the innermost on."""
        described = [self._texts.describe(frames, self._budget) for _, frames in samples]
        names = [self._limit(texts) for texts, _ in described]
        new = [name for name in dict.fromkeys(names) if name not in self._metas]
        if new:
            self._metas.update(zip(new, self.session.make_metas(Kind.STACK, new)))
        for (t_ns, frames), (_, user_line), name in zip(samples, described, names):
            meta = self._metas[name] | MARK_BITS
            self._log.write(meta, t_ns, 0, user_line << 32 | frames[0][1])

    def _limit(self, texts: list[str]) -> str:
        """Return the name of a stack, within the limits on different ones."""
        name = ";".join(texts)
        if name not in self._metas and len(self._metas) >= MAX_STACKS:
            name = ";".join(text for text in texts if text.endswith("|"))  # user code
            if name not in self._metas and len(self._metas) >= MAX_USER_STACKS:
                return session.NAMES_EXHAUSTED
        return name


_local = threading.local()
"""`.writer` is the writer of the running thread, `.times` those of its samples by occasion."""


def _sample_entry(occasion: str) -> None:
    current = session.current() if session.live else None
    if current is None:
        return
    times: dict[str, int] = _local.__dict__.setdefault("times", {})
    now = time.monotonic_ns()
    if now - times.get(occasion, 0) < MIN_ENTRY_INTERVAL_NS:
        return
    times[occasion] = now
    writer: SampleWriter | None = getattr(_local, "writer", None)
    if writer is None or writer.session is not current:
        writer = _local.writer = SampleWriter(current, ENTRY)
    writer.write([(now, read_frames(sys._getframe()))])


sample_entry = _probe.protect(_sample_entry)
"""Record the stack of the calling thread, which begins something that its samples may miss. Never
raises. Samples of one occasion are `MIN_ENTRY_INTERVAL_NS` apart: a step may evaluate a model."""
