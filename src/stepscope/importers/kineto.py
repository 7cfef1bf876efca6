"""PyTorch's profiler files (Kineto's Chrome JSON): a few steps at a time.

Times in these files are decimal microseconds on top of `baseTimeNanoseconds`. They are read as
text into integer nanoseconds: a double that holds microseconds since 1970 has lost them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from stepscope.errors import DamagedRunError

DEVICE_CATEGORIES = frozenset({"kernel", "gpu_memcpy", "gpu_memset"})
KEPT_CATEGORIES = DEVICE_CATEGORIES | {
    "cpu_op",
    "user_annotation",
    "cuda_runtime",
    "cuda_driver",
}


class _Event(msgspec.Struct):
    ph: str = ""
    name: str = ""
    cat: str = ""
    pid: Any = 0
    tid: Any = 0
    ts: msgspec.Raw = msgspec.Raw(b"0")
    dur: msgspec.Raw = msgspec.Raw(b"0")
    args: dict[str, Any] = {}


class _File(msgspec.Struct):
    traceEvents: list[_Event]  # noqa: N815 - the format's own spelling
    baseTimeNanoseconds: int = 0  # noqa: N815


def nanoseconds(text: bytes) -> int:
    """Decimal microseconds as integer nanoseconds; digits below a nanosecond are rounded.

    >>> nanoseconds(b"4329280002211.731")
    4329280002211731
    """
    sign = -1 if text.startswith(b"-") else 1
    whole, _, fraction = text.lstrip(b"+-").partition(b".")
    if not (whole + fraction).isdigit():  # exponent notation
        return round(float(text) * 1000)
    padded = (fraction + b"0000")[:4]
    return sign * (int(whole or b"0") * 1000 + int(padded[:3]) + (padded[3:] >= b"5"))


def read_window(path: Path) -> dict[str, NDArray[Any] | list[str]]:
    """Complete events of one file as columns of the `operators` table.

    Returns:
        category, name, thread as lists of str; start_ns, end_ns (epoch), device, correlation,
        seq as integer arrays, all of one length, sorted by start.

    Raises:
        DamagedRunError: the file is no trace.
    """
    try:
        return _columns(msgspec.json.decode(path.read_bytes(), type=_File))
    except (msgspec.MsgspecError, ValueError, TypeError) as error:
        raise DamagedRunError(
            f"{path} cannot be read as a trace of PyTorch's profiler: {error}"
        ) from None


def _columns(parsed: _File) -> dict[str, NDArray[Any] | list[str]]:
    events = [e for e in parsed.traceEvents if e.ph == "X" and e.cat in KEPT_CATEGORIES]
    base = parsed.baseTimeNanoseconds
    start = np.array([base + nanoseconds(bytes(e.ts)) for e in events], dtype=np.int64)
    duration = np.array([nanoseconds(bytes(e.dur)) for e in events], dtype=np.int64)
    order = np.argsort(start, kind="stable")
    ordered = [events[i] for i in order]
    return {
        "seq": np.arange(len(ordered), dtype=np.int64),
        "category": [e.cat for e in ordered],
        "name": [e.name for e in ordered],
        "start_ns": start[order],
        "end_ns": (start + duration)[order],
        "thread": [str(e.tid) for e in ordered],
        "device": np.array([_device(e) for e in ordered], dtype=np.int32),
        "correlation": np.array(
            [int(e.args.get("correlation", 0)) for e in ordered], dtype=np.int64
        ),
    }


def _device(event: _Event) -> int:
    """A GPU event is one by its category; others carry a stream argument too."""
    if event.cat not in DEVICE_CATEGORIES:
        return -1
    return int(event.args.get("device", 0))
