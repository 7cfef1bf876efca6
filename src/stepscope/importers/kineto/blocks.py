"""Blocks of whole events of a trace file, read once from start to end.

A file is `{... "traceEvents": [event, event, ...], ...}` or a bare array of events, plain or
gzip, up to many gigabytes. It is cut where an object ends and another one starts that has a phase,
as every event has. If such a position is inside an event after all, the text before it does not
decode, and is joined with the start of the next block (see `reading`).
"""

from __future__ import annotations

import errno
import os
import pathlib
import re
import threading
import zlib
from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import BinaryIO

import msgspec
import numpy as np

from stepscope import schema
from stepscope.importers.content import GZIP_MAGIC, is_compressed

try:  # twice as fast
    from isal import isal_zlib as inflate

    _DAMAGED: type[Exception] = inflate.IsalError  # type: ignore[assignment]
except ImportError:
    import zlib as inflate  # type: ignore[no-redef]

    _DAMAGED = inflate.error  # type: ignore[assignment]

BLOCK_BYTES = 2 << 20
"""Text of about 8,000 events; a decoder needs some 10 MB for it, little more than the cache of its
core."""
MAX_BLOCK_BYTES = 8 << 20
"""Text that is cut anywhere if no event starts in it, and that is dropped if unreadable."""
_READ_BYTES = 64 << 10
_PIECE_BYTES = 256 << 10
"""Limit of one inflated piece, however well the text is compressed."""
_SALVAGED_BYTES = 512
"""Limit of one piece before damage: the piece in which it is noticed is lost."""
_TRAILER_BYTES = 8
"""Checksum and length after a stream of gzip."""
_LAST_BYTES = 256 << 10
"""End of a file that is searched for the end of the array."""
_USUAL_LAST_BYTES = 16 << 10
"""End of a file in which the last event usually starts."""
_LOOK_BYTES = 64 << 10
_TRIED_BYTES = 64 << 20
"""Text that is copied and tried for splits of the tail."""
_MAX_HEADER = 64 << 20
_EVENTS_KEY = re.compile(rb'"traceEvents"\s*:\s*\[(?!\s*\](?s:.*?)"traceEvents"\s*:\s*\[)')
_EVENTS_KEY_BYTES = 256
MAX_TRACES = 1000
"""Traces in one text that are told apart."""
_MAX_TRACE_HEADER = 4 << 20
"""Text between the start of a trace and its events, as far as traces are told apart."""
_TRACE_START = re.compile(
    rb'(?<!\\)"traceEvents"\s*:\s*\[|[}\]][\s\0\x1e]*(\[)\s*\{\s*"(?!\s*[:,}\]])'
)
"""The key of the events, or the start of an array after another document. The closing quote of a
string that ends with these characters is followed by the next token."""
_ANY_START = re.compile(rb'"traceEvents"'), re.compile(rb'\[\s*\{\s*"')
_MARKED_BLANKS = b"\xef\xbb\xbf \t\r\n"
"""Whitespace, and the mark that some editors write at the start of UTF-8."""
_BORDER = re.compile(rb"\}(\s*,\s*)(?=\{)")
_TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)|[{}\[\]]', re.DOTALL)
"""A bracket or a string. One without its closing quote reaches to the end: if it was searched for
from each quote in it, that would take quadratic time."""
_COLON = re.compile(rb"\s*:")
_MAX_EVENT_BYTES = 1 << 20
_SCANNED_BYTES = 2 << 20
"""Text that is searched for a border at most."""
_CANDIDATE_BYTES = 64
"""Bytes that can be searched in the time that a look at one position takes, however short it is."""
_ARRAY_END = re.compile(rb"(?:\}|\[)\s*+(?:,\s*+)?\](?=\s*+(?:,\s*+\"|\}|$))")
_buffers = threading.local()
"""`.text` is the block that this thread has read: of new memory, the system clears every page."""

