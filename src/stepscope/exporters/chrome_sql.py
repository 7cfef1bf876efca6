"""Pieces of SQL that write columns as members of Chrome events.

A key whose value is null is left out: `||` with a null is null, and `concat` skips nulls.

Parameters: $1 number of the trace, $2 and $3 first id and the one after the last, $4 base of the
times in the file, $5 offset of the numbers of arrows, $6 position of each track as
`"pid":1,"tid":2`, $7 number of the stream of each track as text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

UNREADABLE_NS = -(2**62)
"""A time below this was no number in the imported file."""
_EXACT_NS = 10**18 - 1
"""Nanoseconds up to this are written by the fast kind of decimal number."""
IN_SLICE = "t.trace = $1 AND t.id >= $2 AND t.id < $3"
POSITION = "$6[t.track + 1]"
BINDING = ',"bp":"e"'
"""The end of an arrow belongs to the event around it, not to the next one."""


def select(text: str, source: str, condition: str = "true") -> str:
    """Select id and text of the events of a table `t` in the slice."""
    return f"SELECT t.id, {text} AS text FROM {source} WHERE {IN_SLICE} AND {condition}"  # noqa: S608


def concat(*pieces: str) -> str:
    """Concatenate pieces without the nulls."""
    return f"concat({', '.join(pieces)})"


def arguments(members: tuple[str, ...]) -> str:
    """Write the object `args`; every member starts with a comma, and the first one is cut off."""
    return f"""',"args":{{', substr({concat(*members)}, 2), '}}'"""


def number(key: str, value: str) -> str:
    """Write a number."""
    return f"""',"{key}":' || ({value})"""


def text(key: str, value: str) -> str:
    """Write a string."""
    return f"""',"{key}":' || to_json({value})"""


def json(key: str, value: str) -> str:
    """Write a column that holds an array or, from an older recorder, plain text."""
    return f"""',"{key}":' || {raw(value)}"""


def raw(value: str) -> str:
    """Write JSON as it is, and any other text as a JSON string."""
    return f"CASE WHEN {value}[1] IN ('{{', '[') THEN {value} ELSE to_json({value}) END"


def rest(value: str) -> str:
    """Write the members of an object among others."""
    return f"',' || nullif({value}, '{{}}')[2:-2]"


def _sizes(key: str, value: str) -> str:
    sizes = f"""concat(',"{key}":[', {value}_x, ',', {value}_y, ',', {value}_z, ']')"""
    return f"CASE WHEN {value}_x IS NOT NULL THEN {sizes} END"


def _whole(key: str, value: str) -> str:
    """Write a number without a decimal point where it is an integer."""
    is_whole = f"{value} = floor({value}) AND abs({value}) < 1e15"
    return number(
        key, f"CASE WHEN {is_whole} THEN {value}::BIGINT::VARCHAR ELSE {value}::VARCHAR END"
    )


def _unsigned(key: str, value: str) -> str:
    wrapped = f"{value}::HUGEINT + 18446744073709551616"
    return number(key, f"(CASE WHEN {value} < 0 THEN {wrapped} ELSE {value} END)")


FORMS: Mapping[str, Callable[[str, str], str]] = {
    "number": number,
    "text": text,
    "json": json,
    "sizes": _sizes,
    "id": lambda key, value: number(key, f"{value} + 1"),
    "optional id": lambda key, value: (
        f"""coalesce({number(key, f"{value} + 1")}, ',"{key}":null')"""
    ),
    "natural": lambda key, value: number(key, f"CASE WHEN {value} >= 0 THEN {value} END"),
    "whole": _whole,
    "unsigned": _unsigned,
    "stream": lambda key, _: f"""',"{key}":' || $7[t.track + 1]""",
    # Bytes per nanosecond are gigabytes per second.
    "bandwidth": lambda key, value: number(key, f"{value} / nullif(t.duration_ns, 0)::DOUBLE"),
    "collective": lambda _key, _value: "c.description",
}
"""Writer of a key by `schema.ExportForm`, from the key and its column."""


def microseconds(nanoseconds: str) -> str:
    """Write a whole number of nanoseconds as microseconds with three decimals."""
    is_short = f"{nanoseconds} BETWEEN -{_EXACT_NS} AND {_EXACT_NS}"
    short, long = (
        f"(({nanoseconds})::DECIMAL({width}, 0) * 0.001::DECIMAL(3, 3))::VARCHAR"
        for width in (18, 19)
    )
    return f"CASE WHEN {is_short} THEN {short} ELSE {long} END"


def time(column: str) -> str:
    """Write the time of an event."""
    readable = f"CASE WHEN {column} > {UNREADABLE_NS} THEN {microseconds(f'{column} - $4')} END"
    return f"""',"ts":' || {readable}"""


def duration() -> str:
    """Write the duration of an event."""
    is_readable = f"duration_ns > {UNREADABLE_NS}"
    return f"""',"dur":' || CASE WHEN {is_readable} THEN {microseconds("duration_ns")} END"""


def launch_arrow(phase: str, binding: str) -> str:
    """Write one end of the arrow from a launch to its work, after the event that it belongs to."""
    return concat(
        f"""',\n{{"ph":"{phase}","id":'""",
        "correlation + $5",
        """',"cat":"ac2g","name":"ac2g",'""",
        POSITION,
        time("start_ns"),
        f"'{binding}}}'",
    )
