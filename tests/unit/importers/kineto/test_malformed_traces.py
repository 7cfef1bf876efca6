"""Repair of malformed files, and the quality record of what was lost."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import re
import zlib
from contextlib import suppress
from itertools import pairwise
from typing import Any

import msgspec
import pytest

from stepscope.errors import UnreadableTraceError
from stepscope.importers.kineto import decode
from stepscope.importers.kineto.arguments import MAX_NESTING
from stepscope.importers.kineto.gather import MAX_TEXT_CHARACTERS
from tests.support.kineto_files import (
    BASE_NS,
    Event,
    Tables,
    imported,
    kernel,
    launch,
    microseconds,
    op,
    pretty,
    span,
    trace,
    training,
)

DIRTY = [
    op("before", 0, 10),
    {"ph": "X", "cat": "cpu_op", "name": "@", "pid": 10, "tid": 1, "ts": 20, "dur": 1},
    op("after", 30, 10),
]


def with_text(text: bytes, events: list[Event] | None = None) -> bytes:
    """Return a file in which `"@"`, quotes included, is replaced."""
    return trace(*(events or DIRTY)).replace(b'"@"', text)


def assert_repaired(tables: Tables, *, repaired: int = 1) -> None:
    assert tables.quality["repaired_event"]["count"] == repaired
    assert tables.outcome is not None
    assert tables.outcome.lost is None
    assert "truncated" not in tables.quality


@pytest.mark.parametrize(
    ("written", "name"),
    [
        (rb'"a "quoted" name"', 'a "quoted" name'),
        (rb'"std::function<void("x", 1)>"', 'std::function<void("x", 1)>'),
        (rb'"C:\dir\file"', r"C:\dir" + "\file"),
        (rb'"regex \d+\."', r"regex \d+\."),
        (b'"tab\there, line\nthere"', "tab here, line there"),
        (b'"nul\0 and bell\7"', "nul  and bell "),
        (b'"caf\xe9"', "caf�"),
        (rb'"half \ud83d and whole \ud83d\ude00"', "half � and whole 😀"),
        (rb'"}, {"ph": "X"}"', '}, {"ph": "X"}'),
    ],
)
def test_names_that_are_no_json(written: bytes, name: str) -> None:
    tables = imported(with_text(written))
    assert tables.names("operators") == ["before", name, "after"]
    assert_repaired(tables)


@pytest.mark.parametrize(("written", "name"), [(b"12", "12"), (b"null", "null"), (b"[1]", "[1]")])
def test_names_that_are_no_strings(written: bytes, name: str) -> None:
    assert imported(with_text(written)).names("operators") == ["before", name, "after"]


@pytest.mark.parametrize("number", ["nan", "NaN", "-nan", "inf", "-Infinity", "N/A", "nan(ind)"])
def test_spellings_of_a_missing_number(number: str) -> None:
    event = kernel(
        20, 5, 3, {"est. achieved occupancy %": "@", "grid": [4, 1, 1]}, name="a: nan, b"
    )
    tables = imported(with_text(number.encode(), [launch(0, 5, 3), event, launch(30, 5, 4)]))
    row = tables.one("kernels")
    assert (row["occupancy_percent"], row["grid_x"], row["name"]) == (None, 4, "a: nan, b")
    assert row["launch"] == 0
    assert_repaired(tables)


def test_trailing_commas() -> None:
    text = trace(*training()).replace(b"]}}", b"],},}").replace(b"}]", b"},]")
    tables = imported(text)
    assert tables.names("kernels") == ["gemm"]
    assert tables.quality["repaired_event"]["count"] == text.count(b"],},}")


@pytest.mark.parametrize("thread", [1.5, None, True, ["a"], {"a": 1}, "stream 7", 2**70])
def test_threads_of_any_type(thread: object) -> None:
    tables = imported(trace(op("a", 0, 10), op("b", 20, 10, tid=thread)))
    assert tables.names("operators") == ["a", "b"]
    assert len(tables.rows("tracks")) == 2


@pytest.mark.parametrize(
    "odd",
    [
        [1, 2],
        "text",
        None,
        {"External id": "many", "Input Dims": {"a": 1}},
        {"External id": 2**80, "Sequence number": -(2**80)},
        {"External id": None, "correlation": True, "cbid": []},
        {"Collective name": 5, "In msg nelems": "?"},
        {"device": 2**40, "stream": -(2**70), "grid": [2**33, 1], "block": []},
    ],
)
def test_arguments_of_any_type(odd: object) -> None:
    categories = ("cpu_op", "kernel", "cuda_runtime", "python_function", "x")
    odd_events = [span(c, "odd", 1_000 + 10 * n, 5, args=odd) for n, c in enumerate(categories)]
    tables = imported(trace(op("before", 0, 1), *odd_events, op("after", 2_000, 1)))
    assert tables.one("traces")["event_count"] == 7
    assert {"before", "after"} <= set(tables.names("operators"))


def test_unknown_arguments_are_kept() -> None:
    args = {"External id": 3, "kernel_hash": "abc", "deep": {"list": [1, {"a": None}]}}
    row = imported(trace(op("triton", 0, 10, args))).one("operators")
    assert json.loads(row["args"]) == {"kernel_hash": "abc", "deep": {"list": [1, {"a": None}]}}


NO_EVENTS = [{}, {"name": "no phase", "pid": 10}, {"args": {"ph": "X"}}]


@pytest.mark.parametrize("name", ["b", "@"], ids=["valid", "damaged"])
@pytest.mark.parametrize("use_scanner", [True, False])
def test_objects_without_a_phase_are_no_events(
    name: str, use_scanner: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TensorFlow and JAX end their list of events with an empty object."""
    if not use_scanner:
        monkeypatch.setattr(decode, "scan_block", lambda *_: None)
    events = [op("a", 0, 10), op(name, 20, 10, {"x": 1}), kernel(40, 5, None)]
    expected = imported(with_text(b'"a "b"', events))
    with_others = [item for event in events for item in (*NO_EVENTS, event)] + [{}]
    tables = imported(with_text(b'"a "b"', with_others))
    assert tables == expected
    assert tables.outcome is not None
    assert (tables.outcome.event_count, tables.outcome.lost) == (3, None)


