"""Times are exact to the nanosecond, in any notation."""

from __future__ import annotations

from decimal import ROUND_HALF_UP, Decimal
from typing import Any

import msgspec
import pytest
from hypothesis import given, strategies as st

from stepscope.importers.content import (
    INVALID,
    InexactTimeError,
    decimal_text,
    nanoseconds,
    parse_times,
    read_times,
)
from stepscope.quantities import utc_time
from tests.support.kineto_files import BASE_NS, Event, imported, kernel, launch, op, span, trace

DECIMALS = st.builds(
    "{}{}{}".format,
    st.sampled_from(["", "-"]),
    st.integers(0, 10**15),
    st.just("")
    | st.integers(0, 10**12).map(".{}".format)
    | st.integers(0, 999).map(".{:03}".format),
)


def exactly(text: str) -> int:
    """Convert microseconds to whole nanoseconds, rounded half away from zero."""
    return int((Decimal(text) * 1000).to_integral_value(ROUND_HALF_UP))


@given(DECIMALS)
def test_any_decimal_is_read_exactly(text: str) -> None:
    assert nanoseconds(text.encode()) == exactly(text)
    assert nanoseconds(f'"{text}"'.encode()) == exactly(text)


@given(st.lists(DECIMALS, max_size=20))
def test_many_texts_are_read_like_single_ones(texts: list[str]) -> None:
    assert parse_times([t.encode() for t in texts]).tolist() == [exactly(t) for t in texts]


@given(st.lists(st.integers(0, 2**60), min_size=1), st.sampled_from(["{0}", "{0}.{1:03}"]))
def test_the_two_notations_of_kineto(values: list[int], pattern: str) -> None:
    texts = [pattern.format(*divmod(value, 1000)) for value in values]
    assert parse_times([t.encode() for t in texts]).tolist() == [exactly(t) for t in texts]


