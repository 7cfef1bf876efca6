"""Cutting of files into blocks at any position, and parts of a file in any order."""

from __future__ import annotations

import gzip
import random
import time
from collections.abc import Iterable, Iterator

import msgspec
import pytest

from stepscope.importers.kineto import blocks, pool, reading
from stepscope.importers.kineto.blocks import Block
from stepscope.importers.kineto.decode import Chunk, decode_block
from stepscope.importers.kineto.pool import decode_all
from tests.support.kineto_files import (
    BASE_NS,
    Event,
    imported,
    microseconds,
    op,
    pretty,
    trace,
    training,
)

HEADER = {
    "deviceProperties": [{"id": 0, "name": "A"}, {"id": 1, "name": "B"}],
    "distributedInfo": {"rank": 1, "pg_config": [{"name": "x", "pg_name": "0"}, {"id": 3}]},
}
LIKE_A_BORDER = '}, {"ph": "X", "name": "'
AWKWARD: list[Event] = [
    *training(),
    op(f"we {LIKE_A_BORDER}", 1_600, 10, {"Concrete Inputs": [LIKE_A_BORDER, '},{"ph":"X"}']}),
    op("list", 1_700, 10, {"l": [{"name": "a"}, {"id": 3}, {"cat": "x"}, {"ts": 1}, {"pid": 2}]}),
    {"cname": "odd", **op("an unknown key first", 1_760, 5)},
    dict(reversed(op("backwards", 1_800, 5, {"x": [{"name": "q"}, {"name": "r"}]}).items())),
]


def header_last(events: list[Event]) -> bytes:
    content = {"traceEvents": events, **HEADER, "baseTimeNanoseconds": BASE_NS}
    return msgspec.json.encode(content)


