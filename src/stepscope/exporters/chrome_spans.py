"""Spans of the job during a trace, as additional tracks of the exported trace.

Both clocks count nanoseconds since 1970, so the spans need no alignment.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from stepscope.exporters.chrome_header import naming_event, place_pid
from stepscope.exporters.chrome_sql import microseconds
from stepscope.run import Trace
from stepscope.timeline import IS_AGGREGATE, SPAN_NAME

_FIRST_TID = 2**31
"""First thread number of the tracks of spans, above all thread numbers of operating systems."""

_NAME = f"to_json({SPAN_NAME})"
_START = microseconds("start_ns - $4")
_END = microseconds("coalesce(end_ns, $3) - $4")
_DURATION = microseconds("coalesce(end_ns, $3) - start_ns")
_ARGUMENTS = """',"args":{"kind":', to_json(kind), ',"value":', value, ',"labels":' || labels"""
_PAIR = "'\"id\":', to_json(concat_ws('/', process, log, seq)), ','"


def span_text(position: str) -> str:
    """Return SQL that writes a row of `spans` as Chrome events; an aggregate becomes an instant.

    In it, $3 is the end of spans that never ended, and $4 the base of the times.

    Args:
        position: SQL for the position of the span, as `"pid":1,"tid":2`.
    """
    common = f"""'"cat":"user_annotation","name":', {_NAME}, ',', {position}, ',"ts":'"""
    return f"""
    CASE
        WHEN end_ns = start_ns OR {IS_AGGREGATE}
            THEN concat('{{"ph":"i","s":"t",', {common}, {_START}, {_ARGUMENTS}, '}}}}')
        WHEN flags & 1 = 1
            THEN concat(
                '{{"ph":"b",', {_PAIR}, {common}, {_START}, {_ARGUMENTS}, '}}}},\n',
                '{{"ph":"e",', {_PAIR}, {common}, {_END}, '}}')
        ELSE concat(
            '{{"ph":"X",', {common}, {_START}, ',"dur":', {_DURATION}, {_ARGUMENTS}, '}}}}')
    END"""


# $1 process, $2 and $3 extent of the trace, $4 base, $5 log, $6 position.
_IN_TRACE = "process = $1 AND coalesce(end_ns, $3) >= $2 AND start_ns <= $3"
_LOGS = f"SELECT DISTINCT log FROM spans WHERE {_IN_TRACE} ORDER BY log"  # noqa: S608
_SPANS = (
    f"SELECT {span_text('$6')} AS text FROM spans "  # noqa: S608
    f"WHERE {_IN_TRACE} AND log = $5 ORDER BY seq"
)


def span_events(trace: Trace, number: int | None, base_ns: int) -> Iterator[str]:
    """Yield the spans of the traced process that overlap the trace, one track per thread.

    Spans that others may overlap are drawn as asynchronous ones.

    Args:
        trace: a trace that stepscope recorded; an imported one names no process.
        number: its index among several traces of one file, None when it is the only one.
        base_ns: base of the times in the file.
    """
    if trace.process is None:
        return
    extent = [trace.process, trace.start_ns, trace.end_ns]
    pid = place_pid(int(trace.process.partition("-")[0]), number)
    for index, log in enumerate(trace.reader.sql(_LOGS, extent)["log"].tolist()):
        position = f'"pid":{pid},"tid":{_FIRST_TID + index}'
        thread = re.match(r"\d*", log)[0]  # type: ignore[index]  # matches anything
        yield from naming_event("thread_name", position, "name", f"stepscope: thread {thread}")
        yield from naming_event("thread_sort_index", position, "sort_index", int(thread or 0))
        yield from trace.reader.sql(_SPANS, [*extent, base_ns, log, position])["text"].tolist()
