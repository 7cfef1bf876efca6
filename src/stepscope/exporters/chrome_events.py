"""SQL that writes the rows of the trace tables as Chrome events.

DuckDB builds the text of an event column by column, which costs about a microsecond where a dict
per event and `json.dumps` cost ten. Every query has one row per event, with its id and its text.
The categories and keys of each kind of event are declared in `schema.EVENT_KINDS`; parameters and
pieces of SQL are in `chrome_sql`.

Links are written as numbers that the recorder's own tools know:

- An operator's or annotation's `External id` is its id plus one, since zero means none there;
  runtime calls and device work carry that of their operator, shadows of annotations that of the
  annotation. The recorder's own numbers are not stored.
- `Python id` and `Python parent id` likewise. `Ev Idx` is the id itself.
- `correlation` is the recorder's. It numbers the arrow from a launch to its work, too.
"""

from __future__ import annotations

from stepscope.exporters.chrome_sql import (
    BINDING,
    FORMS,
    IN_SLICE,
    POSITION,
    arguments,
    concat,
    duration,
    launch_arrow,
    microseconds,
    number,
    raw,
    rest,
    select,
    text,
    time,
)
from stepscope.schema import EVENT_KINDS, TRACE_TABLES, EventKind

_LAUNCHED_TABLES = dict.fromkeys(k.table.name for k in EVENT_KINDS if k.linking == "work")
_EVENT_TABLES = tuple(
    table for table in TRACE_TABLES if "id" in table.key and "track" in table.column_names
)
"""Tables with rows that are events of the imported file."""


def events_between() -> str:
    """Select all events except arrows, in the order of the imported file."""
    branches = (*map(_of_kind, EVENT_KINDS), _others(), _synchronisation(), _counters())
    return f"SELECT text FROM ({' UNION ALL '.join(branches)}) ORDER BY id"  # noqa: S608


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


def _of_kind(kind: EventKind) -> str:
    members = (
        *(FORMS[key.form](key.key, f"t.{key.column}") for key in kind.exported_keys),
        rest("t.args"),
    )
    written = (_range if kind.is_range else _instant)(kind, members)
    if kind.linking == "call":
        launches = " UNION ALL ".join(
            f"SELECT launch FROM {table} WHERE trace = $1 AND launch >= $2 AND launch < $3"  # noqa: S608
            for table in _LAUNCHED_TABLES
        )
        written = concat(
            written, f"CASE WHEN t.id IN ({launches}) THEN {launch_arrow('s', '')} END"
        )
    elif kind.linking == "work":
        arrow = launch_arrow("f", BINDING)
        written = concat(written, f"CASE WHEN launch IS NOT NULL THEN {arrow} END")
    source = f"{kind.table.name} t"
    if any(key.form == "collective" for key in kind.exported_keys):
        source += _JOINED_COLLECTIVES
    constants = [f"t.{column} = {value!r}" for column, value in kind.constants.items()]
    return select(written, source, " AND ".join(constants) or "true")


def _range(kind: EventKind, members: tuple[str, ...]) -> str:
    return concat(
        f"""'{{"ph":"X","cat":"{kind.categories[0]}","name":'""",
        "to_json(t.name)",
        "','",
        POSITION,
        time("start_ns"),
        duration(),
        arguments(members),
        "'}'",
    )


def _instant(kind: EventKind, members: tuple[str, ...]) -> str:
    return concat(
        f"""'{{"ph":"i","cat":"{kind.categories[0]}","s":"t","name":"{kind.instant_name}",'""",
        POSITION,
        time("t_ns"),
        arguments(members),
        "'}'",
    )


def _others() -> str:
    return select(_other("t.args"), "other_events t", f"NOT {_NAMES_OPERATOR}")


def _synchronisation() -> str:
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
    calls = (
        "SELECT correlation, max(operator) AS operator FROM runtime_calls "  # noqa: S608
        "WHERE trace = $1 AND operator IS NOT NULL AND correlation IN (SELECT "
        f"{_CORRELATION} FROM other_events t WHERE {IN_SLICE} AND {_NAMES_OPERATOR}) GROUP BY ALL"
    )
    source = f"other_events t LEFT JOIN ({calls}) called ON called.correlation = {_CORRELATION}"
    args = f"CASE WHEN called.operator IS NULL THEN {stripped} ELSE {numbered} END"
    return select(_other(f"({args})"), source, _NAMES_OPERATOR)


def _counters() -> str:
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
    return f"{select(written, 'counters t')} GROUP BY t.id"


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
_JOINED_COLLECTIVES = (
    f" LEFT JOIN (SELECT id, {concat(*_COLLECTIVE_MEMBERS)} AS description FROM collectives "  # noqa: S608
    "WHERE trace = $1 AND id >= $2 AND id < $3) c ON c.id = t.id"
)