LAYOUTS = {
    "compact": trace(*AWKWARD, **HEADER),
    "indented": pretty(trace(*AWKWARD, **HEADER), 1),
    "header last": header_last(AWKWARD),
    "bare": msgspec.json.encode(AWKWARD),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("packed", [False, True])
def test_every_position_of_a_cut(
    layout: str, packed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = LAYOUTS[layout]
    expected = imported(content)
    assert expected.one("traces")["event_count"] == len(AWKWARD)
    assert "repaired_event" not in expected.quality
    data = gzip.compress(content) if packed else content
    choose = random.Random(layout)
    for block in range(1, len(content) + 40, len(content) // 40):
        monkeypatch.setattr(blocks, "BLOCK_BYTES", block)
        monkeypatch.setattr(blocks, "_READ_BYTES", choose.choice([1, 7, 100, 1_000]))
        monkeypatch.setattr(blocks, "_PIECE_BYTES", choose.choice([1, 90, 1_000]))
        monkeypatch.setattr(blocks, "_LAST_BYTES", choose.choice([1, 50, 300, 700]))
        monkeypatch.setattr(blocks, "_LOOK_BYTES", choose.choice([1, 40, 400]))
        assert imported(data) == expected, block


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("packed", [False, True])
def test_parallel_decoding(packed: bool, workers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    events = [op(f"op{n % 5}", 100 * n, 90, {"Input Dims": [[n]]}) for n in range(2_000)]
    content = trace(*training(), *events)
    expected = imported(content)
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 5_000)
    monkeypatch.setattr(blocks, "_LAST_BYTES", 2_000)
    monkeypatch.setattr(reading, "SERIAL_BYTES", 0)
    data = gzip.compress(content) if packed else content
    assert imported(data, workers=workers) == expected


def test_an_event_of_many_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    events = [
        op("a", 0, 1),
        op("b", 1_000, 1, {"x": ["y" * 9_000, {"name": "z"}]}),
        op("c", 2_000, 1),
    ]
    content = trace(*events)
    expected = imported(content)
    for data in (content, gzip.compress(content)):
        monkeypatch.setattr(blocks, "BLOCK_BYTES", 64)
        monkeypatch.setattr(blocks, "_LAST_BYTES", 64)
        monkeypatch.setattr(blocks, "_READ_BYTES", 64)
        for limit in (500, 2_000, 20_000):
            monkeypatch.setattr(blocks, "MAX_BLOCK_BYTES", limit)
            assert imported(data) == expected


def test_text_without_end_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """It must not be collected without limit."""
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 1_000)
    monkeypatch.setattr(blocks, "_LAST_BYTES", 100)
    monkeypatch.setattr(blocks, "_PIECE_BYTES", 500)
    monkeypatch.setattr(blocks, "_READ_BYTES", 500)
    monkeypatch.setattr(blocks, "MAX_BLOCK_BYTES", 4_000)
    monkeypatch.setattr(reading, "MAX_BLOCK_BYTES", 4_000)
    good = msgspec.json.encode([op("a", 0, 1), op("b", 1_000, 1)])[1:-1]
    content = b'{"traceEvents":[' + good + b',{"ph":"X","name":"' + b"x" * 50_000 + good + b"]}"
    for data in (content, gzip.compress(content)):
        tables = imported(data)
        assert tables.names("operators")[:2] == ["a", "b"]
        assert tables.quality["lost_text"]["count"] > 40_000


@pytest.mark.parametrize("before", [b"\xef\xbb\xbf", b" \n\t", b"\xef\xbb\xbf\r\n "])
@pytest.mark.parametrize("layout", ["compact", "bare"])
def test_marks_and_whitespace_before_the_text(before: bytes, layout: str) -> None:
    assert imported(before + LAYOUTS[layout]) == imported(LAYOUTS[layout])


@pytest.mark.parametrize("packed", [False, True])
def test_a_huge_header(packed: bool) -> None:
    notes = {"INFO": ['no "traceEvents": [ here', "x" * 3_000_000]}
    content = trace(*training(), **notes)
    tables = imported(gzip.compress(content, 1) if packed else content)
    assert tables.counts() == imported(trace(*training())).counts()
    assert len(tables.one("traces")["metadata"]) > 3_000_000


def test_source_files_in_the_header() -> None:
    """VizTracer stores the text of all source files."""
    source = "if a:\n    x = [f(b, {c: d}), 'text that takes a line']\n" * 3_000
    info = {"files": {f"{number}.py": [source, 3_000] for number in range(30)}}
    assert len(source) * 30 > 4 << 20
    tables = imported(trace(*training(), file_info=info, distributedInfo={"rank": 3}))
    row = tables.one("traces")
    assert row["rank"] == 3
    assert msgspec.json.decode(row["metadata"])["file_info"] == info
    assert tables.outcome is not None
    assert tables.outcome.lost is None


@pytest.mark.parametrize(
    ("names", "lost"),
    [
        (["notes"], "the field notes beside the events is too large to be read"),
        (["a b"], "a field beside the events is too large to be read"),
        (["x", "y"], "2 fields beside the events are too large to be read"),
    ],
)
def test_fields_that_take_too_much_memory(names: list[str], lost: str) -> None:
    content = trace(*training(), distributedInfo={"rank": 3})
    large = b"[" + b"[]," * 800_000 + b"1]"
    fields = b"".join(b',"%s":%s' % (name.encode(), large) for name in names)
    tables = imported(content[:-1] + fields + b"}")
    row = tables.one("traces")
    assert (row["rank"], row["base_ns"]) == (3, BASE_NS)
    assert row["metadata"] == imported(content).one("traces")["metadata"]
    assert tables.quality["lost_text"]["detail"] == lost
    assert tables.outcome is not None
    assert tables.outcome.lost == lost


@pytest.mark.parametrize("count", [100_000, 400_000])
def test_a_list_of_objects_after_the_events(count: int) -> None:
    """Blocks may be cut in it."""
    content = trace(*training(), distributedInfo={"rank": 3})
    tables = imported(content[:-1] + b',"n":[' + b'{"a":1},' * count + b"{}]}")
    assert tables.one("traces")["rank"] == 3
    assert len(msgspec.json.decode(tables.one("traces")["metadata"])["n"]) == count + 1


def test_the_header_in_halves() -> None:
    """The header is one object, wherever the events are in it."""
    events = msgspec.json.encode(training())
    fields = [msgspec.json.encode({key: value})[1:-1] for key, value in HEADER.items()]
    fields += [b'"baseTimeNanoseconds":%d' % BASE_NS, b'"schemaVersion":1']
    expected = imported(trace(*training(), **HEADER))
    for index in range(len(fields) + 1):
        parts = [*fields[:index], b'"traceEvents": ' + events, *fields[index:]]
        assert imported(b"{" + b",\n".join(parts) + b"}\n") == expected


@pytest.mark.parametrize("key", ["before", "after"])
def test_a_header_that_is_no_json(key: str) -> None:
    events = b'"traceEvents":' + msgspec.json.encode(training())
    base = b'"baseTimeNanoseconds":%d' % BASE_NS
    broken = b'"host": what is this, "n": nan'
    parts = {"before": [base, broken, events], "after": [events, broken, base]}[key]
    tables = imported(b"{" + b",".join(parts) + b"}")
    assert tables.one("traces")["event_count"] == len(training())
    assert tables.one("traces")["base_ns"] == BASE_NS
    assert "the header around the events" in tables.quality["lost_text"]["detail"]


def test_a_header_that_can_be_repaired() -> None:
    content = trace(*training(), job="@", version=1.5).replace(b'"@"', b'"a "quoted" \\path"')
    metadata = msgspec.json.decode(
        imported(content.replace(b"1.5", b"nan")).one("traces")["metadata"]
    )
    assert metadata == {"schemaVersion": 1, "job": 'a "quoted" \\path', "version": None}


def test_the_last_event_may_be_the_broken_one() -> None:
    content = trace(*training(), op("last", 8_000, 5)).replace(b'"last"', b"what")
    tables = imported(content)
    assert tables.one("traces")["base_ns"] == BASE_NS
    assert tables.one("traces")["event_count"] == len(training())
    assert "truncated" not in tables.quality
    assert tables.quality["lost_text"]["count"] > 0


def test_a_trace_without_timed_events() -> None:
    events: list[Event] = [{"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "a"}}]
    row = imported(trace(*events)).one("traces")
    assert (row["start_ns"], row["end_ns"]) == (BASE_NS, BASE_NS)
    assert bytes(microseconds(0)) == b"0.000"


@pytest.mark.parametrize("packed", [False, True])
def test_the_size_of_the_text_decides_on_workers(
    packed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All cores decode a compressed file of a few megabytes, but not a plain one of its size."""
    content = trace(*training())
    data = gzip.compress(content) if packed else content
    used: list[int] = []

    def decode_all(blocks: Iterable[Block], workers: int, on_start: object) -> Iterator[Chunk]:
        used.append(workers)
        return pool.decode_all(blocks, 0)

    monkeypatch.setattr(reading, "decode_all", decode_all)
    monkeypatch.setattr(reading, "SERIAL_BYTES", 2 * len(data))
    imported(data, workers=3)
    assert used == [3 if packed else 0]


# --- the pool ------------------------------------------------------------------------------------


def numbered(count: int, gap: bytes = b",") -> Iterator[Block]:
    for number in range(count):
        event = {"ph": "X", "cat": "cpu_op", "name": f"op {number}", "ts": number, "dur": 1}
        yield Block(text=msgspec.json.encode(event), gap=gap)


@pytest.fixture(params=["threads", "processes"])
def by(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Decode in threads, by the compiled scanner where it is built, or in processes, by Python."""
    way: str = request.param
    monkeypatch.setattr(pool, "is_scannable", lambda _: way == "threads")
    return way


@pytest.mark.usefixtures("by")
@pytest.mark.parametrize("gap", [b",", b"," + b" " * 2_000_000])
def test_chunks_come_in_order(gap: bytes) -> None:
    chunks = list(decode_all(numbered(20, gap), 2))
    assert [chunk.strings for chunk in chunks] == [[f"op {number}"] for number in range(20)]
    assert all(chunk.gap == gap for chunk in chunks)


@pytest.mark.usefixtures("by")
def test_a_slow_block_limits_the_blocks_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    block_count = 0

    def counted() -> Iterator[Block]:
        nonlocal block_count
        for block in numbered(100):
            block_count += 1
            yield block

    def slow(block: Block) -> Chunk:
        if b'"op 0"' in bytes(block.read()):
            time.sleep(1)
        return decode_block(block)

    monkeypatch.setattr(pool, "decode_block", slow)  # before the workers are forked
    chunks = decode_all(counted(), 2)
    next(chunks)
    assert block_count <= 2 * pool._AHEAD_PER_WORKER + 2  # one is prefetched
    assert len(list(chunks)) == 99
