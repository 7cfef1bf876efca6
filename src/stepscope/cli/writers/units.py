"""Values of payload fields as text, by their labels."""

from __future__ import annotations

from enum import Enum

from stepscope.quantities import MISSING, change, file_size, in_unit, relative_change
from stepscope.schema import FieldLabel
from stepscope.views import utc_time


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
        case "epoch_ns", _:
            return utc_time(int(value))
        case "epoch_ms", _:
            return utc_time(int(value) * 1_000_000)
        case "bytes", "file_size":
            return file_size(value)
        case "ratio", "change":
            return relative_change(value)
        case unit, "change":
            return change(value, unit)
        case unit, _:
            return in_unit(value, unit)
