"""The one writer that prints any payload."""

from __future__ import annotations

import io
from typing import Annotated

import msgspec
import pytest
from rich.console import Console

from stepscope.cli.text import console, printable
from stepscope.cli.writers.generic import cut, write_generic
from stepscope.cli.writers.units import text_of
from stepscope.schema import FieldLabel, Unit, field_label
from stepscope.schema.field_labels import Display


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
    ("unit", "value", "shown"),
    [
        ("ns", 86_400_000, "86.4 ms"),
        ("epoch_ns", 1_700_000_000_000_000_000, "2023-11-14 22:13:20 UTC"),
        ("epoch_ms", 1_700_000_000_000, "2023-11-14 22:13:20 UTC"),
        ("ratio", 0.0004, "<0.1%"),
        ("percent", 49.13, "49.1%"),
        ("bytes", 0, "0 B"),
        ("bytes_per_s", 1.5e9, "1.5 GB/s"),
        ("flop_per_s", 312e12, "312 TFLOP/s"),
        ("count", 12345, "12,345"),
        ("none", 0.123456, "0.1235"),
        ("ns", None, "n/a"),
    ],
)
def test_values(unit: Unit, value: float | None, shown: str) -> None:
    assert text_of(FieldLabel(title="a", unit=unit), value) == shown


@pytest.mark.parametrize(
    ("unit", "display", "value", "shown"),
    [
        ("none", "identifier", 1024, "1024"),
        ("ns", "change", 1_500, "+1.5 µs"),
        ("ratio", "change", -0.25, "-25.0%"),
        ("bytes", "file_size", 2_500_000, "2.5 MB"),
    ],
)
def test_values_with_a_display_hint(unit: Unit, display: Display, value: float, shown: str) -> None:
    assert text_of(FieldLabel(title="a", unit=unit, display=display), value) == shown


class Quantiles(msgspec.Struct, kw_only=True):
    count: int = 5
    p50: float = 1500.0


class Watched(msgspec.Struct, kw_only=True):
    step_ns: Quantiles
    unit: str = "watt"
    value: float = 250.0
    queue: Annotated[float, field_label("mean queue depth", unit="count")] = 1.5


def test_numbers_without_a_unit_have_that_of_their_holder() -> None:
    payload = lines(Watched(step_ns=Quantiles()))
    assert payload[payload.index("step") + 2].split() == ["5", "1.5", "µs"]
    assert {"value             250 W", "mean queue depth  1.5"} <= set(payload)


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
