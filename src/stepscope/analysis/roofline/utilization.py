"""FLOPs utilization of each step: share of the device's arithmetic peak.

    share = FLOPs of matrix products in the step / (step time · peak · devices)

with the peak of the precision that has most of these FLOPs. Executed work counts: work done twice,
such as activations recomputed in the backward pass and the scores that a flash backward kernel
computes again, counts twice. Without such work this is the model FLOPs utilization (MFU) of
Chowdhery et al., PaLM, 2022 (https://arxiv.org/abs/2204.02311, appendix B); with it, the hardware
FLOPs utilization (HFU).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stepscope.analysis.roofline.accounting import Account, CallSignature
from stepscope.analysis.roofline.calls import Precision
from stepscope.analysis.roofline.groups import NS_PER_S
from stepscope.analysis.roofline.peaks import Peaks
from stepscope.analysis.trace_steps import TraceSteps
from stepscope.intervals import Int


@dataclass(frozen=True, slots=True, kw_only=True)
class StepFlopsUtilization:
    """FLOPs utilization of one step."""

    name: str
    step_ns: int
    flops: int
    """FLOPs of the matrix products that were called in the step."""
    of_peak_ratio: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FlopsUtilization:
    """FLOPs utilization of the steps of a trace."""

    precision: Precision | None
    """Precision with most matrix FLOPs; None without any."""
    peak_flops_per_s: float | None
    """Peak of all devices in that precision."""
    steps: list[StepFlopsUtilization]
    modelled_ratio: float | None
    """Share of the device time of matrix operators that has a model; below 1, FLOPs are a lower
    bound. None without matrix operators."""

    @property
    def mean_of_peak_ratio(self) -> float | None:
        """FLOPs of all steps divided by their time and the peak; None if either is unknown."""
        time_ns = sum(step.step_ns for step in self.steps)
        if not self.peak_flops_per_s or not time_ns:
            return None
        flops = sum(step.flops for step in self.steps)
        return flops / (time_ns / NS_PER_S * self.peak_flops_per_s)


def measure_step_utilization(
    account: Account, steps: TraceSteps, *, peaks: Peaks | None, device_count: int = 1
) -> FlopsUtilization:
    """Measure the FLOPs utilization of each step.

    Args:
        account: calls of the trace.
        steps: a call belongs to the step whose host range contains its start; the step extends to
            the end of its device work.
        peaks: peaks of one device.
        device_count: number of devices that ran kernels.
    """
    flops = np.array([_get_matrix_flops(s) for s in account.signatures], dtype=np.int64)
    precision = _find_main_precision(account, flops)
    rate = peaks.rate(precision, matrix=True) if peaks is not None and precision else None
    total_rate = rate * device_count if rate is not None else None
    order = np.argsort(account.start_ns, kind="stable")
    call_start = account.start_ns[order]
    # Python integers: sums of recorded values may exceed 64 bits.
    cumulative = np.append(0, np.cumsum(flops.astype(object)[account.signature][order]))
    step_flops = (
        cumulative[np.searchsorted(call_start, steps.host.end)]
        - cumulative[np.searchsorted(call_start, steps.host.start)]
    )
    utilizations = []
    for name, step_ns, count in zip(
        steps.names, steps.wall_ns.tolist(), step_flops.tolist(), strict=True
    ):
        share = count / (step_ns / NS_PER_S * total_rate) if total_rate and step_ns > 0 else None
        utilizations.append(
            StepFlopsUtilization(name=name, step_ns=step_ns, flops=count, of_peak_ratio=share)
        )
    return FlopsUtilization(
        precision=precision,
        peak_flops_per_s=total_rate,
        steps=utilizations,
        modelled_ratio=_measure_modelled_ratio(account),
    )


def _get_matrix_flops(signature: CallSignature) -> int:
    work = signature.work
    return work.flops or 0 if work is not None and work.matrix else 0


def _measure_modelled_ratio(account: Account) -> float | None:
    """Measure the share of the time of matrix operators that has a model."""
    is_matrix = np.array([s.is_matrix for s in account.signatures], dtype=np.bool_)
    has_work = np.array([s.work is not None for s in account.signatures], dtype=np.bool_)
    total_ns = int(account.busy_ns[is_matrix[account.signature]].sum())
    modelled_ns = int(account.busy_ns[(is_matrix & has_work)[account.signature]].sum())
    return modelled_ns / total_ns if total_ns else None


def _find_main_precision(account: Account, flops: Int) -> Precision | None:
    """Find the precision with most matrix FLOPs."""
    totals: dict[Precision, int] = {}
    tf32_calls = np.bincount(account.signature, weights=account.tf32, minlength=len(flops))
    calls = np.bincount(account.signature, minlength=len(flops))
    for index, signature in enumerate(account.signatures):
        if signature.work is None or not flops[index]:
            continue
        precision: Precision = signature.work.precision
        if precision == "fp32" and tf32_calls[index]:
            precision = "tf32"
        totals[precision] = totals.get(precision, 0) + int(calls[index]) * int(flops[index])
    maximum = max(totals.values(), default=0)
    return next((precision for precision, total in totals.items() if total == maximum), None)
