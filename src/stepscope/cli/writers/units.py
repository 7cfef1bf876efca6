"""Values of payload fields as text: `stepscope.quantities` by the unit that ends a field's name."""

from __future__ import annotations

from datetime import UTC, datetime
from enum import Enum

from stepscope.quantities import MISSING, count, in_unit, label_of, number, unit_of

__all__ = ["MISSING", "label", "text_of", "unit_of"]

PLAIN_NUMBERS = {"rank", "device", "stream", "pid", "id", "window", "step", "number"}
"""Names of identifiers and indices, which get no separator of thousands."""

label = label_of


def text_of(name: str, value: object, inherited: str | None = None) -> str:
    """Format a scalar in the unit of its name, else in the inherited unit."""
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
    if unit == "epoch_ns":
        return datetime.fromtimestamp(value / 1e9, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    if unit is not None:
        return in_unit(value, unit)
    return count(value) if isinstance(value, int) else number(value, 4)