def test_objects_without_a_phase_use_up_no_repairs() -> None:
    events = [
        item
        for number in range(4_000)
        for item in (span("cpu_op", "a", number, 1, x="@"), *[{}, {"y": 1}] * (number < 2_000))
    ]
    assert imported(with_text(b"nan", events)).quality["repaired_event"]["count"] == 4_000


@pytest.mark.parametrize("missing", ["name", "cat", "pid", "tid", "ts", "dur", "args"])
def test_events_without_a_key(missing: str) -> None:
    event = {key: value for key, value in op("b", 2_000, 10, {"x": 1}).items() if key != missing}
    tables = imported(trace(op("a", 0, 10), event, op("c", 4_000, 10)))
    assert tables.one("traces")["event_count"] == 3
    assert {"a", "c"} <= set(tables.names("operators"))
    if missing == "ts":
        assert tables.quality["impossible_time"]["count"] == 1


def test_events_with_their_keys_in_any_order() -> None:
    events = [dict(reversed(event.items())) for event in training()]
    assert imported(trace(*events)) == imported(trace(*training()))


@pytest.mark.parametrize("indent", [-1, 0, 1, 4])
def test_any_indentation(indent: int) -> None:
    content = trace(*training())
    spaced = pretty(content, indent) if indent >= 0 else content.replace(b",", b" ,\r\n\t")
    assert imported(spaced) == imported(content)


# --- cut off ---------------------------------------------------------------------------------


def ends_of_events(content: bytes) -> list[int]:
    """Return the end of each event of a file."""
    text = content.decode("latin1")
    at = text.index("[", max(0, text.find('"traceEvents"'))) + 1
    ends = []
    while text[at:].lstrip(" \n,")[:1] == "{":
        at = len(text) - len(text[at:].lstrip(" \n,"))
        at = json.JSONDecoder().raw_decode(text, at)[1]
        ends.append(at)
    return ends


SMALL = [
    {"ph": "M", "name": "process_name", "pid": 10, "tid": 0, "args": {"name": "python"}},
    op("aten::a", 1_000, 5_000, {"Input Dims": [[1], []]}, external=2),
    kernel(3_000, 100, 7),
    span("cpu_op", 'we "}, {" \\ é', 9_000, 10),
]


