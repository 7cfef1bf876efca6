"""Reading of XPlane files, against what Google's protobuf has written and reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from stepscope.importers.wire import DamagedMessageError, read_varint, read_varints
from stepscope.importers.xplane.planes import ABSENT, read_space
from tests.support.xplane_files import PlaneWriter, XSpace

SAMPLES = Path(__file__).parents[4].parent / "shared" / "samples"
INT64 = st.integers(-(2**63), 2**63 - 1)
TIME = st.integers(0, 2**60)
VALUE = st.one_of(INT64, st.text(max_size=8), st.floats(allow_nan=False), st.binary(max_size=300))
EVENT = st.tuples(
    st.text(max_size=20), TIME, TIME, st.dictionaries(st.sampled_from("abcde"), VALUE, max_size=4)
)
LINE = st.tuples(st.text(max_size=5), INT64, INT64, st.lists(EVENT, max_size=12))


@st.composite
def spaces(draw: st.DrawFn) -> Any:
    """Draw a file with planes, lines, events and statistics."""
    space = XSpace(hostnames=draw(st.lists(st.text(max_size=5), max_size=2)))
    for name in draw(st.lists(st.text(max_size=9), max_size=3)):
        plane = PlaneWriter(space, name, **draw(st.dictionaries(st.sampled_from("xyz"), VALUE)))
        for line_name, number, timestamp_ns, events in draw(st.lists(LINE, max_size=3)):
            line = plane.line(line_name, number, timestamp_ns)
            for event, start_ps, duration_ps, statistics in events:
                plane.event(line, event, 0, 0, **statistics)
                line.events[-1].offset_ps = start_ps
                line.events[-1].duration_ps = duration_ps
    return space


def check_equal(content: bytes, expected: Any) -> None:
    """Compare each plane, line, event and statistic with protobuf's reading."""
    space = read_space(content)
    assert not space.is_truncated
    assert space.hostnames == list(expected.hostnames)
    assert len(space.planes) == len(expected.planes)
    for plane, message in zip(space.planes, expected.planes, strict=True):
        assert plane.name == message.name
        names = {entry.key: entry.value.name for entry in message.stat_metadata}
        assert plane.statistic_names == names
        for statistic in message.stats:
            value = getattr(statistic, value_field(statistic))
            if not isinstance(value, bytes):
                assert plane.statistics[names[statistic.metadata_id]] == value
        assert len(plane.lines) == len(message.lines)
        for line, other_line in zip(plane.lines, message.lines, strict=True):
            assert (line.id, line.timestamp_ns) == (other_line.id, other_line.timestamp_ns)
            assert line.name == (other_line.display_name or other_line.name)
            events = [(e.metadata_id, e.offset_ps, e.duration_ps) for e in other_line.events]
            columns = (line.metadata_id, line.offset_ps, line.duration_ps)
            assert list(zip(*(column.tolist() for column in columns), strict=True)) == events
            for name in dict.fromkeys(names.values()):
                numbers, texts = [ABSENT] * len(events), [None] * len(events)
                for row, event in enumerate(other_line.events):
                    for statistic in event.stats:
                        if names[statistic.metadata_id] != name:
                            continue
                        match value_field(statistic):
                            case "int64_value" | "uint64_value" as form:
                                numbers[row] = signed(getattr(statistic, form))
                            case "str_value":
                                texts[row] = statistic.str_value
                            case "ref_value":
                                texts[row] = names.get(statistic.ref_value)
                assert plane.integers(line, name).tolist() == numbers
                assert plane.texts(line, name) == texts


def signed(value: int) -> int:
    return value - 2**64 if value >= 2**63 else value


def value_field(statistic: Any) -> str:
    """Return the name of the field that holds a value; the last one that was written counts."""
    fields = [field.name for field, _ in statistic.ListFields() if field.name != "metadata_id"]
    return str(fields[0]) if fields else "int64_value"


@pytest.mark.slow("reads drawn files, with a twin")
@settings(max_examples=150)
@given(spaces())
def test_files_are_read_as_protobuf_reads_them(space: Any) -> None:
    check_equal(space.SerializeToString(), space)


@pytest.mark.extended("the twin reads drawn files above")
@pytest.mark.parametrize("name", ["jax0102_cpu.xplane.pb", "tf221_cpu.xplane.pb"])
def test_recorded_files_are_read_as_protobuf_reads_them(name: str) -> None:
    path = SAMPLES / name
    if not path.exists():
        pytest.skip("recordings of other tools are not there")
    content = path.read_bytes()
    check_equal(content, XSpace.FromString(content))


@pytest.mark.slow("reads drawn files, with a twin")
@settings(max_examples=100)
@given(spaces(), st.data())
def test_a_cut_file_is_read_up_to_the_cut(space: Any, data: st.DataObject) -> None:
    content = space.SerializeToString()
    length = data.draw(st.integers(0, max(0, len(content) - 1)))
    complete, truncated = read_space(content), read_space(content[:length])
    assert len(truncated.planes) <= len(complete.planes)
    for plane, uncut in zip(truncated.planes, complete.planes, strict=False):
        for line, other_line in zip(plane.lines, uncut.lines, strict=False):
            count = len(line)
            assert line.metadata_id.tolist() == other_line.metadata_id[:count].tolist()
            assert line.offset_ps.tolist() == other_line.offset_ps[:count].tolist()


@settings(max_examples=300)
@given(st.binary(max_size=400))
def test_other_bytes_are_refused_or_read(content: bytes) -> None:
    position = 0
    try:
        read_space(content)
    except DamagedMessageError as error:
        position = error.position
    assert 0 <= position <= len(content)


@given(st.lists(INT64, min_size=1, max_size=30))
def test_numbers_one_by_one_and_together(numbers: list[int]) -> None:
    content = b"".join(encode(number) for number in numbers)
    position, starts = 0, []
    for number in numbers:
        starts.append(position)
        value, position = read_varint(content, position)
        assert signed(value) == number
    data = np.frombuffer(content, dtype=np.uint8)
    values, after = read_varints(data, np.array(starts))
    assert values.tolist() == numbers
    assert after.tolist() == [*starts[1:], len(content)]


def encode(number: int) -> bytes:
    """Encode a number as https://protobuf.dev/programming-guides/encoding#varints says."""
    rest, groups = number % 2**64, []
    while True:
        groups.append(rest & 0x7F)
        rest >>= 7
        if not rest:
            break
    return bytes([group | 0x80 for group in groups[:-1]] + groups[-1:])
