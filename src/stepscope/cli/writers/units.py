"""Values as text, by the unit that ends their name."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from enum import Enum
from typing import Any

from stepscope.cli.text import duration, size

MISSING = "n/a"
PLAIN_NUMBERS = {"rank", "device", "stream", "pid", "id", "window", "step", "number"}
"""Names of what is a number but no quantity: no separator of thousands."""


def _percent(value: float) -> str:
    if 0 < value < 0.05:
        return "<0.1 %"
    return f"{value:.1f} %"


def _scaled(value: float, unit: str) -> str:
    for prefix, scale in (("P", 1e15), ("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if abs(value) >= scale:
            return f"{value / scale:.3g} {prefix}{unit}"
    return f"{value:.3g} {unit}"


def _count(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:,.4g}"


def _date(value: float) -> str:
    return datetime.fromtimestamp(value / 1e9, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


_FORMATS: dict[str, Callable[[Any], str]] = {
    "epoch_ns": _date,
    "ns": duration,
    "ratio": lambda value: _percent(100 * value),
    "percent": _percent,
    "bytes_per_s": lambda value: f"{size(value)}/s",
    "bytes": size,
    "gb_per_s": lambda value: f"{value:.3g} GB/s",
    "flop_per_s": lambda value: _scaled(value, "FLOP/s"),
    "flop_per_byte": lambda value: f"{value:.3g} FLOP/B",
    "flop": lambda value: _scaled(value, "FLOP"),
    "count": _count,
}
"""By suffix, the longer before those that end it."""


def unit_of(name: str) -> str | None:
    """The unit that ends a name, None when none does.

    >>> unit_of("busy_ns"), unit_of("count"), unit_of("mean")
    ('ns', 'count', None)
    """
    return next((unit for unit in _FORMATS if name == unit or name.endswith(f"_{unit}")), None)


def label(name: str) -> str:
    """A name as a heading: words, and no unit since every value carries its own.

    >>> label("exposed_comm_ns"), label("gpu_event_count"), label("count")
    ('exposed comm', 'gpu event count', 'count')
    """
    unit = unit_of(name)
    bare = name if unit in {None, "count"} else name.removesuffix(unit or "").rstrip("_")
    return (bare or name).replace("_", " ")


def text_of(name: str, value: object, inherited: str | None = None) -> str:
    """A scalar in its unit; a name without one has that of what holds it."""
    if value is None:
        return MISSING
    if isinstance(value, Enum):
        return str(value.value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return _number(name, value, inherited)
    return str(value)


def _number(name: str, value: float, inherited: str | None) -> str:
    if name in PLAIN_NUMBERS:
        return str(value)
    unit = unit_of(name) or inherited
    if unit is not None:
        return _FORMATS[unit](value)
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}"
