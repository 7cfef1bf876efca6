"""Payloads of damaged runs: the damage comes first, and figures that depend on all data do not
come at all."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar, get_args, get_type_hints

import msgspec

from stepscope.schema import Payload, labels_of

PayloadT = TypeVar("PayloadT", bound=Payload)
SHARE_UNITS = ("ratio", "percent")
CURVE = "_curve_ratio"
"""End of the names of shares over time. Other lists of shares are drawn beside other lists."""
WITHHELD = (
    "A part of the run cannot be read: shares are withheld, and other figures cover only the rest."
)
UNREADABLE = "a part of the run cannot be read, so it is not known whether this was recorded"
"""Replaces the reason for missing data, and the advice how to record it."""


def note_damage(payload: PayloadT, damage: list[str]) -> PayloadT:
    """Note the damage of the tables behind a payload, and withhold its shares."""
    withheld: PayloadT = _withhold(payload)
    return msgspec.structs.replace(withheld, damage=[WITHHELD, *damage])


def _withhold(value: Any) -> Any:
    """Withhold shares and reasons in a payload or a part of it.

    A verdict stays: it abstains where its own tables are damaged.
    """
    from stepscope.diagnosis import Verdict  # 10 ms, which most views do not need

    if isinstance(value, Verdict):
        return value
    if isinstance(value, msgspec.Struct):
        labels, types = labels_of(type(value)), get_type_hints(type(value))
        return msgspec.structs.replace(
            value,
            **{
                name: _withhold_field(
                    name, getattr(value, name), types[name], is_share=label.unit in SHARE_UNITS
                )
                for name, label in labels.items()
            },
        )
    if isinstance(value, list):
        return [_withhold(item) for item in value]
    if isinstance(value, Mapping):
        return {key: _withhold(item) for key, item in value.items()}
    return value


def _holds_only_shares(value: Any) -> bool:
    """Return whether the figures of a part of a payload are shares, all of them."""
    if not isinstance(value, msgspec.Struct):
        return False
    units = {label.unit for label in labels_of(type(value)).values()} - {"none"}
    return bool(units) and units <= {*SHARE_UNITS}


def _withhold_field(name: str, value: Any, type_: Any, *, is_share: bool) -> Any:
    if name == "missing" and value is not None:
        return UNREADABLE
    if name == "missing_parts":
        return dict.fromkeys(value, UNREADABLE)
    if type(None) in get_args(type_) and (is_share or _holds_only_shares(value)):
        return None
    if not is_share:
        return _withhold(value)
    if isinstance(value, list) and get_args(type_) == (float | None,):
        return [None] * len(value)
    return type(value)() if isinstance(value, Mapping) or name.endswith(CURVE) else value
