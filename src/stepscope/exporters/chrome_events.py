"""SQL that writes the rows of the trace tables as Chrome events.

DuckDB puts the text of an event together column by column, which costs about a microsecond where
a dict per event and `json.dumps` cost ten. Every query has one row per event, with its place in
the recording (`id`) and its text. A key whose value is null is left out: `||` with a null is null,
and `concat` passes over nulls.

Links are written as numbers that the recorder's own tools know:

- An operator's or annotation's `External id` is its place plus one, since zero means none there;
  runtime calls and device work carry that of their operator, shadows of annotations that of the
  annotation. The recorder's own numbers are not stored.
- `Python id` and `Python parent id` likewise. `Ev Idx` is the place itself.
- `correlation` is the recorder's. It numbers the arrow from a launch to its work as well.

Parameters of the queries: $1 number of the recording, $2 and $3 first place and the one behind
the last, $4 base of the times in the file, $5 what numbers of arrows are raised by, $6 where each
track is drawn as `"pid":1,"tid":2`, $7 number of the stream of each track as text.
"""

from __future__ import annotations

_UNREADABLE_NS = -(2**62)
"""A time below this stood in the file as something that is no number."""
_EXACT_NS = 10**18 - 1
"""Nanoseconds up to this are written by the fast kind of decimal number."""


def events_between() -> str:
    """All events but arrows and counters, in the order of the file that they were read from."""
    branches = (
        _operators(),
        _annotations(),
        _runtime_calls(),
        _python_functions(),
        _memory_events(),
        _kernels(),
        _copies(),
        _others(),
        _synchronisation(),
        _counters(),
    )
    return f"SELECT text FROM ({' UNION ALL '.join(branches)}) ORDER BY id"  # noqa: S608


def arrows_between() -> str:
    """Both ends of the arrows of the table `flows`; $2 and $3 are numbers of arrows here, and
    there is no $7."""
    ends = (("source", "s", ""), ("target", "f", _BINDING))
    texts = [_arrow_end(*end) for end in ends]
    return (
        f"SELECT concat_ws(',\n', {', '.join(texts)}) AS text FROM flows "  # noqa: S608
        "WHERE trace = $1 AND flow >= $2 AND flow < $3 ORDER BY flow, kind"
    )


# --- tables ----------------------------------------------------------------------------------


def _operators() -> str:
    arguments = (
        _external("t.id"),
        _number("Record function id", "record_function"),
        _number("Sequence number", "sequence"),
        _number("Fwd thread id", "forward_thread"),
        "c.said",
        _json("Concrete Inputs", "concrete_inputs"),
        _json("Input type", "input_types"),
        _json("Input Strides", "input_strides"),
        _json("Input Dims", "input_dims"),
        _text("Call stack", "call_stack"),
        _number("Ev Idx", "t.id"),
        _rest("t.args"),
    )
    return _select(_range("'cpu_op'", arguments), f"operators t {_JOINED_COLLECTIVES}")


def _annotations() -> str:
    arguments = (
        f"CASE WHEN on_device = 0 THEN {_external('t.id')} ELSE {_external('host')} END",
        f"CASE WHEN on_device = 0 THEN {_number('Ev Idx', 't.id')} END",
        _rest("t.args"),
    )
    category = "CASE WHEN on_device = 0 THEN 'user_annotation' ELSE 'gpu_user_annotation' END"
    return _select(_range(category, arguments), "annotations t")


def _runtime_calls() -> str:
    arguments = (
        _external("operator"),
        _number("correlation", "correlation"),
        _rest("t.args"),
    )
    category = "CASE WHEN driver = 0 THEN 'cuda_runtime' ELSE 'cuda_driver' END"
    launches = " UNION ALL ".join(
        f"SELECT launch FROM {table} WHERE trace = $1 AND launch >= $2 AND launch < $3"  # noqa: S608
        for table in ("kernels", "copies")
    )
    arrow = f"CASE WHEN t.id IN ({launches}) THEN {_launch_arrow('s', '')} END"
    return _select(f"concat({_range(category, arguments)}, {arrow})", "runtime_calls t")


def _python_functions() -> str:
    arguments = (
        f"""coalesce({_number("Python parent id", "parent + 1")}, ',"Python parent id":null')""",
        _number("Python id", "t.id + 1"),
        _number("Python module id", "module_id"),
        _number("Ev Idx", "t.id"),
        _rest("t.args"),
    )
    return _select(_range("'python_function'", arguments), "python_functions t")