@pytest.mark.parametrize("layout", ["compact", "indented", "bare"])
def test_cut_off_anywhere(layout: str) -> None:
    content = {
        "compact": trace(*SMALL, deviceProperties=[{"id": 0, "name": "A"}]),
        "indented": pretty(trace(*SMALL), 1),
        "bare": msgspec.json.encode(SMALL),
    }[layout]
    ends = ends_of_events(content)
    assert len(ends) == len(SMALL)
    near_ends = {end + offset for end in ends for offset in (-1, 0, 1, 2)}
    for cut in sorted({*range(0, len(content), 11), *near_ends}):
        complete = sum(end <= cut for end in ends)
        try:
            tables = imported(content[:cut])
        except UnreadableTraceError:
            assert not complete
            continue
        assert tables.one("traces")["event_count"] == complete, cut
        if cut < ends[-1]:
            assert tables.quality["truncated"]["count"] == 1, cut
            assert tables.outcome is not None
            assert tables.outcome.lost, cut


@pytest.mark.parametrize("before", [b'{"traceEvents":[],', b'{"a": 1, "traceEvents" : [ ]\n, '])
def test_an_empty_list_of_events_before_the_list(before: bytes) -> None:
    text = trace(op("a", 0, 5), op("b", 10, 5))
    tables, expected = imported(before + text.lstrip()[1:]), imported(text)
    assert tables.rows("operators") == expected.rows("operators")
    assert tables.quality == expected.quality


def test_a_file_without_its_end_may_have_lost_its_base() -> None:
    content = trace(*training())
    cut = imported(content[: content.index(b'"baseTimeNanoseconds"')])
    assert cut.one("traces")["base_ns"] == 0
    assert "missing" in cut.quality["clock_base"]["detail"]


