"""SQL that writes the rows of the trace tables as Chrome events.

DuckDB builds the text of an event column by column, which costs about a microsecond where a dict
per event and `json.dumps` cost ten. Every query has one row per event, with its id and its text.
The categories and keys of each kind of event are declared in `schema.EVENT_KINDS`.

Links are written as numbers that the recorder's own tools know:

- An operator's or annotation's `External id` is its id plus one, since zero means none there;
  runtime calls and device work carry that of their operator, shadows of annotations that of the
  annotation. The recorder's own numbers are not stored.
- `Python id` and `Python parent id` likewise. `Ev Idx` is the id itself.
- `correlation` is the recorder's. It numbers the arrow from a launch to its work, too.

Pieces of SQL that write columns as members of Chrome events. A key whose value is null is left out:
`||` with a null is null, and `concat` skips nulls.

Parameters: $1 number of the trace, $2 and $3 first id or time and the one after the last, $4 base
of the times in the file, $5 offset of the numbers of arrows, $6 position of each track as
`"pid":1,"tid":2`, $7 number of the stream of each track as text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal

from stepscope import schema

UNREADABLE_NS = -(2**62)
"""A time below this was no number in the imported file."""
_EXACT_NS = 10**18 - 1
"""Nanoseconds up to this are written by the fast kind of decimal number."""
Axis = Literal["id", "time"]
"""Order of the events: that of the imported file, or by start, a range before those inside it."""
CATEGORIES_FOR: Mapping[str, Mapping[str, str]] = {
    # https://github.com/pytorch/kineto/blob/main/tb_plugin/torch_tb_profiler/profiler/trace.py
    # leaves out annotations except steps, and takes waits for the DataLoader for operators.
    "tensorboard": {"user_annotation": "cpu_op"}
}
"""Categories that a reader of the file expects in place of present ones."""
POSITION = "$6[t.track + 1]"
BINDING = ',"bp":"e"'
"""The end of an arrow belongs to the event around it, not to the next one."""


def select(text: str, source: str, condition: str, axis: Axis) -> str:
    """Select id and text of the events of a table `t` in the slice, and by time their extent."""
    table = source.split()[0]
    extent = f"t.{_time_column(table)} AS start_ns, {_duration_of(table)} AS duration_ns, "
    return (
        f"SELECT t.id, {extent if axis == 'time' else ''}{text} AS text FROM {source} "  # noqa: S608
        f"WHERE {_in_slice(table, axis)} AND {condition}"
    )


def _in_slice(table: str, axis: Axis) -> str:
    column = "id" if axis == "id" else _time_column(table)
    return f"t.trace = $1 AND t.{column} >= $2 AND t.{column} < $3"


def _time_column(table: str) -> str:
    return "start_ns" if "start_ns" in schema.TABLES[table].column_names else "t_ns"


def _duration_of(table: str) -> str:
    columns = schema.TABLES[table].column_names
    return "coalesce(t.duration_ns, 0)" if "duration_ns" in columns else "0"


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
    "called": lambda key, _: number(key, "called.operator + 1"),
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


_LAUNCHED_TABLES = dict.fromkeys(k.table.name for k in schema.EVENT_KINDS if k.linking == "work")
_EVENT_TABLES = tuple(
    table for table in schema.TRACE_TABLES if "id" in table.key and "track" in table.column_names
)
"""Tables with rows that are events of the imported file."""


def events_between(axis: Axis = "id", reader: str | None = None) -> str:
    """Select text and id of all events except arrows, in the order of the axis.

    Args:
        axis: the order.
        reader: tool of `CATEGORIES_FOR` that the file is for.
    """
    categories = CATEGORIES_FOR[reader] if reader else {}
    branches = [_of_kind(kind, axis, categories) for kind in schema.EVENT_KINDS]
    branches += [_others(axis), _numbered_others(axis), _counters(axis)]
    order = "id" if axis == "id" else "start_ns, duration_ns DESC, id"
    return f"SELECT text, id FROM ({' UNION ALL '.join(branches)}) ORDER BY {order}"  # noqa: S608


def slice_starts() -> str:
    """Select the time of every $2nd event of trace $1, in order."""
    starts = " UNION ALL ".join(
        f"SELECT {_time_column(table.name)} AS start_ns FROM {table.name} WHERE trace = $1"  # noqa: S608
        for table in _EVENT_TABLES
    )
    numbered = f"SELECT start_ns, row_number() OVER (ORDER BY start_ns) AS n FROM ({starts})"  # noqa: S608
    return f"SELECT DISTINCT start_ns FROM ({numbered}) WHERE n % $2 = 0 ORDER BY start_ns"  # noqa: S608


def arrow_ends_between() -> str:
    """Select both ends of the arrows of `flows` at times from $2 to before $3, with their
    events."""
    ends = (
        f"SELECT {end} AS id, {end}_track AS track, {end}_ns AS t_ns, kind, name, flow, "  # noqa: S608
        f"{end == 'target'} AS is_target FROM flows "
        f"WHERE trace = $1 AND {end}_ns >= $2 AND {end}_ns < $3"
        for end in ("source", "target")
    )
    return f"{' UNION ALL '.join(ends)} ORDER BY t_ns, flow, kind"


def arrows_between() -> str:
    """Select both ends of the arrows of `flows`; $2 and $3 are numbers of arrows, $7 is unused."""
    ends = (("source", "s", ""), ("target", "f", BINDING))
    texts = [_arrow_end(*end) for end in ends]
    return (
        f"SELECT concat_ws(',\n', {', '.join(texts)}) AS text FROM flows "  # noqa: S608
        "WHERE trace = $1 AND flow >= $2 AND flow < $3 ORDER BY flow, kind"
    )


def event_count() -> str:
    """Count the events of trace $1, whether an export writes their tables or not."""
    counts = (
        # A counter's event has a row per series.
        f"(SELECT count({'*' if table.key == ('trace', 'id') else 'DISTINCT id'}) "  # noqa: S608
        f"FROM {table.name} WHERE trace = $1)"
        for table in _EVENT_TABLES
    )
    return f"SELECT {' + '.join(counts)} AS n"


def arrow_count() -> str:
    """Count the arrows of trace $1."""
    return "SELECT count(*) AS n FROM flows WHERE trace = $1"


def tables_without_export() -> list[str]:
    """List tables of events that no query reads."""
    query = events_between()
    return [table.name for table in _EVENT_TABLES if f"FROM {table.name} t" not in query]


# --- tables ----------------------------------------------------------------------------------


def _of_kind(kind: schema.EventKind, axis: Axis, categories: Mapping[str, str]) -> str:
    members = (
        *(FORMS[key.form](key.key, f"t.{key.column}") for key in kind.exported_keys),
        rest("t.args"),
    )
    category = categories.get(kind.categories[0], kind.categories[0])
    written = (_range if kind.is_range else _instant)(kind, category, members)
    if kind.linking == "call":
        in_slice = " AND launch >= $2 AND launch < $3" if axis == "id" else ""
        launches = " UNION ALL ".join(
            f"SELECT launch FROM {table} WHERE trace = $1{in_slice}"  # noqa: S608
            for table in _LAUNCHED_TABLES
        )
        written = concat(
            written, f"CASE WHEN t.id IN ({launches}) THEN {launch_arrow('s', '')} END"
        )
    elif kind.linking == "work":
        arrow = launch_arrow("f", BINDING)
        written = concat(written, f"CASE WHEN launch IS NOT NULL THEN {arrow} END")
    source = f"{kind.table.name} t"
    forms = {key.form for key in kind.exported_keys}
    if "collective" in forms:
        source += _join_collectives(axis)
    if "called" in forms:
        source = _join_calls(kind.table.name, "t.correlation", "true", axis)
    constants = [f"t.{column} = {value!r}" for column, value in kind.constants.items()]
    return select(written, source, " AND ".join(constants) or "true", axis)


def _range(_kind: schema.EventKind, category: str, members: tuple[str, ...]) -> str:
    return concat(
        f"""'{{"ph":"X","cat":"{category}","name":'""",
        "to_json(t.name)",
        "','",
        POSITION,
        time("start_ns"),
        duration(),
        arguments(members),
        "'}'",
    )


def _instant(kind: schema.EventKind, category: str, members: tuple[str, ...]) -> str:
    return concat(
        f"""'{{"ph":"i","cat":"{category}","s":"t","name":"{kind.instant_name}",'""",
        POSITION,
        time("t_ns"),
        arguments(members),
        "'}'",
    )


def _others(axis: Axis) -> str:
    return select(_other("t.args"), "other_events t", f"NOT {_NAMES_OPERATOR}", axis)


def _numbered_others(axis: Axis) -> str:
    """Select events of no table of their own that name an operator by the recorder's number.

    That number is not stored. They carry the correlation of a call as well, whose operator is
    known.
    """
    stripped = (
        "regexp_replace(t.args, "
        """'("External id":-?\\d+,)|(,?"External id":-?\\d+)', '')"""
    )
    numbered = (
        """concat('{"External id":', called.operator + 1, """
        f"""CASE WHEN {stripped} = '{{}}' THEN '}}' ELSE ',' || {stripped}[2:] END)"""
    )
    source = _join_calls("other_events", _CORRELATION, _NAMES_OPERATOR, axis)
    args = f"CASE WHEN called.operator IS NULL THEN {stripped} ELSE {numbered} END"
    return select(_other(f"({args})"), source, _NAMES_OPERATOR, axis)


def _join_calls(table: str, correlation: str, condition: str, axis: Axis) -> str:
    """Join the rows of a table `t` with the calls `called` of the same correlation."""
    calls = (
        "SELECT correlation, max(operator) AS operator FROM runtime_calls "  # noqa: S608
        "WHERE trace = $1 AND operator IS NOT NULL AND correlation IN (SELECT "
        f"{correlation} FROM {table} t WHERE {_in_slice(table, axis)} AND {condition}) GROUP BY ALL"
    )
    return f"{table} t LEFT JOIN ({calls}) called ON called.correlation = {correlation}"


def _counters(axis: Axis) -> str:
    written = concat(
        """'{"ph":"C","name":'""",
        "to_json(any_value(name))",
        "','",
        "$6[any_value(track) + 1]",
        time("any_value(t_ns)"),
        """',"args":{'""",
        "string_agg(concat(to_json(series), ':', value), ',')",
        "'}}'",
    )
    return f"{select(written, 'counters t', 'true', axis)} GROUP BY ALL"


def _other(args: str) -> str:
    return concat(
        """'{"ph":'""",
        "to_json(phase)",
        """',"cat":' || to_json(category)""",
        """',"name":'""",
        "to_json(t.name)",
        "','",
        POSITION,
        time("start_ns"),
        duration(),
        """CASE WHEN phase IN ('i', 'I') THEN ',"s":"g"' END""",
        f"""',"args":' || {raw(args)}""",
        "'}'",
    )


def _arrow_end(end: str, phase: str, binding: str) -> str:
    written = concat(
        f"""'{{"ph":"{phase}","id":'""",
        "flow + $5",
        """',"cat":'""",
        "to_json(kind)",
        """',"name":'""",
        "to_json(name)",
        "','",
        f"$6[{end}_track + 1]",
        f"""',"ts":' || {microseconds(f"{end}_ns - $4")}""",
        f"'{binding}}}'",
    )
    return f"CASE WHEN {end}_ns IS NOT NULL THEN {written} END"


_NAMES_OPERATOR = """coalesce(contains(t.args, '"External id":'), false)"""
_CORRELATION = "TRY_CAST(t.args->>'correlation' AS BIGINT)"
_COLLECTIVE_MEMBERS = (
    text("Collective name", "name"),
    text("dtype", "dtype"),
    number("In msg nelems", "in_elements"),
    number("Out msg nelems", "out_elements"),
    text("Process Group Name", '"group"'),
    text("Process Group Description", "group_description"),
    number("Group size", "group_size"),
    text("Process Group Ranks", "group_ranks"),
    number("Seq", "sequence"),
    number("Src Rank", "peer_source"),
    number("Dst Rank", "peer_destination"),
    text("In split size", "in_split"),
    text("Out split size", "out_split"),
    rest("args"),
)


def _join_collectives(axis: Axis) -> str:
    in_slice = " AND id >= $2 AND id < $3" if axis == "id" else ""
    return (
        f" LEFT JOIN (SELECT id, {concat(*_COLLECTIVE_MEMBERS)} AS description FROM collectives "  # noqa: S608
        f"WHERE trace = $1{in_slice}) c ON c.id = t.id"
    )
