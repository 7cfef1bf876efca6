"""A file may be cut anywhere, and its parts may come in any order."""

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
    whole = {"traceEvents": events, **HEADER, "baseTimeNanoseconds": BASE_NS}
    return msgspec.json.encode(whole)


LAYOUTS = {
    "compact": trace(*AWKWARD, **HEADER),
    "indented": pretty(trace(*AWKWARD, **HEADER), 1),
    "header last": header_last(AWKWARD),
    "bare": msgspec.json.encode(AWKWARD),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("packed", [False, True])
def test_every_place_to_cut(layout: str, packed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    content = LAYOUTS[layout]
    wanted = imported(content)
    assert wanted.one("traces")["event_count"] == len(AWKWARD)
    assert "repaired_event" not in wanted.quality
    given = gzip.compress(content) if packed else content
    choose = random.Random(layout)
    for block in range(1, len(content) + 40, len(content) // 120):
        monkeypatch.setattr(blocks, "BLOCK_BYTES", block)
        monkeypatch.setattr(blocks, "_READ_BYTES", choose.choice([1, 7, 100, 1_000]))
        monkeypatch.setattr(blocks, "_PIECE_BYTES", choose.choice([1, 90, 1_000]))
        monkeypatch.setattr(blocks, "_LAST_BYTES", choose.choice([1, 50, 300, 700]))
        monkeypatch.setattr(blocks, "_LOOK_BYTES", choose.choice([1, 40, 400]))
        assert imported(given) == wanted, block


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("packed", [False, True])
def test_decoding_side_by_side(packed: bool, workers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    events = [op(f"op{n % 5}", 100 * n, 90, {"Input Dims": [[n]]}) for n in range(2_000)]
    content = trace(*training(), *events)
    wanted = imported(content)
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 5_000)
    monkeypatch.setattr(blocks, "_LAST_BYTES", 2_000)
    monkeypatch.setattr(reading, "SERIAL_BYTES", 0)
    given = gzip.compress(content) if packed else content
    assert imported(given, workers=workers) == wanted


def test_an_event_of_many_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    events = [
        op("a", 0, 1),
        op("b", 1_000, 1, {"x": ["y" * 9_000, {"name": "z"}]}),
        op("c", 2_000, 1),
    ]
    content = trace(*events)
    wanted = imported(content)
    for given in (content, gzip.compress(content)):
        monkeypatch.setattr(blocks, "BLOCK_BYTES", 64)
        monkeypatch.setattr(blocks, "_LAST_BYTES", 64)
        monkeypatch.setattr(blocks, "_READ_BYTES", 64)
        for limit in (500, 2_000, 20_000):
            monkeypatch.setattr(blocks, "MAX_BLOCK_BYTES", limit)
            assert imported(given) == wanted


def test_text_without_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """It must not be collected without limit."""
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 1_000)
    monkeypatch.setattr(blocks, "_LAST_BYTES", 100)
    monkeypatch.setattr(blocks, "_PIECE_BYTES", 500)
    monkeypatch.setattr(blocks, "_READ_BYTES", 500)
    monkeypatch.setattr(blocks, "MAX_BLOCK_BYTES", 4_000)
    monkeypatch.setattr(reading, "MAX_BLOCK_BYTES", 4_000)
    good = msgspec.json.encode([op("a", 0, 1), op("b", 1_000, 1)])[1:-1]
    content = b'{"traceEvents":[' + good + b',{"ph":"X","name":"' + b"x" * 50_000 + good + b"]}"
    for given in (content, gzip.compress(content)):
        tables = imported(given)
        assert tables.names("operators")[:2] == ["a", "b"]
        assert tables.quality["lost_text"]["count"] > 40_000


@pytest.mark.parametrize("before", [b"\xef\xbb\xbf", b" \n\t", b"\xef\xbb\xbf\r\n "])
@pytest.mark.parametrize("layout", ["compact", "bare"])
def test_what_may_stand_before_it(before: bytes, layout: str) -> None:
    assert imported(before + LAYOUTS[layout]) == imported(LAYOUTS[layout])


@pytest.mark.parametrize("packed", [False, True])
def test_a_huge_header(packed: bool) -> None:
    notes = {"INFO": ['no "traceEvents": [ here', "x" * 3_000_000]}
    content = trace(*training(), **notes)
    tables = imported(gzip.compress(content, 1) if packed else content)
    assert tables.counts() == imported(trace(*training())).counts()
    assert len(tables.one("traces")["metadata"]) > 3_000_000


def test_the_header_in_halves() -> None:
    """It is one object, wherever the events stand in it."""
    events = msgspec.json.encode(training())
    fields = [msgspec.json.encode({key: value})[1:-1] for key, value in HEADER.items()]
    fields += [b'"baseTimeNanoseconds":%d' % BASE_NS, b'"schemaVersion":1']
    wanted = imported(trace(*training(), **HEADER))
    for place in range(len(fields) + 1):
        parts = [*fields[:place], b'"traceEvents": ' + events, *fields[place:]]
        assert imported(b"{" + b",\n".join(parts) + b"}\n") == wanted


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


def test_a_header_that_can_be_mended() -> None:
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


def test_no_event_at_all_is_left_without_trace_of_time() -> None:
    events: list[Event] = [{"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "a"}}]
    row = imported(trace(*events)).one("traces")
    assert (row["start_ns"], row["end_ns"]) == (BASE_NS, BASE_NS)
    assert bytes(microseconds(0)) == b"0.000"


@pytest.mark.parametrize("packed", [False, True])
def test_what_counts_is_how_much_text_there_will_be(
    packed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A compressed file of a few megabytes is worth all cores, a plain one of its size is not."""
    content = trace(*training())
    given = gzip.compress(content) if packed else content
    used: list[int] = []

    def decode_all(blocks: Iterable[Block], workers: int, begun: object) -> Iterator[Chunk]:
        used.append(workers)
        return pool.decode_all(blocks, 0)

    monkeypatch.setattr(reading, "decode_all", decode_all)
    monkeypatch.setattr(reading, "SERIAL_BYTES", 2 * len(given))
    imported(given, workers=3)
    assert used == [3 if packed else 0]


# --- the pool ------------------------------------------------------------------------------------


def numbered(count: int, gap: bytes = b",") -> Iterator[Block]:
    for number in range(count):
        event = {"ph": "X", "cat": "cpu_op", "name": f"op {number}", "ts": number, "dur": 1}
        yield Block(text=msgspec.json.encode(event), gap=gap)


@pytest.mark.parametrize("gap", [b",", b"," + b" " * 2_000_000])
def test_chunks_come_in_order_whatever_lies_between(gap: bytes) -> None:
    chunks = list(decode_all(numbered(20, gap), 2))
    assert [chunk.strings for chunk in chunks] == [[f"op {number}"] for number in range(20)]
    assert all(chunk.gap == gap for chunk in chunks)


def test_a_block_that_takes_long_lets_few_others_pile_up(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = 0

    def counted() -> Iterator[Block]:
        nonlocal taken
        for block in numbered(100):
            taken += 1
            yield block

    def slow(block: Block) -> Chunk:
        if b'"op 0"' in bytes(block.in_brackets()):
            time.sleep(1)
        return decode_block(block)

    monkeypatch.setattr(pool, "decode_block", slow)  # before the workers are forked
    chunks = decode_all(counted(), 2)
    next(chunks)
    assert taken <= 2 * pool._AHEAD_PER_WORKER + 2  # one is made ahead
    assert len(list(chunks)) == 99