WRONG_CHECKSUM = "the checksum of its compressed data is wrong, so any of its values may be"


@dataclass(slots=True)
class Frame:
    """Text around the events of a file; filled while the blocks are read."""

    header: bytes = b""
    """Text before the array; empty for a bare array."""
    gap: bytes = b""
    """Text between the last block and the tail."""
    tail: bytes = b""
    """Text after the last block: the last events, the end of the array and the text after it."""
    found_events: bool = False
    """An array of events was found."""
    bare_array: bool = False
    text_bytes: int = 0
    """Length of the text."""
    read_bytes: int = 0
    """Bytes of the file read so far, compressed or not."""
    broken_stream: str | None = None
    """Reason why the compressed stream could not be read to its end."""
    wrong_checksums: int = 0
    """Number of compressed streams that were read to their end, and hold another text than the
    one that was compressed."""

    @property
    def damage(self) -> str:
        """Damage of the compressed data, as the rest of a sentence; empty for none."""
        wrong = [WRONG_CHECKSUM] if self.wrong_checksums else []
        return "; ".join([self.broken_stream, *wrong] if self.broken_stream else wrong)


class Block(msgspec.Struct, frozen=True):
    """Events separated by commas: their text, or its position in a file."""

    text: bytes | bytearray = b""
    gap: bytes = b""
    """Text between the previous block and this one."""
    path: str = ""
    offset: int = 0
    length: int = 0
    shared: memoryview | None = None
    """Memory that holds the text."""

    def read(self) -> bytes | bytearray | memoryview:
        """Return the text, of a position in a file until this thread reads the next block.

        Raises:
            OSError: the file cannot be read.
        """
        if not self.path:
            return self.text if self.shared is None else self.shared
        buffer: memoryview = getattr(_buffers, "text", memoryview(b""))
        if len(buffer) < self.length:
            buffer = _buffers.text = np.empty(self.length + _READ_BYTES, dtype=np.uint8).data
        text = buffer[: self.length]
        with pathlib.Path(self.path).open("rb") as file:
            file.seek(self.offset)
            if file.readinto(text) < self.length:
                raise OSError(errno.EIO, "it was truncated while it was read", self.path)
        return text


def read_blocks(path: str, frame: Frame) -> Iterator[Block]:
    """Yield the blocks of a file; afterwards `frame.tail` holds the rest of the text.

    A plain file is only read where it is cut; the decoder of a block reads its text.
    """
    compressed = is_compressed(pathlib.Path(path))
    with pathlib.Path(path).open("rb") as file:
        yield from _inflate_blocks(file, frame) if compressed else _plan_blocks(path, file, frame)


def read_text(path: pathlib.Path, frame: Frame | None = None) -> Iterator[bytes]:
    """Yield the text of a file in pieces, plain or gzip.

    Args:
        path: the file.
        frame: receives the damage of a compressed file.

    Raises:
        OSError: the file cannot be read.
    """
    with path.open("rb") as file:
        if is_compressed(path):
            yield from inflated(file, frame or Frame())
        else:
            while piece := file.read(_PIECE_BYTES):
                yield piece


def find_traces(path: pathlib.Path) -> list[int]:
    """Return the positions in the text of a file at which traces start.

    A trace is an object with the key traceEvents, or an array of objects at the start of the text
    or after another document. Text that is no JSON, such as a trace that was cut off, is skipped.
    """
    buffer, offset, searched, last = bytearray(), 0, 0, 0
    starts: list[int] = []
    for piece in read_text(path):
        if not buffer and _first_character(bytearray(piece)) == b"[":
            starts.append(0)
        buffer += piece
        # Most pieces hold no start, which `_ANY_START` says in a twentieth of the time.
        is_possible = any(start.search(buffer, searched) for start in _ANY_START)
        for match in _TRACE_START.finditer(buffer, searched) if is_possible else ():
            start = match.start(1) if match[1] else _find_object(buffer, last, match.start())
            last = match.end()
            if start is not None and buffer[:start].strip(_MARKED_BLANKS) == b"[" and not offset:
                starts.clear()  # an array of traces
            if start is not None and (not starts or offset + start > starts[-1]):
                starts.append(offset + start)
            if len(starts) > MAX_TRACES:
                return starts
        searched = max(last, len(buffer) - _EVENTS_KEY_BYTES)
        if len(buffer) > 2 * _MAX_TRACE_HEADER:
            cut = len(buffer) - _MAX_TRACE_HEADER
            del buffer[:cut]
            offset, searched, last = offset + cut, max(0, searched - cut), max(0, last - cut)
    return starts


