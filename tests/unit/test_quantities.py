"""Quantities as text, on the table that the page's twin is tested on too."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from stepscope import quantities

GOLDEN = Path(__file__).parents[1] / "golden" / "quantities.json"
CASES: dict[str, list[list[Any]]] = json.loads(GOLDEN.read_text(encoding="utf-8"))


@pytest.mark.parametrize("function", sorted(CASES))
def test_the_golden_table(function: str) -> None:
    write = getattr(quantities, function)
    assert [(*case[:-1], write(*case[:-1])) for case in CASES[function]] == [
        tuple(case) for case in CASES[function]
    ]


def test_the_table_covers_the_module() -> None:
    public = {
        name
        for name, value in vars(quantities).items()
        if callable(value) and value.__module__ == quantities.__name__ and name[0] != "_"
    }
    assert public == CASES.keys() | {"utc_time"}  # the page has the time zone of its reader


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_values_that_are_no_numbers_are_missing(value: float) -> None:
    assert quantities.duration(value) == quantities.percent(value) == quantities.MISSING
    assert quantities.in_unit(value, "bytes") == quantities.number(value) == quantities.MISSING
