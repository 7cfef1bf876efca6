"""The life of a thread as text.

    wait 60 | forward 12 | backward 20 | optimizer 8

Pieces follow one another; each is a word, then, all of them optional, `:name`, `=value`,
milliseconds (`?`: it never ends), and in parentheses the pieces inside it:

    optimizer:LBFGS ( forward 10 | backward 20 | forward 10 | backward 20 ) | mark
    wait=3 2                                    three batches lay ready
    fetch=0.4 ( samples ( do:read 30 | do:crop 8 ) | transform:Crop=8 | collate 2 )
    window ( forward ( op:linear 5 ( op:addmm 4 ) | kernel:gemm 3 ) | optimizer 1 )

A piece that states no time lasts as long as what is inside it; one that states more rests after
it. Words are kinds of spans (`schema`), those of `SHORTHAND`, and

    do       time that belongs to no span; its name is a stack of the builder's `code`
    op …     rows of a profiler window: op, kernel, memcpy

The value of `fetch` is the share of its time that it computes (1 if not given), that of a
`transform` its milliseconds; any other is stored as it is.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from stepscope.analysis.spans import FLAG_NO_GRAD, FLAG_NO_RESULT, Spans
from stepscope.schema.tables.spans import SPAN_KINDS

SHORTHAND = {
    "wait": ("data_wait", 0),
    "exhausted": ("data_wait", FLAG_NO_RESULT),
    "start": ("loader_start", 0),
    "predict": ("forward", FLAG_NO_GRAD),
    "save": ("checkpoint", 0),
    "mark": ("step", 0),
}
"""Words for a kind with a flag."""
CATEGORIES = {"op": "cpu_op", "kernel": "kernel", "memcpy": "gpu_memcpy"}
MS = 1_000_000

_TOKENS = re.compile(r"[()|]|[^()|]+")
_PIECE = re.compile(r"(\w+)(?::([^\s=]+))?(?:=(-?[\d.]+))?(?:\s+([\d.]+|\?))?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """One piece of a drawing."""

    word: str
    name: str
    value: float | None
    ns: int
    endless: bool
    inside: list[Piece]


class Span(NamedTuple):
    """What becomes a row of `spans`."""

    kind: str
    name: str
    start: int
    end: int | None
    depth: int
    flags: int
    value: int


class Event(NamedTuple):
    """What a profiler window records."""

    category: str
    name: str
    start: int
    end: int


class Doing(NamedTuple):
    """From when to when a stack was to be seen; `code` is its name."""

    code: str
    start: int
    end: int


def parse(text: str) -> list[Piece]:
    """The pieces of a line; ValueError says which one cannot be read."""
    tokens = [token.strip() for token in _TOKENS.findall(text) if token.strip()]
    pieces = _pieces(tokens)
    if tokens:
        raise ValueError(f"unbalanced parentheses in {text!r}")
    return pieces


def _pieces(tokens: list[str]) -> list[Piece]:
    found = []
    while tokens and tokens[0] != ")":
        token = tokens.pop(0)
        match = _PIECE.fullmatch(token)
        if match is None or match[1] not in {*SPAN_KINDS, *SHORTHAND, *CATEGORIES, "do"}:
            raise ValueError(f"{token!r} cannot be drawn")
        inside: list[Piece] = []
        if tokens and tokens[0] == "(":
            tokens.pop(0)
            inside = _pieces(tokens)
            if not tokens:
                raise ValueError(f"the parenthesis after {token!r} never ends")
            tokens.pop(0)
        found.append(_piece(match, inside))
        if tokens and tokens[0] == "|":
            tokens.pop(0)
    return found


def _piece(match: re.Match[str], inside: list[Piece]) -> Piece:
    endless = match[4] == "?"
    return Piece(
        word=match[1],
        name=match[2] or "",
        value=float(match[3]) if match[3] else None,
        ns=0 if endless else round(float(match[4] or 0) * MS),
        endless=endless,
        inside=inside,
    )


@dataclass(slots=True, kw_only=True)
class Drawing:
    """One thread: draws pieces from `now` on and keeps what they recorded.

    Every method returns the drawing, so that calls can follow one another.
    """

    now: int = 0
    """Epoch nanoseconds."""
    inline: bool = True
    """Without workers a request for a batch cannot know how many lie ready."""
    spans: list[Span] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    doings: list[Doing] = field(default_factory=list)
    _identities: dict[str, int] = field(default_factory=dict)

    def draw(self, text: str, times: int = 1, *, jitter: float = 0.0, seed: int = 0) -> Drawing:
        """Draw a line, several times over.

        Args:
            jitter: each repetition is stretched by a factor between 1 - jitter and 1 + jitter.
        """
        pieces = parse(text)
        chance = random.Random(seed)  # noqa: S311 - a drawing keeps no secret
        for _ in range(times):
            stretch = 1 + chance.uniform(-jitter, jitter) if jitter else 1.0
            for piece in pieces:
                self._draw(piece, stretch, 0)
        return self

    def evaluation(self, batches: int, text: str = "wait 5 | predict 10") -> Drawing:
        """An evaluation loop: a loader starts, is read to its end, and nothing is learnt."""
        return self.draw("start 1").draw(text, batches).draw("exhausted 1")

    def pause(self, ms: float) -> Drawing:
        """Let time pass with nothing recorded; backwards when negative."""
        self.now += round(ms * MS)
        return self

    def table(self) -> Spans:
        """What was drawn, as analyses want it, without a detour over a run directory."""
        ordered = sorted(self.spans, key=lambda span: span.start)  # stable: outer before inner
        kinds, kind = np.unique([span.kind for span in ordered], return_inverse=True)
        names, name = np.unique([span.name for span in ordered], return_inverse=True)
        ends = [self.now if span.end is None else span.end for span in ordered]
        return Spans(
            kind=kind.astype(np.int32),
            kinds=kinds.tolist(),
            name=name.astype(np.int32),
            names=names.tolist(),
            thread=np.ones(len(ordered), dtype=np.int64),
            start=np.array([span.start for span in ordered], dtype=np.int64),
            end=np.array(ends, dtype=np.int64),
            flags=np.array([span.flags for span in ordered], dtype=np.int64),
            value=np.array([span.value for span in ordered], dtype=np.int64),
            unfinished=np.array([span.end is None for span in ordered], dtype=np.bool_),
        )

    def _draw(self, piece: Piece, stretch: float, depth: int) -> None:
        start, kind = self.now, SHORTHAND.get(piece.word, (piece.word, 0))[0]
        recorded = kind in SPAN_KINDS
        place = len(self.spans)
        if recorded:  # what is outside comes before what is inside
            self.spans.append(Span(kind, piece.name, start, None, depth, 0, 0))
        for inner in piece.inside:
            self._draw(inner, stretch, depth + recorded)
        self.now = max(self.now, start + round(piece.ns * stretch))
        if recorded:
            end = None if piece.endless else self.now
            flags = SHORTHAND.get(piece.word, ("", 0))[1]
            value = self._value(kind, piece, self.now - start)
            self.spans[place] = Span(kind, piece.name, start, end, depth, flags, value)
        elif piece.word in CATEGORIES:
            self.events.append(Event(CATEGORIES[piece.word], piece.name, start, self.now))
        elif piece.name:
            self.doings.append(Doing(piece.name, start, self.now))

    def _value(self, kind: str, piece: Piece, duration: int) -> int:
        match kind:
            case "fetch":
                return round(duration * (1.0 if piece.value is None else piece.value))
            case "samples":
                return duration
            case "transform":
                return round((piece.value or 0) * MS)
            case "optimizer" | "forward":  # the identity of an object
                return self._identities.setdefault(piece.name, len(self._identities) + 1)
            case "data_wait" if piece.value is None:
                return -1 if self.inline else 0
        return int(piece.value or 0)


def stack_text(short: str) -> str:
    """A recorded stack from a short one.

    Frames from outermost to innermost, divided by ` > `: `function` is the user's, in
    `/job/train.py`; `function@/job/data.py` likewise; `function@PIL/Image.py` a library's;
    `function@python:json/decoder.py` Python's own. `fetch` is where torch makes a batch.

    >>> stack_text("main > get@PIL/Image.py")
    'main|/job/train.py|;get|/site-packages/PIL/Image.py|PIL'
    """
    return ";".join(_frame(frame.strip()) for frame in short.split(" > "))


def _frame(frame: str) -> str:
    if frame == "fetch":
        frame = "_MapDatasetFetcher.fetch@torch/utils/data/_utils/fetch.py"
    function, _, file = frame.partition("@")
    if file.startswith("python:"):
        return f"{function}|/usr/lib/python3/{file.removeprefix('python:')}|python"
    if not file or file.startswith("/"):
        return f"{function}|{file or '/job/train.py'}|"
    return f"{function}|/site-packages/{file}|{file.partition('/')[0].removesuffix('.py')}"