def _find_object(text: bytearray, start: int, position: int) -> int | None:
    """Return the start of the object whose key is at a position; None if it is within another."""
    header = bytes(text[start:position])
    at, budget = len(header), _TRIED_BYTES
    while budget > 0 and (at := header.rfind(b"{", 0, at)) >= 0:
        try:
            msgspec.json.decode(header[at:] + b'"":0}', type=dict[str, msgspec.Raw])
        except schema.MALFORMED_JSON:
            budget -= len(header) - at
            continue
        return None if header[:at].rstrip(_MARKED_BLANKS).endswith(b":") else start + at
    return None


def scan_object(
    text: bytes | bytearray, start: int, max_bytes: int = _MAX_EVENT_BYTES
) -> tuple[int, bool]:
    """Return the end of the scanned part of an object, and True if an event ends there."""
    depth, has_phase = 0, False
    limit = min(len(text), start + max_bytes)
    for match in _TOKEN.finditer(text, start, limit):
        token = match.group()
        if token in {b"{", b"["}:
            depth += 1
        elif token in {b"}", b"]"}:
            depth -= 1
            if depth <= 0:
                return match.end(), has_phase
        elif depth == 1 and token == b'"ph"' and _COLON.match(text, match.end()):
            has_phase = True
    return limit, False


