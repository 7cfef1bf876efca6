"""How numbers and tables look in a terminal."""

from __future__ import annotations

import sys

from rich.console import Console
from rich.table import Table

BAR_CELLS = 24


def console(*, stderr: bool = False) -> Console:
    """The terminal, or plain text of a steady width where there is none."""
    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else 100
    return Console(file=stream, width=width, highlight=False, soft_wrap=False)


def duration(ns: float | None) -> str:
    """A duration with three significant digits.

    >>> duration(86_400_000)
    '86.4 ms'
    """
    if ns is None:
        return "-"
    for unit, size in (("s", 1e9), ("ms", 1e6), ("us", 1e3)):
        if abs(ns) >= size:
            return (
                f"{ns / size:.3g} {unit}" if abs(ns) < 1000 * size else f"{ns / size:,.0f} {unit}"
            )
    return f"{ns:.0f} ns"


def percent(ratio: float | None) -> str:
    """A ratio as a percentage; what is there but rounds to nothing says so.

    >>> percent(0.004), percent(0.416)
    ('<1 %', '42 %')
    """
    if ratio is None:
        return "-"
    if 0 < ratio < 0.005:
        return "<1 %"
    return f"{100 * ratio:.0f} %"


def size(count: float | None) -> str:
    """Bytes in decimal units.

    >>> size(2_500_000)
    '2.5 MB'
    """
    if count is None:
        return "-"
    for unit, scale in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if abs(count) >= scale:
            return f"{count / scale:.3g} {unit}"
    return f"{count:.0f} B"


def in_unit(value: float | None, unit: str) -> str:
    """A metric's value in its unit."""
    if value is None:
        return "-"
    if unit == "ratio":
        return percent(value)
    if unit in {"bytes", "bytes_per_s"}:
        return size(value) + ("/s" if unit == "bytes_per_s" else "")
    return f"{value:.3g}"


def bar(ratio: float) -> str:
    """A bar of 24 cells for a ratio."""
    cells = min(BAR_CELLS, max(0, round(ratio * BAR_CELLS)))
    return "█" * cells + "·" * (BAR_CELLS - cells)


def table(*columns: str) -> Table:
    """A table with left-aligned first and right-aligned other columns."""
    made = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for position, column in enumerate(columns):
        made.add_column(column, justify="left" if position == 0 else "right", no_wrap=True)
    return made
