"""Text notation for the activity of a thread.

    wait 60 | forward 12 | backward 20 | optimizer 8

Pieces follow one another. A piece is a word, optionally followed by `:name`, `=value`,
milliseconds (`?`: without an end), and in parentheses its children:

    optimizer:LBFGS ( forward 10 | backward 20 | forward 10 | backward 20 ) | mark
    wait=3 2                                    three prefetched batches in the queue
    fetch=0.4 ( samples ( do:read 30 | do:crop 8 ) | transform:Crop=8 | collate 2 )
    window ( forward ( op:linear 5 ( op:addmm 4 ) | kernel:gemm 3 ) | optimizer 1 )

The duration of a piece is the larger of its milliseconds and the sum of its children, which come
first. Words are kinds of spans (`schema`), those of `SHORTHAND`, and

    do       time that belongs to no span; its name is a stack of the builder's `code`
    op …     rows of a profiler window: op, kernel, memcpy

The value of `fetch` is the share of its time that it computes (default 1), that of a `transform`
its milliseconds, that of a forward pass (`forward`, `predict`; in evaluation mode `evaluate`, with
gradients `test`, before any optimizer exists `infer`) the elements of its input; other values, such
as the identity of an optimizer, are stored unchanged. The name of a `save` or `load` is the path of
the checkpoint. A `transform` has the extent of the `samples` before it, as capture records it.
"""

from __future__ import annotations

import random
import re
from typing import NamedTuple

import msgspec
import numpy as np

from stepscope.analysis import (
    FLAG_ASYNC,
    FLAG_EVAL_MODE,
    FLAG_NEW_MODEL,
    FLAG_NO_GRAD,
    FLAG_NO_OPTIMIZER,
    FLAG_NO_RESULT,
    FLAG_SIZED,
    SIZE_BITS,
    Spans,
)
from stepscope.schema import SPAN_KINDS

SHORTHAND = {
    "wait": ("data_wait", 0),
    "exhausted": ("data_wait", FLAG_NO_RESULT),
    "start": ("loader_start", 0),
    "predict": ("forward", FLAG_NO_GRAD),
    "evaluate": ("forward", FLAG_NO_GRAD | FLAG_EVAL_MODE),
    "test": ("forward", FLAG_EVAL_MODE),
    "infer": ("forward", FLAG_NO_GRAD | FLAG_EVAL_MODE | FLAG_NO_OPTIMIZER),
    "hand": ("backward", FLAG_NO_OPTIMIZER),
    "new_model": ("optimizer", FLAG_NEW_MODEL),
    "async": ("communication", FLAG_ASYNC),
    "save": ("checkpoint", 0),
    "load": ("checkpoint_load", 0),
    "mark": ("step", 0),
}
"""Kind and flag by word."""
CATEGORIES = {"op": "cpu_op", "kernel": "kernel", "memcpy": "gpu_memcpy"}
MS = 1_000_000

_TOKENS = re.compile(r"[()|]|[^()|]+")
_PIECE = re.compile(r"(\w+)(?::([^\s=]+))?(?:=(-?[\d.]+))?(?:\s+([\d.]+|\?))?")


class Piece(msgspec.Struct, frozen=True, kw_only=True):
    """Piece of a drawing."""

    word: str
    name: str
    value: float | None
    duration_ns: int
    is_unfinished: bool
    children: list[Piece]


class DrawnSpan(NamedTuple):
    """Row of `spans`."""

    kind: str
    name: str
    start: int
    end: int | None
    depth: int
    flags: int
    value: int


class DrawnEvent(NamedTuple):
    """Event of a profiler window."""

    category: str
    name: str
    start: int
    end: int


class DrawnActivity(NamedTuple):
    """Interval in which a thread has one stack; `code` is the name of the stack."""

    code: str
    start: int
    end: int


def parse(text: str) -> list[Piece]:
    """Parse a line into pieces.

    Raises:
        ValueError: a piece is invalid.
    """
    tokens = [token.strip() for token in _TOKENS.findall(text) if token.strip()]
    pieces = _parse_pieces(tokens)
    if tokens:
        raise ValueError(f"unbalanced parentheses in {text!r}")
    return pieces


def _parse_pieces(tokens: list[str]) -> list[Piece]:
    pieces = []
    while tokens and tokens[0] != ")":
        token = tokens.pop(0)
        match = _PIECE.fullmatch(token)
        if match is None or match[1] not in {*SPAN_KINDS, *SHORTHAND, *CATEGORIES, "do"}:
            raise ValueError(f"unknown piece {token!r}")
        children: list[Piece] = []
        if tokens and tokens[0] == "(":
            tokens.pop(0)
            children = _parse_pieces(tokens)
            if not tokens:
                raise ValueError(f"the parenthesis after {token!r} is not closed")
            tokens.pop(0)
        pieces.append(_make_piece(match, children))
        if tokens and tokens[0] == "|":
            tokens.pop(0)
    return pieces


def _make_piece(match: re.Match[str], children: list[Piece]) -> Piece:
    is_unfinished = match[4] == "?"
    return Piece(
        word=match[1],
        name=match[2] or "",
        value=float(match[3]) if match[3] else None,
        duration_ns=0 if is_unfinished else round(float(match[4] or 0) * MS),
        is_unfinished=is_unfinished,
        children=children,
    )


