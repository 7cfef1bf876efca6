"""Calls with the same arguments, against what the device can do.

    roofline time = max(F / peak of the unit and precision, bytes / bandwidth)
    bound         = whichever of the two is larger
    share of the roofline = roofline time / device time

More than a tenth above the roofline cannot be: then the data came from a cache, or the model, the
peak or the clock is wrong. Such groups are marked and kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from stepscope.analysis.roofline.accounting import Account, Signature
from stepscope.analysis.roofline.calls import Precision
from stepscope.analysis.roofline.peaks import Peaks
from stepscope.intervals import Int

Bound = Literal["compute", "memory"]
IMPOSSIBLE_RATIO = 1.1
"""A share of the roofline above this is an anomaly."""
NS_PER_S = 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Calls of one operator with the same arguments. Times are device times, or host times on a
    recording without devices."""

    signature: Signature
    call_count: int
    busy_ns: int
    """Of all calls together."""
    mean_ns: float
    p50_ns: float
    min_ns: int
    max_ns: int
    precision: Precision | None
    """TF32 where FP32 operands were multiplied by TF32 kernels."""
    flops: int | None
    """Of one call."""
    bytes: int | None
    """Of one call."""
    flops_per_s: float | None
    """Of all calls together, over their time; `mean_of_calls` weighs every call alike."""
    bytes_per_s: float | None
    mean_of_calls_flops_per_s: float | None
    mean_of_calls_bytes_per_s: float | None
    flops_per_byte: float | None
    bound: Bound | None
    roofline_ns: float | None
    """Least time of all calls together."""
    peak_flops_per_s: float | None
    of_peak_compute_ratio: float | None
    of_peak_bandwidth_ratio: float | None
    of_roofline_ratio: float | None
    reason: str | None
    """Why there are no figures."""

    @property
    def lost_ns(self) -> float | None:
        """Time above the roofline: what a perfect kernel would save."""
        if self.roofline_ns is None:
            return None
        return max(0.0, self.busy_ns - self.roofline_ns)

    @property
    def is_impossible(self) -> bool:
        """Whether it is faster than the device can be."""
        return self.of_roofline_ratio is not None and self.of_roofline_ratio > IMPOSSIBLE_RATIO


HOST_COPY = "copies between host and device are bound by the link between them"


def groups(account: Account, peaks: Peaks | None) -> list[Group]:
    """Every group but collectives, the one with the most time first."""
    found = [
        _group(account, rows, peaks)
        for rows in _rows_of_groups(account)
        if account.busy_ns[rows].any()
    ]
    return sorted(found, key=lambda group: (-group.busy_ns, group.signature.name))


def _rows_of_groups(account: Account) -> Iterator[Int]:
    """Calls apart that copy between host and device: with the same arguments, others do not."""
    shown = np.flatnonzero(~account.communication)
    if not len(shown):
        return
    key = account.signature[shown] * 2 + account.host_copy[shown]
    order = np.argsort(key, kind="stable")
    cuts = np.flatnonzero(np.diff(key[order])) + 1
    yield from np.split(shown[order], cuts)


def _group(account: Account, rows: Int, peaks: Peaks | None) -> Group:
    signature = account.signatures[int(account.signature[rows[0]])]
    moved = bool(account.host_copy[rows[0]]) and signature.family == "movement"
    work = None if moved else signature.work
    each = account.busy_ns[rows]
    busy, count = int(each.sum()), len(rows)
    precision = work.precision if work is not None else None
    if work is not None and work.matrix and precision == "fp32" and account.tf32[rows].any():
        precision = "tf32"
    rate = None
    if peaks is not None and work is not None and precision is not None:
        rate = peaks.rate(precision, matrix=work.matrix)
    flops = work.flops if work is not None else None
    moved_bytes = work.bytes if work is not None else None
    bandwidth = peaks.bytes_per_s if peaks is not None else None
    least = _least_ns(flops, moved_bytes, rate, bandwidth)
    seconds = busy / NS_PER_S
    per_s = (NS_PER_S / each[each > 0]).mean()
    return Group(
        signature=signature,
        call_count=count,
        busy_ns=busy,
        mean_ns=busy / count,
        p50_ns=float(np.median(each)),
        min_ns=int(each.min()),
        max_ns=int(each.max()),
        precision=precision,
        flops=flops,
        bytes=moved_bytes,
        flops_per_s=flops * count / seconds if flops is not None else None,
        bytes_per_s=moved_bytes * count / seconds if moved_bytes is not None else None,
        mean_of_calls_flops_per_s=float(flops * per_s) if flops is not None else None,
        mean_of_calls_bytes_per_s=float(moved_bytes * per_s) if moved_bytes is not None else None,
        flops_per_byte=flops / moved_bytes if flops is not None and moved_bytes else None,
        bound=least[0] if least else None,
        roofline_ns=least[1] * count if least else None,
        peak_flops_per_s=rate,
        of_peak_compute_ratio=flops * count / seconds / rate if flops and rate else None,
        of_peak_bandwidth_ratio=(
            moved_bytes * count / seconds / bandwidth
            if moved_bytes is not None and bandwidth
            else None
        ),
        of_roofline_ratio=least[1] * count / busy if least else None,
        reason=HOST_COPY if moved else signature.reason,
    )


def _least_ns(
    flops: int | None, moved: int | None, rate: float | None, bandwidth: float | None
) -> tuple[Bound, float] | None:
    """What bounds one call and its least time; None where half of the roofline is unknown.

    Work without arithmetic, or of unknown arithmetic, is bound by memory.
    """
    if moved is None or not bandwidth:
        return None
    memory = moved / bandwidth * NS_PER_S
    if not flops:
        return "memory", memory
    if not rate:
        return None
    compute = flops / rate * NS_PER_S
    return ("compute", compute) if compute >= memory else ("memory", memory)