def _memory_events() -> str:
    # An address is an unsigned number; the column is a signed one.
    address = "CASE WHEN address < 0 THEN address::HUGEINT + 18446744073709551616 ELSE address END"
    arguments = (
        _number("Total Reserved", "reserved_bytes"),
        _number("Total Allocated", "allocated_bytes"),
        _number("Bytes", "size_bytes"),
        _number("Addr", f"({address})"),
        _number("Device Id", "device"),
        _number("Device Type", "device_type"),
        _number("Ev Idx", "t.id"),
        _rest("t.args"),
    )
    text = _concat(
        """'{"ph":"i","cat":"cpu_instant_event","s":"t","name":"[memory]",'""",
        _PLACE,
        _time("t_ns"),
        _arguments(arguments),
        "'}'",
    )
    return _select(text, "memory_events t")


def _kernels() -> str:
    arguments = (
        *_DEVICE_ARGUMENTS,
        _number("registers per thread", "registers_per_thread"),
        _number("shared memory", "shared_memory_bytes"),
        _number("blocks per SM", "blocks_per_multiprocessor"),
        _number("warps per SM", "warps_per_multiprocessor"),
        *(
            f"CASE WHEN {size}_x IS NOT NULL THEN "
            f"""concat(',"{size}":[', {size}_x, ',', {size}_y, ',', {size}_z, ']') END"""
            for size in ("grid", "block")
        ),
        _number("est. achieved occupancy %", _as_whole("occupancy_percent")),
        "c.said",
        _rest("t.args"),
    )
    text = _concat(_range("'kernel'", arguments), _END_OF_LAUNCH)
    return _select(text, f"kernels t {_JOINED_COLLECTIVES}")


def _copies() -> str:
    arguments = (
        *_DEVICE_ARGUMENTS,
        _number("bytes", "bytes"),
        # Bytes per nanosecond are gigabytes per second.
        _number("memory bandwidth (GB/s)", "bytes / nullif(duration_ns, 0)::DOUBLE"),
        _rest("t.args"),
    )
    return _select(_concat(_range("'gpu_' || kind", arguments), _END_OF_LAUNCH), "copies t")


def _others() -> str:
    return _select(_other("t.args"), "other_events t", f"NOT {_NAMES_OPERATOR}")


def _synchronisation() -> str:
    """Events of no table of their own that name an operator by the recorder's number, which is
    not stored: they carry the correlation of a call as well, and that knows its operator."""
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
        f"{_CORRELATION} FROM other_events t WHERE {_IN_SLICE} AND {_NAMES_OPERATOR}) GROUP BY ALL"
    )
    source = f"other_events t LEFT JOIN ({calls}) called ON called.correlation = {_CORRELATION}"
    chosen = f"CASE WHEN called.operator IS NULL THEN {stripped} ELSE {numbered} END"
    return _select(_other(f"({chosen})"), source, _NAMES_OPERATOR)


def _counters() -> str:
    text = _concat(
        """'{"ph":"C","name":'""",
        "to_json(any_value(name))",
        "','",
        "$6[any_value(track) + 1]",
        _time("any_value(t_ns)"),
        """',"args":{'""",
        "string_agg(concat(to_json(series), ':', value), ',')",
        "'}}'",
    )
    return f"{_select(text, 'counters t')} GROUP BY t.id"


# --- pieces ----------------------------------------------------------------------------------


def _select(text: str, source: str, condition: str = "true") -> str:
    return f"SELECT t.id, {text} AS text FROM {source} WHERE {_IN_SLICE} AND {condition}"  # noqa: S608


def _range(category: str, arguments: tuple[str, ...]) -> str:
    return _concat(
        """'{"ph":"X","cat":"'""",
        category,
        """'","name":'""",
        "to_json(t.name)",
        "','",
        _PLACE,
        _time("start_ns"),
        _duration(),
        _arguments(arguments),
        "'}'",
    )


def _other(args: str) -> str:
    return _concat(
        """'{"ph":'""",
        "to_json(phase)",
        """',"cat":' || to_json(category)""",
        """',"name":'""",
        "to_json(t.name)",
        "','",
        _PLACE,
        _time("start_ns"),
        _duration(),
        """CASE WHEN phase IN ('i', 'I') THEN ',"s":"g"' END""",
        f"""',"args":' || {_raw(args)}""",
        "'}'",
    )


