"""Units of columns and metrics."""

from __future__ import annotations

from typing import Literal

Unit = Literal[
    "ns",  # integer nanoseconds
    "epoch_ns",  # integer nanoseconds since 1970, monotonic within one node
    "bytes",
    "bytes_per_s",
    "count",
    "ratio",  # 0 to 1
    "percent",  # 0 to 100, as reported by the operating system or driver
    "celsius",
    "watt",
    "megahertz",
    "bitmask",
    "none",
]