@given(st.lists(st.integers(1 - 1000 * 2**43, 1000 * 2**43 - 1), min_size=1))
def test_numbers_with_three_decimals_are_read_as_their_text(values: list[int]) -> None:
    texts = [decimal_text(value) for value in values]
    assert read_times([float(text) for text in texts]).tolist() == values
    assert read_times([value // 1000 for value in values]).tolist() == [
        value // 1000 * 1000 for value in values
    ]


@given(DECIMALS)
def test_a_number_is_read_as_its_text_or_not_at_all(text: str) -> None:
    try:
        (time_ns,) = read_times([msgspec.json.decode(text, type=int | float)]).tolist()
    except (InexactTimeError, msgspec.DecodeError):
        return
    more_digits = len(text.partition(".")[2]) > 3
    beyond_a_day = abs(float(text)) >= 2**37
    assert abs(time_ns - exactly(text)) <= (more_digits and beyond_a_day)


@pytest.mark.parametrize("value", [2**63, 10**30, 2**62 // 1000, 1.7e15, 1e300, 1.0005])
def test_a_number_that_may_not_be_exact_is_not_read(value: float) -> None:
    with pytest.raises(InexactTimeError):
        read_times([12.345, value])


def test_nan_is_no_time() -> None:
    assert read_times([12.345, float("nan")]).tolist() == [12_345, INVALID]


@given(st.integers(-(2**62) + 1, 2**62 - 1))
def test_a_time_as_text_is_that_time(value: int) -> None:
    assert nanoseconds(decimal_text(value)) == value


@pytest.mark.parametrize(
    "text",
    ["", "nan", "-inf", "N/A", "soon", "null", "{}", "1e99", "9" * 30, "18446744073709551615"],
)
def test_texts_that_are_no_time(text: str) -> None:
    good = b"12.345"
    assert parse_times([good, text.encode(), good]).tolist() == [12_345, INVALID, 12_345]
    assert parse_times([text.encode()]).tolist() == [INVALID]


@pytest.mark.parametrize(
    "text", ["4611686018427387.904", "9223372036854775.808", "9" * 17 + ".000"]
)
def test_a_time_beyond_centuries_is_invalid(text: str) -> None:
    good = b"4329280002211.731"
    assert parse_times([good, text.encode()]).tolist() == [4_329_280_002_211_731, INVALID]


@pytest.mark.parametrize(
    ("text", "expected"), [("1.7e3", 1_700_000), ("25E-1", 2_500), (".5", 500)]
)
def test_other_notations(text: str, expected: int) -> None:
    assert nanoseconds(text.encode()) == expected


@pytest.mark.parametrize("quoted", [False, True])
def test_no_nanosecond_is_lost_since_1970(quoted: bool) -> None:
    """A double cannot hold these: its steps there are a quarter of a microsecond."""
    start, length = 1_711_964_646_123_456_789, 1_001
    texts = f"{start // 1000}.{start % 1000:03}", "1.001"
    event = op("aten::mm", 0, 0)
    for key, text in zip(("ts", "dur"), texts, strict=True):
        event[key] = text if quoted else msgspec.Raw(text.encode())
    row = imported(trace(event, base=None)).one("operators")
    assert (row["start_ns"], row["duration_ns"]) == (start, length)


def test_the_base_of_a_file_is_part_of_its_times() -> None:
    event = op("aten::mm", 4_458_676_416_788_066, 731)
    bases = (1_711_964_646_000_000_000, 1_700_000_000_000_000_000, 0)
    rows = [imported(trace(event, base=base)).one("operators") for base in bases]
    assert [row["start_ns"] - base for row, base in zip(rows, bases, strict=True)] == [
        4_458_676_416_788_066
    ] * 3


@pytest.mark.parametrize("base", ["1711964646000000000", 1.711964646e18])
def test_a_base_that_is_no_integer(base: object) -> None:
    row = imported(trace(op("a", 0, 1), base=None, baseTimeNanoseconds=base)).one("traces")
    assert row["base_ns"] == 1_711_964_646_000_000_000


@pytest.mark.parametrize("base", [None, "soon", [1], 10**30, -(10**30), 2**62])
def test_an_invalid_base_is_ignored(base: object) -> None:
    tables = imported(trace(op("a", 5, 1), base=None, baseTimeNanoseconds=base))
    assert tables.one("traces")["base_ns"] == 0
    assert "no base" in tables.quality["clock_base"]["detail"]


def test_the_quality_record_names_the_base() -> None:
    assert utc_time(BASE_NS) in imported(trace(op("a", 0, 1))).quality["clock_base"]["detail"]


def test_work_of_less_than_a_microsecond_keeps_its_length() -> None:
    tables = imported(trace(kernel(1_000, 731, None), kernel(2_001, 1, None)))
    assert [row["duration_ns"] for row in tables.by_id("kernels").values()] == [731, 1]
    assert tables.one("traces")["end_ns"] == BASE_NS + 2_002


def test_extent_of_a_trace() -> None:
    late_mark: Event = {"ph": "i", "name": "Record Window End", "pid": "", "tid": "", "ts": 900}
    events = [op("a", 3_000, 2_000), span("user_annotation", "mark", 4_000, 9_000), late_mark]
    row = imported(trace(*events)).one("traces")
    assert (row["start_ns"] - BASE_NS, row["end_ns"] - BASE_NS) == (3_000, 13_000)


def test_ranges_whose_end_was_not_recorded() -> None:
    """A copy of 8 s and two operators of 5 min, in a second of 10 operators and a last kernel that
    outlives them; the twin without them."""
    second = 10**9
    events = [op("a", n * second // 10, second // 20) for n in range(10)]
    events.append(kernel(second // 2, second, 1))
    late = [span("gpu_memcpy", "Memcpy DtoH", second // 2, 8 * second, pid=0, tid=7)]
    late += [op(name, second // 2 + n, 300 * second, tid=9) for n, name in enumerate("bc")]
    tables, intact = imported(trace(*events, *late)), imported(trace(*events))
    assert "unended" not in intact.quality
    issue = tables.quality["unended"]
    assert (issue["count"], issue["worst_ns"]) == (3, 299 * second + 1)
    ends = {tables.one("copies")["start_ns"] + tables.one("copies")["duration_ns"]}
    ends |= {row["start_ns"] + row["duration_ns"] for row in tables.rows("operators")[-2:]}
    assert ends == {intact.one("traces")["end_ns"]} == {tables.one("traces")["end_ns"]}


def test_few_events_tell_no_end() -> None:
    """A kernel of 3 s after its launch is all that was recorded."""
    tables = imported(trace(kernel(10_000, 3 * 10**9, 1), launch(0, 5_000, 1)))
    assert tables.one("kernels")["duration_ns"] == 3 * 10**9
    assert "unended" not in tables.quality


@pytest.mark.parametrize("is_launch", [True, False])
@pytest.mark.parametrize(("factor", "unit"), [(1, ""), (1_000, "nano"), (0.001, "milli")])
def test_times_of_another_unit(is_launch: bool, factor: float, unit: str) -> None:
    """Calls of 2 to 9 us, and a few of a second and of none, written in a unit that is read as
    another."""
    lengths = [1_000 * (2 + n % 8) for n in range(120)] + [10**9] * 5 + [0] * 5
    starts = [2_000_000 * n for n in range(len(lengths))]
    rows = [
        (round(factor * at), round(factor * length))
        for at, length in zip(starts, lengths, strict=True)
    ]
    make = launch if is_launch else op
    name: tuple[Any, ...] = () if is_launch else ("aten::mm",)
    last: tuple[Any, ...] = (None,) if is_launch else ()
    events = [make(*name, *row, *last) for row in rows]
    issue = imported(trace(*events)).quality.get("unit")
    assert (issue is None) == (not unit)
    if issue is not None:
        calls = "calls that launch work" if is_launch else "operators"
        assert issue["detail"].startswith(f"{calls} last ")
        assert f"perhaps {unit}seconds, and they are read as micro" in issue["detail"]
