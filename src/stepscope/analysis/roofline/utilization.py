"""FLOPs utilization of each step: share of the device's arithmetic peak.

    share = FLOPs of matrix products in the step / (step time · peak · devices)

with the peak of the precision that has most of these FLOPs. Executed work counts: work done twice,
such as activations recomputed in the backward pass and the scores that a flash backward kernel
computes again, counts twice. Without such work this is the model FLOPs utilization (MFU) of
Chowdhery et al., PaLM, 2022 (https://arxiv.org/abs/2204.02311, appendix B); with it, the hardware
FLOPs utilization (HFU).
"""

from __future__ import annotations

from typing import Annotated

import msgspec
import numpy as np

from stepscope import intervals, quantities, schema
from stepscope.analysis.roofline.accounting import Account, CallSignature
from stepscope.analysis.roofline.calls import Precision
from stepscope.analysis.roofline.groups import NS_PER_S
from stepscope.analysis.roofline.peaks import Peaks
from stepscope.analysis.trace_steps.trace_steps import TraceSteps

MIN_MODELLED_RATIO = 0.5
"""Share of the time of matrix operators that must have a model for utilization to be shown."""


class StepUtilization(msgspec.Struct, frozen=True, kw_only=True):
    """FLOPs utilization of one step."""

    step: str
    step_ns: Annotated[int, schema.field_label("duration")]
    """Duration until its device work is done."""
    matrix_flop: Annotated[int | None, schema.field_label("matrix work")]
    mfu_ratio: Annotated[float | None, schema.field_label("utilization", display="bar")]
    """Null if most of the time of matrix operators has no model."""


class Utilization(msgspec.Struct, frozen=True, kw_only=True):
    """Model FLOPs utilization (MFU)."""

    share_of: str
    precision: Precision | None
    peak_flop_per_s: float | None
    mean_mfu_ratio: Annotated[float | None, schema.field_label("model FLOPs utilization")]
    """FLOPs of all steps divided by their time and the peak."""
    modelled_ratio: float | None
    """Share of the device time of matrix operators that has a model."""
    steps: list[StepUtilization]
    notes: list[str]


def measure_step_utilization(
    account: Account, steps: TraceSteps, *, peaks: Peaks | None, device_count: int = 1
) -> Utilization:
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
    modelled_ratio = _measure_modelled_ratio(account)
    is_known = modelled_ratio is not None and modelled_ratio >= MIN_MODELLED_RATIO

    def divide(count: int, time_ns: int) -> float | None:
        if not is_known or not total_rate or not time_ns:
            return None
        return count / (time_ns / NS_PER_S * total_rate)

    step_ns = steps.wall_ns.tolist()
    return Utilization(
        share_of=(
            "step time until its device work is done, times the peak of the precision with most "
            "matrix FLOPs, times the number of devices"
        ),
        precision=precision,
        peak_flop_per_s=total_rate,
        mean_mfu_ratio=divide(sum(step_flops.tolist()), sum(step_ns)),
        modelled_ratio=modelled_ratio,
        steps=[
            StepUtilization(
                step=name,
                step_ns=time_ns,
                matrix_flop=count if is_known else None,
                mfu_ratio=divide(count, time_ns),
            )
            for name, time_ns, count in zip(steps.names, step_ns, step_flops.tolist(), strict=True)
        ],
        notes=_note_utilization(modelled_ratio),
    )


def _note_utilization(modelled_ratio: float | None) -> list[str]:
    if modelled_ratio is None:
        return ["the trace has no matrix products, so there is no utilization"]
    unknown = (
        f"{quantities.percent(1 - modelled_ratio, 1)} of the time of matrix operators has no model"
    )
    if modelled_ratio < MIN_MODELLED_RATIO:
        return [f"{unknown}, so there is no utilization; --json has the reason for each group"]
    notes = [
        "work that ran twice counts twice: activations recomputed in the backward pass, and scores "
        "that the backward kernel of flash attention computes again"
    ]
    return [*notes, f"lower bound: {unknown}"] if modelled_ratio < 1 else notes


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


def _find_main_precision(account: Account, flops: intervals.Int) -> Precision | None:
    """Find the precision with most matrix FLOPs."""
    totals: dict[Precision, int] = {}
    tf32_calls = np.bincount(account.signature, weights=account.tf32, minlength=len(flops))
    calls = np.bincount(account.signature, minlength=len(flops))
    for index, signature in enumerate(account.signatures):
        if signature.work is None or not flops[index]:
            continue
        precision = signature.work.precision
        if precision is None:
            continue
        if precision == "fp32" and tf32_calls[index]:
            precision = "tf32"
        totals[precision] = totals.get(precision, 0) + int(calls[index]) * int(flops[index])
    maximum = max(totals.values(), default=0)
    return next((precision for precision, total in totals.items() if total == maximum), None)
