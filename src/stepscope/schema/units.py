"""Units of columns, metrics and payload fields."""

from __future__ import annotations

from typing import Literal

Unit = Literal[
    "ns",  # integer nanoseconds
    "s",
    "hours",
    "epoch_ns",  # integer nanoseconds since 1970, monotonic within one node
    "epoch_ms",
    "bytes",
    "bytes_per_s",
    "gb_per_s",
    "flop",
    "flop_per_s",
    "flop_per_byte",
    "per_s",
    "count",
    "ratio",  # 0 to 1
    "percent",  # 0 to 100, as reported by the operating system or driver
    "usd",
    "celsius",
    "watt",
    "megahertz",
    "bitmask",
    "none",
    # That of the field `unit` of the same struct; without one, of the field that has the struct.
    "inherited",
]