def split_tail(tail: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield splits of the tail into the last events and the text after the array, likely first.

    Text with an end of an array everywhere has only so many that trying them takes linear time.
    """
    if tail.lstrip()[:1] == b"]":
        yield b"", tail.lstrip()[1:]
    max_count = max(1, _TRIED_BYTES // max(1, len(tail)))
    for match in islice(_ARRAY_END.finditer(tail), max_count):
        text = match.group()
        events = tail[: match.start() + (text[:1] == b"}")]
        yield events, tail[match.end() :]


# --- plain files -----------------------------------------------------------------------------


def _plan_blocks(path: str, file: BinaryIO, frame: Frame) -> Iterator[Block]:
    size = os.fstat(file.fileno()).st_size
    frame.text_bytes = size
    start = _find_array(file, frame)
    if start is None:
        return
    gap = b""
    while start + BLOCK_BYTES + _LAST_BYTES < size:
        frame.read_bytes = start
        end, following, next_gap = _find_border(file, start + BLOCK_BYTES, size)
        if end == size:
            break  # the text after the array is long
        yield Block(path=path, gap=gap, offset=start, length=end - start)
        start, gap = following, next_gap
    look = max(start, size - _LAST_BYTES)
    file.seek(look)
    last = _last_border(file.read(size - look))
    if last is not None:
        yield Block(path=path, gap=gap, offset=start, length=look + last.start() + 1 - start)
        start, gap = look + last.end(), last[1]
    file.seek(start)
    frame.gap, frame.tail = gap, file.read()
    frame.read_bytes = size


def _find_array(file: BinaryIO, frame: Frame) -> int | None:
    """Return the position of the first event."""
    buffer = bytearray()
    while len(buffer) < _MAX_HEADER and (piece := file.read(_READ_BYTES)):
        buffer += piece
        size = len(buffer)
        if not _may_be_trace(buffer):
            return None
        if _enter_array(buffer, frame, size - len(piece)):
            return size - len(buffer)
    return None


def _find_border(file: BinaryIO, position: int, size: int) -> tuple[int, int, bytes]:
    """Return end and start of two neighbouring events at or after a position, and the gap."""
    buffer = b""
    limit = min(size - position, MAX_BLOCK_BYTES)
    while len(buffer) < limit:
        file.seek(position + len(buffer))
        piece = file.read(min(max(_LOOK_BYTES, len(buffer)), limit - len(buffer)))
        if not piece:
            break
        buffer += piece
        match = _next_border(buffer, 0)
        if match is not None:
            return position + match.start() + 1, position + match.end(), match[1]
    return position + len(buffer), position + len(buffer), b""


# --- gzip files ------------------------------------------------------------------------------


def _inflate_blocks(file: BinaryIO, frame: Frame) -> Iterator[Block]:
    buffer = bytearray()
    gap = b""
    for piece in inflated(file, frame):
        searched = len(buffer)
        buffer += piece
        if not frame.found_events and not _enter_array(buffer, frame, searched):
            if len(buffer) > _MAX_HEADER or not _may_be_trace(buffer):
                return
            continue
        while len(buffer) > BLOCK_BYTES + _READ_BYTES:
            match = _next_border(buffer, BLOCK_BYTES)
            if match is not None:
                end, following, next_gap = match.start() + 1, match.end(), match[1]
            elif len(buffer) >= MAX_BLOCK_BYTES:
                end, following, next_gap = len(buffer), len(buffer), b""
            else:
                break
            rest = buffer[following:]  # the short part is copied, not the long block
            del buffer[end:]
            yield Block(text=buffer, gap=gap)
            buffer, gap = rest, next_gap
    if frame.found_events:
        last = _last_border(buffer)
        if last is not None:
            rest, next_gap = buffer[last.end() :], last[1]
            del buffer[last.start() + 1 :]
            yield Block(text=buffer, gap=gap)
            buffer, gap = rest, next_gap
        frame.gap, frame.tail = gap, bytes(buffer)


def inflated(file: BinaryIO, frame: Frame) -> Iterator[bytes]:
    """Yield the text of a gzip file in pieces; it may hold several streams in sequence.

    Args:
        file: the file, at its start.
        frame: receives the number of bytes read, the reason of an early end, and the number of
            streams that have another checksum than they state.
    """
    while (yield from _inflate_streams(file, frame)):
        frame.wrong_checksums += 1


def _inflate_streams(file: BinaryIO, frame: Frame) -> Generator[bytes, None, bool]:
    """Yield the text from the start of a stream on; return True after one whose text is complete
    and whose checksum is wrong, if there may be others behind it."""
    inflater = inflate.decompressobj(wbits=31)
    data = b""
    stream_start, text_start = file.tell(), frame.text_bytes
    while compressed := file.read(_READ_BYTES):
        frame.read_bytes = file.tell()
        data += compressed
        while data:
            if inflater.eof:
                data = data.lstrip(b"\0")
                if not GZIP_MAGIC.startswith(data[:2]):
                    return False  # data after the last stream is not part of the file's content
                if len(data) < len(GZIP_MAGIC):
                    break
                inflater = inflate.decompressobj(wbits=31)
                stream_start, text_start = file.tell() - len(data), frame.text_bytes
            try:
                piece = inflater.decompress(data, _PIECE_BYTES)
            except _DAMAGED as error:
                file.seek(stream_start)
                skipped = frame.text_bytes - text_start
                if (yield from _inflate_to_damage(file, frame, skipped=skipped)):
                    return True
                frame.broken_stream = f"its compressed data is damaged ({error})"
                return False
            frame.text_bytes += len(piece)
            yield piece
            data = inflater.unused_data if inflater.eof else inflater.unconsumed_tail
    if not inflater.eof and file.tell() > stream_start:
        frame.broken_stream = "its compressed data is truncated"
    return False


def _inflate_to_damage(
    file: BinaryIO, frame: Frame, *, skipped: int
) -> Generator[bytes, None, bool]:
    """Yield the text of a damaged stream up to the damage, in small pieces; return True if that is
    all of it, as only its checksum is wrong.

    An inflater gives no text of the piece in which it notices damage, which may be all of a small
    file.

    Args:
        file: the file, at the start of the stream; afterwards behind it, if that was reached.
        frame: receives the length of the text.
        skipped: length of the text that was read before.
    """
    _skip_stream_header(file)
    inflater = zlib.decompressobj(wbits=-zlib.MAX_WBITS)
    while compressed := file.read(_READ_BYTES):
        while compressed and not inflater.eof:
            try:
                piece = inflater.decompress(compressed, _SALVAGED_BYTES)
            except zlib.error:
                return False
            compressed = inflater.unconsumed_tail
            if len(piece) > skipped:
                frame.text_bytes += len(piece) - skipped
                yield piece[skipped:]
            skipped = max(0, skipped - len(piece))
        if inflater.eof:
            file.seek(_TRAILER_BYTES - len(inflater.unused_data), os.SEEK_CUR)
            return True
    return False


def _skip_stream_header(file: BinaryIO) -> None:
    """Read the header of a gzip stream (https://www.rfc-editor.org/rfc/rfc1952#section-2.3)."""
    flags = file.read(10)[3:4]
    if flags and flags[0] & 4:
        file.seek(int.from_bytes(file.read(2), "little"), os.SEEK_CUR)
    for flag in (8, 16):  # texts that end with a zero
        while flags and flags[0] & flag and file.read(1).strip(b"\0"):
            pass
    if flags and flags[0] & 2:
        file.seek(2, os.SEEK_CUR)


# --- both ------------------------------------------------------------------------------------


def _first_character(buffer: bytearray) -> bytes:
    return bytes(buffer[:_READ_BYTES]).lstrip(_MARKED_BLANKS)[:1]


def _may_be_trace(buffer: bytearray) -> bool:
    return _first_character(buffer) in {b"{", b"[", b""}


def _enter_array(buffer: bytearray, frame: Frame, searched: int) -> bool:
    """Cut off the text before the first event; False when the array has not been found yet.

    Args:
        buffer: the text so far.
        frame: receives the text before the array.
        searched: length of the text at the start that was searched before.
    """
    if _first_character(buffer) == b"[":
        frame.bare_array = frame.found_events = True
        del buffer[: buffer.index(b"[") + 1]
    elif match := _EVENTS_KEY.search(buffer, max(0, searched - _EVENTS_KEY_BYTES)):
        frame.found_events = True
        frame.header = bytes(memoryview(buffer)[: match.start()])
        del buffer[: match.end()]
    return frame.found_events


def _next_border(buffer: bytes | bytearray, start: int) -> re.Match[bytes] | None:
    """Return the first position at or after `start` where an object ends and an event starts."""
    borders = _BORDER.finditer(buffer, start)
    return _first_border(buffer, borders)


def _last_border(text: bytes | bytearray) -> re.Match[bytes] | None:
    """Return the last position where an object ends and an event starts."""
    for size in (_USUAL_LAST_BYTES, _LAST_BYTES):
        borders = list(_BORDER.finditer(text, max(0, len(text) - size)))
        border = _first_border(text, reversed(borders))
        if border is not None:
            return border
    return None


def _first_border(
    text: bytes | bytearray, borders: Iterable[re.Match[bytes]]
) -> re.Match[bytes] | None:
    """Return the first of some positions after which an event starts.

    Where that takes too long to find out, as in text that is not JSON, return the first one.
    """
    first, scanned = None, 0
    for border in borders:
        reached, is_event = scan_object(text, border.end())
        if is_event:
            return border
        first = first or border
        scanned += _CANDIDATE_BYTES + reached - border.end()
        if scanned > _SCANNED_BYTES:
            return first
    return None