class Drawing(msgspec.Struct, kw_only=True):
    """Thread under construction: pieces are added at time `now`.

    Methods return the drawing, so that calls can be chained.
    """

    now: int = 0
    """Time of the next piece, epoch nanoseconds."""
    inline: bool = True
    """True without DataLoader workers, where the length of the prefetch queue is unknown."""
    spans: list[DrawnSpan] = msgspec.field(default_factory=list)
    events: list[DrawnEvent] = msgspec.field(default_factory=list)
    activities: list[DrawnActivity] = msgspec.field(default_factory=list)
    _identities: dict[str, int] = msgspec.field(default_factory=dict)

    def draw(self, text: str, times: int = 1, *, jitter: float = 0.0, seed: int = 0) -> Drawing:
        """Draw a line a number of times.

        Args:
            jitter: a repetition is stretched by a factor between 1 - jitter and 1 + jitter.
        """
        pieces = parse(text)
        generator = random.Random(seed)  # noqa: S311 - not for cryptography
        for _ in range(times):
            stretch = 1 + generator.uniform(-jitter, jitter) if jitter else 1.0
            for piece in pieces:
                self._draw(piece, stretch, 0)
        return self

    def evaluation(self, batches: int, text: str = "wait 5 | predict 10") -> Drawing:
        """Draw an evaluation loop: start of a loader, its batches, its end; no training."""
        return self.draw("start 1").draw(text, batches).draw("exhausted 1")

    def pause(self, ms: float) -> Drawing:
        """Let time pass with nothing recorded; backwards when negative."""
        self.now += round(ms * MS)
        return self

    def table(self) -> Spans:
        """Convert to the input of analyses, without a run directory."""
        ordered = sorted(self.spans, key=lambda span: span.start)  # stable: outer before inner
        ends = [self.now if span.end is None else span.end for span in ordered]
        return Spans.of_columns(
            start=np.array([span.start for span in ordered], dtype=np.int64),
            end=np.array(ends, dtype=np.int64),
            kind=[span.kind for span in ordered],
            name=[span.name for span in ordered],
            thread=[1] * len(ordered),
            flags=[span.flags for span in ordered],
            unfinished=[span.end is None for span in ordered],
            value=np.array([span.value for span in ordered], dtype=np.int64),
        )

    def _draw(self, piece: Piece, stretch: float, depth: int) -> None:
        start, kind = self.now, SHORTHAND.get(piece.word, (piece.word, 0))[0]
        is_span = kind in SPAN_KINDS
        index = len(self.spans)
        if is_span:  # a span precedes its children
            self.spans.append(DrawnSpan(kind, piece.name, start, None, depth, 0, 0))
        for child in piece.children:
            self._draw(child, stretch, depth + is_span)
        self.now = max(self.now, start + round(piece.duration_ns * stretch))
        if is_span:
            end = None if piece.is_unfinished else self.now
            flags = SHORTHAND.get(piece.word, ("", 0))[1]
            if kind == "forward" and piece.value is not None:
                flags |= FLAG_SIZED
            value = self._value(kind, piece, self.now - start)
            if kind == "transform":
                extents = [(span.start, span.end) for span in self.spans if span.kind == "samples"]
                start, end = extents[-1] if extents else (start, end)
            self.spans[index] = DrawnSpan(kind, piece.name, start, end, depth, flags, value)
        elif piece.word in CATEGORIES:
            self.events.append(DrawnEvent(CATEGORIES[piece.word], piece.name, start, self.now))
        elif piece.name:
            self.activities.append(DrawnActivity(piece.name, start, self.now))

    def _value(self, kind: str, piece: Piece, duration: int) -> int:
        match kind:
            case "fetch":
                return round(duration * (1.0 if piece.value is None else piece.value))
            case "samples":
                return duration
            case "transform":
                return round((piece.value or 0) * MS)
            case "optimizer" if piece.value is not None:
                return int(piece.value)
            case "optimizer" | "forward":  # the identity of the model or optimizer
                identity = self._identities.setdefault(piece.name, len(self._identities) + 1)
                is_sized = kind == "forward" and piece.value is not None
                return identity << SIZE_BITS | int(piece.value or 0) if is_sized else identity
            case "data_wait" if piece.value is None:
                return -1 if self.inline else 0
        return int(piece.value or 0)


def stack_text(short: str) -> str:
    """Expand the short notation of a stack to the recorded form.

    Frames from outermost to innermost, separated by ` > `: `function` is user code in
    `/job/train.py`; `function@/job/data.py` likewise; `function@PIL/Image.py` is in a library;
    `function@python:json/decoder.py` in Python's standard library. `fetch` is the function in
    which torch fetches a batch.

    >>> stack_text("main > get@PIL/Image.py")
    'main|/job/train.py|;get|/site-packages/PIL/Image.py|PIL'
    """
    return ";".join(_frame_text(frame.strip()) for frame in short.split(" > "))


def _frame_text(frame: str) -> str:
    if frame == "fetch":
        frame = "_MapDatasetFetcher.fetch@torch/utils/data/_utils/fetch.py"
    function, _, file = frame.partition("@")
    if file.startswith("python:"):
        return f"{function}|/usr/lib/python3/{file.removeprefix('python:')}|python"
    if not file or file.startswith("/"):
        return f"{function}|{file or '/job/train.py'}|"
    return f"{function}|/site-packages/{file}|{file.partition('/')[0].removesuffix('.py')}"
