"""Values of payload fields as text, by their labels."""

from __future__ import annotations

from datetime import UTC, datetime
from enum import Enum

from stepscope.quantities import MISSING, change, file_size, in_unit, relative_change
from stepscope.schema import FieldLabel


def text_of(label: FieldLabel, value: object) -> str:
    """Format a scalar in the unit of its field and as its display hint says."""
    if value is None:
        return MISSING
    if isinstance(value, Enum):
        return str(value.value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return _number(label, value)
    return str(value)


def _number(label: FieldLabel, value: float) -> str:
    match label.unit, label.display:
        case _, "identifier":
            return str(value)
        case ("epoch_ns" | "epoch_ms") as unit, _:
            seconds = value / (1e9 if unit == "epoch_ns" else 1e3)
            return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
        case "bytes", "file_size":
            return file_size(value)
        case "ratio", "change":
            return relative_change(value)
        case unit, "change":
            return change(value, unit)
        case unit, _:
            return in_unit(value, unit)
