"""Repair of events in malformed JSON.

Recorders have written names with quotes, backslashes and control characters in them, `nan` and
`N/A` for numbers, commas before closing brackets, and files that end anywhere. Events are then
read one by one and repaired where that is safe; unreadable text is counted.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import msgspec

from stepscope import schema
from stepscope.importers.kineto.blocks import scan_object

_FIRST_KEYS = (
    b"ph", b"cat", b"name", b"pid", b"tid", b"ts", b"dur", b"args", b"id", b"bp", b"s", b"tts",
    b"sf", b"tdur",
)  # fmt: skip
_FIRST_KEY = re.compile(rb'\{\s*"([^"\\]{1,64})"\s*:')
_TRIED_OBJECTS = 8
"""Objects at the start of a block among which an event with another first key is searched."""
_MAX_FIRST_BYTES = 16 << 10
"""Length of these."""
_CONTROL = bytes(c if c >= 32 else 32 for c in range(256))
_NO_VALUE = re.compile(
    rb'("[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z))'
    rb"|(?<=[:\[,\s])[-+]?(?:nan(?:\([a-z]*\))?|inf(?:inity)?|N/A|none|undefined)(?=\s*[,}\]])"
    rb"|(,)(?=\s*[}\]])",
    re.IGNORECASE | re.DOTALL,
)
"""A string, a word in the position of a number, or a trailing comma."""
_NO_VALUE_WORDS = (b"nan", b"inf", b"n/a", b"none", b"undefined")
_TRAILING_COMMA = re.compile(rb",\s*[}\]]")
_STRING_VALUE = re.compile(
    rb'(?<!\\)("(?:[^"\\]|\\.)*+"\s*:\s*")(.{0,2048}?)'
    rb'("(?=\s*(?:,\s*"(?:[^"\\]|\\.)*+"\s*:|\}\s*(?:\}|,|$))))',
    re.DOTALL,
)
_BAD_ESCAPE = re.compile(rb'\\(?!["\\/bfnrt]|u[0-9a-fA-F]{4})')
_LONE_SURROGATE = re.compile(
    rb"(?:\\\\)++"
    rb"|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    rb"|(\\u[dD][89a-fA-F][0-9a-fA-F]{2})"
    rb"|\\.",
    re.DOTALL,
)
"""Backslashes, a pair of surrogates, half of one, or another escape."""
_MAX_QUOTED_BYTES = 64 << 10
"""Text in which quotes inside strings are searched: the search takes quadratic time."""
_WORK_FACTOR = 4
"""Bytes that are searched and repaired per byte of a block, so that any text takes linear time."""
_FAILURE_BYTES = 4_000
"""Bytes that can be searched in the time that an unreadable object takes, however short it is."""
_NO_EVENT_BYTES = 100
"""The same for a readable object that is no event."""
_MAX_SCANNED_BYTES = 128 << 10
"""Length of an event beside damage; where one is cut off, its end is searched so far."""
_SCAN_FACTOR = 8
"""Bytes that can be repaired in the time in which one is searched for the end of an object."""
_MAX_JOIN = 4
"""Pieces that are joined at most when a border turns out to be inside an event."""
_BLANK = b" \t\r\n,"
Decode = Callable[[bytes], list[Any]]


class RepairedEvents(msgspec.Struct):
    """Readable events of a damaged block."""

    events: list[Any] = msgspec.field(default_factory=list)
    repaired: int = 0
    lost: int = 0
    lost_bytes: int = 0
    fragments: tuple[bytes, bytes] = (b"", b"")
    """Unreadable text at the start and at the end."""


def read_events(text: bytes, decode: Decode, *, complete: bool) -> RepairedEvents:
    """Read the readable events of a block.

    Args:
        text: events separated by commas.
        decode: decodes the text of an array into events, or raises a msgspec error.
        complete: the text does not continue elsewhere. Otherwise unreadable text at its two ends
            may be half of an event, and is returned as fragments.
    """
    return _Reader(text, decode, complete).read()


class _Reader:
    """Reads a text from start to end."""

    def __init__(self, text: bytes, decode: Decode, complete: bool) -> None:
        self._text = text
        self._decode = decode
        self._complete = complete
        self._begin, border = _find_borders(_other_first_key(text))
        self._ends = [match.start() + 1 for match in border.finditer(text)] + [len(text)]
        self._result = RepairedEvents()
        self._unread: list[tuple[int, int]] = []
        self._follows_damage = False
        """The object that is read may be part of an event: text before it could not be read."""
        self._budget = _WORK_FACTOR * (len(text) + _MAX_QUOTED_BYTES)

    def read(self) -> RepairedEvents:
        at = 0
        while (start := self._text.find(b"{", at)) >= 0:
            self._skip(at, start)
            follows_unread = bool(self._unread) and self._unread[-1][1] == start
            self._follows_damage = follows_unread or (at == 0 and not self._complete)
            piece_end = self._ends[bisect_left(self._ends, start + 1)]
            at = self._read_at(start, piece_end)
            if at == start:
                self._budget -= _FAILURE_BYTES
                at = self._give_up(start, piece_end)
        self._skip(at, len(self._text))
        self._account()
        return self._result

    def _skip(self, start: int, end: int) -> None:
        """Note text that could not be read."""
        if self._unread and self._unread[-1][1] == start:
            self._unread[-1] = (self._unread[-1][0], end)
        elif self._text[start:end].strip(_BLANK):
            self._unread.append((start, end))

    def _give_up(self, start: int, piece_end: int) -> int:
        """Skip the object at a position; returns the position where the next one may start."""
        following = (
            self._begin.search(self._text, start + 1, piece_end) if self._budget > 0 else None
        )
        if following is None or self._may_continue(start, piece_end):
            self._skip(start, piece_end)
            return piece_end
        self._skip(start, following.start())
        return following.start()

    def _may_continue(self, start: int, piece_end: int) -> bool:
        """Return True for a piece whose other half may be in another block."""
        return not self._complete and (start == 0 or piece_end == len(self._text))

    def _read_at(self, start: int, piece_end: int) -> int:
        """Read the events from a position to the next border; returns the end of the text read."""
        is_short = piece_end - start <= _MAX_QUOTED_BYTES
        if is_short and self._take(self._text[start:piece_end].rstrip(_BLANK)):
            return piece_end
        if self._budget <= 0:
            return start
        end, is_event = scan_object(self._text, start, _MAX_SCANNED_BYTES)
        if not is_event and self._objects(self._text[start:end]) is not None:
            self._budget -= _NO_EVENT_BYTES + end - start
            if not self._take(self._text[start:end]):
                self._skip(start, end)
            return end
        scanned = end - start
        self._budget -= scanned if is_event else max(piece_end - start, _SCAN_FACTOR * scanned)
        if is_event and end != piece_end:
            text = self._text[start:end]
            if self._take(text) or self._take_repaired(text, _repair_values):
                return end
        piece = self._text[start:piece_end].rstrip(_BLANK)
        if not is_short and self._take(piece):
            return piece_end
        if self._take_repaired(piece, _repair_values):
            return piece_end
        return start if self._may_continue(start, piece_end) else self._join(start)

    def _join(self, start: int) -> int:
        """Read an event that may contain borders and quotes, as far as they can be recognised."""
        first = bisect_left(self._ends, start + 1)
        last = start
        for end in self._ends[first : first + _MAX_JOIN]:
            if last > start and self._is_separate(self._text[last:end].strip(_BLANK)):
                break
            text = self._text[start:end].rstrip(_BLANK)
            if self._take_repaired(text, _repair_values):
                return end
            if self._take_repaired(text, _repair_strings):
                return end
            last = end
        return start

    def _take_repaired(self, text: bytes, repair: Callable[[bytes], bytes]) -> bool:
        self._budget -= len(text)
        return self._budget > 0 and self._take(repair(text), repaired=1)

    def _take(self, text: bytes, *, repaired: int = 0) -> bool:
        objects = self._objects(text)
        if objects is None or (self._follows_damage and objects and not objects[0].ph):
            return False
        events = [event for event in objects if event.ph]
        self._result.events += events
        self._result.repaired += min(repaired, len(events))
        return True

    def _is_separate(self, text: bytes) -> bool:
        """Return True for text of whole events."""
        objects = self._objects(text)
        return objects is not None and all(event.ph for event in objects)

    def _objects(self, text: bytes) -> list[Any] | None:
        try:
            objects = self._decode(b"[" + text + b"]")
        except schema.MALFORMED_JSON:
            return None
        return objects if all(len(event.ph) <= 1 for event in objects) else None

    def _account(self) -> None:
        """Classify unreadable text: fragments at the two ends, or lost."""
        size, result = len(self._text), self._result
        first = last = b""
        blanks = size - len(self._text.lstrip(_BLANK))  # before the first event
        for start, end in self._unread:
            text = self._text[start:end]
            if not self._complete and start <= blanks:
                first = text
            elif not self._complete and end == size:
                last = text
            else:
                result.lost += 1
                result.lost_bytes += end - start
        result.fragments = (first, last)


@lru_cache(maxsize=8)
def _find_borders(other_key: bytes | None) -> tuple[re.Pattern[bytes], re.Pattern[bytes]]:
    """Return patterns of the start of an event, and of what looks like one event and the next."""
    keys = _FIRST_KEYS if other_key is None else (*_FIRST_KEYS, re.escape(other_key))
    begin = rb'\{\s*"(?:' + b"|".join(keys) + rb')"\s*:'
    return re.compile(begin), re.compile(rb"\}\s*,\s*(?=" + begin + rb")")


def _other_first_key(text: bytes) -> bytes | None:
    """Return the key that events begin with if a recorder writes keys in an order of its own."""
    at = 0
    for _ in range(_TRIED_OBJECTS):
        start = text.find(b"{", at)
        if start < 0:
            break
        at, is_event = scan_object(text, start, _MAX_FIRST_BYTES)
        if is_event and (match := _FIRST_KEY.match(text, start)) and match[1] not in _FIRST_KEYS:
            return match[1]
    return None


def _repair_values(text: bytes) -> bytes:
    """Repair values outside strings.

    Words in the position of a number become null, trailing commas are removed. Invalid UTF-8 and
    halves of characters are replaced, control characters become blanks.
    """
    text = text.translate(_CONTROL).decode("utf-8", "replace").encode()
    if b"\\u" in text:
        text = _replace(_LONE_SURROGATE, lambda m: rb"\ufffd" if m[1] else None, text)
    lower = text.lower()
    if not (any(word in lower for word in _NO_VALUE_WORDS) or _TRAILING_COMMA.search(text)):
        return text
    return _replace(_NO_VALUE, lambda m: None if m[1] else b"" if m[2] else b"null", text)


def _replace(
    pattern: re.Pattern[bytes], substitute: Callable[[re.Match[bytes]], bytes | None], text: bytes
) -> bytes:
    """Replace matches for which `substitute` does not return None.

    `re.sub` would keep a piece of text per match, a string of two bytes included, until its end.
    """
    result = bytearray()
    done = 0
    for match in pattern.finditer(text):
        substituted = substitute(match)
        if substituted is not None:
            result += text[done : match.start()] + substituted
            done = match.end()
    return bytes(result + text[done:]) if done else text


def _repair_strings(text: bytes) -> bytes:
    """Repair values, also inside strings.

    A string ends at the quote before a new key or the end of the object; earlier quotes are part
    of it.
    """
    values = _repair_values(text)
    return _replace(_STRING_VALUE, _quoted, values) if len(values) <= _MAX_QUOTED_BYTES else values


def _quoted(match: re.Match[bytes]) -> bytes | None:
    value = match[2]
    if b'"' not in value and b"\\" not in value:
        return None
    opening, _, closing = match.groups()
    value = _BAD_ESCAPE.sub(rb"\\\\", value)
    return opening + re.sub(rb'(?<!\\)"', rb'\\"', value) + closing


def repair_object(text: bytes) -> bytes:
    """Repair the text of one object."""
    return _repair_strings(text)