def _arrow_end(end: str, phase: str, binding: str) -> str:
    text = _concat(
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
    return f"CASE WHEN {end}_ns IS NOT NULL THEN {text} END"


def _launch_arrow(phase: str, binding: str) -> str:
    return _concat(
        f"""',\n{{"ph":"{phase}","id":'""",
        "correlation + $5",
        """',"cat":"ac2g","name":"ac2g",'""",
        _PLACE,
        _time("start_ns"),
        f"'{binding}}}'",
    )


def _concat(*pieces: str) -> str:
    return f"concat({', '.join(pieces)})"


def _arguments(arguments: tuple[str, ...]) -> str:
    """Every argument begins with a comma; the first one is cut off."""
    return f"""',"args":{{', substr({_concat(*arguments)}, 2), '}}'"""


def _number(key: str, value: str) -> str:
    return f"""',"{key}":' || ({value})"""


def _external(identifier: str) -> str:
    return _number("External id", f"{identifier} + 1")


def _text(key: str, column: str) -> str:
    return f"""',"{key}":' || to_json({column})"""


def _json(key: str, column: str) -> str:
    """A column that holds an array, unless an older recorder wrote a plain text."""
    return f"""',"{key}":' || {_raw(column)}"""


def _raw(column: str) -> str:
    """JSON as it stands, or the text of a string as JSON."""
    return f"CASE WHEN {column}[1] IN ('{{', '[') THEN {column} ELSE to_json({column}) END"


def _rest(column: str) -> str:
    """The keys of an object among others."""
    return f"',' || nullif({column}, '{{}}')[2:-2]"


def _as_whole(column: str) -> str:
    """Without a decimal point where nothing stands behind it."""
    whole = f"{column} = floor({column}) AND abs({column}) < 1e15"
    return f"CASE WHEN {whole} THEN {column}::BIGINT::VARCHAR ELSE {column}::VARCHAR END"


def microseconds(nanoseconds: str) -> str:
    """SQL for a whole number of nanoseconds as microseconds with three decimals."""
    exact = f"{nanoseconds} BETWEEN -{_EXACT_NS} AND {_EXACT_NS}"
    texts = [
        f"(({nanoseconds})::DECIMAL({width}, 0) * 0.001::DECIMAL(3, 3))::VARCHAR"
        for width in (18, 19)
    ]
    return f"CASE WHEN {exact} THEN {texts[0]} ELSE {texts[1]} END"


def _time(column: str) -> str:
    readable = f"CASE WHEN {column} > {_UNREADABLE_NS} THEN {microseconds(f'{column} - $4')} END"
    return f"""',"ts":' || {readable}"""


def _duration() -> str:
    known = f"duration_ns > {_UNREADABLE_NS}"
    return f"""',"dur":' || CASE WHEN {known} THEN {microseconds("duration_ns")} END"""


_IN_SLICE = "t.trace = $1 AND t.id >= $2 AND t.id < $3"
_PLACE = "$6[t.track + 1]"
_NAMES_OPERATOR = """coalesce(contains(t.args, '"External id":'), false)"""
_CORRELATION = "TRY_CAST(t.args->>'correlation' AS BIGINT)"
_DEVICE_ARGUMENTS = (
    _external("t.operator"),
    _number("device", "CASE WHEN device >= 0 THEN device END"),
    """',"stream":' || $7[t.track + 1]""",
    _number("correlation", "correlation"),
    _number("graph id", "graph"),
    _number("graph node id", "graph_node"),
)
_BINDING = ',"bp":"e"'
"""The end of an arrow belongs to the event around it, not to the next one."""
_END_OF_LAUNCH = f"CASE WHEN launch IS NOT NULL THEN {_launch_arrow('f', _BINDING)} END"
_COLLECTIVE_ARGUMENTS = (
    _text("Collective name", "name"),
    _text("dtype", "dtype"),
    _number("In msg nelems", "in_elements"),
    _number("Out msg nelems", "out_elements"),
    _text("Process Group Name", '"group"'),
    _text("Process Group Description", "group_description"),
    _number("Group size", "group_size"),
    _text("Process Group Ranks", "group_ranks"),
    _number("Seq", "sequence"),
    _number("Src Rank", "peer_source"),
    _number("Dst Rank", "peer_destination"),
    _text("In split size", "in_split"),
    _text("Out split size", "out_split"),
    _rest("args"),
)
_JOINED_COLLECTIVES = (
    f"LEFT JOIN (SELECT id, {_concat(*_COLLECTIVE_ARGUMENTS)} AS said FROM collectives "  # noqa: S608
    "WHERE trace = $1 AND id >= $2 AND id < $3) c ON c.id = t.id"
)
