"""The units a column or metric may carry, and how a screen should show them."""

from __future__ import annotations

from typing import Literal

Unit = Literal[
    "ns",  # integer nanoseconds
    "epoch_ns",  # integer nanoseconds since 1970, steady within one node
    "bytes",
    "bytes_per_s",
    "count",
    "ratio",  # 0 to 1
    "percent",  # 0 to 100, as the operating system or driver reports it
    "celsius",
    "watt",
    "megahertz",
    "bitmask",
    "none",
]
