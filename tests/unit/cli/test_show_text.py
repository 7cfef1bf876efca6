"""The one writer that prints any payload."""

from __future__ import annotations

import io

import msgspec
import pytest
from rich.console import Console

from stepscope.cli.text import console, printable
from stepscope.cli.writers.generic import cut, write_generic
from stepscope.cli.writers.units import label, text_of, unit_of


class Row(msgspec.Struct, kw_only=True):
    name: str = "gemm"
    count: int = 1234567
    total_ns: int | None = 1_500_000
    share_ratio: float | None = 0.25


class Wide(msgspec.Struct, kw_only=True):
    name: str
    first_quantity_ns: int = 1_000
    second_quantity_ns: int = 2_000
    third_quantity_ns: int = 3_000
    fourth_quantity_ns: int = 4_000


class Both(msgspec.Struct, kw_only=True):
    name: str = "a"
    idle_ns: int = 5
    idle_ratio: float = 0.5


class Note(msgspec.Struct, kw_only=True):
    sentence: str


class Part(msgspec.Struct, kw_only=True):
    rank: int | None = 0
    trace: str = "a.json"
    busy_ns: int | None = None
    used_bytes: int = 2_500_000
    flag: bool = True
    rows: list[msgspec.Struct] = []
    by_name: dict[str, int] = {}
    level_curve: list[float] = []
    missing: str | None = None
    notes: list[str] = []
    quality: list[Note] = []


class Payload(msgspec.Struct, kw_only=True):
    share_of: str = "all of it"
    traces: list[Part] = []
    missing: str | None = None


def text(payload: msgspec.Struct, width: int = 80) -> str:
    stream = io.StringIO()
    write_generic(Console(file=stream, width=width, highlight=False), payload)
    return stream.getvalue()


def lines(payload: msgspec.Struct, width: int = 80) -> list[str]:
    return [line.rstrip() for line in text(payload, width).splitlines()]


def test_scalars_have_their_units() -> None:
    payload = lines(Payload(traces=[Part()]))
    assert "shares of: all of it" in payload
    assert "rank 0  a.json" in payload
    assert "busy  n/a" in payload  # missing is not zero
    assert "used  2.38 MiB" in payload
    assert "flag  yes" in payload


def test_lists_of_scalars_are_tables() -> None:
    payload = lines(Payload(traces=[Part(rows=[Row(), Row(name="add", share_ratio=None)])]))
    at = payload.index("rows")
    assert payload[at + 1].split() == ["name", "count", "total", "share"]
    assert payload[at + 2].split() == ["gemm", "1,234,567", "1.5", "ms", "25.0%"]
    assert payload[at + 3].split() == ["add", "1,234,567", "1.5", "ms", "n/a"]


def test_a_quantity_and_its_share_have_two_headings() -> None:
    payload = lines(Payload(traces=[Part(rows=[Both()])]))
    assert "share" in " ".join(payload)


def test_what_has_no_room_beside_stands_below() -> None:
    name = "void " + "x" * 60 + " kernel"
    payload = text(Payload(traces=[Part(rows=[Wide(name=name)])]), width=44)
    assert max(len(line) for line in payload.splitlines()) <= 44
    assert "…" in payload
    for number in range(1, 5):
        assert f"{number} µs" in payload


def test_sentences_are_sentences() -> None:
    payload = lines(
        Payload(
            missing="no recording [here]",
            traces=[
                Part(missing="no kernel", notes=["a note"], quality=[Note(sentence="a doubt")])
            ],
        )
    )
    assert "no recording [here]" in payload
    assert {"no kernel", "a note", "! a doubt"} <= set(payload)


def test_names_that_look_like_markup() -> None:
    assert "[bold]x[/bold]" in text(Payload(traces=[Part(rows=[Row(name="[bold]x[/bold]")])]))


def test_mappings_and_curves() -> None:
    payload = lines(Payload(traces=[Part(by_name={"a": 1, "bcd": 2000}, level_curve=[0, 1, 2, 4])]))
    assert {"  a    1", "  bcd  2,000"} <= set(payload)
    (drawn,) = (line for line in payload if line.startswith("level curve"))
    assert drawn.split(maxsplit=2)[2].endswith("·▂▄█  up to 4")


def test_the_middle_of_a_long_name_is_left_out() -> None:
    assert cut("abcdefgh", 8) == "abcdefgh"
    assert cut("abcdefghi", 8) == "abc…fghi"
    assert len(cut("x" * 100, 31)) == 31


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("total_ns", 86_400_000, "86.4 ms"),
        ("start_epoch_ns", 1_700_000_000_000_000_000, "2023-11-14 22:13:20 UTC"),
        ("idle_ratio", 0.0004, "<0.1%"),
        ("occupancy_percent", 49.13, "49.1%"),
        ("moved_bytes", 0, "0 B"),
        ("achieved_bytes_per_s", 1.5e9, "1.5 GB/s"),
        ("work_flop_per_s", 312e12, "312 TFLOP/s"),
        ("launch_count", 12345, "12,345"),
        ("rank", 1024, "1024"),
        ("mean", 0.123456, "0.1235"),
        ("missing_ns", None, "n/a"),
    ],
)
def test_values(name: str, value: float | None, shown: str) -> None:
    assert text_of(name, value) == shown


def test_a_name_without_a_unit_has_that_of_its_holder() -> None:
    assert text_of("mean", 1500.0, "ns") == "1.5 µs"
    assert text_of("count", 5, "ns") == "5"
    assert (unit_of("bytes"), label("bytes")) == ("bytes", "bytes")


def test_what_names_say_is_not_obeyed(capsys: pytest.CaptureFixture[str]) -> None:
    out = console()
    write_generic(
        out, Payload(traces=[Part(trace="a\x1b]0;t\x07", rows=[Row(name="g\n\x1b[31m")])])
    )
    text = capsys.readouterr().out
    assert "a␛]0;t" in text
    assert "g␊␛[31m  1,234,567" in text
    assert not set(text) & {"\x1b", "\x07"}


def test_pictures_of_control_characters() -> None:
    assert printable("a\tb\x7f\x85\u202e") == "a␉b␡\ufffd\ufffd"
    assert printable("Größe 漢字 s") == "Größe 漢字 s"
