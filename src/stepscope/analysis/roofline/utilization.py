"""How much of the device's arithmetic each step used.

    share = FLOPs of matrix products in the step / (step time · peak · devices)

with the peak of the precision in which most of these FLOPs are. What is counted is what ran: work
that is done twice, such as activations recomputed in the backward pass and the scores that a
flash backward kernel makes again, counts twice. Without such work this is the model FLOPs
utilisation (MFU) of Chowdhery et al., PaLM, 2022; with it, the hardware's.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stepscope.analysis.roofline.accounting import Account, Signature
from stepscope.analysis.roofline.calls import Precision
from stepscope.analysis.roofline.groups import NS_PER_S
from stepscope.analysis.roofline.peaks import Peaks
from stepscope.analysis.trace_steps import TraceSteps
from stepscope.intervals import Int


@dataclass(frozen=True, slots=True, kw_only=True)
class StepUse:
    """One step."""

    name: str
    step_ns: int
    flops: int
    """Of matrix products that were called in it."""
    of_peak_ratio: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """The steps of a recording."""

    precision: Precision | None
    """In which most matrix FLOPs are; None when there are none."""
    peak_flops_per_s: float | None
    """Of that precision, of all devices together."""
    steps: list[StepUse]
    modelled_ratio: float | None
    """Share of the device time of matrix operators that has a model: below 1, FLOPs are a lower
    bound. None without matrix operators."""


def use_of_steps(
    account: Account, steps: TraceSteps, *, peaks: Peaks | None, device_count: int = 1
) -> Use:
    """The share of each step.

    Args:
        account: the calls of the recording.
        steps: a call belongs to the step in whose host range it was made; the step lasts until
            its device work is done.
        peaks: of one device.
        device_count: devices that ran kernels.
    """
    flops = np.array([_matrix_flops(each) for each in account.signatures], dtype=np.int64)
    precision = _dominating(account, flops)
    rate = peaks.rate(precision, matrix=True) if peaks is not None and precision else None
    total_rate = rate * device_count if rate is not None else None
    order = np.argsort(account.start_ns, kind="stable")
    called = account.start_ns[order]
    # Python's own integers: what a file claims may add up to more than 64 bits hold.
    done = np.append(0, np.cumsum(flops.astype(object)[account.signature][order]))
    counts = (
        done[np.searchsorted(called, steps.host.end)]
        - done[np.searchsorted(called, steps.host.start)]
    )
    found = []
    for name, step_ns, count in zip(
        steps.names, steps.wall_ns.tolist(), counts.tolist(), strict=True
    ):
        share = count / (step_ns / NS_PER_S * total_rate) if total_rate and step_ns > 0 else None
        found.append(StepUse(name=name, step_ns=step_ns, flops=count, of_peak_ratio=share))
    return Use(
        precision=precision,
        peak_flops_per_s=total_rate,
        steps=found,
        modelled_ratio=_modelled_ratio(account),
    )


def _matrix_flops(signature: Signature) -> int:
    work = signature.work
    return work.flops or 0 if work is not None and work.matrix else 0


def _modelled_ratio(account: Account) -> float | None:
    """Share of the time of matrix operators that has a model."""
    matrix = np.array([each.is_matrix for each in account.signatures], dtype=np.bool_)
    known = np.array([each.work is not None for each in account.signatures], dtype=np.bool_)
    total_ns = int(account.busy_ns[matrix[account.signature]].sum())
    known_ns = int(account.busy_ns[(matrix & known)[account.signature]].sum())
    return known_ns / total_ns if total_ns else None


def _dominating(account: Account, flops: Int) -> Precision | None:
    """The precision in which most matrix FLOPs are."""
    totals: dict[Precision, int] = {}
    in_tf32 = np.bincount(account.signature, weights=account.tf32, minlength=len(flops))
    calls = np.bincount(account.signature, minlength=len(flops))
    for place, each in enumerate(account.signatures):
        if each.work is None or not flops[place]:
            continue
        own: Precision = each.work.precision
        if own == "fp32" and in_tf32[place]:
            own = "tf32"
        totals[own] = totals.get(own, 0) + int(calls[place]) * int(flops[place])
    most = max(totals.values(), default=0)
    return next((own for own, count in totals.items() if count == most), None)
