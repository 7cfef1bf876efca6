"""Calls with the same arguments, compared with the roofline of the device.

    roofline time = max(F / peak of the unit and precision, bytes / bandwidth)
    bound         = the larger of the two
    share of the roofline = roofline time / device time

The roofline model: Williams, Waterman, Patterson, 2009 (https://doi.org/10.1145/1498765.1498785).
A share of more than 1.1 is impossible: the data came from a cache, or the model, the peak or the
clock is wrong. Such groups are flagged, not dropped.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from stepscope.analysis.roofline.accounting import Account, CallSignature
from stepscope.analysis.roofline.calls import Precision
from stepscope.analysis.roofline.peaks import Peaks
from stepscope.intervals import Int

Bound = Literal["compute", "memory"]
IMPOSSIBLE_RATIO = 1.1
"""A share of the roofline above this is an anomaly."""
NS_PER_S = 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class CallGroup:
    """Calls of one operator with the same arguments.

    Times are device times, or host times in a trace without devices.
    """

    signature: CallSignature
    call_count: int
    busy_ns: int
    """Time of all calls."""
    mean_ns: float
    p50_ns: float
    min_ns: int
    max_ns: int
    precision: Precision | None
    """TF32 if FP32 operands were multiplied by TF32 kernels."""
    flops: int | None
    """Operations of one call."""
    bytes: int | None
    """Bytes of one call."""
    flops_per_s: float | None
    """Operations of all calls divided by their time; `mean_of_calls` is the unweighted mean of the
    rates of calls."""
    bytes_per_s: float | None
    mean_of_calls_flops_per_s: float | None
    mean_of_calls_bytes_per_s: float | None
    flops_per_byte: float | None
    bound: Bound | None
    roofline_ns: float | None
    """Minimum time of all calls together."""
    peak_flops_per_s: float | None
    of_peak_compute_ratio: float | None
    of_peak_bandwidth_ratio: float | None
    of_roofline_ratio: float | None
    reason: str | None
    """Reason for missing figures."""

    @property
    def lost_ns(self) -> float | None:
        """Time above the roofline: the saving of a perfect kernel."""
        if self.roofline_ns is None:
            return None
        return max(0.0, self.busy_ns - self.roofline_ns)

    @property
    def is_impossible(self) -> bool:
        """True if the calls appear faster than the device allows."""
        return self.of_roofline_ratio is not None and self.of_roofline_ratio > IMPOSSIBLE_RATIO


HOST_COPY_REASON = "copies between host and device are bound by the link between them"


def group_calls(account: Account, peaks: Peaks | None) -> list[CallGroup]:
    """Group all calls except collectives by their arguments, by descending time."""
    groups = [
        _measure_group(account, rows, peaks)
        for rows in _split_rows(account)
        if account.busy_ns[rows].any()
    ]
    return sorted(groups, key=lambda group: (-group.busy_ns, group.signature.name))


def _split_rows(account: Account) -> Iterator[Int]:
    """Split rows by signature, and those that copy between host and device from the others."""
    included = np.flatnonzero(~account.communication)
    if not len(included):
        return
    key = account.signature[included] * 2 + account.host_copy[included]
    order = np.argsort(key, kind="stable")
    cuts = np.flatnonzero(np.diff(key[order])) + 1
    yield from np.split(included[order], cuts)


def _measure_group(account: Account, rows: Int, peaks: Peaks | None) -> CallGroup:
    signature = account.signatures[int(account.signature[rows[0]])]
    is_host_copy = bool(account.host_copy[rows[0]]) and signature.family == "movement"
    work = None if is_host_copy else signature.work
    call_ns = account.busy_ns[rows]
    busy_ns, count = int(call_ns.sum()), len(rows)
    precision = work.precision if work is not None else None
    if work is not None and work.matrix and precision == "fp32" and account.tf32[rows].any():
        precision = "tf32"
    rate = None
    if peaks is not None and work is not None and precision is not None:
        rate = peaks.rate(precision, matrix=work.matrix)
    flops = work.flops if work is not None else None
    size_bytes = work.bytes if work is not None else None
    bandwidth = peaks.bytes_per_s if peaks is not None else None
    bound, roofline_ns = _compute_roofline(flops, size_bytes, rate, bandwidth)
    seconds = busy_ns / NS_PER_S
    calls_per_s = (NS_PER_S / call_ns[call_ns > 0]).mean()
    return CallGroup(
        signature=signature,
        call_count=count,
        busy_ns=busy_ns,
        mean_ns=busy_ns / count,
        p50_ns=float(np.median(call_ns)),
        min_ns=int(call_ns.min()),
        max_ns=int(call_ns.max()),
        precision=precision,
        flops=flops,
        bytes=size_bytes,
        flops_per_s=flops * count / seconds if flops is not None else None,
        bytes_per_s=size_bytes * count / seconds if size_bytes is not None else None,
        mean_of_calls_flops_per_s=float(flops * calls_per_s) if flops is not None else None,
        mean_of_calls_bytes_per_s=(
            float(size_bytes * calls_per_s) if size_bytes is not None else None
        ),
        flops_per_byte=flops / size_bytes if flops is not None and size_bytes else None,
        bound=bound,
        roofline_ns=roofline_ns * count if roofline_ns is not None else None,
        peak_flops_per_s=rate,
        of_peak_compute_ratio=flops * count / seconds / rate if flops and rate else None,
        of_peak_bandwidth_ratio=(
            size_bytes * count / seconds / bandwidth
            if size_bytes is not None and bandwidth
            else None
        ),
        of_roofline_ratio=roofline_ns * count / busy_ns if roofline_ns is not None else None,
        reason=HOST_COPY_REASON if is_host_copy else signature.reason,
    )


def _compute_roofline(
    flops: int | None, size_bytes: int | None, rate: float | None, bandwidth: float | None
) -> tuple[Bound | None, float | None]:
    """Compute the bound of one call and its roofline time; None if a needed peak is unknown.

    Work without arithmetic, or with unknown arithmetic, is bound by memory.
    """
    if size_bytes is None or not bandwidth:
        return None, None
    memory_ns = size_bytes / bandwidth * NS_PER_S
    if not flops:
        return "memory", memory_ns
    if not rate:
        return None, None
    compute_ns = flops / rate * NS_PER_S
    return ("compute", compute_ns) if compute_ns >= memory_ns else ("memory", memory_ns)
