"""Tables in a narrow terminal or a pipe: a name is cut, a number never."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from stepscope.cli.text import MIN_NAME_CELLS, table

NAME = "aten::convolution_backward_of_a_rather_long_name"
NUMBERS = ("37.4 ms", "1,234 µs", "+125.5 %", "+57.2 µs to +108 µs")
HEADINGS = ("base", "run", "change", "95 % interval")


def lines(width: int, name: str = NAME, headings: tuple[str, ...] = HEADINGS) -> list[str]:
    rows = table("call", *headings)
    rows.add_row(name, *NUMBERS)
    out = io.StringIO()
    Console(file=out, width=width).print(rows)
    return [line.rstrip() for line in out.getvalue().splitlines()]


NEEDED = sum(map(len, NUMBERS)) + 2 * (len(NUMBERS) + 1)
"""What the numbers take, with the gaps after all five columns."""


def test_what_fits_is_in_one_line() -> None:
    heading, row = lines(NEEDED + len(NAME))
    assert row.split("  ")[0] == NAME
    assert "95 % interval" in heading


@pytest.mark.parametrize("name_cells", [len(NAME) - 1, 30, MIN_NAME_CELLS])
def test_the_name_is_cut(name_cells: int) -> None:
    _, row = lines(NEEDED + name_cells)
    assert row.startswith(NAME[: name_cells - 1] + "…")
    for number in NUMBERS:
        assert number in row


def test_headings_go_on_below_before_a_name_is_cut() -> None:
    text = lines(
        NEEDED + len(NAME), headings=("base", "run", "change", "an interval of 95 per cent")
    )
    assert len(text) == 3
    assert text[-1].startswith(NAME)
    assert " ".join(line.split("change")[-1].strip() for line in text[:2]) == (
        "an interval of 95 per cent"
    )


def test_numbers_that_do_not_fit_go_on_below() -> None:
    text = lines(NEEDED)
    assert not [line for line in text if len(line) > NEEDED]
    words = " ".join(text).split()
    for number in NUMBERS:
        for word in number.split():
            assert word in words
    assert sum("…" in word for word in words) == 1


def test_text_columns_may_still_wrap() -> None:
    rows = table("a note of several words", "time")
    rows.columns[0].no_wrap = False
    rows.add_row("it goes on below where there is no room for it", "37.4 ms")
    out = io.StringIO()
    Console(file=out, width=30).print(rows)
    text = " ".join(out.getvalue().split())
    assert "37.4 ms" in text
    assert "…" not in text