def test_a_tail_of_zeros() -> None:
    """A crash of the machine leaves such files."""
    content = trace(*training())
    assert imported(content + b"\0" * 5_000) == imported(content)
    half = imported(content[: len(content) // 2] + b"\0" * 5_000)
    assert half.quality["truncated"]["count"] == 1
    assert half.one("traces")["event_count"] > 3


@pytest.mark.parametrize("written", [b'"{' * 20, b"#" * 40, b"}]" * 20, b"\xff\0" * 20])
def test_unreadable_text_costs_only_the_events_it_covers(written: bytes) -> None:
    events = [op(f"op{n}", 1_000 * n, 500) for n in range(100)]
    content = trace(*events)
    ends = [content.index(b"[") + 1, *ends_of_events(content)]
    for start in range(ends[50], ends[52], 18):
        tables = imported(content[:start] + written + content[start + 40 :])
        hit = {n for n, (a, b) in enumerate(pairwise(ends)) if a < start + 40 and start < b}
        names = {f"op{n}" for n in range(100) if n not in hit}
        assert names <= set(tables.names("operators"))
        assert len(tables.quality) > 1  # more than the base of the clock
        assert "truncated" not in tables.quality


def test_damage_costs_one_event_whatever_key_events_begin_with() -> None:
    events = [{"zone": 7, **op(f"op{n}", 1_000 * n, 500)} for n in range(100)]
    content = trace(*events)
    start = ends_of_events(content)[50]
    damage = b',{"zone":tru}'
    tables = imported(content[:start] + damage + content[start:])
    assert tables.names("operators") == [f"op{n}" for n in range(100)]
    assert tables.quality["lost_text"]["count"] == len(damage)


# --- gzip ------------------------------------------------------------------------------------


def test_gzip_of_several_members() -> None:
    content = trace(*training())
    for cut in (1, 100, len(content) // 2, len(content) - 1):
        joined = gzip.compress(content[:cut]) + gzip.compress(content[cut:])
        assert imported(joined) == imported(content)


@pytest.mark.parametrize("name", ["trace.json", "trace.json.gz", "trace.pt.trace", "trace"])
def test_file_names_do_not_matter(name: str) -> None:
    content = trace(*training())
    expected = imported(content, name=name)
    assert imported(gzip.compress(content), name=name) == expected
    assert expected.names("kernels") == ["gemm"]


@pytest.mark.parametrize("rest", [b"\0" * 900, b"trailing garbage", b"\x1f"])
def test_data_after_a_gzip_stream(rest: bytes) -> None:
    content = trace(*training())
    assert imported(gzip.compress(content) + rest) == imported(content)


def test_gzip_cut_off_anywhere() -> None:
    content = trace(*(op(f"{n * 7919 % 1000}", n * 1_000, 10) for n in range(60)))
    packed = gzip.compress(content)
    for cut in range(0, len(packed) - 8, 15):
        try:
            tables = imported(packed[:cut])
        except UnreadableTraceError:
            continue
        assert tables.quality["truncated"]["count"] == 1
        assert "is truncated" in tables.quality["truncated"]["detail"]
        names = tables.names("operators")
        assert names == [f"{n * 7919 % 1000}" for n in range(60)][: len(names)]


def test_damaged_gzip() -> None:
    """Text that is inflated before the damage is noticed is kept."""
    content = trace(*(op(f"{n * 7919}", n * 1_000, 10) for n in range(6_000)))
    deflater = zlib.compressobj(wbits=31)
    packed = deflater.compress(content[: len(content) * 2 // 3])
    packed += deflater.flush(zlib.Z_FULL_FLUSH) + b"\x07" * 100  # no block has this type
    tables = imported(packed)
    assert tables.quality["truncated"]["count"] == 1
    assert "damaged" in tables.quality["truncated"]["detail"]
    names = tables.names("operators")
    assert names[:3_000] == [f"{n * 7919}" for n in range(3_000)]


@pytest.mark.parametrize("header", [b"", b"a name.json\0"])
def test_a_wrong_checksum_loses_no_event(header: bytes) -> None:
    """Of the first of two streams; of the second one, which is cut off, nothing else is known."""
    content = trace(*(op(f"{n * 7919}", n * 1_000, 10) for n in range(6_000)))
    half = len(content) // 2
    first, second = (bytearray(gzip.compress(part)) for part in (content[:half], content[half:]))
    first[-5] ^= 1
    first[3] |= 8 if header else 0
    first[10:10] = header
    tables = imported(bytes(first + second))
    assert tables.names("operators") == [f"{n * 7919}" for n in range(6_000)]
    assert tables.quality["wrong_checksum"]["count"] == 1
    assert "truncated" not in tables.quality
    cut = imported(bytes(first + second[: len(second) // 2]))
    assert cut.quality["truncated"]["count"] == cut.quality["wrong_checksum"]["count"] == 1
    assert cut.quality["lost_text"]["of_count"] is None


def test_microseconds_are_written_exactly() -> None:
    assert bytes(microseconds(-1_001)) == b"-1.001"


# --- hostile ---------------------------------------------------------------------------------

DEEP = b"[" * 10_000 + b"]" * 10_000


@pytest.mark.parametrize("key", ["name", "pid", "ts", "args"])
def test_a_deeply_nested_value_costs_its_event(key: str) -> None:
    deep = op("b", 20, 10, {"x": 1}) | {key: "@"}
    tables = imported(trace(op("a", 0, 10), deep, op("c", 40, 10)).replace(b'"@"', DEEP))
    assert {"a", "c"} <= set(tables.names("operators"))
    assert tables.quality["lost_text"]["count"] >= len(DEEP)  # bytes


def test_a_deeply_nested_header_costs_the_header() -> None:
    tables = imported(trace(op("a", 0, 10), note="@").replace(b'"@"', DEEP))
    assert tables.names("operators") == ["a"]


def test_a_base_of_thousands_of_digits() -> None:
    content = trace(op("a", 0, 10)).replace(str(BASE_NS).encode(), b"9" * 5_000)
    assert imported(content).one("traces")["base_ns"] == 0


@pytest.mark.parametrize(
    "text",
    [
        trace(op("a", 0, 10))[:-40] + b" " * 2_000_000,
        b'{"traceEvents":[' + b'{"ph":"X"} ' * 100_000,
        b'{"traceEvents":[' + b'{"ph":"X" "a"} ' * 100_000,
        b'{"a":' + b'"x":"y"} ' * 100_000 + b',"traceEvents":[{"ph":"X","name":"a","ts":1}]}',
    ],
    ids=["blanks", "no commas", "no colons", "header"],
)
@pytest.mark.timeout(60)  # they took hours: time grew with the square of the length
def test_text_that_nearly_matches(text: bytes) -> None:
    with suppress(UnreadableTraceError):
        imported(text)


@pytest.mark.parametrize("depth", [MAX_NESTING - 20, MAX_NESTING + 1, 990])
@pytest.mark.parametrize(
    "header",
    [
        {"deviceProperties": [{"id": 0, "name": "@", "other": "@"}]},
        {"distributedInfo": {"rank": 0, "pg_config": [{"pg_name": "@", "ranks": "@"}]}},
        {"note": "@"},
    ],
    ids=["device", "group", "note"],
)
def test_a_value_that_can_be_read_can_be_written(depth: int, header: dict[str, Any]) -> None:
    """Encoders recurse, too, and may have less of the stack left than the decoder had."""
    deep = b"[" * depth + b"]" * depth
    content = trace(
        op("a", 0, 10), {"ph": "M", "name": "x", "pid": 1, "args": {"a": "@"}}, **header
    )
    tables = imported(content.replace(b'"@"', deep))
    assert tables.names("operators") == ["a"]
    is_kept = depth < MAX_NESTING
    assert ("lost_text" not in tables.quality) == is_kept
    assert tables.one("traces")["base_ns"] == BASE_NS


@pytest.mark.parametrize(
    "text",
    [
        b'}, {\\"ph\\": \\"X\\" ' * 20_000,
        b'"}, {"ph":"X"}, {"name":' * 10_000,
        b'{"ph":' * 50_000,
        b'"' * 100_000,
        b'\\"' * 50_000,
        b'}],"a":[{' * 20_000,
        b'"},{"a":"' * 20_000,
    ],
    ids=["escaped", "borders", "braces", "quotes", "escapes", "ends", "objects"],
)
@pytest.mark.parametrize("is_closed", [True, False])
@pytest.mark.timeout(60)  # some took hours
def test_time_grows_with_the_length_of_hostile_text(text: bytes, is_closed: bool) -> None:
    quoted = b'"' + text + b'"' * is_closed
    content = trace(op("a", 0, 10), op("b", 20, 10, {"x": "@"}), op("c", 40, 10))
    with suppress(UnreadableTraceError):
        assert "a" in imported(content.replace(b'"@"', quoted)).names("operators")


def test_of_a_very_long_text_the_start_is_kept() -> None:
    long = "x" * (MAX_TEXT_CHARACTERS + 1)
    args = {"note": long, "Input Dims": [[1]] * MAX_TEXT_CHARACTERS}
    tables = imported(trace(op("a", 0, 10), op(long, 20, 10, args), op("c", 40, 10)))
    assert tables.quality["shortened_text"]["count"] == 3
    row = tables.rows("operators")[1]
    assert row["name"] == long[:-1] + "…"
    assert json.loads(row["args"])["shortened"].startswith('{"note":"xxx')
    assert json.loads(row["input_dims"]).startswith("[[1],[1],")


def test_text_before_damage_of_a_small_file_is_kept() -> None:
    content = trace(*(op(f"{n * 7919}", n * 1_000, 10) for n in range(200)))
    packed = bytearray(gzip.compress(content))
    packed[len(packed) * 9 // 10] ^= 0xFF
    names = imported(bytes(packed)).names("operators")
    assert names[:100] == [f"{n * 7919}" for n in range(100)]


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"PK\x03\x04....", "is a zip archive whose end is missing. Copy it again, as binary"),
        (lzma.compress(b"{}"), "is compressed with xz. Decompress it with `xz -d`, and import"),
        (b"\x28\xb5\x2f\xfd", "is compressed with Zstandard. Decompress it with `zstd -d`, and"),
        (bz2.compress(b"{}"), "is compressed with bzip2. Decompress it with `bzip2 -d`, and"),
        (b"\x04\x22\x4d\x18", "is compressed with LZ4. Decompress it with `lz4 -d`, and import"),
        (b"7z\xbc\xaf\x27\x1c", "is a 7-Zip archive. Unpack it, and import the files in it."),
        ("{}".encode("utf-16"), "is text in UTF-16. Convert it with `iconv -f UTF-16 -t UTF-8`,"),
        ("[]".encode("utf-16-be"), "is text in UTF-16. Convert it with `iconv -f UTF-16 -t UTF"),
        ("{}".encode("utf-32"), "is text in UTF-32. Convert it with `iconv -f UTF-32 -t UTF-8`,"),
    ],
)
def test_another_form_is_named(content: bytes, sentence: str) -> None:
    with pytest.raises(UnreadableTraceError, match=re.escape(f"trace.json {sentence}")):
        imported(content)


def test_a_text_with_several_traces_is_no_trace() -> None:
    """An import takes each of them on its own; see tests/unit/importers/test_documents.py."""
    with pytest.raises(UnreadableTraceError) as raised:
        imported(trace(op("a", 0, 10)) + trace(op("b", 0, 10)))
    assert " traces, one after the other. Write each into a file of its own." in str(raised.value)
