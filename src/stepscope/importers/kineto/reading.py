"""Reading of a whole trace file: events, header, and ranges of begin and end events.

Ranges made of begin and end events. Kineto writes whole ranges; other writers of the same format
write a `B` and an `E` event for each, which match like brackets, thread by thread.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from msgspec import Raw

from stepscope import errors, quantities, schema
from stepscope.importers.content import INVALID, SeveralTracesError, decimal_text, is_compressed
from stepscope.importers.forms import find_foreign_form
from stepscope.importers.kineto import repair
from stepscope.importers.kineto.arguments import ANNOTATION, OtherKind, check_nesting, kind_of
from stepscope.importers.kineto.blocks import (
    MAX_BLOCK_BYTES,
    MAX_TRACES,
    Block,
    Frame,
    find_traces,
    read_blocks,
    split_tail,
)
from stepscope.importers.kineto.categories import Event
from stepscope.importers.kineto.columns import Chunk, Columns
from stepscope.importers.kineto.decode import chunk_of, decode_block
from stepscope.importers.kineto.describe import Header, name_losses
from stepscope.importers.kineto.devices import DeviceLayout, map_device_work
from stepscope.importers.kineto.gather import Gathered, name_tracks
from stepscope.importers.kineto.pool import DecodingStoppedError, decode_all

SERIAL_BYTES = 16 << 20
"""A smaller file is decoded before workers could start."""
_COMPRESSION = 10
"""Traces compress to a tenth or less."""
_UTF8_MARK = b"\xef\xbb\xbf"
_BLANK = b" \t\r\n\0"
_COMMAS = b" \t\r\n,"
_MAX_REPAIRED_BYTES = 4 << 20
"""Text around the events that is repaired."""
_MAX_HEADER_MEMORY = 64 << 20
"""Memory of the fields around the events that are decoded, as estimated by `_memory_of`."""
_VALUE_BYTES = 48
_TEXT_COPIES = 4
"""Text of a field is held decoded, encoded again, and in a table."""
_MAX_HEADER_COLONS = 500_000
"""Limit of the number of fields around the events, whose text is split before it is decoded."""
_FIELD_NAME = re.compile(r"\w{1,60}", re.ASCII)
_BASE = re.compile(rb'"baseTimeNanoseconds"\s*:\s*(\d{1,19})(?!\d)')
Progress = Callable[[float], None]
"""Called with the share of the work that is done, 0 to 1."""


class Unpaired(msgspec.Struct, frozen=True):
    """Begin and end events without a partner."""

    count: int = 0
    of_count: int = 0
    """Begin and end events."""
    detail: str | None = None
    """Names of annotations, and kinds, that lack many; see `describe.name_losses`."""


Note = tuple[str, int, str]
"""Quality check, count and detail of what the reader of another format noted."""


class Reading(msgspec.Struct, kw_only=True):
    """Content of a file. Close `gathered` after use."""

    gathered: Gathered
    frame: Frame = msgspec.field(default_factory=Frame)
    header: Header = msgspec.field(default_factory=Header)
    truncated: bool = False
    """The end of the list of events, or of the compressed data, is missing."""
    devices: DeviceLayout = msgspec.field(default_factory=DeviceLayout)
    unpaired: Unpaired = msgspec.field(default_factory=Unpaired)
    notes: Sequence[Note] = ()
    clock: str | None = None
    """Reference of the times, as a sentence, if it is another than that of Kineto."""

    @property
    def lost(self) -> str | None:
        """The unreadable part, as the rest of a sentence; None when everything could be read."""
        parts = []
        if self.frame.damage:
            parts.append(self.frame.damage)
        elif self.truncated:
            parts.append("the file is truncated")
        if self.gathered.lost_events:
            events, size = self.gathered.lost_events, self.gathered.lost_bytes
            parts.append(f"{quantities.count_of(events, 'event')} ({size} bytes) could not be read")
        if self.header.unread:
            parts.append(self.header.unread)
        return "; ".join(parts) or None


def read_file(
    path: Path,
    gathered: Gathered,
    workers: int,
    *,
    progress: Progress,
    on_start: Callable[[], object],
) -> Reading:
    """Read a file to its end.

    Args:
        path: the file, plain or gzip; its name does not matter.
        gathered: receives its events; closed when this fails.
        workers: number of processes that decode; 0 decodes in this one.
        progress: called with the share that is done.
        on_start: called before the first event is read; until then there must be no thread.

    Raises:
        SeveralTracesError: the file has several traces.
        UnreadableTraceError: the file has no readable event.
        OSError: the file cannot be read.
    """
    reading = Reading(gathered=gathered)
    frame = reading.frame
    try:
        total = max(1, path.stat().st_size)
        blocks = read_blocks(str(path), frame)
        text_bytes = total * (_COMPRESSION if is_compressed(path) else 1)
        chunks = decode_all(blocks, workers if text_bytes >= SERIAL_BYTES else 0, on_start)
        for chunk in _join_cut_events(chunks, frame):
            gathered.add(chunk)
            progress(frame.read_bytes / total)
        if frame.found_events:
            _read_tail(reading)
        if reading.lost:
            _refuse_several(path)
        reading.unpaired = pair_ranges(gathered)
        _mark_steps(gathered)
        recorder = schema.recorder_stated(reading.header.content) or schema.PYTORCH
        _shorten_names(gathered, recorder)
        reading.devices = map_device_work(gathered, recorder)
        if not gathered.event_count:
            raise errors.UnreadableTraceError(_explain(path, frame))
    except DecodingStoppedError as error:
        gathered.close()
        error.filename = str(path)
        raise
    except BaseException:
        gathered.close()
        raise
    return reading


def _refuse_several(path: Path) -> None:
    """Raise an error for a file with several traces, after a part of it could not be read."""
    starts = find_traces(path)
    if len(starts) > MAX_TRACES:
        count = quantities.count(MAX_TRACES)
        raise SeveralTracesError(
            f"{path} holds more than {count} traces, one after the other. Write each into a file "
            "of its own.",
            (),
        )
    if len(starts) > 1:
        raise SeveralTracesError(
            f"{path} holds {len(starts)} traces, one after the other. Write each into a file of "
            "its own.",
            starts,
        )


def _join_cut_events(chunks: Iterator[Chunk], frame: Frame) -> Iterator[Chunk]:
    """Yield the chunks, and the events that were cut in two between them.

    The rest of the last chunk goes to the tail.
    """
    rest = b""
    for chunk in chunks:
        head, tail = chunk.fragments
        joined = rest + chunk.gap + head if rest else head
        if head and not tail and not chunk.event_count and len(joined) < MAX_BLOCK_BYTES:
            rest = joined
            continue
        if joined:
            yield decode_block(Block(text=joined), complete=True)
        yield chunk
        rest = tail
    if rest:
        frame.tail = rest + frame.gap + frame.tail


def _read_tail(reading: Reading) -> None:
    """Read the last events and the text after them."""
    frame, gathered = reading.frame, reading.gathered
    reading.truncated = frame.broken_stream is not None
    for events, rest in split_tail(frame.tail):
        if _is_end(frame, rest):
            gathered.add(decode_block(Block(text=events), complete=True))
            reading.header = _header(frame, rest)
            return
    for events, rest in split_tail(frame.tail):
        chunk = decode_block(Block(text=events))
        if not any(chunk.fragments):
            gathered.add(chunk)
            reading.header = _header(frame, rest)
            ending = b"" if frame.bare_array else b"}"
            reading.truncated |= rest.strip(_BLANK)[-1:] != ending
            return
    reading.truncated = True
    chunk = decode_block(Block(text=frame.tail))
    head, half = chunk.fragments
    if not chunk.event_count:
        half = head
    elif head:
        gathered.add(decode_block(Block(text=head), complete=True))
    gathered.add(chunk)
    rest = half.lstrip(_COMMAS)
    if rest and rest[:1] != b"]":
        gathered.add(Chunk(lost_events=1, lost_bytes=len(half)))
    reading.header = _header(frame, rest[1:] if rest[:1] == b"]" else b"")


def _is_end(frame: Frame, rest: bytes) -> bool:
    """Return True for text that certainly follows the array of events."""
    if frame.bare_array:
        return False
    try:
        after = rest.strip(_BLANK).removeprefix(b",")
        msgspec.json.decode(b"{" + after, type=dict[str, msgspec.Raw])
    except schema.MALFORMED_JSON:
        return False
    return True


def _header(frame: Frame, rest: bytes) -> Header:
    """Parse the object around the events from its two halves."""
    if frame.bare_array:
        return Header()
    before = frame.header.strip().removeprefix(_UTF8_MARK).strip()
    before = before.removeprefix(b"{").strip(_COMMAS)
    after = rest.strip(_BLANK).strip(_COMMAS).removesuffix(b"}").strip(_COMMAS)
    header = b"{" + b",".join(part for part in (before, after) if part) + b"}"
    try:
        return _decode_header(header)
    except schema.MALFORMED_JSON:
        pass
    if len(header) <= _MAX_REPAIRED_BYTES:
        try:
            return _decode_header(repair.repair_object(header))
        except schema.MALFORMED_JSON:
            pass
    base = _BASE.search(header)
    return Header(
        {"baseTimeNanoseconds": int(base[1])} if base else {},
        "the header around the events could not be read",
    )


def _decode_header(text: bytes) -> Header:
    """Decode the fields of a header, small ones first, as far as they fit in memory.

    Raises:
        msgspec.MsgspecError: it is malformed, nested too deeply, or has too many fields.
    """
    if text.count(b":") > _MAX_HEADER_COLONS:
        raise msgspec.DecodeError("it has too many fields")
    fields = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    content: dict[str, Any] = dict.fromkeys(fields)
    free_bytes = _MAX_HEADER_MEMORY
    unread = []
    for name, raw in sorted(fields.items(), key=lambda item: len(bytes(item[1]))):
        value = bytes(raw)
        free_bytes -= _memory_of(value)
        if free_bytes > 0:
            check_nesting(value)
            content[name] = msgspec.json.decode(value)
        else:
            unread.append(name)
            del content[name]
    return Header(content, _explain_unread(unread) if unread else None)


def _memory_of(value: bytes) -> int:
    """Estimate the memory of a JSON value when it is decoded."""
    brackets = value.count(b"[") + value.count(b"{")
    return _TEXT_COPIES * len(value) + _VALUE_BYTES * (1 + brackets + value.count(b","))


def _explain_unread(names: list[str]) -> str:
    if len(names) == 1:
        field = f"the field {names[0]}" if _FIELD_NAME.fullmatch(names[0]) else "a field"
        return f"{field} beside the events is too large to be read"
    return f"{len(names)} fields beside the events are too large to be read"


def _explain(path: Path, frame: Frame) -> str:
    broken = f", and {frame.broken_stream}" if frame.broken_stream else ""
    if not frame.text_bytes:
        return f"{path} is empty{broken}."
    form = find_foreign_form(path)
    if form is not None:
        return f"{path} is {form}."
    if not frame.found_events:
        return (
            f"{path} is not a trace that stepscope can read: as JSON, plain or gzip, it has "
            f"neither a list of events nor the key traceEvents{broken}."
        )
    return f"{path} has no readable event{broken}."


_TF_DATA_OPERATOR = re.compile(r"([\w/]+[/:])?IteratorGetNext(Op::DoCompute.*)?")
_STEP_NUMBER = re.compile(r'^\{.*"step_num":\s*"?(\d{1,18})\b')
_COLUMNS = (
    "id", "track", "name", "start", "phase", "category", "duration", "has_duration", "args",
)  # fmt: skip


def _shorten_names(gathered: Gathered, recorder: schema.Recorder) -> None:
    """Remove from the names of events what their recorder adds, so that equal ones are equal, and
    name fetches of batches that only their category tells."""
    if not recorder.name_end:
        return
    end, step = re.compile(rf"(?:{recorder.name_end})\Z"), recorder.step_name
    texts = [end.sub("", text) for text in gathered.strings]
    texts = [
        schema.STEP_PREFIX + text.removeprefix(step) if step and text.startswith(step) else text
        for text in texts
    ]
    fetch = recorder.fetch_name
    fetches = [text if text.startswith(fetch) else f"{fetch}#{text}" for text in texts]
    is_fetch = [text.lower() == recorder.fetch_category for text in gathered.strings]
    plain_codes, fetch_codes = (
        np.array([*map(gathered.code_of, part), -1], dtype=np.int64) for part in (texts, fetches)
    )
    for kind in (*schema.EVENT_KINDS, OtherKind.OTHER):
        columns = gathered.columns(kind, "name", "category")
        fetching = np.array([*is_fetch, False], dtype=np.bool_)[columns["category"]]
        names = np.where(fetching, fetch_codes[columns["name"]], plain_codes[columns["name"]])
        gathered.extend(kind, "name", names)


def _mark_steps(gathered: Gathered) -> None:
    """Read ranges with the number of a step on hosts of XLA's profiler as marks of steps
    (https://docs.jax.dev/en/latest/_autosummary/jax.profiler.StepTraceAnnotation.html), and those
    of the operator that waits for a batch of tf.data as fetches."""
    names_of = name_tracks(gathered)
    on_host = [process.startswith("/host:") for process, _, _ in names_of]
    if not any(on_host):
        return
    names = {
        code: match[1]
        for code, text in enumerate(gathered.strings)
        if (match := _STEP_NUMBER.search(text)) is not None
    }
    events = gathered.take(OtherKind.OTHER, *_COLUMNS)
    on_host_rows = np.array(on_host, dtype=np.bool_)[events["track"]] & (events["has_duration"] > 0)
    is_step = np.isin(events["args"], [*names]) & on_host_rows
    is_step &= ~np.isin(
        events["name"], [gathered.code_of(name) for name in schema.EVALUATION_STEPS]
    )
    fetches = [
        code for code, name in enumerate(gathered.strings) if _TF_DATA_OPERATOR.fullmatch(name)
    ]
    is_fetch = np.isin(events["name"], fetches) & on_host_rows & ~is_step
    numbers_of = "args"
    if not is_step.any():  # TPUs have a line of steps, a device like the other
        names = {n: text for n, text in enumerate(gathered.strings) if text.isdecimal()}
        lines = [
            n
            for n, (process, line, _) in enumerate(names_of)
            if line == "Steps" and process.startswith("/device:")
        ]
        is_step = np.isin(events["track"], lines[:1]) & np.isin(events["name"], [*names])
        is_step &= events["has_duration"] > 0
        numbers_of = "name"
    steps = {name: values[is_step] for name, values in events.items()}
    numbers = [names[code] for code in steps[numbers_of].tolist()]
    steps["name"] = np.array(
        [gathered.code_of(schema.STEP_PREFIX + number) for number in numbers], dtype=np.int32
    )
    fetched = {name: values[is_fetch] for name, values in events.items()}
    if is_fetch.any():  # the name is a sign of TensorFlow
        fetched["name"][:] = gathered.code_of(schema.TF_DATA_FETCH)
    for marks in (steps, fetched):
        gathered.keep(ANNOTATION, marks)
    rest = ~(is_step | is_fetch)
    gathered.keep(OtherKind.OTHER, {name: values[rest] for name, values in events.items()})


def pair_ranges(gathered: Gathered) -> Unpaired:
    """Replace begin and end events by ranges; those without a partner stay events of their own.

    A range has the id of its begin event.
    """
    if not gathered.count(OtherKind.BEGIN, OtherKind.END):
        return Unpaired()
    begins, ends = (gathered.take(kind, *_COLUMNS) for kind in (OtherKind.BEGIN, OtherKind.END))
    marks = {name: np.concatenate([begins[name], ends[name]]) for name in _COLUMNS}
    partner = np.array(_partners(marks, len(begins["id"]), gathered.code_of("")), dtype=np.int64)
    paired = np.flatnonzero(partner[: len(begins["id"])] >= 0)
    is_unpaired = partner < 0
    ranges = chunk_of([_range(gathered, marks, row, partner[row]) for row in paired.tolist()])
    gathered.add(ranges, marks["id"][paired])
    unpaired = {name: values[is_unpaired] for name, values in marks.items()}
    gathered.keep(OtherKind.OTHER, unpaired)
    return Unpaired(len(unpaired["id"]), len(partner), _name_unpaired(gathered, unpaired))


def _name_unpaired(gathered: Gathered, unpaired: Columns) -> str | None:
    kinds = np.array(
        [*(kind_of("X", text) if text else None for text in gathered.strings), None], dtype=object
    )[unpaired["category"]]
    losses = {
        kind: (unpaired["name"][kinds == kind], gathered.columns(kind, "name")["name"])
        for kind in dict.fromkeys(kinds.tolist())
        if isinstance(kind, schema.EventKind)
    }
    lost = {kind: (names, np.concatenate([names, rest])) for kind, (names, rest) in losses.items()}
    return name_losses(gathered.strings, lost)


def _partners(marks: Columns, begin_count: int, unnamed: int) -> list[int]:
    """Return the partner row of each begin and end event, -1 for none; begins come first.

    An end closes the range that was opened last, or the last one that has its name. Ranges that
    were opened in between and are still open have lost their ends, unless they were opened when
    that one was opened or closed: equal times tell no order.
    """
    partner = [-1] * len(marks["id"])
    open_rows: dict[int, list[int]] = {}
    times, tracks, names = (marks[name].tolist() for name in ("start", "track", "name"))
    for row in np.lexsort((marks["id"], marks["start"])).tolist():
        if times[row] == INVALID:
            continue
        stack = open_rows.setdefault(tracks[row], [])
        if row < begin_count:
            stack.append(row)
            continue
        index = len(stack) - 1
        if names[row] != unnamed:
            while index >= 0 and names[stack[index]] != names[row]:
                index -= 1
        if index >= 0:
            begin = stack[index]
            partner[row], partner[begin] = begin, row
            at = (times[begin], times[row])
            stack[index:] = [later for later in stack[index + 1 :] if times[later] in at]
    return partner


def _range(gathered: Gathered, marks: Columns, begin: int, end: int) -> Event:
    def text(name: str, row: int) -> str:
        code = marks[name][row]
        return gathered.strings[code] if code >= 0 else ""

    pid, tid = gathered.tracks[marks["track"][begin]]
    start = int(marks["start"][begin])
    return Event(
        ph="X",
        cat=text("category", begin),
        name=text("name", begin),
        pid=pid,
        tid=tid,
        ts=Raw(decimal_text(start)),
        dur=Raw(decimal_text(int(marks["start"][end]) - start)),
        args=Raw(_merge_args(text("args", begin), text("args", end))),
    )


def _merge_args(begin: str, end: str) -> bytes:
    """Merge the arguments of a begin and of its end event, whose values take precedence."""
    try:
        objects = [msgspec.json.decode(text, type=dict[str, Raw]) for text in (begin, end) if text]
    except schema.MALFORMED_JSON:
        return (begin or end).encode()
    return msgspec.json.encode({key: value for args in objects for key, value in args.items()})
