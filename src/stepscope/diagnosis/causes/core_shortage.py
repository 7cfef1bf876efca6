"""Causes of a lack of cores: other processes, or the CPU quota of the job."""

from __future__ import annotations

from stepscope import quantities
from stepscope.diagnosis.causes.cause import CauseFinding, CauseInputs
from stepscope.diagnosis.verdict import Evidence, Stage
from stepscope.quantities import percent
from stepscope.run import Run

MIN_STOLEN_CORES = 0.05
"""Cores taken by a hypervisor are mentioned from this number on."""
MIN_ESTIMATED_RATIO = 0.02
"""A share of the step without a core that exceeds the measured one of the training thread by less
is not called an estimate."""


def find_core_shortage_cause(inputs: CauseInputs, cause: str, share: float) -> CauseFinding:
    """Describe a core shortage that costs the training thread a share of its time."""
    contention = inputs.run.contention
    assert contention is not None  # noqa: S101 - without contention there is no core shortage
    cores = inputs.run.cores_available or 0
    if cause == "cpu_limit":
        reason = Evidence(
            text=f"The CPU quota of the job ({quantities.number(cores)} cores) was exhausted for "
            f"{percent(contention.throttled_ratio)} of the time.",
            value=contention.throttled_ratio,
            unit="ratio",
            source="system",
        )
    else:
        reason = Evidence(
            text=describe_outside_load(inputs.run),
            value=contention.outside_cores,
            unit="count",
            source="system",
        )
    waits = inputs.split.core_waits
    own_share = waits.training_thread if waits.is_recorded else share
    text = f"The training thread was runnable without a core for {percent(own_share)} of the time."
    effects = [Evidence(text=text, value=own_share, unit="ratio", source="system")]
    detail = "main thread of the training process"
    if share >= own_share + MIN_ESTIMATED_RATIO:
        text = (
            f"An estimated {percent(share)} of step time is without a core, because the training "
            "thread also waits for the threads that share its operators, and for workers."
        )
        effects.append(Evidence(text=text, value=share, unit="ratio", source="system"))
        detail = "main thread, and what it waits for: an estimate"
    stage = Stage(name="runnable without a core", detail=detail, share_ratio=share)
    return CauseFinding(cause=cause, stages=[stage], evidence=[reason, *effects])


def describe_outside_load(run: Run) -> str:
    """Describe the cores that processes outside the job kept busy."""
    contention = run.contention
    assert contention is not None  # noqa: S101 - called only where contention was measured
    text = (
        f"Processes outside the job kept {quantities.number(contention.outside_cores, 2)} of "
        f"{quantities.number(run.cores_available or 0)} cores busy during training"
    )
    if contention.stolen_cores >= MIN_STOLEN_CORES:
        text += (
            f", {quantities.number(contention.stolen_cores, 2)} of them in other virtual machines"
        )
    return f"{text}."
