"""What stepscope recorded in the job while a framework's profiler recorded, as tracks beside it.

Both clocks count nanoseconds since 1970, so the spans lie where they belong.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from stepscope.exporters.chrome_events import microseconds
from stepscope.exporters.chrome_header import naming_event, placed_pid
from stepscope.run import Trace

_FIRST_TID = 2**31
"""Tracks of spans are numbered from here: no thread of a system has such a number."""

_NAME = "to_json(CASE WHEN name = kind THEN kind ELSE concat(kind, ': ', name) END)"
_START = microseconds("start_ns - $4")
_END = microseconds("coalesce(end_ns, $3) - $4")
_DURATION = microseconds("coalesce(end_ns, $3) - start_ns")
_ARGUMENTS = """',"args":{"kind":', to_json(kind), ',"value":', value, ',"labels":' || labels"""
_PAIR = "'\"id\":', to_json(concat_ws('/', process, log, seq)), ','"


def span_text(place: str) -> str:
    """SQL that writes a row of `spans` as Chrome events. In it $3 is the end of what never ended,
    and $4 what times are relative to.

    Args:
        place: SQL of where the span is drawn, as `"pid":1,"tid":2`.
    """
    common = f"""'"cat":"user_annotation","name":', {_NAME}, ',', {place}, ',"ts":'"""
    return f"""
    CASE
        WHEN end_ns = start_ns
            THEN concat('{{"ph":"i","s":"t",', {common}, {_START}, {_ARGUMENTS}, '}}}}')
        WHEN flags & 1 = 1
            THEN concat(
                '{{"ph":"b",', {_PAIR}, {common}, {_START}, {_ARGUMENTS}, '}}}},\n',
                '{{"ph":"e",', {_PAIR}, {common}, {_END}, '}}')
        ELSE concat(
            '{{"ph":"X",', {common}, {_START}, ',"dur":', {_DURATION}, {_ARGUMENTS}, '}}}}')
    END"""


# $1 process, $2 and $3 extent of the recording, $4 base, $5 log, $6 where it is drawn.
_IN_RECORDING = "process = $1 AND coalesce(end_ns, $3) >= $2 AND start_ns <= $3"
_LOGS = f"SELECT DISTINCT log FROM spans WHERE {_IN_RECORDING} ORDER BY log"  # noqa: S608
_SPANS = (
    f"SELECT {span_text('$6')} AS text FROM spans "  # noqa: S608
    f"WHERE {_IN_RECORDING} AND log = $5 ORDER BY seq"
)


def span_events(recording: Trace, number: int | None, base_ns: int) -> Iterator[str]:
    """The spans of the recorded process that overlap the recording, one track per thread.

    Spans that others may overlap are drawn as asynchronous ones.

    Args:
        recording: one that stepscope made; an imported one has no process to go by.
        number: its place among several recordings of one file, None when it is alone.
        base_ns: what times are relative to.
    """
    if recording.process is None:
        return
    extent = [recording.process, recording.start_ns, recording.end_ns]
    pid = placed_pid(int(recording.process.partition("-")[0]), number)
    for place, log in enumerate(recording.reader.sql(_LOGS, extent)["log"].tolist()):
        track = f'"pid":{pid},"tid":{_FIRST_TID + place}'
        thread = re.match(r"\d*", log)[0]  # type: ignore[index]  # matches anything
        yield from naming_event("thread_name", track, "name", f"stepscope: thread {thread}")
        yield from naming_event("thread_sort_index", track, "sort_index", int(thread or 0))
        yield from recording.reader.sql(_SPANS, [*extent, base_ns, log, track])["text"].tolist()
